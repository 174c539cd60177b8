"""The report of a network: its tasks in a table and a picture."""

from __future__ import annotations

import re

import pytest

from search.report.network import MAX_BARS, NetworkReport, TaskTime, joined, page, rows, write


def tasks(n):
    return [TaskTime(f"conv_{k}(1x{k})", k + 1, 8e-3 / (k + 1), 4e-3 / (k + 1), 16 * k) for k in range(n)]


@pytest.fixture
def report():
    return NetworkReport("a<b", "llvm", 2, 20e-3, 10e-3, tasks(3), [(1.0, 19e-3), (5.0, 10e-3)], 9.0)


def test_the_others_are_one():
    assert joined(tasks(MAX_BARS)) == tasks(MAX_BARS)
    few = joined(tasks(5), 3)
    assert few[:2] == tasks(2) and few[2].label == "3 others"
    assert (few[2].calls, few[2].trials) == (3 + 4 + 5, 16 * (2 + 3 + 4))
    assert few[2].before == pytest.approx(8e-3 * (1 / 3 + 1 / 4 + 1 / 5)) and few[2].after == pytest.approx(few[2].before / 2)


def test_rows():
    assert rows(tasks(2)) == [
        ("conv_0(1x0)", "1", "66.7%", "8 ms", "4 ms", "2.00", "0"),
        ("conv_1(1x1)", "2", "33.3%", "4 ms", "2 ms", "2.00", "16"),
    ]


def test_the_page_holds_the_pictures_and_the_table(report):
    text = page(report)
    assert "<h1>a&lt;b</h1>" in text and "2 threads; 48 trials in 9.0 s" in text
    assert len(re.findall("<svg", text)) == 2 and "conv_2(1x2)  (3)" in text
    assert "<tr><td style=text-align:left>tuned</td><td>10 ms</td><td>2.00</td></tr>" in text
    assert not re.search(r'(src|href)="(?!#)', text)


@pytest.mark.parametrize(("name", "begins"), [("x.html", b"<!DOCTYPE html>"), ("x.png", b"\x89PNG"), ("x.svg", b"<?xml")])
def test_files_are_what_their_names_say(report, tmp_path, name, begins):
    write(tmp_path / name, report)
    first = (tmp_path / name).read_bytes()
    assert first.startswith(begins)
    write(tmp_path / name, report)
    assert (tmp_path / name).read_bytes() == first
