from pathlib import Path

import pytest


@pytest.fixture
def fake_builder(monkeypatch) -> str:
    """The name of the fake builder module, importable here and in workers."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return "fake_builder"
