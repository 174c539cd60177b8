"""The single operators and subgraphs of the Ansor paper (OSDI 2020, appendix C), and a draw of ten of them.

    CASES["c2d-3"]        the third shape of the convolution of images, one image; "c2d-3-b16" of sixteen

Where the paper and the code that its results come from disagree, the code's shape is meant. The names of the operators are the
paper's: C1D, C2D and C3D are convolutions, GMM matrix products, GRP and DIL convolutions in groups and dilated, DEP depthwise,
T2D transposed, CAP of capsules, NRM norms; ConvLayer is a convolution with batch normalisation and relu, TBS transposes, a batch
of matrix products and softmax.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from tir import workloads

IMAGES = (1, 16)  # at once

SEED = 0  # of the draw
DRAWN = 10  # operators
TWICE = 2  # how often an operator may be drawn
FLOP = 4 << 30  # of a call, at most: of more than that a search in five minutes would measure but a few candidates


class Case(NamedTuple):
    """A workload at a shape, under the paper's name of its operator."""

    operator: str
    program: str
    shape: tuple[int, ...]


_CONV2D = ((224, 224, 3, 64, 7, 2, 3), (56, 56, 64, 64, 1, 1, 0), (14, 14, 256, 256, 3, 1, 1), (7, 7, 512, 512, 3, 1, 1))

# Of each operator the workload, its shapes without the number of images, and what comes after them.
OPERATORS: dict[str, tuple[str, tuple[tuple[int, ...], ...], tuple[int, ...]]] = {
    "c1d": (
        "conv1d",
        ((256, 64, 128, 3, 2, 1), (128, 128, 256, 1, 2, 0), (64, 256, 256, 5, 1, 2), (32, 512, 512, 3, 1, 1)),
        (),
    ),
    "c2d": ("conv2d_nhwc", _CONV2D, ()),
    "c3d": ("conv3d", tuple((16, *shape) for shape in _CONV2D), ()),
    "gmm": ("gmm", ((128, 128, 128), (512, 32, 512), (512, 512, 512), (1024, 1024, 1024)), ()),
    "grp": ("conv2d_nhwc", ((56, 56, 64, 128, 3, 2, 1), *_CONV2D[1:]), (1, 4)),
    "dil": ("conv2d_nhwc", _CONV2D, (2,)),
    "dep": (
        "depthwise_nhwc",
        ((112, 112, 32, 3, 1, 1), (112, 112, 64, 3, 2, 1), (14, 14, 512, 3, 2, 1), (7, 7, 1024, 3, 1, 1)),
        (),
    ),
    "t2d": (
        "conv2d_transpose",
        ((4, 4, 512, 256, 4, 2, 1), (8, 8, 256, 128, 4, 2, 1), (16, 16, 128, 64, 4, 2, 1), (32, 32, 64, 3, 4, 2, 1)),
        (),
    ),
    "cap": (
        "capsule",
        ((16, 16, 32, 32, 3, 2, 1), (8, 8, 32, 32, 3, 1, 1), (16, 16, 8, 16, 3, 2, 1), (8, 8, 16, 16, 3, 1, 1)),
        (),
    ),
    "nrm": ("norm", ((256, 256), (512, 512), (1024, 1024), (4096, 1024)), ()),
    "convlayer": (
        "conv_bn_relu",
        ((224, 224, 3, 64, 7, 2, 3), (56, 56, 64, 128, 3, 2, 1), (28, 28, 128, 256, 1, 2, 0), (7, 7, 512, 512, 3, 1, 1)),
        (),
    ),
    "tbs": ("attention_weights", ((128, 12, 64), (128, 16, 64), (64, 12, 128), (128, 12, 128)), ()),
}

SUBGRAPHS = ("convlayer", "tbs")


def _cases() -> dict[str, Case]:
    found = {}
    for operator, (program, shapes, more) in OPERATORS.items():
        for n, shape in enumerate(shapes, 1):
            for images in IMAGES:
                sizes = (*shape, images) if program == "gmm" else (images, *shape, *more)
                found[f"{operator}-{n}{'' if images == 1 else f'-b{images}'}"] = Case(operator, program, sizes)
    return found


CASES = _cases()


def draw(seed: int, count: int = DRAWN) -> tuple[str, ...]:
    """The names of so many single operators of at most FLOP operations, drawn without replacement, none more than TWICE."""
    flop = {name: workloads.get(c.program).flop(*c.shape) for name, c in CASES.items() if c.operator not in SUBGRAPHS}
    small = [name for name, n in flop.items() if n <= FLOP]
    taken: Counter[str] = Counter()
    found = []
    for name in np.random.default_rng(seed).permutation(small).tolist():
        if len(found) < count and taken[CASES[name].operator] < TWICE:
            taken[CASES[name].operator] += 1
            found.append(name)
    return tuple(name for name in CASES if name in found)
