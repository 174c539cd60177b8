"""How a tuning run went, as one self-contained HTML page: `write("report.html", tir.autotune(...))`.

That of a network, `network.write`, is drawn with matplotlib, which the extra `report` installs.
"""

from __future__ import annotations

from importlib.util import find_spec

from .page import page, write

__all__ = ["available", "page", "write"]


def available() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None
