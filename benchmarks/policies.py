"""What all policies find in the same number of trials.

Runs, races and figures are those of `ablation`, whose docstring explains them; here the configurations are whole policies, and
they begin, as in a tuning run, with the seeds of templates where they take any. The plain policy is Ansor's. `to plain` are the
trials, and `to plain, s` the seconds of a run, after which the median over the seeds has its final quality. `p` is how likely
differences from the plain policy as large as these are by chance: a two-sided Wilcoxon test over the pairs of runs with the
same row and seed, where there are MIN_PAIRS. `equal time` is the best after as many seconds as the run of the plain policy with
the same seed took, `half` after half of these. `at N` is the mean over the rows of the median best after N trials.

With `--quick` a run has QUICK_TRIALS trials, and there is one seed. With `--save DIR` it goes on where it ended, and writes
`DIR/policies.md`. It makes the first seed of all rows, then the second: with `--minutes M` it ends in time, and another call goes
on. A row is raced when all its runs are there, or with `--race`, which makes none, with the seeds that are there. `--all` takes
all rows, `--policies NAMES` only some policies. Every candidate is recorded as it is measured; `python -m benchmarks.searches DIR
FILE` makes one small file of all records, for comparisons elsewhere.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tir.nearest import no_such

from . import ablation, pages
from .options import Options

PLAIN = "ansor"

# Arguments of `search.policy.named.make_policy`, beside the task.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    **{
        name: {"policy": name}
        for name in (
            PLAIN,
            "evolution",
            "template",
            "directions",
            "beam",
            "tree",
            "pruner",
            "felix",
            "lfbo",
            "tlp",
            "reasoning",
        )
    },
    "random": {"policy": "random", "model": "none"},
    "no model": {"model": "none"},
    "no shipped trees": {"model": "gbdt"},
    # Ansor's figure 7, beside ansor and beam
    "ansor no fine-tuning": {"policy": "random", "model": "none", "space": "ansor"},
    "ansor limited space": {"policy": "ansor", "space": "limited"},
}

TABLE: dict[str, tuple[str, tuple[int, ...]]] = ablation.TABLE | {
    "conv-bn-relu": ("conv_bn_relu", (1, 7, 7, 512, 512, 3, 1, 1)),
    "attention": ("attention_weights", (1, 128, 12, 64)),
    # The tasks with the most operations of networks, calls times operations, as workloads without their epilogues: the second of
    # ResNet-50, whose first is conv-14x256, and the first ones of MobileNetV2 and of BERT with 128 tokens.
    "resnet50": ("conv2d", (1, 56, 56, 64, 64, 3, 3, 1, 1)),
    "mobilenet": ("conv2d", (1, 14, 14, 96, 576, 1, 1, 1, 0)),
    "bert": ("gmm", (128, 768, 3072)),
}

DEFAULT = tuple(TABLE)

# The five layers of the Reasoning Compiler's evaluation (NeurIPS 2025, section 4), each as its product with the most operations.
# Of the dimensions of the models, at 16 tokens, or a piece of 32 x 32 pixels; the paper does not say how many it has.
TABLE |= {
    "llama-3-8b-attention": ("attention_weights", (1, 128, 32, 128)),
    "deepseek-r1-expert": ("gmm", (16, 7168, 2048)),
    "flux-attention": ("attention_weights", (1, 128, 24, 128)),
    "flux-convolution": ("conv2d", (1, 32, 32, 256, 256, 3, 3, 1, 1)),
    "llama-4-scout-mlp": ("gmm", (16, 5120, 8192)),
}

ROWS = tuple(TABLE)

TRIALS = ablation.TRIALS

QUICK_TRIALS = 16

CHECKPOINTS = (16, 48, 64, 256)  # trials after which bests are compared

MIN_PAIRS = 6  # with fewer the test cannot say anything at 5 per cent

RUN_SECONDS = 30.0  # that a run is expected to take before one was made


def prepare(rows: Sequence[str], options: Options) -> None:
    """Make the runs that are not there yet, where they are kept: of one seed after the other those of all rows, as long as there
    is time."""
    options, begin, longest = _budget(options), time.monotonic(), 0.0
    if options.save is None or options.race:
        return
    tasks = {row: ablation.task_of(TABLE[row], options) for row in rows}
    for seed in range(options.seed, options.seed + options.seeds):
        for row, task in tasks.items():
            for configuration, parts in chosen(options).items():
                path = ablation.path_of(Path(options.save), row, configuration, seed, options)
                if ablation.ended(path, options).exists():
                    continue
                start = time.monotonic()
                if options.minutes is not None and start - begin + (longest or RUN_SECONDS) > 60 * options.minutes:
                    return
                ablation.run(task, parts, options, seed, path)
                longest = max(longest, took := time.monotonic() - start)
                print(f"{row}, seed {seed}: {configuration} in {took:.1f} s", file=sys.stderr)


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """One result a policy; none before the runs of all seeds are there, unless those that are there are to be raced."""
    options = _budget(options)
    if options.save is not None:
        seeds = _complete(row, options)
        if seeds == 0 or (seeds < options.seeds and not options.race):
            return
        options = replace(options, seeds=seeds, minutes=None)
    results = ablation.compared(row, options, TABLE, chosen(options))
    plain = next(r for r in results if r["configuration"] == PLAIN)
    quality = float(np.median(plain["speeds"], axis=0)[-1])  # rounded as all speeds are
    results = [r | reached(r, quality) | {"in_time": [in_time(r, plain, share) for share in (1.0, 0.5)]} for r in results]
    pages.keep(options.save, "policies", row, {"threads": options.threads, "results": results}, write)
    yield from results


def chosen(options: Options) -> dict[str, dict[str, Any]]:
    """The configurations to compare: all, or the named ones and the plain one. ValueError for an unknown name."""
    if options.policies is None:
        return CONFIGURATIONS
    wanted = [name.strip() for name in options.policies.split(",")]
    for name in wanted:
        if name not in CONFIGURATIONS:
            raise ValueError(no_such("policy", name, CONFIGURATIONS))
    return {name: parts for name, parts in CONFIGURATIONS.items() if name in (PLAIN, *wanted)}


def _budget(options: Options) -> Options:
    return replace(options, seeds=1, trials=QUICK_TRIALS) if options.quick else options


def _complete(row: str, options: Options) -> int:
    """Of how many seeds all runs of a row are there, from the first one on."""
    for n in range(options.seeds):
        paths = [ablation.path_of(Path(options.save or ""), row, name, options.seed + n, options) for name in chosen(options)]
        if not all(ablation.ended(path, options).exists() for path in paths):
            return n
    return options.seeds


def reached(result: dict[str, Any], quality: float) -> dict[str, Any]:
    """The trials and the seconds after which the median over the seeds has a quality; None where it never has."""
    good = np.flatnonzero(np.median(result["speeds"], axis=0) >= quality)
    ended = [run[good[0]] for run in result["ended_s"] if len(good) and len(run) > good[0]]
    return {"to_plain": int(good[0]) + 1 if len(good) else None, "to_plain_s": float(np.median(ended)) if ended else None}


def in_time(result: dict[str, Any], plain: dict[str, Any], share: float) -> float:
    """The median over the seeds of the best after a share of the seconds that the plain policy's run with the same seed took."""
    found = []
    for speeds, ended, limit in zip(result["speeds"], result["ended_s"], plain["ended_s"], strict=True):
        done = np.searchsorted(ended, share * max(limit, default=0.0), side="right")
        found.append(speeds[done - 1] if done else 0.0)
    return float(np.median(found))


