"""The switch between mutants, in a copy of the repository in which all of them stand."""

from __future__ import annotations

import os

VARIABLE = "MUTANT"  # of the environment: which one is on in processes that tests start

active = int(os.environ.get(VARIABLE, "-1"))
met: set[int] = set()  # mutants whose place was reached


def is_on(mutant: int) -> bool:
    met.add(mutant)
    return mutant == active
