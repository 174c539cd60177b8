"""Fusion: the groups of calls that become one kernel each.

Calls are grouped along post-dominators: the first call that all paths from a value lead to (Chen et al., TVM, OSDI 2018, section
3; Roesch et al., Relay, arXiv 1904.08368, section 4). A call takes along all calls on these paths, if each computes an element
from those at its own place alone. A group has one call that does more, its anchor. Anchors take calls along in the order of
their work, the most first: an epilogue is the smaller part of a longer kernel.

A product takes in a move of its rows, and writes them to their new place. Two products with a call by rows between them, such as
softmax, become one group: the template `attention` computes the rows tile by tile. Then a group takes in producers where nothing
is computed twice: a call whose elements it needs once each, or one that only moves elements. A product takes in parts and
transposes of its operands, which it packs anyway. A call that only moves elements goes into each group that reads it. `kinds`
reads the kind of a call from the loop nest of its definition.

A group becomes one function whose names depend on its operators, types and wiring alone. So equal groups are equal functions: one
kernel, one task of the search.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from tir import te
from tir.ir import PrimFunc

from .ir import Call, Graph, Value
from .kinds import elementwise_inputs, is_product, left_operand, moves, moves_rows, picks, pointwise, read_once, rows_from, work
from .loops import loops_of
from .ops import definition, function_name, placeholder, tensors
from .places import places

MAX_KNOWN_GROUPS = 1024  # groups whose functions are kept; a network has some dozen different ones at each of its sizes
MAX_NAME_LETTERS = 200  # of a group's name: its kernel's name, which is a little longer, must do as the name of a file


@dataclass(frozen=True, eq=False)
class Group:
    """Calls that become one kernel, `func` of these inputs and outputs, in order. Once constants are prepared, inputs are those
    of the kernel's main part, and `scratch` is the memory that it takes after the outputs."""

    calls: tuple[Call, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    func: PrimFunc
    scratch: tuple[Value, ...] = ()


def fuse(graph: Graph, halves: bool = False) -> list[Group]:
    """The groups of all calls that need a kernel, in an order in which they can run. Calls of loops must be `ordered`.

    With `halves`, products whose results are rounded are joined by rows, too: on a GPU, where their scores stay in registers.
    """
    where = places(graph)
    fusion = _Fusion(graph, where.free, halves)
    for n in fusion.seeds():
        fusion.take_along(n)
    for n in fusion.kernels:
        fusion.join_products(n)
    for n in reversed(fusion.kernels):
        fusion.take_in(n)
    constant = {v for c in graph.calls for v in c.values if where[v].root.name in graph.constants}
    return [group_of([graph.calls[n] for n in sorted(members)], constant) for members in fusion.groups()]


class _Fusion:
    """The groups of a graph as they grow. Calls are named by their positions; the position after the last reads the outputs."""

    def __init__(self, graph: Graph, free: Collection[Value], halves: bool):
        self.calls, self.halves = graph.calls, halves
        self.maker = {v: n for n, c in enumerate(graph.calls) for v in c.outputs}
        self.free = {n for n, c in enumerate(graph.calls) if c.outputs[0] in free}  # calls that need no kernel
        self.kernels = [n for n, c in enumerate(graph.calls) if n not in self.free or self._continues(c)]
        self.readers: list[list[int]] = [[] for _ in graph.calls]
        end = len(graph.calls)
        read_last = (*graph.outputs, *graph.apart)
        loops = [(self.maker[loop.begin.outputs[0]], loop.values) for loop in loops_of(graph)]
        for position, values in [*((n, c.values) for n, c in enumerate(graph.calls)), (end, read_last)]:
            inside = [(begin, own) for begin, own in loops if position < end and graph.calls[position].outputs[0] in own]
            for v in (v for v in values if v in self.maker):
                # Steps of loops read what is made before them by way of the beginning, so that no step makes it anew.
                reader = next((begin for begin, own in inside if v not in own), position)
                if reader not in self.readers[self.maker[v]]:
                    self.readers[self.maker[v]].append(reader)
        self.dominators = post_dominators(self.readers)
        single = set(self.kernels)
        self.pointwise = {n for n in single if pointwise(graph.calls[n])}
        self._members = {n: [n] for n in self.kernels}  # the calls of each group, by its last call
        # The last calls of a call's groups: only a copy has several.
        self._sinks = {n: frozenset({n}) for n in self.kernels}

    def seeds(self) -> list[int]:
        """Calls that may take others along: anchors first, the most work first, then the others in order."""
        return sorted(self.kernels, key=lambda n: (n in self.pointwise, 0 if n in self.pointwise else -work(self.calls[n]), n))

    def groups(self) -> list[list[int]]:
        """The calls of each group, in an order in which groups can run: by their last calls."""
        return [members for _, members in sorted(self._members.items()) if not self.free.issuperset(members)]

    def _continues(self, call: Call) -> bool:
        """True where a call without a kernel, which drops a unit dimension, follows one that moves elements."""
        before = self.maker.get(call.values[0]) if len(call.values) == 1 and picks(call) else None
        return before is not None and before not in self.free and moves(self.calls[before])

    def take_along(self, n: int) -> None:
        """Merge a call's group with the pointwise calls up to its post-dominators, and a product with a move of its rows."""
        while (path := self._path(self._last(n))) and self._merge([n, *path]):
            pass
        reader = self._reader(self._last(n)) if is_product(self.calls[n]) else None
        if reader is not None and moves_rows(self.calls[reader]):
            self._merge([n, reader])

    def join_products(self, n: int) -> None:
        """Merge a call by rows, such as softmax, with the product that alone reads its result, and with products that make its
        rows. Rows are then computed tile by tile where they are read, as the scores of attention."""
        sources, last = rows_from(self.calls[n]), self._last(n)
        value, reader = self.calls[last].outputs[0], self._reader(last)
        if not sources or reader is None or left_operand(self.calls[reader], self.halves) != value or value.shape[-2] < 2:
            return
        makers = [m for v in sources if (m := self.maker.get(v)) in self._members and self._reader(m) == n]
        products = [m for m in makers if any(is_product(self.calls[x], self.halves) for x in self._members[m])]
        self._merge([n, reader, *products], anchors=2 + len(products))

    def take_in(self, n: int) -> None:
        """Merge the group that ends with a call into its reader's, or a single move into all readers', if nothing runs twice."""
        call, readers, own = self.calls[n], self.readers[n], self._members.get(n)
        if own is None or not readers or len(call.outputs) > 1 or any(m not in self.pointwise for m in own):
            return
        copies = own == [n] and moves(call)
        if any(r not in self._sinks or not self._fits(call, r, copies) for r in readers):
            return
        into = frozenset[int]().union(*(self._sinks[r] for r in readers))
        if copies or len(into) == 1:
            del self._members[n]
            for last in into:
                self._members[last] += own
            self._sinks |= dict.fromkeys(own, into)

    def _fits(self, call: Call, reader: int, copies: bool) -> bool:
        """True where a call's result may be computed inside of a reader; if it `copies`, no element is computed twice."""
        if reader not in self.pointwise:
            return copies and picks(call) and is_product(self.calls[reader], self.halves)
        members = self._members[self._last(reader)]
        if self.free.issuperset(members):
            return False
        operand = any(m not in self.pointwise and m > reader for m in members)
        return copies or (read_once(self.calls[reader], call.outputs[0]) and not operand)

    def _last(self, n: int) -> int:
        """The last call of the first group of a call."""
        return min(self._sinks[n])

    def _reader(self, n: int) -> int | None:
        """The only reader of a call, if it has a kernel; else None."""
        return self.readers[n][0] if len(self.readers[n]) == 1 and self.readers[n][0] in self._sinks else None

    def _path(self, n: int) -> list[int] | None:
        """The calls from one up to its post-dominator, if all are pointwise and read the values between at their own places."""
        end, made = self.dominators[n], set(self.calls[n].outputs)
        if end is None or len(made) > 1:
            return None
        found, waiting = set[int](), [n]
        while waiting:
            for reader in self.readers[waiting.pop()]:
                if reader not in found:
                    if reader not in self.pointwise:
                        return None
                    found.add(reader)
                    waiting += [reader] if reader != end else []
        made |= {v for m in found - {end} for v in self.calls[m].outputs}
        shapes = {self.calls[m].outputs[0].shape for m in (n, *found)}
        at_place = all(v in elementwise_inputs(self.calls[m]) for m in found for v in self.calls[m].values if v in made)
        return sorted(found) if at_place and len(shapes) == 1 else None

    def _merge(self, parts: Collection[int], anchors: int = 1) -> bool:
        """Make the groups of some calls one, unless it has more than so many anchors; True if it is made."""
        sinks = frozenset[int]().union(*(self._sinks[n] for n in parts))
        members = [m for s in sinks for m in self._members[s]]
        if sum(m not in self.pointwise for m in members) > anchors:
            return False
        for s in sinks:
            del self._members[s]
        self._members[max(sinks)] = members
        self._sinks |= {m: frozenset({max(sinks)}) for m in members}
        return True


def post_dominators(readers: Sequence[Sequence[int]]) -> list[int | None]:
    """The immediate post-dominator of each node of a graph in topological order; None where it is the end, after the last node.

    It is the least common ancestor of a node's readers in the tree of post-dominators so far, in one pass from the end.
    """
    end = len(readers)
    parent, depth = [end] * end, [0] * end + [0]
    for n in reversed(range(end)):
        found: int | None = None
        for other in readers[n]:
            found = other if found is None else _common_ancestor(found, other, parent, depth)
        parent[n] = end if found is None else found
        depth[n] = depth[parent[n]] + 1
    return [None if p == end else p for p in parent]


def _common_ancestor(a: int, b: int, parent: Sequence[int], depth: Sequence[int]) -> int:
    while a != b:
        if depth[a] >= depth[b]:
            a = parent[a]
        else:
            b = parent[b]
    return a


# --- functions -----------------------------------------------------------------------------------------------------------


def group_of(calls: Sequence[Call], constant: Collection[Value] = ()) -> Group:
    """The group of calls in order, of which only the last is read elsewhere. Inputs in `constant` are constants of its function.

    Calls and inputs are ordered by a walk from the last call through its operands, first to last, whatever the graph's order.
    Groups that are equal but for names have one function, which is made once.
    """
    values = dict.fromkeys(v for c in calls for v in (*c.values, *c.outputs))
    names = {v: Value(f"v{n}", v.shape, v.dtype) for n, v in enumerate(values)}
    renamed = tuple(replace(c.with_inputs(names), outputs=tuple(names[v] for v in c.outputs)) for c in calls)
    found = _group_of(renamed, frozenset(names[v] for v in names.keys() & constant))
    back, nodes = {own: v for v, own in names.items()}, {c.outputs: c.node for c in renamed}
    own = (replace(c.with_inputs(back), outputs=tuple(back[v] for v in c.outputs), node=nodes[c.outputs]) for c in found.calls)
    return Group(tuple(own), tuple(back[v] for v in found.inputs), tuple(back[v] for v in found.outputs), found.func)


@lru_cache(MAX_KNOWN_GROUPS)
def _group_of(calls: tuple[Call, ...], constant: frozenset[Value]) -> Group:
    maker = {v: c for c in calls for v in c.outputs}
    depth: dict[Value, int] = {}  # calls on the longest path within the group to each value that it makes
    for call in calls:
        depth |= dict.fromkeys(call.outputs, 1 + max((depth.get(v, 0) for v in call.values), default=0))
    ordered = list(_in_order(calls[-1], maker, depth, set()))
    reads = list(dict.fromkeys((_parameter_key(c), v) for c in ordered for v in c.values if v not in maker))
    inputs = tuple(v for _, v in reads)
    given = {read: placeholder(read[1], f"p{n}") for n, read in enumerate(reads)}
    made: dict[Value, te.Tensor] = {}
    for call in ordered:
        operands = [None if v is None else made[v] if v in made else given[_parameter_key(call), v] for v in call.inputs]
        made |= dict(zip(call.outputs, tensors(call, operands), strict=False))
    outputs = ordered[-1].outputs
    name = function_name(*(c.operator for c in ordered))
    if len(name) > MAX_NAME_LETTERS:
        name = f"{name[:MAX_NAME_LETTERS].rpartition('_')[0]}_and_more"
    constants = [tensor for (_, v), tensor in given.items() if v in constant]
    func = te.create_prim_func([*given.values(), *(made[v] for v in outputs)], name=name, constants=constants)
    return Group(tuple(ordered), inputs, outputs, func)


def _parameter_key(call: Call) -> Call | None:
    """The call, if it moves elements, else None: a part of a parameter's key, by which parts of a value are operands."""
    return call if moves(call) else None


def _in_order(call: Call, maker: Mapping[Value, Call], depth: Mapping[Value, int], seen: set[Value]) -> Iterator[Call]:
    """A call after those that make its operands. Commuting operands are sorted: the group's by depth, then inputs by size."""
    seen |= set(call.outputs)
    if definition(call).commutative:
        operands = sorted(call.values, key=lambda v: (v not in maker, depth.get(v, 0), -v.nbytes))
        call = replace(call, inputs=tuple(operands))
    for value in call.values:
        if value in maker and value not in seen:
            yield from _in_order(maker[value], maker, depth, seen)
    yield call
