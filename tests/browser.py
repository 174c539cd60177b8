"""Pages as a browser makes them: Chromium without a screen, where there is one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")


def rendered(page: Path, folder: Path, fragment: str = "") -> str:
    """The document after its scripts have run, as HTML; `folder` is for the browser's own files."""
    assert CHROMIUM is not None
    command = [CHROMIUM, *QUIET, f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=2000", "--dump-dom"]
    return subprocess.run([*command, page.as_uri() + fragment], capture_output=True, text=True, timeout=120, check=True).stdout
