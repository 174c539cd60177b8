"""Packages whose names are imported when first used."""

from __future__ import annotations

import compileall
import importlib
import sys
from pathlib import Path

import pytest

SOURCE = """
from typing import TYPE_CHECKING

from tir.lazy_names import lazy_names

if TYPE_CHECKING:
    from .made import value as value

__getattr__ = lazy_names(__name__)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "lazy_example"
    folder.mkdir()
    (folder / "__init__.py").write_text(SOURCE)
    (folder / "made.py").write_text("value = 7")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("lazy_example", "lazy_example.made"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return folder


def test_a_name_is_imported_when_it_is_used(package: Path) -> None:
    found = importlib.import_module("lazy_example")
    assert "lazy_example.made" not in sys.modules and "value" in dir(found)
    assert found.value == 7 and "lazy_example.made" in sys.modules
    with pytest.raises(AttributeError, match="did you mean 'value'"):
        _ = found.valeu


def test_without_its_source_a_package_says_so(package: Path) -> None:
    assert compileall.compile_dir(package, legacy=True, quiet=1)
    for source in package.glob("*.py"):
        source.unlink()
    found = importlib.import_module("lazy_example")
    with pytest.raises(ImportError, match="lazy_example: its names are read from its source, which was not installed"):
        _ = found.value
