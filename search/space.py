"""The search space of a function: its sketches, derived block by block by rules, then annotated."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.target import Target
from schedule import Schedule, ScheduleError
from tir.ir import Block, For, PrimFunc
from tir.traverse import blocks, path_to, stores, variables, walk_stmts

from .rules import DEFAULT, Rule, Verdict
from .sketch import Sketch, State, extent, is_spatial

MAX_SKETCHES = 64  # a derivation with more alternatives keeps the first


def generate(func: PrimFunc, target: Target, rules: Sequence[Rule] = DEFAULT) -> list[Sketch]:
    """All sketches of `func` (Ansor, section 4.1): from the last block to the first, each rule that applies branches the
    derivation. Raises ValueError if an extent is symbolic."""
    for b in blocks(func):
        for it in b.iters:
            extent(it)
    work = [(State(Schedule(func), target), [b.name for b in blocks(func)])]
    finished: list[State] = []
    while work and len(finished) < MAX_SKETCHES:
        state, pending = work.pop()
        if not pending:
            finished.append(state)
            continue
        block, rest = pending[-1], pending[:-1]
        branches: list[State] = []
        for rule in rules:
            verdict = rule.applies(state, block)
            if verdict is Verdict.SKIP:
                continue
            made = rule.apply(state, block)
            branches += made
            if verdict is Verdict.ONLY and made:
                break
        for new in reversed(branches):
            work.append((new, _pending_after(state, new, block, rest)))
    return [_annotated(state).finish(f"sketch {n}", func) for n, state in enumerate(finished)]


def _pending_after(before: State, after: State, block: str, rest: list[str]) -> list[str]:
    """The blocks still to visit: a block that a rule has just factored is visited again with its new part, for its place."""
    old = {b.name for b in blocks(before.func)}
    made = [b.name for b in blocks(after.func) if b.name not in old and after.marks.get(b.name) == "lanes"]
    return [*rest, *made, block] if made else rest


def _annotated(state: State) -> State:
    """The state with its loops parallel, vectorised and unrolled (Ansor, section 4.2; here the choice is by structure)."""
    for block in [b.name for b in blocks(state.func)]:
        if state.marks.get(block) == "tiled":
            _annotate_tile(state, block)
    for block in [b.name for b in blocks(state.func)]:
        if state.marks.get(block) != "tiled":
            _vectorize_last(state, block)
    if state.target.num_cores > 1:
        for nest in _roots(state):
            _parallelize(state, nest)
    return state


def _attempt(state: State, primitive: str, *args):
    """Apply a primitive if it is legal here; None otherwise."""
    try:
        state.schedule.copy()
        return state.step(primitive, *args) or True
    except ScheduleError:
        return None


def _annotate_tile(state: State, block: str) -> None:
    inner = state.levels[block][-1]
    vector = {t.axis for t in state.tiles if t.block == block and t.vector}
    drives = {loop: it.var.name for it in state.block(block).iters for loop in variables(it.binding)}
    for n, loop in enumerate(inner):
        if n == len(inner) - 1 and drives.get(loop) in vector:
            _attempt(state, "vectorize", loop)
        else:
            _attempt(state, "unroll", loop)


def _vectorize_last(state: State, block: str) -> None:
    """Vectorise the loop of an untiled block that walks the last dimension written, moved innermost if it is not."""
    b = state.block(block)
    store = stores(b.body)[0] if stores(b.body) else None
    if store is None or not store.indices:
        return
    last = store.indices[-1]
    drivers = [state.driver(it) for it in b.iters if is_spatial(it) and it.var == last]
    if not drivers or drivers[0] is None:
        return
    nest = [s for s in path_to(state.func.body, block) if isinstance(s, For)]
    names = [loop.name for loop in nest]
    loop = drivers[0]
    if nest[-1].body is not b or loop not in names:
        return
    inner = names[names.index(loop) + 1 :]
    if inner and _attempt(state, "reorder", *inner, loop) is None:
        return
    _attempt(state, "vectorize", loop)


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
        fused = state.step("fuse", *names) if count > 1 else names[0]
        state.step("parallel", fused)
        return
