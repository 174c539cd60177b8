"""Five seeds of each. The medians are close: here mutation alone climbs about as well, and one seed could have shown either.

Both are far above random search. Whether crossover pays depends on the space: it does where axes or blocks hardly influence one
another, so that what is good in two parents is good together.
"""

import contextlib
import io
import runpy
import sys
from pathlib import Path

import numpy as np

lesson = Path(__file__).parents[1] / "12_evolution.py"
sys.path.append(str(lesson.parent))
with contextlib.redirect_stdout(io.StringIO()):
    names = runpy.run_path(str(lesson))
evolve, at_random = names["evolve"], names["at_random"]
last = {crossed: [evolve(seed, crossed=crossed)[-1] for seed in range(5)] for crossed in (0.15, 0.0)}
drawn = np.median([at_random(seed)[-1] for seed in range(5)])
for crossed, found in last.items():
    print(f"crossed = {crossed}: median {np.median(found):.2f}, from {min(found):.2f} to {max(found):.2f}; random: {drawn:.2f}")
    assert np.median(found) > drawn
