"""Comparison of all policies at the same number of trials.

Runs, races and figures are those of `ablation`. Here the configurations are whole policies. As in a tuning run, they begin with
the seeds of templates where they take any. The plain policy is Ansor's.

- `to plain`: the trials after which the median over the seeds has the plain policy's final quality; `to plain, s`: the seconds.
- `p`: the probability of differences from the plain policy as large as these by chance. It is that of a two-sided Wilcoxon test
  over pairs of runs with the same row and seed, if MIN_PAIRS differ.
- `equal time`: the best after as many seconds as the plain policy's run with the same seed took; `half`: after half of these.
- `at N`: the mean over the rows of the median best after N trials.

With `--quick` there is one seed, with QUICK_TRIALS trials. With `--save DIR` an interrupted benchmark goes on where it ended, and
writes `DIR/policies.md`. It runs the first seed of all rows, then the second, and ends after `--minutes M`. A row is raced when
all its runs are made. `--race` makes no runs, and races the seeds that all policies have. `--all` takes all rows, `--policies
NAMES` some policies. Every candidate is recorded; `python -m benchmarks.searches DIR FILE` exports the records as one small file.
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
    # Tasks of networks with the most operations in all calls, without epilogues: the second of ResNet-50, whose first is
    # conv-14x256, and the first ones of MobileNetV2 and of BERT with 128 tokens.
    "resnet50": ("conv2d", (1, 56, 56, 64, 64, 3, 3, 1, 1)),
    "mobilenet": ("conv2d", (1, 14, 14, 96, 576, 1, 1, 1, 0)),
    "bert": ("gmm", (128, 768, 3072)),
}

DEFAULT = tuple(TABLE)

# The five layers of the Reasoning Compiler's evaluation (NeurIPS 2025, section 4), each as its product with the most operations.
# Dimensions are those of the models. The numbers of tokens and pixels are ours, as the paper does not give them.
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

MIN_PAIRS = 6  # least pairs that differ: with five, p is at least 0.06

RUN_SECONDS = 30.0  # expected seconds of the first run


def prepare(rows: Sequence[str], options: Options) -> None:
    """Make and keep the missing runs, if they are saved: those of all rows with one seed, then with the next, as long as there
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
    """One result a policy; none before the runs of all seeds are made, unless `race` takes fewer seeds."""
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
    """The number of seeds, from the first on, with which all runs of a row are made."""
    for n in range(options.seeds):
        paths = [ablation.path_of(Path(options.save or ""), row, name, options.seed + n, options) for name in chosen(options)]
        if not all(ablation.ended(path, options).exists() for path in paths):
            return n
    return options.seeds


def reached(result: dict[str, Any], quality: float) -> dict[str, Any]:
    """The trials and the seconds after which the median over the seeds has a quality; None if it never has."""
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
    """The columns and lines of the bests after CHECKPOINTS trials, if all runs have so many: means over the rows."""
    every = [r for results in rows.values() for r in results]
    counts = [n for n in CHECKPOINTS if all(n <= r["trials"] for r in every)]
    lines = []
    for name in CONFIGURATIONS:
        mine = [np.median(r["speeds"], axis=0) for r in every if r["configuration"] == name]
        if mine and counts:
            lines.append((name, *(f"{np.mean([m[n - 1] for m in mine]):.3f}" for n in counts)))
    return ("policy", *(f"at {n}" for n in counts)), lines


# Published figures, of other machines and versions: the work, its figure, and the policy that stands for it here. That of
# Han et al. is compared with the sketch choice and the mutations of `evolution`.
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
    """Published figures beside those of the policies here: the plain policy's time to its final quality over the policy's, the
    number of these rows, and the policy's best over the plain one's; geometric means."""
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
    """A line of MEANS for each policy, with means over the rows: `to plain` is a share of the policy's trials, `to plain, s` of
    the seconds of the plain policy."""
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
PUBLISHED_NOTE = f"""These are of other machines, spaces, budgets and versions of Ansor: no figure here confirms or refutes one.
`x less time` is the time of `{PLAIN}` to its final quality over the policy's time to it, in the rows where the policy has it.
`x best` is the policy's best over that of `{PLAIN}`. Both are geometric means."""


def reached_cells(r: dict[str, Any]) -> tuple[str, str]:
    """The trials and seconds to the quality of the plain policy."""
    return str(r["to_plain"] or "never"), "never" if r["to_plain_s"] is None else f"{r['to_plain_s']:.1f} s"


INTRODUCTION = f"""# What policies find

Made by `python -m benchmarks policies --save DIR`. Speeds are relative to the fastest that any run of the row found, all bests
timed in turns at the end. The [policies](../../docs/policies.md) are explained by an example.

- `best` is the median over the seeds, `area` its mean over all trials.
- `to plain` is the mean share of trials after which a policy has the final quality of `{PLAIN}`, and the rows where it has it.
  `to plain, s` is the share of the seconds of a run of `{PLAIN}`.
- `equal time` is the mean best after the seconds of the run of `{PLAIN}` with the same seed, `half` after half of these.
- `p` is how likely such differences of final speeds are by chance (Wilcoxon, pairs of the same row and seed).
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
        sections.append(f"### Published figures beside ours\n\n{PUBLISHED_NOTE}\n\n{lines}\n")
        for row, results in rows.items():
            program, shape = TABLE[row]
            columns = (*ablation.COLUMNS, "to plain", "to plain, s")
            lines = pages.table(columns, [(*ablation.cells(r), *reached_cells(r)) for r in results])
            sections.append(f"### {row}\n\n`{program}` {','.join(map(str, shape))}\n\n{lines}\n")
    (folder / "policies.md").write_text("\n".join(sections))
