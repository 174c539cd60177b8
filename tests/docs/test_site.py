"""The site: every page is in its navigation, every link of the repository's pages leads somewhere. CI builds it (`make site`)."""

from __future__ import annotations

import ast
import posixpath
import re
import runpy
from collections import Counter
from importlib import import_module
from inspect import isclass, isroutine
from types import ModuleType

import pytest

import tir
from docs import lessons, site

ANCHOR = re.compile(r"\]\(([^)\s#]*)#([^)\s]+)\)")


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return site.texts()


def anchors(text: str) -> set[str]:
    """Where links to headings of a page may lead, as GitHub and MyST name them."""
    outside = "".join(site.FENCE.split(text)[::2])
    titles = re.findall(r"^#+ +(.*?)\s*$", outside, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_page_is_in_the_navigation_once(texts):
    named = Counter(page for pages in site.navigation().values() for page in pages)
    assert named == Counter(page for page in texts if page != "index.md" and "/solutions/" not in page)


def test_no_page_has_the_name_of_one_that_sphinx_makes(texts):
    assert not {"search.md", "genindex.md", "py-modindex.md", "modindex.md"} & set(texts)
    assert all(site.headline(text) for text in texts.values())


def test_a_page_that_holds_another_one_is_found(tmp_path):
    """As one that the generator's own takes the place of; `make site` looks at all."""
    pages = {f"{name}.md": f"# {name}: `a` < *b*, [c](d.md)\n\ntext\n" for name in ("first", "search", "gone")}
    for name in ("first", "search"):
        title = "Search" if name == "search" else 'first: <code>a</code> &lt; <em>b</em>, c<a class="headerlink" href="#x">¶</a>'
        (tmp_path / f"{name}.html").write_text(f"<html><h1>{title}</h1>")
    assert site.lost(tmp_path, pages) == ["search.md", "gone.md"]


def test_the_site_has_its_style(tmp_path):
    """By which long lines of code fold, in place of being cut off, and names of modules do not look like links."""
    site.write(tmp_path)
    options = runpy.run_path(str(tmp_path / "conf.py"))
    (style,) = [tmp_path / folder / name for folder in options["html_static_path"] for name in options["html_css_files"]]
    assert re.search(r"\.highlight pre \{[^}]*white-space: pre-wrap", style.read_text())
    assert re.search(r"\.highlight \.nn,[^{]*\{ text-decoration: none", style.read_text())


def test_links_of_pages_lead_to_files():
    pages = [path for path in site.sources() if site.page_of(path).endswith(".md")]
    assert len(pages) > 25
    assert [(page, link) for page in pages for link in site.links(page) if not (site.ROOT / link).exists()] == []


def test_links_to_headings_lead_to_one(texts):
    there = {page: anchors(text) for page, text in texts.items()}
    wrong, found = [], 0
    for page, text in texts.items():
        for target, anchor in ANCHOR.findall("".join(site.FENCE.split(text)[::2])):
            found += 1
            place = posixpath.normpath(posixpath.join(posixpath.dirname(page), target)) if target else page
            if "://" not in target and anchor not in there.get(place, ()):
                wrong.append((page, target, anchor))
    assert found > 50 and wrong == []


def test_links_are_those_of_the_site(texts):
    assert "](te.md)" in texts["index.md"] and "](results/cpu.md)" in texts["index.md"]
    assert "](results/networks.md)" in texts["networks.md"] and "](source/examples/farm/compose.yaml)" in texts["distributed.md"]
    assert "[Targets" not in texts["reference/kernels.md"] and "](../targets.md)" in texts["reference/kernels.md"]


def test_lessons_are_pages_with_their_pictures_and_what_they_print(texts):
    lesson, solution = texts["tutorial/01_loop_nests.md"], texts["tutorial/solutions/01_loop_nests.md"]
    assert lesson.startswith("# 1. What does a loop nest cost?\n\nThe product") and "](solutions/01_loop_nests.md)" in lesson
    assert 'keep("01_loop_nests")\n```\n\n![the picture](pictures/01_loop_nests.svg)\n\n## On your machine\n' in lesson
    assert "```\n\n```text\norder i, j, k: 5184 misses;  order i, k, j: 1152 misses\n```\n\nLook at" in lesson
    assert re.search(r"\n```\n\nOn [^\n]+ \(llvm [^\n]+\):\n\n```text\ndot +[\d.]+ ms", lesson), "measured"
    assert '```python\n"""All six orders, counted.' in solution
    assert "docs/tutorial/pictures/01_loop_nests.svg" in site.sources()


def test_the_reference_has_what_tir_offers(texts):
    """Every public name but the modules; signature and docstring of each."""
    on_pages = {name for _, names in site.REFERENCE.values() for group in names.values() for name in group.split()}
    modules = {name for name in tir.__all__ if isinstance(getattr(tir, name), ModuleType)}
    assert set(tir.__all__) - modules - on_pages == set()
    assert site.entry("tir", "equivalent").startswith("## equivalent\n\n```python\ntir.equivalent(f: ")
    kernel = site.entry("tir", "Kernel")
    assert "**`Kernel.time(" in kernel and "**`Kernel.asm(" in kernel and "_bind" not in kernel
    assert "**`Schedule.undo(" in texts["reference/schedules.md"] and "Schedule.split" not in texts["reference/schedules.md"]


def test_the_reference_has_what_lessons_import():
    """Each function and class of the packages."""
    listed = {
        getattr(import_module(m), n) for _, names in site.REFERENCE.values() for m, group in names.items() for n in group.split()
    }
    packages = {"tir", "schedule", "codegen", "search", "costmodel", "graph", "cli", "explorer"}
    trees = [ast.parse(path.read_text()) for path in sorted(lessons.COURSE.glob("[0-9]*.py"))]
    froms = [
        x
        for tree in trees
        for x in ast.walk(tree)
        if isinstance(x, ast.ImportFrom) and (x.module or "").split(".")[0] in packages
    ]
    used = {(x.module, a.name): getattr(import_module(str(x.module)), a.name) for x in froms for a in x.names}
    assert len(used) > 20 and "run" in {name for _, name in used}
    assert [name for name, found in used.items() if (isroutine(found) or isclass(found)) and found not in listed] == []


def test_the_ladder_lists_the_pages_that_there_are(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "EXPLORER", tmp_path)
    assert "`make docs` makes them." in site.ladder()
    (tmp_path / "naive.html").write_text("<title>naive: C &gt; 0</title>")
    assert site.ladder().endswith('\n\n- <a href="explorer/naive.html">naive: C &gt; 0</a>\n')
