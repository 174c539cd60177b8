"""The search space of a function: its sketches, derived block by block by rules, then annotated."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import prod

from codegen.target import Target
from schedule import Schedule, ScheduleError
from tir.ir import Block, Const, For, Kind, PrimFunc, Var
from tir.traverse import blocks, path_to, stores, variables, walk_stmts

from .rules import DEFAULT, Rule, Verdict
from .rules.tiling import walks_memory
from .sketch import Sketch, State, extent, is_spatial

WORTH_THREADS = 8192  # iterations below which a nest takes no longer than waking the threads does
LONG = 4096  # iterations of a lone loop from which on it is shared among threads
CHUNKS = (1024, 256, 4096)  # iterations of its vectorised part
MAX_SKETCHES = 64  # where rules leave more alternatives, those stay that choose later rules least often


def generate(func: PrimFunc, target: Target, rules: Sequence[Rule] = DEFAULT) -> list[Sketch]:
    """The sketches of `func` (Ansor, section 4.1), at least one: from the last block to the first, each rule that applies
    branches the derivation.

    The order of `rules` is that of preference. Sketches come in the order of how often they depart from the first choice, as in
    limited discrepancy search (Harvey and Ginsberg, IJCAI 1995), and at most MAX_SKETCHES of them.

    Raises ValueError if a size is symbolic, the target is no CPU, or no rule applies to a block (`Skip` always does).
    """
    _check(func, target)
    start = State(Schedule(func), target, [b.name for b in blocks(func)])
    order = itertools.count(0, -1)  # among states with as many departures the newest is first
    work = [(0, next(order), start)]
    finished: list[State] = []
    while work and len(finished) < MAX_SKETCHES:
        departures, _, state = heappop(work)
        if not state.pending:
            finished.append(state)
            continue
        block = state.pending.pop()
        branches = _branches(state, block, rules)
        for n, new in reversed(list(enumerate(branches))):
            heappush(work, (departures + min(n, 1), next(order), new))
    return [_annotated(state).finish(f"sketch {n}", func) for n, state in enumerate(finished)]


def _check(func: PrimFunc, target: Target) -> None:
    if target.kind != "llvm":
        raise ValueError(f"the sketches are for CPUs, and {target} is none; tune for a target such as 'llvm'")
    symbols = [p.name for p in func.params if isinstance(p, Var)]
    if symbols:
        raise ValueError(
            f"{func.name} takes its size{'s' if symbols[1:] else ''} {', '.join(symbols)} when it is called, but tuning needs "
            "constant shapes: make the function with numbers instead"
        )
    for b in blocks(func):
        for it in b.iters:
            extent(it)


def _branches(state: State, block: str, rules: Sequence[Rule]) -> list[State]:
    """The states that the rules make of the next block, most preferred first."""
    branches: list[State] = []
    for rule in rules:
        verdict = rule.applies(state, block)
        made = [] if verdict is Verdict.SKIP else rule.apply(state, block)
        branches += made
        if verdict is Verdict.ONLY and made:
            break
    if not branches:
        names = ", ".join(rule.name for rule in rules)
        raise ValueError(f"no rule applies to block `{block}` (tried: {names}); end the rules with Skip(), which always does")
    return branches


def _annotated(state: State) -> State:
    """The state with its loops parallel, vectorised and unrolled (Ansor, section 4.2; here the choice is by structure)."""
    for block in [b.name for b in blocks(state.func)]:
        if state.marks.get(block) == "tiled":
            _annotate_tile(state, block)
    for block in [b.name for b in blocks(state.func)]:
        if state.marks.get(block) != "tiled":
            _vectorize_last(state, block)
            _combine_lanes(state, block)
    if state.target.num_cores > 1:
        for nest in _roots(state):
            if _iterations(state, nest) >= WORTH_THREADS:
                _parallelize(state, nest)
    return state


def _attempt(primitive: Callable[..., object], *args: str) -> bool:
    """Apply a primitive if it is legal here; says whether it was."""
    try:
        primitive(*args)
    except ScheduleError:
        return False
    return True


def _annotate_tile(state: State, block: str) -> None:
    inner = state.levels[block][-1]
    vector = {t.axis for t in state.tiles if t.block == block and t.vector}
    drives = {loop: it.var.name for it in state.block(block).iters for loop in variables(it.binding)}
    for n, loop in enumerate(inner):
        if n == len(inner) - 1 and drives.get(loop) in vector:
            _attempt(state.schedule.vectorize, loop)
        else:
            _attempt(state.schedule.unroll, loop)


def _vectorize_last(state: State, block: str) -> None:
    """Vectorise the loop of an untiled block that walks the last dimension written, moved innermost if it is not."""
    b = state.block(block)
    store = stores(b.body)[0] if stores(b.body) else None
    if store is None or not store.indices:
        return
    nest = [s for s in path_to(state.func.body, block) if isinstance(s, For)]
    if any(x.kind is Kind.VECTORIZED for x in nest):
        return
    names = [loop.name for loop in nest]
    driving = {v for it in b.iters if is_spatial(it) and it.var == store.indices[-1] for v in variables(it.binding)}
    # The innermost of the loops that drive the axis, as those further out are levels of tiles. Computed in a tile, it has an open
    # length, and the one iteration of its stand-in.
    open_lengths = state.marks.get(block) == "fused"
    loop = next((x.name for x in reversed(nest) if x.name in driving and (open_lengths or x.extent != Const(1))), None)
    if loop is None or nest[-1].body is not b or (b.is_reduction and not walks_memory(b)):
        return
    if len(nest) == 1 and state.target.num_cores > 1 and isinstance(nest[0].extent, Const) and nest[0].extent.value >= LONG:
        *_, loop = state.split_choice(f"{block} chunk", loop, CHUNKS)  # so that there is something to share among threads
        names = []
    inner = names[names.index(loop) + 1 :] if loop in names else []
    if not inner or _attempt(state.schedule.reorder, *inner, loop):
        _attempt(state.schedule.vectorize, loop)


def _combine_lanes(state: State, block: str) -> None:
    """Let the backend combine the partial results of a reduction in lanes in pairs."""
    if state.marks.get(block) == "lanes" and state.block(block).is_reduction:
        innermost = state.loop(state.schedule.get_loops(block)[-1])
        if innermost.kind is Kind.SERIAL:
            state.schedule.annotate(innermost.name, "combine_lanes", True)


def _roots(state: State) -> list[str]:
    """The outermost loops of the function."""
    found: list[str] = []

    def visit(s) -> None:
        if isinstance(s, For):
            found.append(s.name)
        elif not isinstance(s, Block):
            for child in getattr(s, "stmts", ()):
                visit(child)

    visit(state.func.body)
    return found


def _iterations(state: State, loop: str) -> int:
    """How often blocks run below a loop."""
    found = [b for b in walk_stmts(state.loop(loop)) if isinstance(b, Block)]
    return sum(prod(extent(it) for it in state.block(b.name).iters) for b in found)


def _parallelize(state: State, loop: str) -> None:
    """Fuse the outer loops of a nest that are data parallel, and run them on the threads."""
    nest = [state.loop(loop)]
    tiled = [b.name for b in walk_stmts(nest[0]) if isinstance(b, Block) and state.marks.get(b.name) == "tiled"]
    # The outermost level of a tiled block; elsewhere all but the last of the perfectly nested loops.
    limit = len(state.levels[tiled[0]][0]) if tiled else None
    while isinstance(nest[-1].body, For) and (limit is None or len(nest) < limit):
        nest.append(nest[-1].body)
    if limit is None and len(nest) > 1:
        nest.pop()
    for count in range(len(nest), 0, -1):
        trial = state.schedule.copy()
        names = [x.name for x in nest[:count]]
        try:
            fused = trial.fuse(*names) if count > 1 else names[0]
            trial.parallel(fused)
        except ScheduleError:
            continue
        state.schedule = trial
        return
