"""Files are replaced as a whole."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tir.files import write_atomically


def test_files_are_replaced_whole(tmp_path, monkeypatch):
    path = tmp_path / "best.json"
    write_atomically(path, "old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, "new")
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["best.json"]


def test_links_stay_links_and_pipes_pipes(tmp_path):
    file, link, pipe = tmp_path / "best.json", tmp_path / "link.json", tmp_path / "pipe"
    link.symlink_to(file)
    write_atomically(link, "new")
    assert link.is_symlink() and file.read_text() == "new"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reader:
        found = reader.submit(pipe.read_text)
        write_atomically(pipe, "through")
        assert found.result(10) == "through" and pipe.is_fifo()


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(tmp_path / "pages" / "best.json", "new")
    assert str(caught.value) == f"[Errno 2] the folder does not exist: '{tmp_path}/pages'"
