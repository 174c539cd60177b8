"""What the lessons share: where a lesson keeps its picture."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt

PICTURES = Path(__file__).with_name("drawn")  # git ignores it; `pictures` has those of the site
sys.path.append(str(Path(__file__).parents[2]))  # for `examples`, which is not installed
plt.rcParams |= {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "tir",  # equal figures are equal files
    "figure.figsize": (8, 3.2),
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def keep(name: str) -> None:
    """Write the current figure to `drawn/NAME.svg`; in a notebook it also appears below the cell."""
    PICTURES.mkdir(exist_ok=True)
    plt.savefig(PICTURES / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight", dpi=150)
