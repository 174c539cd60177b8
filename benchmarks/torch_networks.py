"""Networks in torch, with random weights under which every layer matters, exported to ONNX in three ways:

    python -m benchmarks.torch_networks DIR [NETWORK[.EXPORT] ...]

writes `NETWORK.EXPORT.onnx` for each of EXPORTS, and `NETWORK.npz` with inputs and the outputs for them in float64. It needs the
extra `networks`: torch, torchvision, transformers, onnxscript.

Weights are scaled by their fan-in, so that activations neither vanish nor grow; scales and shifts of norms are random; the
statistics of batch norms are those of activations for random inputs.
"""

from __future__ import annotations

import gc
import math
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from .open_networks import AXES

Tensors = tuple[torch.Tensor, ...]
Network = Callable[[], tuple[nn.Module, Tensors]]  # the module and inputs for it

SEED = 0
EXPORTS = ("folded", "unfolded", "torchscript")
# Examples of which batch norms take the statistics, the inputs among them: a feature that all positions share is at most 2.6, the
# root of 7. Statistics of two examples, each normalised alone, let the root mean square in levit_128s grow from 1 to 85.
CALIBRATION = 8
VOCABULARY = 30522  # tokens of BERT; those of random inputs are below it for all networks


@cache
def _torchvision() -> Any:
    """torchvision, also where its compiled operators do not load: the networks here use none of them."""
    global _library
    try:
        import torchvision
    except RuntimeError:  # it describes operators that are not there
        _library = torch.library.Library("torchvision", "FRAGMENT")
        for operator in ("nms", "qnms"):
            _library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision
    return torchvision


_library: Any = None  # kept alive: what it defines ends with it


def _transformers() -> Any:
    """transformers, which loads torchvision where that is installed."""
    if find_spec("torchvision") is not None:
        _torchvision()
    import transformers

    return transformers


def _image(name: str, *size: int, **options: Any) -> Network:
    """A network of torchvision's, for one input of `size` after the batch."""

    def make() -> tuple[nn.Module, Tensors]:
        models = _torchvision().models
        module = getattr(models.video if name == "r3d_18" else models, name)(weights=None, **options)
        return module, (torch.randn(1, *size),)

    return make


