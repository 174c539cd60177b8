"""Where no new neighbour is left, random rows are proposed; the best so far is kept apart from the row that is climbed from."""

import contextlib
import io
import runpy
import sys
from pathlib import Path

lesson = Path(__file__).parents[1] / "14_own_parts.py"
sys.path.append(str(lesson.parent))
with contextlib.redirect_stdout(io.StringIO()):
    names = runpy.run_path(str(lesson))


class Restart(names["Climb"]):
    def propose(self, n, rng):
        found = super().propose(n, rng)
        if not found:
            self.best, self.seconds = None, float("inf")
            found = super().propose(n, rng)
        return found


curve, result = names["tried"](Restart, trials=48)
print(f"{len(curve)} trials, the best takes {curve[-1] * 1e6:.0f} µs")
assert curve[-1] <= names["climbed"][-1]
