"""A model for open sizes: a variant for each combination of sizes that is called; all variants share their weights."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from tir.arrays import host_array

from .arguments import given_in_order
from .growth import GrowingGraph
from .ir import GraphError
from .network import Network, Profile
from .sizes import OpenGraph
from .tables import ROOM, Planned, TableProgram, nearest

MAX_KEPT_VARIANTS = 64  # variants of sizes that were not named; the one made first is dropped first

Key = tuple[int, ...]


class Variants(Protocol):
    """The compilation of a network of open sizes at some of them (see `compilation`), or a file of what was compiled."""

    @property
    def programs(self) -> Sequence[TableProgram]: ...

    def model(self, graph: OpenGraph, row: Mapping[str, int], named: bool) -> Network: ...

    def read(self, graph: OpenGraph, row: Mapping[str, int]) -> Network: ...

    def save(self, model: OpenModel, path: Path, compiler: str | None) -> Path: ...

    def reduced(self, model: OpenModel) -> tuple[Any, ...]: ...


class OpenModel:
    """A network of open sizes that can be called. It has a `Model` for each combination of named sizes. The network for other
    sizes is made at their first call, by a plan for many sizes if one covers them. All share their constants.

    Any number of threads may call it at the same time.
    """

    def __init__(self, graph: OpenGraph, variants: Variants, named: list[dict[str, int]]):
        self.graph, self.name = graph, graph.name
        self._variants, self._lock = variants, Lock()
        self.named: dict[Key, Network] = {}
        self._others: OrderedDict[Key, Network] = OrderedDict()
        self._by_shapes: dict[tuple, Network] = {}  # of arrays in the order of the inputs, so that most calls look up one dict
        self._threads: int | None = None
        for sizes in named:
            self.named[self._key(sizes)] = variants.model(graph, sizes, True)

    def _key(self, sizes: Mapping[str, int]) -> Key:
        return tuple(sizes[name] for name in self.graph.sizes)

    def at(self, sizes: Mapping[str, int]) -> Any:
        """The `Model` for these sizes alone, made at the first call unless they were named. Raises as `OpenGraph.at` does."""
        return self._found(self._key(sizes) if sizes.keys() == set(self.graph.sizes) else (), sizes, alone=True)

    def _network(self, sizes: Mapping[str, int]) -> Network:
        return self._found(self._key(sizes), sizes, alone=False)

    def _found(self, key: Key, sizes: Mapping[str, int], alone: bool) -> Network:
        """The network for these sizes: a model if they were named or if it is to be for them `alone`, else one by a plan that
        covers them, else read anew."""
        if (model := self.named.get(key)) is not None:
            return model
        with self._lock:
            found = self._others.get(key)
            if found is None or (alone and isinstance(found, Planned)):
                if alone:
                    found = self._variants.model(self.graph, sizes, False)
                else:
                    found = nearest(self._variants.programs, sizes) or self._variants.read(self.graph, sizes)
                self._keep(key, found)
        return found

    def _keep(self, key: Key, network: Network) -> None:
        if self._threads is not None:
            network.threads = self._threads
        gone = [] if (old := self._others.pop(key, None)) is None else [old]
        self._others[key] = network
        while len(self._others) > MAX_KEPT_VARIANTS:
            gone.append(self._others.popitem(last=False)[1])
        for shapes in [s for s, m in list(self._by_shapes.items()) if any(m is n for n in gone)]:  # other threads add some
            del self._by_shapes[shapes]

    def _variant(self, inputs: tuple) -> tuple[Network, Sequence[Any], Callable[[list[Any]], list[Any]] | None]:
        """The network for the shapes of these inputs, and the inputs in order. Of caches that grow they are whole buffers, and a
        function gives outputs as views."""
        graph, given, shapes = self.graph, given_in_order(self.graph, inputs), []
        for value, a in zip(graph.inputs, given, strict=True):
            shape = getattr(a, "shape", None)
            if shape is None:
                found = host_array(a)
                if found is None:
                    raise GraphError(f"input `{value.name}` must be an array, got {type(a).__name__}")
                shape = found.array.shape
            shapes.append(tuple(map(int, shape)))
        sizes = graph.sizes_of(shapes)
        if isinstance(graph, GrowingGraph):
            whole, room = graph.buffers(given, sizes)
            return self._network(sizes | {ROOM: room}), whole, partial(graph.views, given, sizes)
        model = self._by_shapes[tuple(shapes)] = self._network(sizes)
        return model, given, None

    def __call__(self, *inputs, out: Any = None) -> list[Any]:
        """The outputs for inputs of any sizes; otherwise as `Model.__call__`."""
        try:
            model = self._by_shapes[tuple([a.shape for a in inputs])]
        except (AttributeError, KeyError, TypeError):
            model, given, views = self._variant(inputs)
            outputs = model(*given, out=out)
            return outputs if views is None else views(outputs)
        return model(*inputs, out=out)

    def bind(self, *inputs, outputs: Any = None) -> Callable[[], list[Any]]:
        """The call with these arrays as a function without arguments, as `Model.bind`."""
        model, given, views = self._variant(inputs)
        call = model.bind(*given, outputs=outputs)
        return call if views is None else lambda: views(list(call()))

    def profile(self, *inputs, runs: int = 10) -> Profile:
        """The profile of a call, as `Model.profile`."""
        model, given, _ = self._variant(inputs)
        return model.profile(*given, runs=runs)

    def save(self, path: str | Path, *, compiler: str | None = None) -> Path:
        """Write the models of named sizes and the plans for others to one file, as `Model.save`. What `tir.load` gives runs these
        sizes alone, as nothing is compiled there."""
        return self._variants.save(self, Path(path), compiler)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._variants.reduced(self)

    @property
    def models(self) -> list[Network]:
        """The networks of all sizes so far, those of named ones first."""
        return [*self.named.values(), *self._others.values()]

    @property
    def weights_nbytes(self) -> int:
        """The bytes of the constants of all models, each block once."""
        blocks = {id(block): block.nbytes for model in self.models for block in model.weights.values()}
        return sum(blocks.values())

    @property
    def threads(self) -> int | None:
        """The number of threads of each kernel, as `Model.threads`; None where it was not set, and is that of the target."""
        return self._threads

    @threads.setter
    def threads(self, number: int) -> None:
        with self._lock:
            for model in self.models:
                model.threads = number
            self._threads = number

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.graph.inputs))
        return f"<OpenModel {self.name}({inputs}) -> {', '.join(self.graph.outputs)}>"

    def __str__(self) -> str:
        """The inputs and outputs by name, the sizes that models are compiled for, and the memory of constants."""
        lines = [f"network {self.name} of open sizes", *(f"  input {v}" for v in self.graph.inputs)]
        lines += [f"  output {name}" for name in self.graph.outputs]
        rows = [", ".join(f"{k} = {n}" for k, n in zip(self.graph.sizes, key, strict=True)) for key in self.named]
        lines += [f"  compiled for {row}" for row in rows] + [f"  weights: {self.weights_nbytes:,} bytes"]
        return "\n".join(lines) + "\n"