class _Twice(nn.Sequential):
    """Two convolutions 3×3 with batch norms."""

    def __init__(self, before: int, after: int):
        layers = [(nn.Conv2d(c, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()) for c in (before, after)]
        super().__init__(*(layer for three in layers for layer in three))


class UNet(nn.Module):
    """U-Net (Ronneberger et al., 2015) with padding and batch norms: `depth` halvings, `width` channels at the top."""

    def __init__(self, width: int = 32, depth: int = 4):
        super().__init__()
        widths = [width << n for n in range(depth + 1)]
        pairs = list(pairwise(widths))
        self.first = _Twice(3, width)
        self.down = nn.ModuleList(_Twice(a, b) for a, b in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in reversed(pairs))
        self.joined = nn.ModuleList(_Twice(2 * a, a) for a, _ in reversed(pairs))
        self.last = nn.Conv2d(width, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = [self.first(x)]
        for down in self.down:
            kept.append(down(nn.functional.max_pool2d(kept[-1], 2)))
        x = kept.pop()
        for up, joined in zip(self.up, self.joined, strict=True):
            x = joined(torch.cat([up(x), kept.pop()], 1))
        return self.last(x)


def _dcgan() -> tuple[nn.Module, Tensors]:
    """The generator of DCGAN (Radford et al., 2015) for images of 64²."""
    widths = [100, 512, 256, 128, 64]
    layers: list[nn.Module] = []
    for n, (a, b) in enumerate(pairwise(widths)):
        stride, padding = (2, 1) if n else (1, 0)
        layers += [nn.ConvTranspose2d(a, b, 4, stride, padding, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
    layers += [nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False), nn.Tanh()]
    return nn.Sequential(*layers), (torch.randn(1, 100, 1, 1),)


class Recurrent(nn.Module):
    """Two layers of LSTM, and a linear one at each step."""

    def __init__(self, width: int = 512, outputs: int = 1000):
        super().__init__()
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0])


class Bert(nn.Module):
    """BERT-base, or one of other sizes: the last hidden states and the pooled one."""

    def __init__(self, **sizes: int) -> None:
        super().__init__()
        transformers = _transformers()
        self.model = transformers.BertModel(transformers.BertConfig(**sizes))

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Tensors:
        found = self.model(input_ids=input_ids, attention_mask=attention_mask)
        return found.last_hidden_state, found.pooler_output


def _bert(**sizes: int) -> Network:
    def make() -> tuple[nn.Module, Tensors]:
        mask = torch.ones(1, 128, dtype=torch.int64)
        mask[:, 120:] = 0
        return Bert(**sizes), (_tokens(128), mask)

    return make


class Gpt2(nn.Module):
    """GPT-2, the small one: logits of all tokens given, and keys and values of all layers, those of the past included."""

    def __init__(self) -> None:
        super().__init__()
        transformers = _transformers()
        self.model = transformers.GPT2LMHeadModel(transformers.GPT2Config())

    def forward(self, input_ids: torch.Tensor, *past: torch.Tensor) -> Tensors:
        kept = _transformers().DynamicCache()
        for n, (keys, values) in enumerate(zip(past[::2], past[1::2], strict=True)):
            kept.update(keys, values, n)
        found = self.model(input_ids=input_ids, past_key_values=kept, use_cache=True)
        return found.logits, *(x for layer in found.past_key_values.layers for x in (layer.keys, layer.values))


def _gpt2(tokens: int, past: int) -> Network:
    def make() -> tuple[nn.Module, Tensors]:
        kept = [torch.randn(1, 12, past, 64) for _ in range(24 if past else 0)]
        return Gpt2(), (_tokens(tokens), *kept)

    return make


def _tokens(count: int) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (1, count))


NETWORKS: dict[str, Network] = {
    "resnet18": _image("resnet18", 3, 224, 224),
    "resnet50": _image("resnet50", 3, 224, 224),
    "mobilenet_v2": _image("mobilenet_v2", 3, 224, 224),
    "vit_b_16": _image("vit_b_16", 3, 224, 224),
    "mobilenet_v3_large": _image("mobilenet_v3_large", 3, 224, 224),
    "efficientnet_b0": _image("efficientnet_b0", 3, 224, 224),
    "shufflenet_v2": _image("shufflenet_v2_x1_0", 3, 224, 224),
    "squeezenet1_1": _image("squeezenet1_1", 3, 224, 224),
    "densenet121": _image("densenet121", 3, 224, 224),
    "inception_v3": _image("inception_v3", 3, 299, 299, aux_logits=True, init_weights=False),
    "unet": lambda: (UNet(), (torch.randn(1, 3, 256, 256),)),
    "dcgan": _dcgan,
    "lstm": lambda: (Recurrent(), (torch.randn(1, 32, 512),)),
    "bert": _bert(),
    "gpt2_prefill": _gpt2(64, 0),
    "gpt2_decode": _gpt2(1, 64),
    "r3d_18": _image("r3d_18", 3, 16, 112, 112),
}

