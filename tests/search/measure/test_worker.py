"""What a request of a worker raises is the outcome of whoever is to blame."""

from __future__ import annotations

import io
from functools import partial

import pytest

from schedule import ScheduleError
from search.measure import timing
from search.measure.worker import Worker


def raising(error: BaseException, *_):
    raise error


@pytest.mark.parametrize(("error", "builds", "outcome"), [
    (ScheduleError("no"), True, "illegal"),
    (ScheduleError("no"), False, "fault"),
    (KeyError("x"), True, "build_error"),
    (KeyError("x"), False, "fault"),
    (MemoryError(), True, "memory"),
    (MemoryError(), False, "memory"),
])  # fmt: skip
def test_errors_of_requests(error, builds, outcome):
    worker = Worker(io.BytesIO())
    answer = worker._answer(partial(raising, error), builds)
    assert answer["outcome"] == outcome and answer["message"] and not worker._lost
    assert (", in _answer)" in answer["message"]) == (outcome == "fault")


def test_the_errors_of_a_kernel_are_a_crash_that_ends_its_process():
    worker = Worker(io.BytesIO())
    answer = worker._answer(partial(timing.call, partial(raising, ValueError("odd")), []))
    assert answer == {"outcome": "crash", "message": "ValueError: odd"} and worker._lost