def chance(ours: Sequence[float], plain: Sequence[float]) -> float | None:
    """The p-value of paired final speeds; None for fewer than MIN_PAIRS that differ."""
    from scipy.stats import wilcoxon

    pairs = [(a, b) for a, b in zip(ours, plain, strict=True) if a != b]
    return float(wilcoxon(*zip(*pairs, strict=True)).pvalue) if len(pairs) >= MIN_PAIRS else None


# --- what is shown -----------------------------------------------------------------------------------------------------

table = ablation.table

MEANS = ("policy", "best", "area", "to plain", "to plain, s", "equal time", "half", "p")


def checkpoints(rows: dict[str, list[dict[str, Any]]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The columns and lines of the bests after CHECKPOINTS trials, as far as all runs have them: means over the rows."""
    every = [r for results in rows.values() for r in results]
    counts = [n for n in CHECKPOINTS if all(n <= r["trials"] for r in every)]
    lines = []
    for name in CONFIGURATIONS:
        mine = [np.median(r["speeds"], axis=0) for r in every if r["configuration"] == name]
        if mine and counts:
            lines.append((name, *(f"{np.mean([m[n - 1] for m in mine]):.3f}" for n in counts)))
    return ("policy", *(f"at {n}" for n in counts)), lines


# Published figures, of other machines and versions: what was compared, and the policy that stands for it here, or the sketch
# choice and mutations of ours for those of Han et al. Times are those to the final quality of Ansor.
PUBLISHED = (
    ("Han et al., Computer Science 52(3), 2025", "70 to 75 % of Ansor's time to the same quality", "evolution"),
    ("Pruner, ASPLOS 2025", "2.6 times as fast as Ansor to the same quality, on GPUs", "pruner"),
    ("TLP, ASPLOS 2023", "9.1 times as fast as Ansor to the same quality, on CPUs, trained beforehand", "tlp"),
    ("Felix, ASPLOS 2024", "much faster than Ansor to the same quality, on GPUs", "felix"),
    ("LFBO in Helion, pull request 1115, 2025", "1.49 times as fast as its pattern search, on GPUs", "lfbo"),
    ("Reasoning Compiler, NeurIPS 2025", "5.0 times the speed of TVM's evolution after 5.8 times fewer samples", "reasoning"),
    ("Compiler World Models, arXiv 2606.09312", "1.54 times the speed of Ansor at 64 trials, on CPUs", "evolution"),
)


def published(rows: dict[str, list[dict[str, Any]]]) -> list[tuple[str, ...]]:
    """Published figures, and of the policy that stands for each here: how many times less time it took to the final quality of
    the plain policy, in how many rows, and its best over that of the plain policy; geometric means."""
    found = []
    for work, figure, name in PUBLISHED:
        pairs = [({r["configuration"]: r for r in results}, results) for results in rows.values()]
        both = [(by[name], by[PLAIN]) for by, _ in pairs if name in by and PLAIN in by]
        faster = [plain["to_plain_s"] / mine["to_plain_s"] for mine, plain in both if mine["to_plain_s"] and plain["to_plain_s"]]
        better = [mine["best"] / plain["best"] for mine, plain in both if mine["best"] and plain["best"]]
        ours = f"{pages.geometric_mean(faster):.1f} ({len(faster)}/{len(both)})" if faster else "-"
        found.append((work, figure, name, ours, f"{pages.geometric_mean(better):.2f}" if better else "-"))
    return found


def means(rows: dict[str, list[dict[str, Any]]]) -> list[tuple[str, ...]]:
    """Of each policy the means of `best` and `area` over the rows, the rows where it had the quality of the plain one and after
    which mean share of its trials and seconds, the means of the best in equal and in half the time, and the p-value of its final
    speeds."""
    found = []
    for name in CONFIGURATIONS:
        pairs = [
            (mine, next(r for r in results if r["configuration"] == PLAIN))
            for results in rows.values()
            for mine in results
            if mine["configuration"] == name
        ]
        if not pairs:
            continue
        mine = [r for r, _ in pairs]
        there = [r for r in mine if r["to_plain"] is not None]
        shares = [
            [r["to_plain"] / r["trials"] for r in there],
            [r["to_plain_s"] / p["run_s"] for r, p in pairs if r["to_plain_s"]],
        ]
        final = [[speeds[-1] for r in own for speeds in r["speeds"]] for own in (mine, [p for _, p in pairs])]
        p = chance(*final) if len(final[0]) == len(final[1]) else None
        means_of = [f"{np.mean([r[key] for r in mine]):.2f}" for key in ("best", "area")]
        to_plain = [f"{np.mean(s):.0%} ({len(there)}/{len(mine)})" if s else "never" for s in shares]
        timely = [f"{np.mean([r['in_time'][k] for r in mine]):.2f}" for k in (0, 1)]
        found.append((name, *means_of, *to_plain, *timely, "-" if p is None else f"{p:.2g}"))
    return found


PUBLISHED_COLUMNS = ("work", "published", "here", "x less time", "x best")
PUBLISHED_NOTE = f"""Other machines, spaces, budgets and versions of Ansor, so no figure here confirms or refutes one. `x less
time` is the time of `{PLAIN}` to its final quality over that of the policy, a mean over the rows where it came to it; `x best` is
its best over that of `{PLAIN}`."""


def reached_cells(r: dict[str, Any]) -> tuple[str, str]:
    """The trials and seconds to the quality of the plain policy."""
    return str(r["to_plain"] or "never"), "never" if r["to_plain_s"] is None else f"{r['to_plain_s']:.1f} s"


INTRODUCTION = f"""# What policies find

Made by `python -m benchmarks policies --save DIR`. Speeds are relative to the fastest that any run of the row found, all bests
timed in turns at the end. `best` is the median over the seeds, `area` its mean over all trials. `to plain` is the mean share of
the trials, and `to plain, s` of the seconds of a run of `{PLAIN}`, after which a policy has the final quality of `{PLAIN}`, and
in how many rows it had; `equal time` the mean best after as many seconds as the run of `{PLAIN}` with the same seed took, `half`
after half of these; `p` how likely such differences of the final speeds are by chance (Wilcoxon, pairs of the same row and
seed). The [policies](../../docs/policies.md) are explained by an example.
"""


def write(kept: dict[str, dict[str, Any]], folder: Path) -> None:
    """The page and the pictures of all rows that were measured."""
    sections = [INTRODUCTION]
    for threads, heading, entries in pages.by_threads(kept, ROWS):
        rows = {entry["row"]: entry["results"] for entry in entries}
        policies = {row: [r for r in results if " " not in r["configuration"]] for row, results in rows.items()}
        name = f"policies-{threads}.svg"
        ablation.plot(policies, heading, folder / name)
        everything = [r for results in rows.values() for r in results]
        sections.append(f"## {heading}\n\n![speed against trials]({name})\n\n{pages.circumstances(everything)}\n")
        sections.append(f"### Means over the rows\n\n{pages.table(MEANS, means(rows))}\n")
        sections.append(f"### Bests after some trials\n\n{pages.table(*checkpoints(rows))}\n")
        lines = pages.table(PUBLISHED_COLUMNS, published(rows))
        sections.append(f"### Published figures, theirs, beside ours\n\n{PUBLISHED_NOTE}\n\n{lines}\n")
        for row, results in rows.items():
            program, shape = TABLE[row]
            columns = (*ablation.COLUMNS, "to plain", "to plain, s")
            lines = pages.table(columns, [(*ablation.cells(r), *reached_cells(r)) for r in results])
            sections.append(f"### {row}\n\n`{program}` {','.join(map(str, shape))}\n\n{lines}\n")
    (folder / "policies.md").write_text("\n".join(sections))
