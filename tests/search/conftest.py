from pathlib import Path

import pytest


@pytest.fixture
def fake_builder(monkeypatch) -> str:
    """The name of the fake builder module, importable here and in workers."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return "fake_builder"


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """Compiled objects go to a folder of the test run, not to that of the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
