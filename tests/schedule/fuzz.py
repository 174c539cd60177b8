"""Random programs under random schedules: `python -m tests.schedule.fuzz --programs 2000 --seed 0`.

A case is its seed: a program, and up to 12 calls of primitives on it. What is accepted must leave the same numbers in the
interpreter and, for one case in `--llvm`, compiled (in a process of its own); no step may fail otherwise than by a ScheduleError;
a refused step must change nothing; the result must verify, print and parse back, and replay from JSON. For a case that fails, the
seed, the program, and the shortest failing trace found are printed; `--store` adds them to the stored regressions. One program in
`--default` is also scheduled by `tir.default_schedule`, on one thread and on two, and by a row of one of its sketches.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

import tir
from codegen import Target
from schedule import Schedule, ScheduleError, Trace, replay
from schedule.trace import Step
from search.population.sample import sample
from search.space.generation import generate
from tests.arrays import integers, specials
from tests.schedule import harness
from tests.schedule.brute_force import survey
from tests.schedule.random_programs import program
from tests.schedule.random_steps import Crash, attempt, register_intrinsics
from tir.assumptions import broken_assumption
from tir.dtypes import is_float
from tir.ir import Buffer, Cast, Const, Kind, PrimFunc, Select
from tir.script import parse
from tir.traverse import loads, loops, walk

STEPS = 12
SIZES = (1, 7, 4, 0, 5, 13, 24)  # of functions whose sizes are open; the last holds for all that is assumed
SECONDS = 30  # of processor time, a case, at most
HANG = 300  # seconds on the clock, of a compiled function, at most: others may use the processor
REGRESSIONS = Path(__file__).parent / "regressions"


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong in a case, with the shortest trace found that shows it."""

    kind: str
    seed: int
    before: PrimFunc
    steps: tuple[Step, ...]
    message: str

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.kind}\n{self.before.script()}\n{Trace(self.steps)}{self.message}\n"

    def as_json(self) -> dict:
        """What `regression` reads: the program as a script, the trace, and what went wrong."""
        what = f"{self.kind}: {self.message.splitlines()[0] if self.message else ''}"
        return {"what": what, "seed": self.seed, "script": self.before.script(), "trace": Trace(self.steps).as_json()}


def stored_text(case: dict) -> str:
    """A stored case as JSON, with a line for each of its fields and for each step of its trace."""
    steps = ",\n  ".join(map(json.dumps, case["trace"]["steps"]))
    fields = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in case.items() if key != "trace"]
    fields.append(f'"trace": {{"version": {case["trace"]["version"]}, "steps": [\n  {steps}\n ]}}')
    return "{\n " + ",\n ".join(fields) + "\n}\n"


@dataclass(slots=True)
class Tally:
    """What cases add up to."""

    programs: int = 0
    compiled: int = 0
    scheduled: int = 0
    steps: Counter[tuple[str, bool]] = field(default_factory=Counter)
    forced: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.programs += other.programs
        self.compiled += other.compiled
        self.scheduled += other.scheduled
        self.steps += other.steps
        self.forced += other.forced
        self.failures += other.failures

    def __str__(self) -> str:
        lines = []
        for name in sorted({n for n, _ in self.steps}):
            yes, no = self.steps[name, True], self.steps[name, False]
            lines.append(f"  {name:24} {yes:6} of {yes + no:6} accepted, {100 * yes / (yes + no):3.0f} %")
        whole = {key: n for key, n in self.steps.items() if " " not in key[0]}  # without the forms, which count twice
        accepted, tried = sum(n for (_, yes), n in whole.items() if yes), sum(whole.values())
        lines.append(f"programs: {self.programs} ({self.compiled} also through LLVM, {self.scheduled} also by default)")
        lines.append(f"steps attempted: {tried}, accepted: {accepted} ({100 * accepted / max(1, tried):.0f} %)")
        for name in sorted({n for n, _ in self.forced}):
            legal, refused = self.forced[name, "legal"], self.forced[name, "legal but refused"]
            lines.append(
                f"  {name:10} legal but refused: {refused} of {legal}; illegal and tried: {self.forced[name, 'illegal']}"
            )
        legal = sum(n for (_, what), n in self.forced.items() if what == "legal")
        refused = sum(n for (_, what), n in self.forced.items() if what == "legal but refused")
        lines.append(f"legal but refused: {refused} of {legal}")
        kinds = Counter(f.kind for f in self.failures)
        lines.append(f"wrong results: {kinds['wrong result'] + kinds['wrong NaN'] + kinds['LLVM']}, crashes: {kinds['crash']}")
        lines += [f"{kind}: {n}, seeds {[f.seed for f in self.failures if f.kind == kind]}" for kind, n in sorted(kinds.items())]
        return "\n".join(lines)


