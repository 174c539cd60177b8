"""Networks of open sizes: graphs whose inputs have named sizes that are not yet known."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from .ir import Graph, GraphError
from .text import name_text

Dimension = int | str  # the length of a dimension, the name of its size, or a sum of names and lengths, as "past + new"


def terms(dimension: Dimension) -> list[str]:
    """The names and lengths of a sum."""
    return [term.strip() for term in str(dimension).split("+")]


def length(dimension: Dimension, sizes: Mapping[str, int]) -> int:
    """The length of a dimension at these sizes. Raises KeyError for an unknown one."""
    known = sizes.get(str(dimension))
    return known if known is not None else sum(int(t) if t.isdigit() else sizes[t] for t in terms(dimension))


@dataclass(frozen=True, slots=True)
class OpenInput:
    """An input of a network: its name, its shape, in which an open size has a name, and its element type."""

    name: str
    shape: tuple[Dimension, ...]
    dtype: str

    @property
    def known(self) -> tuple[int, ...]:
        """The shape, of which no size is open."""
        assert all(isinstance(d, int) for d in self.shape), self
        return self.shape  # type: ignore[return-value]

    def fits(self, shape: Sequence[int]) -> bool:
        """True for a shape of this rank and these known extents."""
        return len(shape) == len(self.shape) and all(isinstance(d, str) or d == n for d, n in zip(self.shape, shape, strict=True))

    def __str__(self) -> str:
        return f"{name_text(self.name)}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, eq=False)
class OpenGraph:
    """A network whose inputs have open sizes. `outputs` are names; `read` gives the graph for a shape of each input, by name."""

    name: str
    inputs: tuple[OpenInput, ...]
    outputs: tuple[str, ...]
    read: Callable[[dict[str, Sequence[int]]], Graph]

    free = frozenset[str]()  # sizes that are the length of no loop, so that 1 is one like any other

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names of all open sizes."""
        return self.named

    @cached_property
    def named(self) -> tuple[str, ...]:
        """The names of the open sizes of inputs in their order, without the sums of others."""
        named = dict.fromkeys(d for v in self.inputs for d in v.shape if isinstance(d, str))
        return tuple(d for d in named if len(terms(d)) == 1 or not all(t.isdigit() or t in named for t in terms(d)))

    def at(self, sizes: Mapping[str, int]) -> Graph:
        """The graph for these sizes. Raises GraphError for a size that is missing, unknown or negative, and as `read` does."""
        if sizes.keys() != set(self.sizes):
            raise GraphError(f"{self.name}: the sizes are {', '.join(self.sizes)}; got {', '.join(map(str, sizes)) or 'none'}")
        if wrong := next((f"{k} = {n!r}" for k, n in sizes.items() if not isinstance(n, int) or n < 0), None):
            raise GraphError(f"{self.name}: a size must be an int of at least 0, got {wrong}")
        return self.read({v.name: tuple(length(d, sizes) for d in v.shape) for v in self.inputs})

    def sampled(self, row: Mapping[str, int], number: int) -> dict[str, int]:
        """The sizes of a sample, the `number` of which tells it from others."""
        return dict(row)

    def sizes_of(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """The sizes of inputs of these shapes. Raises GraphError where a shape does not fit, or two say different sizes."""
        found: dict[str, tuple[int, str]] = {}
        for v, shape in zip(self.inputs, shapes, strict=True):
            if not v.fits(shape):
                wanted = f"[{', '.join(map(str, v.shape))}]"
                raise GraphError(f"input `{v.name}` must have shape {wanted}, got {list(shape)}")
            for d, n in zip(v.shape, shape, strict=True):
                if isinstance(d, str) and found.setdefault(d, (n, v.name))[0] != n:
                    other, where = found[d]
                    raise GraphError(f"the size `{d}` is {other} in the input `{where}`, but {n} in `{v.name}`")
        sizes = {name: found[name][0] for name in self.named}
        for name, (n, where) in found.items():
            if (total := length(name, sizes)) != n:
                raise GraphError(f"the size `{name}` must be {total}, got {n} in the input `{where}`")
        return sizes

    def __str__(self) -> str:
        """The inputs and the outputs by name."""
        lines = [f"graph {name_text(self.name)} of open sizes {', '.join(self.sizes)}", *(f"    input {v}" for v in self.inputs)]
        return "\n".join([*lines, f"    output {', '.join(map(name_text, self.outputs))}"])

    def show(self) -> None:
        """Print the inputs and the outputs."""
        print(self)

    def __repr__(self) -> str:
        return f"<OpenGraph {self.name}({', '.join(map(str, self.inputs))}) -> {', '.join(self.outputs)}>"


def with_sizes(
    file: str, found: Sequence[OpenInput], given: Mapping[str, Sequence[int] | int | str], kind: str = "file"
) -> tuple[OpenInput, ...]:
    """Inputs with the sizes that `given` says: shapes by the names of inputs, and sizes by theirs, as numbers or sums of others.
    Raises GraphError for a shape that contradicts the stated one, and for a name of no input or size."""
    sums = {name: text for name, text in given.items() if isinstance(text, str)}
    names = {d for v in found for d in v.shape if isinstance(d, str)}
    if wrong := [n for n, text in sums.items() if not all(t.isdigit() or t in names - sums.keys() for t in terms(text))]:
        raise GraphError(f"{file}: the size `{wrong[0]}` is the sum {sums[wrong[0]]!r}; the sizes are {', '.join(sorted(names))}")
    found = [replace(v, shape=tuple(sums.get(str(d), d) for d in v.shape)) for v in found]
    given = {name: n for name, n in given.items() if not isinstance(n, str)} | {n: () for n in sums if n not in names}
    tensors = {v.name for v in found}
    for v in found:
        own = given.get(v.name)
        if isinstance(own, Sequence) and not v.fits(own):
            text = f"[{', '.join(map(str, v.shape))}]"
            raise GraphError(f"{file}: the shape {list(own)} for the input `{v.name}` contradicts the {kind}: {text}")
    numbers = {name: (n,) if isinstance(n, int) else tuple(n) for name, n in given.items() if name not in tensors}
    sizes: dict[str, tuple[int, str]] = {name: (n[0], "shapes") for name, n in numbers.items() if len(n) == 1}
    for v in found:
        shape = given.get(v.name)
        for d, n in zip(v.shape, shape if isinstance(shape, Sequence) else (), strict=False):
            if isinstance(d, str) and sizes.setdefault(d, (n, v.name))[0] != n:
                other, where = sizes[d]
                raise GraphError(f"{file}: the size `{d}` is {other} in the input `{where}`, but {n} in `{v.name}`")
    names = tensors | {d for v in found for d in v.shape if isinstance(d, str)}
    if several := next((name for name, n in numbers.items() if name in names and len(n) != 1), None):
        raise GraphError(f"{file}: the size `{several}` is one number, got {list(numbers[several])}")
    if unknown := [name for name in given if name not in names]:
        inputs = ", ".join(v.name for v in found) or "none"
        raise GraphError(f"{file}: shapes names `{unknown[0]}`; the inputs are {inputs}{_open(names - tensors)}")
    known = {name: n for name, (n, _) in sizes.items()}
    return tuple(replace(v, shape=tuple(_fixed(d, known) for d in v.shape)) for v in found)


def _fixed(dimension: Dimension, known: Mapping[str, int]) -> Dimension:
    """A dimension with numbers in place of known sizes."""
    parts = [str(known.get(term, term)) for term in terms(dimension)]
    fixed = sum(map(int, parts)) if all(map(str.isdigit, parts)) else " + ".join(parts)
    return known.get(str(dimension), fixed if parts != terms(dimension) else dimension)


def _open(sizes: Collection[str]) -> str:
    return f", open sizes {', '.join(sorted(sizes))}" if sizes else ""
