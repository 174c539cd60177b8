"""Report on a tuning run, as one self-contained HTML page: `write("report.html", tir.autotune(...))`.

For a network it is `network.write`.
"""

from __future__ import annotations

from .page import page, write

__all__ = ["page", "write"]
