"""Every feature alone as a model, with either sign.

The best is `estimate`: the formula's own estimate, which is a feature, too, so that the trees can correct it. Others order pairs
better than a coin, but say only a part: much work for each thread, short unrolled loops. What no feature says alone is where two
effects cross, such as large tiles that do not fit the cache any more.
"""

from pathlib import Path

import numpy as np

import costmodel.dataset
from costmodel import NAMES
from costmodel.dataset import Dataset
from costmodel.metrics import pair_accuracy

data = Dataset.load(Path(costmodel.dataset.__file__).with_name("sample.npz"))
programs = np.flatnonzero((data.task == 9) & np.isfinite(data.seconds))
matrix, place = data.statements(programs)
last = np.zeros((len(programs), len(NAMES)))
last[place] = matrix[:, : len(NAMES)]  # of several statements the last one stays
found = {}
for n, name in enumerate(NAMES):
    if np.ptp(last[:, n]) > 0:
        right = pair_accuracy(last[:, n], data.seconds[programs])
        found[name] = max(right, 1 - right)
for name in sorted(found, key=lambda name: -found[name])[:8]:
    print(f"{found[name]:.0%}  {name}")
assert max(found, key=lambda name: found[name]) == "estimate" and found["estimate"] < 0.85
