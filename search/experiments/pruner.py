"""Draft, then verify (Pruner: Qiao et al., ASPLOS 2025, sections 4.1 to 4.3, and `psa_model.py` of its released code).

A formula drafts: the evolution of Ansor runs with the symbol-based analyzer in place of the learned model, and its best rows are
the drafts. The learned model verifies: it scores the drafts alone, and the best of these are measured. So the model, which needs
all features of a program, scores some hundred rows of a batch, not thousands.

The analyzer gives a statement the longer of two times. That of its operations is multiplied by penalties: for threads that
idle at the end, for unused lanes, for few operations per load, for more values than registers. The other is that of its bytes.
The paper's penalties are those of a GPU (warps, waves, registers of a thread), here of a CPU; on a GPU the project's own formula
drafts. Left out are the paper's model of data that moves through memory levels, and the transfer from another machine (MoA).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from costmodel import SketchPrograms
from costmodel.features import OPERATIONS, recorded
from costmodel.loopnest import Statement
from schedule.machine import CACHE_LINE_BYTES, CPU

from ..policy.ranking import score_rows
from ..policy.rows import Point, points_of
from ..population.programs import sketch_programs
from .ansor import PROBABILITIES, Ansor

DRAFTS = 512  # rows that the learned model scores, as in the paper
OTHER_CHOICES = 0.1  # probability of a mutation of packing, widths and the like, which Ansor's space lacks
LEVELS = ("l1_bytes", "l2_bytes", "l3_bytes")
SYMBOLS = (*OPERATIONS, "outer_prod", "work_a_thread", "lane_waste", "tasks_waste", "accumulators", "register_loads", *LEVELS)


class SymbolAnalyzer:
    """Scores a row by minus the logarithm of the cycles of its statements, each with penalties for idle hardware."""

    name = "analyzer"

    def __init__(self, machine: CPU):
        self.machine = machine

    def score(self, sketch: SketchPrograms, rows: np.ndarray) -> np.ndarray:
        result = np.full(len(rows), -np.inf)
        for members, program in sketch.programs(rows):
            cycles = sum((self.cycles(s, rows[members]) for s in program.statements), start=np.ones(len(members)))
            result[members] = -np.log(cycles)
        return result

    def update(self, sketch: SketchPrograms, rows: np.ndarray, seconds: np.ndarray) -> None:
        """A formula has nothing to learn."""

    def cycles(self, statement: Statement, rows: np.ndarray) -> np.ndarray:
        """Estimated cycles of a statement, one number a row."""
        machine, found = self.machine, np.empty((len(SYMBOLS), len(rows)))
        recorded(statement, machine, SYMBOLS).run(rows, found)
        symbols = dict(zip(SYMBOLS, found, strict=True))
        threads = symbols["outer_prod"] / symbols["work_a_thread"]
        held, loads = symbols["accumulators"], symbols["register_loads"]
        idle = symbols["tasks_waste"] * symbols["lane_waste"]
        spilled = np.maximum(1.0, (held + loads) / machine.registers)
        lanes = machine.fmas * machine.lanes(8 * statement.accesses[0].nbytes)
        computing = sum(symbols[op] for op in OPERATIONS) / lanes * idle * (1 + loads / np.maximum(held, 1.0)) * spilled
        moved = (symbols[level] * cycles for level, cycles in zip(LEVELS, machine.memory.line, strict=True))
        return np.maximum(computing, sum(moved) / CACHE_LINE_BYTES) / threads


class Pruner(Ansor):
    """The evolution by the analyzer, and its DRAFTS best rows ranked by the learned model."""

    probabilities = PROBABILITIES | {"choose": OTHER_CHOICES}

    def search(self, n: int, rng: np.random.Generator) -> Iterable[Point]:
        first = self.first_population(rng)
        blind = points_of(first)
        drafted = self.evolved(first, self._drafted, rng)
        drafts = sorted(drafted, key=lambda p: -drafted[p])[:DRAFTS]
        return self.with_random(self.ranked(self.by_sketch(drafts), rng), blind, n, rng)

    def _drafted(self, number: int, rows: np.ndarray) -> np.ndarray:
        """The speeds of rows by the formula, in runs a cycle."""
        machine = self.target.machine
        formula = SymbolAnalyzer(machine) if isinstance(machine, CPU) else self._prior
        if formula is None:
            return np.zeros(len(rows))
        return np.exp(score_rows(formula, sketch_programs(self.sketches[number]), rows, self._prior)[0])
