"""Puts the sources of the site together: `python -m docs.site DIR`. `make docs` does so, and has Sphinx make pages of them. Then
`python -m docs.site --check DIR` sees that each page holds its own headline.

The README is the first page; results of benchmarks and examples come from their folders; the reference is made of docstrings.
Links are written as they work in the repository; here they become those of the site.
"""

from __future__ import annotations

import html
import inspect
import posixpath
import re
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from . import lessons

ROOT = Path(__file__).resolve().parent.parent
EXPLORER = ROOT / "build" / "explorer"  # where `make docs` puts the pages of the ladder

FAMILIES = sorted(f"primitives/{p.stem}" for p in (ROOT / "docs" / "primitives").glob("*.md"))

# The pages in the order of the site's navigation, by its parts; the course and the results come from their folders.
GUIDES = {
    "Programs": ("te", "ir", "script", "tvm", "math"),
    "Schedules": ("primitives", *FAMILIES, "legality", "first-primitive", "library", "explorer", "ladder", "examples"),
    "Kernels": ("targets", "codegen", "cuda"),
    "Search": ("tuning", "searching", "sketch-rules", "cost-model", "policies", "experiments", "distributed"),
    "Networks": ("networks", "torch", "one-convolution", "low-precision", "generation"),
    "Own parts": ("adding",),
}

# The pages of the reference: where to read more, and the public names on the page, by the module that offers them.
REFERENCE: dict[str, tuple[str, dict[str, str]]] = {
    "Programs": (
        "docs/ir.md",
        {
            "tir": "PrimFunc Block For Buffer Axis Kind Var Const Expr Stmt Node run verify specialize simplify diff "
            "structural_equal equivalent",
            "tir.te": "placeholder compute reduce_axis var sum comm_reducer create_prim_func",
        },
    ),
    "Schedules": (
        "docs/primitives.md",
        {"tir": "Schedule ScheduleError IndexMap TensorIntrin replay default_schedule explore"},
    ),
    "Kernels": (
        "docs/targets.md",
        {"tir": "Target build dump Kernel compile jit compare", "codegen": "Timing ObjectCache Report"},
    ),
    "Search": (
        "docs/tuning.md",
        {
            "tir": "autotune tune_tasks best_schedule study Records NothingFound",
            "search": "Result TasksResult Limits Task NamedWorkload Candidate Measurement Measurer LocalMeasurer DaskMeasurer "
            "Policy Evolution RandomSearch Sketch generate WeightedFunction",
        },
    ),
    "Cost models": (
        "docs/cost-model.md",
        {
            "costmodel": "CostModel TileModel GBDTModel RegressorModel RandomModel Boosting TimeSum ThroughputSum features",
        },
    ),
    "Puzzles": (
        "docs/puzzles/README.md",
        {"tir.puzzles": "check grade board shared Puzzle Goal Verdict Grades AnswerError"},
    ),
    "Parts in lessons": (
        "docs/tutorial/README.md",
        {
            "explorer.simulate": "run events SimulatedRun Event",
            "tir.script": "parse",
            "tir.traverse": "blocks",
            "cli.calibrate": "machine",
            "codegen.peak": "peak_flops",
            "codegen.cuda": "lower_cuda",
            "schedule.open_schedule": "Stage",
            "schedule.open_trace": "Role",
            "search.space.generation": "named",
            "search.space.rules": "rule",
            "search.space.show": "sketch_text",
            "search.population.sample": "sample legalize",
            "search.population.mutate": "move crossover mutations neighbours",
            "search.population.programs": "sketch_programs",
            "costmodel.dataset": "Dataset",
            "costmodel.metrics": "pair_accuracy",
        },
    ),
    "Networks": (
        "docs/networks.md",
        {
            "tir": "load load_onnx from_torch torch_backend Graph GraphError quantise tune_graph",
            "graph": "Builder Model Call Value operator composite",
        },
    ),
}

LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")
FENCE = re.compile(r"^(```.*?^```)$", re.MULTILINE | re.DOTALL)
OWN_DOCUMENTATION = re.compile(r"^\w+\(")  # what dataclasses write where there is no docstring