SMALL = {"num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048}  # BERT-small
# Networks that are exported with open sizes alone, as `NETWORK.open.onnx`.
OPEN_ALONE: dict[str, Network] = {"bert_small": _bert(**SMALL)}
OPEN_BATCH = 3  # of the inputs by which open sizes are exported: torch takes 1 for an extent of the network


def build(name: str) -> tuple[nn.Module, Tensors]:
    """A network of NETWORKS or OPEN_ALONE and inputs for it, the same at each call."""
    torch.manual_seed(SEED)
    module, inputs = (NETWORKS | OPEN_ALONE)[name]()
    module.eval()
    with torch.no_grad():
        for parameter in module.parameters():
            _draw(parameter)
        for layer in module.modules():
            if isinstance(layer, (nn.modules.batchnorm._BatchNorm, nn.LayerNorm)) and layer.weight is not None:
                layer.weight.uniform_(0.5, 1.5)
        _calibrate(module, inputs)
    return module, inputs


def _draw(parameter: torch.Tensor) -> None:
    """Variance 2 / fan-in for kernels of convolutions, which a ReLU follows, 1 / fan-in for matrices; the rest is small."""
    if parameter.dim() < 2:
        parameter.normal_(0, 0.1)
        return
    gain = 2 if parameter.dim() > 2 and math.prod(parameter.shape[:1]) > 1 else 1
    parameter.normal_(0, math.sqrt(gain / math.prod(parameter.shape[1:])))


def _calibrate(module: nn.Module, inputs: Tensors) -> None:
    """Give batch norms in inference the statistics of what reaches them, for the inputs and random ones."""

    def take(norm: nn.Module, given: Tensors) -> None:
        along = [axis for axis in range(given[0].dim()) if axis != 1]
        norm.running_mean.copy_(given[0].mean(along))
        norm.running_var.copy_(given[0].var(along, correction=0))

    norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    hooks = [norm.register_forward_pre_hook(take) for norm in norms]
    if hooks:
        module(*(torch.cat([x[:1], torch.randn(CALIBRATION - 1, *x.shape[1:])]) for x in inputs))
    for hook in hooks:
        hook.remove()


def reference(module: nn.Module, inputs: Tensors) -> list[np.ndarray]:
    """The outputs in float64. The module is changed to it."""
    with torch.no_grad():
        found = module.double()(*(x.double() if x.is_floating_point() else x for x in inputs))
    return [x.numpy() for x in (found if isinstance(found, (tuple, list)) else (found,))]


def export(name: str, folder: Path, kinds: Sequence[str] = EXPORTS) -> dict[str, str]:
    """Write the files of a network that are not there yet; the exports that failed, each with the reason."""
    missing = [kind for kind in kinds if not path(folder, name, kind).exists()]
    kept = folder / f"{name}.npz"
    if not missing and kept.exists():
        return {}
    module, inputs = build(name)
    failed = {}
    for kind in missing:
        try:
            _export(module, inputs, path(folder, name, kind), kind)
        except Exception as error:  # of whatever kind: torch's own, and those of what it calls
            failed[kind] = f"{type(error).__name__}: {error}"
        gc.collect()
    arrays = {f"input_{n}": x.numpy() for n, x in enumerate(inputs)}
    arrays |= {f"output_{n}": x for n, x in enumerate(reference(module, inputs))}
    np.savez(kept, **arrays)
    return failed


def path(folder: Path, name: str, kind: str) -> Path:
    """The file of an export."""
    return folder / f"{name}.{kind}.onnx"


def _export(module: nn.Module, inputs: Tensors, file: Path, kind: str) -> None:
    """Write one export; a file that was begun is removed where it fails. What torch prints goes to standard error."""
    how: dict[str, Any] = {"dynamo": kind != "torchscript"}
    if how["dynamo"]:
        how |= {"optimize": kind != "unfolded", "verbose": False}
    if kind == "open":
        how["dynamic_shapes"] = AXES[file.name.split(".")[0]]
        inputs = tuple(x.repeat(OPEN_BATCH, *[1] * (x.dim() - 1)) for x in inputs)
    torch.backends.mha.set_fastpath_enabled(False)  # it ends in operators that ONNX does not have
    with warnings.catch_warnings(), torch.no_grad(), redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(module, inputs, file, **how)
        except BaseException:
            file.unlink(missing_ok=True)
            raise


def main(arguments: Sequence[str]) -> int:
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    status = 0
    for argument in arguments[1:] or NETWORKS:
        name, _, kind = argument.partition(".")
        kinds = (kind,) if kind else EXPORTS
        failed = export(name, folder, kinds)
        print(f"{name}: {', '.join(kind for kind in kinds if kind not in failed)}", flush=True)
        for kind, reason in failed.items():
            status = 1
            print(f"{name} {kind}: {reason}", file=sys.stderr, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