# --- what must hold ------------------------------------------------------------------------------------------------------


class TooSlow(Exception):
    """A case took longer than it may."""


def sizes_of(func: PrimFunc, seed: int) -> dict[str, int]:
    """Values of the sizes of a function, by the seed of a case, for which holds what the function takes for granted."""
    names = [v.name for v in func.sizes]
    for k in range(len(SIZES)):
        found = {name: SIZES[(seed + k + 2 * n) % len(SIZES)] for n, name in enumerate(names)}
        if broken_assumption(func, found) is None:
            return found
    return dict.fromkeys(names, SIZES[-1])


@contextmanager
def limit(seconds: int) -> Iterator[None]:
    """Raise TooSlow after so many seconds of processor time, where the system has alarms: other work is no fault of a case's."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(signum, frame):
        raise TooSlow(f"more than {seconds} s")

    old = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)


def signed_zeros(s: Schedule) -> bool:
    """The steps keep the signs of zeros, which `factor_out` does not."""
    return all(step.name != "factor_out" for step in s.trace)


def exceptional(func: PrimFunc, seed: int, sizes: dict[str, int] | None = None) -> list:
    """Integers, among the floats of which are NaN and infinities."""
    pairs = zip(func.params, integers(func, seed, sizes), specials(func, seed, sizes), strict=True)
    return [b if isinstance(p, Buffer) and is_float(p.dtype) else a for p, a, b in pairs]


def takes_exceptional(before: PrimFunc, s: Schedule) -> bool:
    """NaN and infinities mean something to a program, whatever the order in which it combines them.

    A conversion to an integer has no meaning for them; a comparison chooses by the order, as a factor taken out of a sum does.
    """
    converts = any(is_float(n.value.dtype) and not is_float(n.dtype) for n in walk(before) if isinstance(n, Cast))
    compares = any(isinstance(n, Select) and any(is_float(x.buffer.dtype) for x in loads(n.condition)) for n in walk(before))
    return signed_zeros(s) and not converts and not compares


def fault_of(before: PrimFunc, s: Schedule, seed: int) -> tuple[str, str] | None:
    """What is wrong with a schedule of `before`, as (kind, message), or None."""

    def replays():
        assert replay(before, Trace.from_json(s.trace.to_json())).script == s.script, "the replayed trace gives another script"
        pasted = Schedule(before)
        exec(str(s.trace), {"s": pasted})
        assert pasted.func == s.func, "the printed trace gives another function"

    def no_doubt():
        """What makes a loop run side by side has proved it, and no step after it may leave that in doubt, where all iterations
        can be tried."""
        found = [f for f in tir.verify(s.func).unproved if f.message.startswith("loop `") and "keep apart" in f.message]
        whole = all(isinstance(x.extent, Const) for x in loops(s.func))
        assert not found or not whole or not tir.verify(before).ok, f"{found[0]}\n{s.func.script()}"

    def same(drawn: Callable[..., list], *seeds: int, signed_zeros: bool) -> None:
        harness.same_numbers(before, s.func, sizes_of(s.func, seed), seeds, False, signed_zeros, drawn)

    checks = (
        ("wrong result", lambda: same(integers, seed % 7, 7 + seed % 5, signed_zeros=signed_zeros(s))),
        ("wrong NaN", lambda: same(exceptional, seed % 7, signed_zeros=False) if takes_exceptional(before, s) else None),
        ("verify", lambda: harness.well_formed(s.func)),
        ("doubt", no_doubt),
        ("script", lambda: harness.round_trip(s.func)),
        ("replay", replays),
    )
    for kind, check in checks:
        try:
            check()
        except TooSlow:
            raise
        except (Exception, pytest.fail.Exception) as error:
            return kind, f"{type(error).__name__}: {error}"
    return None


def fault(before: PrimFunc, steps: Sequence[Step], seed: int, compiler: Compiler | None = None) -> tuple[str, str] | None:
    """What is wrong with these steps on `before`: a crash, or what they make; None if nothing is, or a step is refused."""
    try:
        s = replay(before, steps)
    except ScheduleError as error:
        try:
            str(error)
        except Exception as inner:
            return "crash", f"while rendering a refusal: {type(inner).__name__}: {inner}"
        return None
    except TooSlow:
        raise
    except Exception as error:
        return "crash", f"{type(error).__name__}: {error}"
    if compiler is not None:
        found = compiler.compare(before, s, seed)
        return None if found is None else ("LLVM", found)
    return fault_of(before, s, seed)


def scheduled(before: PrimFunc, seed: int) -> Iterator[tuple[str, Schedule]]:
    """The default schedules of a function, and a candidate of the search, with what each is."""
    for cores in (1, 2):
        target = f"llvm -num-cores {cores}"
        yield f"default schedule for {target}", tir.default_schedule(before, target)
        if not before.sizes:
            sketches, rng = generate(before, Target(target)), np.random.default_rng(seed)
            sketch = sketches[int(rng.integers(len(sketches)))]
            row = sample(sketch, Target(target), 1, rng)[0].tolist()
            with suppress(ScheduleError):  # a step may be refused with these numbers
                yield f"{sketch.name} for {target}", replay(before, sketch.trace(row))


def fault_of_schedules(before: PrimFunc, seed: int, compiler: Compiler | None) -> tuple[str, tuple[Step, ...], str] | None:
    """What is wrong with the schedules that nobody wrote: the kind, the steps, the message."""
    what, steps = "", ()
    try:
        for what, s in scheduled(before, seed):
            steps = s.trace.steps
            if (found := fault_of(before, s, seed)) is not None:
                return f"{what}: {found[0]}", steps, found[1]
            if compiler is not None and (wrong := compiler.compare(before, s, seed)) is not None:
                return f"{what}: LLVM", steps, wrong
    except TooSlow:
        raise
    except Exception as error:
        return f"crash after {what or 'nothing'}", (), "".join(traceback.format_exception(error)[-4:])
    return None


def shortest(before: PrimFunc, steps: Sequence[Step], seed: int, kind: str, compiler: Compiler | None = None) -> tuple[Step, ...]:
    """A subsequence of `steps` with the same kind of fault, from which no step can be left out."""

    def shows(candidate: Sequence[Step]) -> bool:
        found = fault(before, candidate, seed, compiler)
        return found is not None and found[0] == kind

    kept = list(steps)
    for end in range(1, len(kept)):
        if shows(kept[:end]):
            kept = kept[:end]
            break
    smaller = True
    while smaller:
        smaller = False
        for n in reversed(range(len(kept))):
            candidate = kept[:n] + kept[n + 1 :]
            if shows(candidate):
                kept, smaller = candidate, True
    return tuple(kept)


# --- one case ------------------------------------------------------------------------------------------------------------


def case(
    seed: int, steps: int | None = None, compiler: Compiler | None = None, force: bool = False, default: bool = False
) -> Tally:
    """The program and trace of a seed, checked; `steps` is drawn where it is None. `force`: also try steps by brute force.
    `default`: also its default schedules."""
    tally = Tally(programs=1)
    rng = np.random.default_rng(seed)
    before = program(rng)
    s = Schedule(before, rng)
    steps = int(rng.integers(1, STEPS + 1)) if steps is None else steps
    try:
        with limit(SECONDS):
            try:
                for _ in range(steps):
                    attempt(s, rng, tally.steps)
            except Crash as crash:
                _note(tally, crash.kind, seed, before, (*s.trace, crash.step), crash.message)
            found = fault_of(before, s, seed)
            if found is not None:
                _note(tally, found[0], seed, before, tuple(s.trace), found[1])
            elif compiler is not None and not any(loop.kind is Kind.THREAD for loop in loops(s.func)):
                tally.compiled = 1
                wrong = compiler.compare(before, s, seed)
                if wrong is not None:
                    _note(tally, "LLVM", seed, before, tuple(s.trace), wrong, compiler)
            if force and not tally.failures:
                for call in survey(s.func, rng, tally.forced):
                    tally.failures.append(Failure("accepted though illegal", seed, s.func, (), call))
            if default and not any(loop.kind is Kind.THREAD for loop in loops(before)):
                tally.scheduled = 1
                if (wrongly := fault_of_schedules(before, seed, compiler)) is not None:
                    kind, taken, message = wrongly
                    tally.failures.append(Failure(kind, seed, before, taken, message))
    except TooSlow as error:
        tally.failures.append(Failure("too slow", seed, before, tuple(s.trace), str(error)))
    return tally


def _note(
    tally: Tally, kind: str, seed: int, before: PrimFunc, steps: tuple[Step, ...], message: str, compiler: Compiler | None = None
) -> None:
    least = shortest(before, steps, seed, kind, compiler)
    again = fault(before, least, seed, compiler)
    tally.failures.append(Failure(kind, seed, before, least, again[1] if again is not None else message))


def regression(stored: dict, compiler: Compiler | None = None) -> tuple[str, str] | None:
    """What is wrong with a stored case now, as (kind, message): steps may be refused, but nothing else may go wrong."""
    before, kept = parse(stored["script"]), Schedule(parse(stored["script"]))
    for step in Trace.from_json(stored["trace"]):
        found = fault(before, (*kept.trace, step), stored["seed"])
        if found is not None:
            return found
        try:
            kept = replay(before, (*kept.trace, step))
        except ScheduleError:
            continue
    if compiler is None or any(loop.kind is Kind.THREAD for loop in loops(kept.func)):
        return None
    return fault(before, kept.trace.steps, stored["seed"], compiler)


# --- compiling, where a crash is only a failure ---------------------------------------------------------------------------


class Compiler:
    """Compiles and runs functions in a child process, which is started anew when it dies or hangs."""

    def __init__(self) -> None:
        self._child: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None

    def compare(self, before: PrimFunc, after: Schedule, seed: int) -> str | None:
        """How the numbers of `after`, compiled, differ from those of `before`, interpreted; None if they do not."""
        if self._child is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._child = context.Process(target=_compile_and_run, args=(theirs,), daemon=True)
            self._child.start()
            theirs.close()
        assert self._pipe is not None
        try:
            drawn = exceptional if seed % 20 == 0 and takes_exceptional(before, after) else integers
            self._pipe.send((before, after.func, seed, signed_zeros(after) and drawn is integers, drawn))
            if self._pipe.poll(HANG):
                return self._pipe.recv()
            found = "the compiled function hangs"
        except (EOFError, OSError):
            self._child.join(5)
            found = f"the process that compiled and ran it ended with {self._child.exitcode}"
        self.close()
        return found

    def close(self) -> None:
        if self._child is not None and self._pipe is not None:
            self._pipe.close()
            self._child.kill()
            self._child.join()
            self._child = None


def _compile_and_run(pipe: Connection) -> None:
    while True:
        try:
            before, after, seed, signed, drawn = pipe.recv()
        except EOFError:
            return
        try:
            harness.same_numbers(before, after, sizes_of(after, seed), (seed % 7,), True, signed, drawn)
            pipe.send(None)
        except (Exception, pytest.fail.Exception) as error:
            pipe.send(f"{type(error).__name__}: {error}")


# --- many cases ----------------------------------------------------------------------------------------------------------


def cases(seeds: Iterable[int], llvm: int, force: int, default: int) -> Tally:
    """The cases of some seeds: one in `llvm` also compiled, one in `force` also tried by brute force, one in `default` also
    scheduled by default; 0 is none."""
    tally, compiler = Tally(), Compiler()
    register_intrinsics()
    try:
        for seed in seeds:
            compiling = compiler if llvm and seed % llvm == 0 else None
            tally.add(case(seed, None, compiling, bool(force) and seed % force == 0, bool(default) and seed % default == 0))
    finally:
        compiler.close()
    return tally


def main() -> int:
    """The command; 1 where a case failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.schedule.fuzz", description="Random programs under random schedules.")
    parser.add_argument("--programs", type=int, default=2000, help="number of cases")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first case; the others follow")
    parser.add_argument("--llvm", type=int, default=10, help="one case in so many is also compiled; 0: none")
    parser.add_argument("--force", type=int, default=4, help="one case in so many is tried by brute force; 0: none")
    parser.add_argument("--default", type=int, default=10, help="one case in so many is scheduled by default; 0: none")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--store", action="store_true", help="add failing cases to the stored regressions")
    options = parser.parse_args()
    last = options.seed + options.programs
    print(f"seeds {options.seed} to {last - 1}", flush=True)
    chunks = [range(n, min(n + 50, last)) for n in range(options.seed, last, 50)]
    total = Tally()
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        every = ([n] * len(chunks) for n in (options.llvm, options.force, options.default))
        for done in pool.map(cases, chunks, *every):
            for failure in done.failures:
                print(failure, flush=True)
                if options.store:
                    name = f"{failure.kind.replace(' ', '_').lower()}_{failure.seed}.json"
                    (REGRESSIONS / name).write_text(stored_text(failure.as_json()))
            total.add(done)
    print(total)
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