def page_of(path: str) -> str:
    """Where a file of the repository is on the site; the scripts of the course are pages."""
    if path.startswith(("docs/tutorial/", "docs/puzzles/")) and path.endswith((".py", "README.md")):
        path = path.replace("README.md", "index.md").replace(".py", ".md")
    for folder, place in (("docs/", ""), ("benchmarks/results/", "results/")):
        if path.startswith(folder):
            return place + path.removeprefix(folder)
    return {"README.md": "index.md", "examples/README.md": "examples.md"}.get(path, f"source/{path}")


def text_of(path: str) -> str:
    """A page of the repository in Markdown; a lesson is a script in percent cells, each followed by what it prints and draws."""
    text = (ROOT / path).read_text()
    if path.endswith(".md"):
        return text
    if "/solutions/" in path:
        return f"---\norphan: true\n---\n\n# {Path(path).stem}: solution\n\n```python\n{text}```\n"
    parts, printed = [], lessons.kept(Path(path).stem)
    for cell in lessons.cells(text):
        if cell.prose:
            parts.append(cell.markdown)
            continue
        parts.append(f"```python\n{cell.text.strip()}\n```")
        if cell.number in printed:
            parts += [f"On {lessons.machine(Path(path).stem)}:"] if cell.of_machine else []
            parts.append(f"```text\n{printed[cell.number]}```")
        parts += [f"![the picture](pictures/{name}.svg)" for name in re.findall(r'^keep\("(\w+)"\)', cell.text, re.MULTILINE)]
    return "\n\n".join(parts) + "\n"


def links(path: str) -> Iterator[str]:
    """The files of the repository that a page in it links to."""
    for part in FENCE.split(text_of(path))[::2]:
        for target in LINK.findall(part):
            if "://" not in target:
                yield posixpath.normpath(posixpath.join(posixpath.dirname(path), target))


def moved(path: str) -> str:
    """The text of a page of the repository, its links as they are on the site."""
    here = posixpath.dirname(page_of(path)) or "."

    def link(match: re.Match[str]) -> str:
        if "://" in match[1]:
            return match[1]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1]))
        return posixpath.relpath(page_of(target), here)

    parts = FENCE.split(text_of(path))
    return "".join(part if part.startswith("```") else LINK.sub(link, part) for part in parts)


def sources() -> list[str]:
    """The files of the repository that are on the site: pages, and what they link to."""
    pages = ["README.md", "examples/README.md", "docs/tutorial/README.md", "docs/puzzles/README.md"]
    folders = (
        "docs/*.md",
        "docs/primitives/*.md",
        "docs/puzzles/*.md",
        "docs/tutorial/[0-9]*.py",
        "docs/tutorial/solutions/*.py",
        "benchmarks/results/**/*.md",
    )
    for found in folders:
        pages += sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob(found))
    return list(dict.fromkeys([*pages, *(name for page in pages for name in links(page) if (ROOT / name).is_file())]))


def _signature(found: Any) -> str:
    try:
        return str(inspect.signature(found)).replace("'", "")
    except (TypeError, ValueError):
        return ""


def _documentation(found: Any) -> str:
    text = inspect.getdoc(found) or ""
    return "" if OWN_DOCUMENTATION.match(text) else text


def entry(module: str, name: str) -> str:
    """Signature and docstring of a public name, and those of the methods of a class but for primitives, which have a page."""
    from schedule import REGISTRY

    found = getattr(import_module(module), name)
    lines = [f"## {name}", f"```python\n{module}.{name}{_signature(found)}\n```", _documentation(found)]
    for method, member in vars(found).items() if inspect.isclass(found) else ():
        function = getattr(member, "__func__", member)  # of a class method
        documented = _documentation(getattr(function, "fget", function))
        default = isinstance(member, tuple)  # of a field
        if method.startswith("_") or method in REGISTRY or default or not documented:
            continue
        if isinstance(member, property) or not callable(function):
            lines += [f"**`{name}.{method}`**", documented]
        else:
            lines += [f"**`{name}.{method}{_signature(function).replace('(self, ', '(').replace('(self)', '()')}`**", documented]
    return "\n\n".join(line for line in lines if line)


