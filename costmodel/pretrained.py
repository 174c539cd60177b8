"""The shipped model: trees that learned the order by time of programs of many tasks.

`dataset/pretrained.npz` was made on one thread of an AMD EPYC (Zen 4), of all workloads at three shapes, two at four:

    python -m benchmarks.dataset --out FILE --trials 96 --threads 1 --model pretrained.npz
"""

from __future__ import annotations

import zipfile
from functools import lru_cache
from pathlib import Path

import numpy as np

from schedule.machine import CPU, Machine
from tir.notices import degraded

from .dataset import COLUMNS, Dataset
from .gbdt import Boosting, GBDTModel
from .losses import PairRank
from .model_file import write_arrays
from .trees import Forest

PATH = Path(__file__).parent / "dataset" / "pretrained.npz"
ARRAYS = ("features", "thresholds", "values")


def train(data: Dataset, machine: Machine) -> Forest:
    """Trees that order the programs of each task of a data set."""
    model = GBDTModel(machine, boosting=Boosting(loss=PairRank(), max_programs=max(2, len(data))))
    model.data = data
    model.fit()
    return model.forest


def save(forest: Forest, path: Path) -> None:
    """Write trees, with the names of the features that they look at."""
    write_arrays(path, names=COLUMNS, **vars(forest))


@lru_cache(4)
def pretrained(machine: Machine, path: Path = PATH) -> Forest | None:
    """The shipped trees for a processor; None for a GPU, and, with a warning, for a file that cannot be used."""
    if not isinstance(machine, CPU):
        return None
    try:
        with np.load(path, allow_pickle=False) as kept:
            if kept["names"].tolist() == [*COLUMNS]:
                return Forest(*(kept[name] for name in ARRAYS))
        reason = "it was made for other features than this version has"
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        reason = str(error)
    degraded(f"the search begins without the pretrained model {path.name}: {reason}; `python -m benchmarks.dataset` makes one")
    return None
