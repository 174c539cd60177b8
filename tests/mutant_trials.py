"""Trials of mutants, in the copy of the repository in which all of them stand: `tests.mutants` starts it there with a plan."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import accumulate, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, settings

from tests import mutant_switch

PATIENCE = 5  # a mutant whose tests take so many times as long as without it, and as they may take, is noticed
BROKEN = 99  # the status of a process that meets an error outside of tests
PAUSE = 0.01  # seconds between two looks at processes
OPTIONS = ("-s", "-p", "no:terminal", "-p", "no:cacheprovider", "-p", "no:xdist")  # of pytest


class Task(NamedTuple):
    """A function to run in a process of its own, which returns the status; its purpose, and its limit in seconds."""

    subject: Any
    run: Callable[[], int]
    seconds: float = float("inf")


def in_processes(tasks: Iterable[Task], jobs: int, folder: Path) -> Iterator[tuple[Any, int]]:
    """Run tasks in processes that are forked, `jobs` at a time, whose temporary files lie in a folder; the subject of each and its
    status as it ends, which is not 0 for one that was stopped."""
    waiting, running = list(tasks)[::-1], {}
    while waiting or running:
        while waiting and len(running) < jobs:
            task = waiting.pop()
            running[_forked(task.run, folder)] = task.subject, time.monotonic() + task.seconds
        for pid, (subject, end) in list(running.items()):
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                if os.waitstatus_to_exitcode(status) == BROKEN:
                    raise RuntimeError(f"an error that is not of a test, for {subject}")
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)  # what it has started and left
                shutil.rmtree(folder / str(pid), ignore_errors=True)
                del running[pid]
                yield subject, status
        time.sleep(PAUSE)


def _forked(run: Callable[[], int], folder: Path) -> int:
    """The number of a process that runs a function without output, at the head of a group, and ends with its status."""
    if pid := os.fork():
        return pid
    status, errors = BROKEN, os.dup(2)
    try:
        os.setsid()
        own = folder / str(os.getpid())
        own.mkdir(parents=True)
        os.environ |= {"PYTEST_DEBUG_TEMPROOT": str(own), "XDG_CACHE_HOME": str(own)}
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        status = run()
    except BaseException:
        os.dup2(errors, 2)
        traceback.print_exc()
    finally:
        os._exit(status)


class Trial:
    """A plugin of pytest in place of its loop over tests: what each test reaches is looked up, or else recorded; then each mutant's
    process runs some of them until one fails. `results` has a mutant's in the order of the plan."""

    def __init__(self, mutants: Sequence[dict], seconds: float, jobs: int, folder: Path) -> None:
        self.mutants, self.allowed, self.jobs, self.folder = mutants, seconds, jobs, folder
        self.failures: list[str] = []
        self.results: list[str] = []
        self.seconds: Counter[str] = Counter()  # of each test
        self.met: dict[str, set[int]] = {}  # the numbers of the mutants that each test reaches

    def pytest_collectreport(self, report) -> None:
        if report.failed:
            self.failures.append(report.longreprtext)

    def pytest_internalerror(self, excrepr) -> None:
        self.failures.append(str(excrepr))

    def pytest_runtest_logreport(self, report) -> None:
        self.pytest_collectreport(report)
        self.seconds[report.nodeid] += report.duration

    def pytest_runtestloop(self, session) -> bool:
        if not self.failures:
            self._look_up(session.items)
        if not self.failures:
            self._try({item.nodeid: item for item in session.items})
        return True

    def _look_up(self, items: Sequence[pytest.Item]) -> None:
        """Know what all tests reach without a change: those of a file are run in a process of their own, unless it is known."""
        records, files = self.folder / "records", defaultdict(list)
        for item in items:
            files[item.path].append(item)
        records.mkdir(parents=True, exist_ok=True)
        rest = _digest(p for p in Path.cwd().rglob("*.py") if not p.name.startswith("test_"))
        known = {path: records / f"{rest}-{_digest([path])}.json" for path in files}
        for old in {*records.iterdir()} - {*records.glob(f"{rest}-*")}:
            old.unlink()
        unknown = [Task(path, self._recording(files[path], to)) for path, to in known.items() if not to.exists()]
        for path, status in in_processes(unknown, self.jobs, self.folder):
            if not known[path].exists():
                self.failures.append(f"{path} ends with status {status}")
        for to in filter(Path.exists, known.values()):
            record = json.loads(to.read_text())
            self.failures += record["failures"]
            self.seconds |= record["seconds"]
            self.met |= {test: set(numbers) for test, numbers in record["met"].items()}
            if record["failures"]:
                to.unlink()

    def _recording(self, items: Sequence[pytest.Item], to: Path) -> Callable[[], int]:
        def run() -> int:
            met = {item.nodeid: sorted(mutant_switch.met) for item in self._run(items)}
            to.write_text(json.dumps({"failures": self.failures, "seconds": self.seconds, "met": met}))
            return 0

        return run

    def _try(self, items: dict[str, pytest.Item]) -> None:
        chosen = [self._chosen(mutant) for mutant in self.mutants]
        tasks = [
            Task(n, self._noticing(self.mutants[n], [items[t] for t in tests]), self._limit(tests))
            for n, tests in enumerate(chosen)
        ]
        self.results = [""] * len(tasks)
        for n, status in in_processes(tasks, self.jobs, self.folder):
            self.results[n] = result = "noticed" if status else "survived" if chosen[n] else "not reached"
            if result != "noticed":
                print("{result}: {kind}, {file}:{line}\n{diff}".format(result=result, **self.mutants[n]), flush=True)

    def _chosen(self, mutant: dict) -> list[str]:
        """Tests that reach a mutant, as many as its seconds allow: those named after the module first; then each function's quickest
        case, before the second of any."""
        name = f"/test_{Path(mutant['file']).stem}.py::"
        reaching = [test for test, numbers in self.met.items() if mutant["number"] in numbers]
        cases: Counter[str] = Counter()
        order = []
        for test in sorted(reaching, key=lambda t: (self.seconds[t], t)):
            function = test.partition("[")[0]
            order.append((name not in test, cases[function], self.seconds[test], test))
            cases[function] += 1
        tests = [test for *_, test in sorted(order)]
        total = accumulate(self.seconds[t] for t in tests)
        return [t for t, s in zip(tests, total, strict=True) if s <= self.allowed] or tests[:1]

    def _limit(self, tests: Iterable[str]) -> float:
        return self.allowed + PATIENCE * sum(self.seconds[t] for t in tests)

    def _noticing(self, mutant: dict, items: Sequence[pytest.Item]) -> Callable[[], int]:
        return lambda: any(self.failures for _ in self._run(items, mutant["number"]))

    def _run(self, items: Sequence[pytest.Item], mutant: int = -1) -> Iterator[pytest.Item]:
        """Run tests with a mutant on, and give each after its run."""
        os.environ[mutant_switch.VARIABLE] = str(mutant)
        mutant_switch.active = mutant
        for item, following in zip_longest(items, items[1:]):
            mutant_switch.met.clear()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            yield item


def _digest(files: Iterable[Path]) -> str:
    found = sha256()
    for path in sorted(files):
        found.update(f"{path}\n".encode() + path.read_bytes())
    return found.hexdigest()[:16]


def main(tests: Sequence[str], mutants: Sequence[dict], seconds: float, jobs: int, results: str) -> int:
    """Try mutants, each by tests that take some seconds without it; their results are written, in their order. The status is 1 where
    a test fails without a change."""
    settings.register_profile("mutants", phases=(Phase.explicit, Phase.generate), derandomize=True, database=None)
    settings.load_profile("mutants")  # the first failure does
    trial = Trial(mutants, seconds, jobs, Path(results).parent)
    pytest.main([*OPTIONS, *tests], plugins=[trial])
    print(*trial.failures, sep="\n")
    Path(results).write_text(json.dumps(trial.results))
    return bool(trial.failures)


if __name__ == "__main__":
    sys.exit(main(**json.loads(Path(sys.argv[1]).read_text())))
