"""Checks of the kernels of a compiled network, one after the other, on the results of those before them. Each is compared with
its function in float64, within the rounding errors of its types, and the function with the calls that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from codegen.llvm.compile import Library
from codegen.runtime.memory import address, aligned_memory
from codegen.steps import Copy, Invoke, Place, Repeat, Step, invokes, resolved
from search.measure.error_analysis import NoBound
from search.measure.rounding import MAX_BOUND, Expected, Reference
from tir import dtypes
from tir.arrays import content, to_float
from tir.ir import PrimFunc

from .arguments import arranged
from .fusion import Group, fuse
from .ir import Graph, GraphError, Value
from .memory import ARENA, input_base, output_base
from .model import Model, kernel_label
from .passes.check import widened
from .prepare import elements
from .reference import evaluate


@dataclass(frozen=True)
class KernelCheck:
    """The largest error of a call of a kernel, as a part of its bound. `unchecked` is the reason where no bound is meaningful."""

    name: str
    error: float
    unchecked: str = ""


def check_kernels(
    graph: Graph, model: Model, inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray], observe: Callable[[KernelCheck], None]
) -> list[np.ndarray]:
    """The outputs of a model for `inputs`, computed kernel by kernel, each compared. `graph` is the compiled graph, after all
    passes (see `compilation.final`); `observe` gets each check.

    Raises GraphError that names the first wrong kernel, or a value that is overwritten before it is read.
    """
    memory = _Memory(graph, model, arranged(graph, inputs))
    references: dict[PrimFunc, Reference | str] = {}
    groups = fuse(graph)
    for number, run in memory.runs():
        group = groups[number]
        given = [memory.read(v) for v in group.inputs]
        outputs = [np.zeros(v.shape, dtypes.storage(v.dtype)) for v in group.outputs]
        run()
        found = [memory.written(v) for v in group.outputs]
        if group.func not in references:
            references[group.func] = _reference(group.func)
        observe(_compare(graph, group, references[group.func], given, outputs, found))
    return [memory.read(v, written=v not in graph.inputs) for v in graph.outputs]


def _reference(func: PrimFunc) -> Reference | str:
    try:
        return Reference(func)
    except NoBound as error:
        return str(error)


def _compare(
    graph: Graph,
    group: Group,
    reference: Reference | str,
    given: list[np.ndarray],
    outputs: list[np.ndarray],
    found: list[np.ndarray],
) -> KernelCheck:
    name = kernel_label(group.func)
    if isinstance(reference, str):
        return KernelCheck(name, 0.0, reference)
    expected = reference([*given, *outputs])
    part = graph.with_(inputs=group.inputs, calls=group.calls, outputs=group.outputs, constants={})
    meant = evaluate(*widened(part, given))
    worst, unchecked = 0.0, ""
    for n, (value, array, calls) in enumerate(zip(group.outputs, found, meant, strict=True), len(given)):
        wide = to_float(array, value.dtype) if dtypes.is_float(value.dtype) else array
        for what, result in (("kernel", wide), ("function", calls)):
            if wrong := np.argwhere(expected[n].wrong(result)).tolist():
                index = tuple(wrong[0])
                where = f"`{value.name}`[{', '.join(map(str, index))}]"
                made = f"{result[index]:.9g}" if what == "kernel" else f"{result[index]:.9g} by the calls that it stands for"
                count = f"{len(wrong)} of {wide.size} elements"
                error = f"{where} should be {expected[n].value[index]:.9g}, got {made} ({count})"
                raise GraphError(f"graph {graph.name}: the {what} {name} is wrong: {error}")
        if expected[n].loose:
            unchecked = f"rounding may change `{value.name}` by more than {MAX_BOUND} of its scale"
        worst = max(worst, _largest_error(expected[n], wide))
    return KernelCheck(name, worst, unchecked)


def _largest_error(expected: Expected, found: np.ndarray) -> float:
    """The largest error, as a part of its bound."""
    bounded = np.isfinite(expected.bound) & (expected.bound > 0)
    off = np.abs(found.astype("float64") - expected.value)[bounded] / expected.bound[bounded]
    return float(off.max(initial=0.0))


class _Memory:
    """The memory of a call of a model, and the expected elements of each value in it, as its kernel wrote them."""

    def __init__(self, graph: Graph, model: Model, inputs: Sequence[np.ndarray]):
        self._graph, self._plan, self._model = graph, model.plan, model
        self._steps: dict[str, int] = {}  # of the loops around the current kernel
        self.bases: dict[str, np.ndarray] = {**model.weights, ARENA: aligned_memory(model.plan.nbytes)}
        self.bases |= {input_base(n): content(a) for n, a in enumerate(inputs)}
        self.bases |= {output_base(n): aligned_memory(v.nbytes) for n, v in enumerate(graph.outputs)}
        self._kept = {v: content(a).copy() for v, a in zip(graph.inputs, inputs, strict=True)}

    def read(self, value: Value, written: bool = True) -> np.ndarray:
        """The elements of a value. Raises GraphError if they are overwritten; unless `written`, this is not checked."""
        place = self._plan.places[value]
        if (constant := self._graph.constants.get(place.root.name)) is not None:
            return elements(value, content(constant)[place.offset :])
        if place.root not in self._kept:  # what a loop reads or makes
            return elements(value, self._at(value).copy())
        wanted = self._kept[place.root][place.offset : place.offset + value.nbytes]
        if written and not np.array_equal(self._at(value), wanted):
            raise GraphError(f"graph {self._graph.name}: `{value.name}` is overwritten before it is read")
        return elements(value, wanted.copy())

    def written(self, value: Value) -> np.ndarray:
        """The elements of a value that a kernel has just computed."""
        place = self._plan.places[value]
        kept = self._kept.setdefault(place.root, np.zeros(place.root.nbytes, np.uint8))
        kept[place.offset : place.offset + value.nbytes] = self._at(value)
        return elements(value, self._at(value).copy())

    def _at(self, value: Value) -> np.ndarray:
        return self._bytes_at(self._plan[value], value.nbytes)

    def _bytes_at(self, place: Place, nbytes: int) -> np.ndarray:
        at = resolved(place, self._steps)
        return self.bases[at.base].reshape(-1).view(np.uint8)[at.offset : at.offset + nbytes]

    def runs(self) -> Iterator[tuple[int, Callable[[], None]]]:
        """The calls of kernels in the order in which they run, each with the number of its group. Copies are made."""
        codes = self._model.codes
        library = Library([*codes.values()], [*codes], self._model.target)
        numbers = {id(step): n for n, step in enumerate(invokes(self._model.steps))}

        def run(step: Invoke) -> None:
            places = [resolved(a, self._steps) for a in step.arguments]
            given = [*(address(self.bases[a.base]) + a.offset for a in places), *step.sizes]
            if library.function(step.symbol, len(given))(*given):
                raise MemoryError(f"{self._graph.name}: no memory for the temporaries of its kernels")

        def ordered(steps: Sequence[Step]) -> Iterator[tuple[int, Callable[[], None]]]:
            for step in steps:
                match step:
                    case Invoke():
                        yield numbers[id(step)], partial(run, step)
                    case Copy(target, source, nbytes):
                        self._bytes_at(target, nbytes)[:] = self._bytes_at(source, nbytes)
                    case Repeat(loop, count, going, inner, after):
                        most = count if isinstance(count, int) else int(self._bytes_at(count, 8).view(np.int64)[0])
                        self._steps[loop] = 0
                        while self._steps[loop] < most and (going is None or self._bytes_at(going, 1)[0]):
                            yield from ordered(inner)
                            self._steps[loop] += 1
                        yield from ordered(after)

        yield from ordered(self._model.steps)