def reference(title: str) -> str:
    """A page of the reference."""
    more, names = REFERENCE[title]
    entries = (entry(module, name) for module, group in names.items() for name in group.split())
    return "\n\n".join([f"# {title}", f"See also [the guide](../{page_of(more)}).", *entries]) + "\n"


def ladder() -> str:
    """The page that links to those of the explorer that there are."""
    pages = sorted((p for p in EXPLORER.glob("*.html") if p.name != "index.html"), key=lambda p: p.stat().st_mtime)
    found = [(re.search("<title>(.*?)</title>", p.read_text())[1], p.name) for p in pages]  # type: ignore[index]
    text = "Each is a page of [the explorer](explorer.md): the arrow keys go through it." if found else "`make docs` makes them."
    items = "\n".join(f'- <a href="explorer/{name}">{title}</a>' for title, name in found)
    return f"# The ladder, step by step\n\n{text}\n\n{items}\n"


def toctree(caption: str, pages: list[str]) -> str:
    """A part of the navigation."""
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"])


def navigation() -> dict[str, list[str]]:
    """The pages, by the parts of the navigation."""
    pages = [page_of(path) for path in sources() if page_of(path).endswith(".md")]
    lessons = [page for page in pages if page.startswith("tutorial/") and "/solutions/" not in page]
    parts = {"Course": lessons, "Puzzles": [page for page in pages if page.startswith("puzzles/")]}
    parts |= {caption: [f"{name}.md" for name in names] for caption, names in GUIDES.items()}
    parts["Reference"] = [*(f"reference/{_file(title)}" for title in REFERENCE), "glossary.md"]
    parts["Results"] = [page for page in pages if page.startswith("results/")]
    return parts


def _file(title: str) -> str:
    return f"{title.lower().replace(' ', '-')}.md"


def texts() -> dict[str, str]:
    """The pages, by their place on the site."""
    found = {page_of(path): moved(path) for path in sources() if page_of(path).endswith(".md")}
    found |= {"ladder.md": ladder()} | {f"reference/{_file(title)}": reference(title) for title in REFERENCE}
    found["index.md"] += "\n" + "\n\n".join(toctree(*part) for part in navigation().items()) + "\n"
    return found


def write(folder: Path) -> None:
    """All sources, into a folder that is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "pages" / "explorer").mkdir(parents=True)
    (folder / "static").mkdir()
    shutil.copyfile(ROOT / "docs" / "conf.py", folder / "conf.py")
    shutil.copyfile(ROOT / "docs" / "site.css", folder / "static" / "site.css")
    for place, text in texts().items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text)
    for path in sources():
        if not page_of(path).endswith(".md"):
            (folder / page_of(path)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, folder / page_of(path))
    for page in EXPLORER.glob("*.html"):
        shutil.copyfile(page, folder / "pages" / "explorer" / page.name)


def headline(text: str) -> str:
    """The first heading of a page, as plain text."""
    title = re.search(r"^# (.*)$", text, re.MULTILINE)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", title[1]).strip() if title else ""


def lost(folder: Path, pages: dict[str, str]) -> list[str]:
    """The pages that are not on a built site, or without their headline, as one whose name the generator takes itself."""

    def shown(page: str) -> str:
        path = folder / page.replace(".md", ".html")
        first = re.search(r"<h1>(.*?)</h1>", path.read_text(), re.DOTALL) if path.exists() else None
        text = re.sub(r"<a class=\"headerlink\".*?</a>|<[^>]+>", "", first[1]) if first else ""
        return html.unescape(text).strip()

    return [page for page, text in pages.items() if headline(text) == "" or shown(page) != headline(text)]


if __name__ == "__main__":
    if sys.argv[1] == "--check":
        if missing := lost(Path(sys.argv[2]), texts()):
            sys.exit(f"these pages are not on the site, or hold another page: {', '.join(missing)}")
    else:
        write(Path(sys.argv[1]))
