"""What works with less than was asked for is said, and counted where a run asks for it."""

from __future__ import annotations

import warnings
from collections import Counter
from contextvars import copy_context
from threading import Thread

import pytest

from tir.notices import Degraded, counted, degraded


def test_a_notice_is_a_warning_at_the_caller_and_is_counted_by_its_message():
    counts: Counter[str] = Counter()
    with pytest.warns(Degraded) as caught:
        with counted(counts):
            for message in ("no place", "no place", "no file"):
                degraded(message)
        degraded("outside of the run")
    assert [str(w.message) for w in caught] == ["no place", "no place", "no file", "outside of the run"]
    assert counts == {"no place": 2, "no file": 1}


def test_a_thread_counts_for_the_run_whose_context_it_was_given():
    counts: Counter[str] = Counter()
    with pytest.warns(Degraded), counted(counts):
        for name, run in {"not known": lambda f, *args: f(*args), "known": copy_context().run}.items():
            thread = Thread(target=run, args=(degraded, name))
            thread.start()
            thread.join()
    assert counts == {"known": 1}


def test_the_default_filter_says_a_message_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            degraded("once")
    assert [str(w.message) for w in caught] == ["once"]
