# Every target sets itself up: a virtual environment in .venv, made anew when pyproject.toml changes.
# Nothing is needed beforehand but Python 3.11 or newer and make. `make help` lists the targets.

PYTHON ?= python3
TRIALS ?= 64
BUDGET ?= 78
PYTEST_ARGS ?=
HOST ?=
OUT ?= build/gpu
BENCH_ARGS ?=
FUZZ_ARGS ?=
GRAPH_ARGS ?=
CONFORMANCE_ARGS ?=
NIGHTLY_ARGS ?=
MUTANTS_ARGS ?=
PUBLISHED ?= $(wildcard ../shared/published)

PY := .venv/bin/python
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help tune test docs site fuzz nightly mutants conformance lint bench notebooks lab gpu gpu-static clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Variables: PYTHON=$(PYTHON) TRIALS=$(TRIALS) BUDGET=$(BUDGET) (seconds a run of tune) PYTEST_ARGS=... HOST=... OUT=$(OUT) BENCH_ARGS=... FUZZ_ARGS=... GRAPH_ARGS=... CONFORMANCE_ARGS=... NIGHTLY_ARGS=... MUTANTS_ARGS=..."

tune: $(READY) ## tune exp(A·B)·E for this machine, on 1 and 2 threads; ends within 3 minutes
	@cores=$$($(PY) -c 'import os; print(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())'); \
	for threads in 1 2; do \
	  if [ $$threads -gt $$cores ]; then echo "one core only: the run on 2 threads is left out"; break; fi; \
	  echo "python -m tir.tune mlp --trials $(TRIALS) --seconds $(BUDGET) --threads $$threads"; \
	  $(PY) -m tir.tune mlp --trials $(TRIALS) --seconds $(BUDGET) --threads $$threads || exit $$?; \
	done

test: $(READY) ## run the test suite, all cases of swept families with PYTEST_ARGS=--all; HOST=x86-64-v3 as on such a processor (LLVM's name)
	@$(PY) -m pytest -q -n auto --maxprocesses 8 --dist worksteal $(if $(HOST),--host $(HOST)) $(PYTEST_ARGS)

docs: $(READY) ## the documentation as a site, build/docs/index.html, with the ladder as pages of the explorer, which take some minutes the first time
	@$(MAKE) -s build/explorer/index.html site

site: $(READY) ## the same with those pages of the explorer that are there
	@$(PY) -m docs.site build/site
	@$(PY) -m sphinx -q -W --keep-going build/site build/docs
	@$(PY) -m docs.site --check build/docs
	@echo build/docs/index.html

# Every step of the ladder, and of the published programs where they are at hand, built and timed.
build/explorer/index.html: $(wildcard examples/ladder/*.py explorer/*)
	@$(PY) -m examples.ladder.pages build/explorer $(if $(PUBLISHED),--published $(PUBLISHED))

fuzz: $(READY) ## random programs under random schedules, random networks, and tuning runs that are killed; FUZZ_ARGS="--programs 2000 --seed 0" GRAPH_ARGS="--graphs 500"
	@$(PY) -m tests.schedule.fuzz --jobs 2 $(FUZZ_ARGS)
	@$(PY) -m tests.graph.fuzz --jobs 2 $(GRAPH_ARGS)
	@$(PY) -m tests.search.faults --kills 10

nightly: $(READY) ## all fuzzers, ONNX's node tests, mutants, killed runs and a farm, in at most 90 minutes; NIGHTLY_ARGS="--minutes 20 --seed 0"
	@$(PY) -m tests.nightly $(NIGHTLY_ARGS)

mutants: $(READY) ## change one thing at a time in legality/, passes/ and templates/, and see that a test fails; MUTANTS_ARGS="--count 100 --only legality"
	@$(PY) -m tests.mutants $(MUTANTS_ARGS)

conformance: $(READY) ## run ONNX's own node tests; CONFORMANCE_ARGS="--reasons resize"
	@$(PY) -m tests.graph.conformance --jobs $$($(PY) -c 'import os; print(os.cpu_count())') $(CONFORMANCE_ARGS)

lint: $(READY) ## check style, formatting and types
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

bench: $(READY) ## run the benchmarks beside numpy and, where installed, torch: tables, and one JSON object a line; 3 to 4 minutes
	@$(PY) -m benchmarks $(BENCH_ARGS)

notebooks: $(READY) ## write the lessons of docs/tutorial as notebooks, beside their scripts
	@$(PY) -m jupytext --quiet --to ipynb docs/tutorial/[0-9]*.py

lab: notebooks ## open them in JupyterLab, which is installed into .venv the first time
	@$(PY) -c 'import jupyterlab' 2>/dev/null || $(PY) -m pip install -q --disable-pip-version-check jupyterlab
	@$(PY) -m jupyterlab docs/tutorial

gpu: ## check the GPU kernels on this machine's GPU and time them beside torch, in OUT=build/gpu, in about 280 seconds; again, it goes on; PYTHON needs cuda-python and torch
	@$(PYTHON) -m tests.codegen.cuda.on_device --resume --seconds 120 --sources $(OUT); checked=$$?; \
	$(PYTHON) -m benchmarks.gpu --resume --seconds 140 --out $(OUT)/times.jsonl --records $(OUT)/records.db --sources $(OUT); timed=$$?; \
	if [ $$checked -lt 2 ]; then cat $(OUT)/checks.txt; fi; [ $$checked -eq 0 ] && exit $$timed

gpu-static: $(READY) ## what can be said of the GPU kernels without a GPU: signs of speed in their machine code, and all their PTX in the simulator; some minutes
	@$(PY) -m benchmarks.gpu --static
	@$(PY) -m pytest -q -n auto --maxprocesses 8 --dist worksteal --all tests/codegen/cuda/ptx

clean: ## remove the virtual environment and caches
	@rm -rf .venv .pytest_cache .ruff_cache .mypy_cache .hypothesis *.egg-info

# The first Python that is new enough, $(PYTHON) before all others. Where the module venv is not complete (Debian packages it apart),
# virtualenv or uv will do.
$(READY): pyproject.toml
	@set -e; \
	new_enough() { "$$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }; \
	python=; \
	for p in "$(PYTHON)" $(if $(filter file,$(origin PYTHON)),python3.14 python3.13 python3.12 python3.11 python); do \
	  if new_enough "$$p"; then python="$$p"; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "error: Python 3.11 or newer is needed, but $(PYTHON) is $$("$(PYTHON)" -V 2>&1 || true)." >&2; \
	  echo "       Name one: make $(or $(firstword $(MAKECMDGOALS)),test) PYTHON=/path/to/python3.12" >&2; exit 1; \
	fi; \
	echo "Setting up .venv with $$("$$python" -V) (once; takes a minute or two) ..."; \
	rm -rf .venv; \
	"$$python" -m venv .venv >/dev/null 2>&1 \
	  || { rm -rf .venv; "$$python" -m virtualenv -q .venv >/dev/null 2>&1; } \
	  || { rm -rf .venv; uv venv -q --seed --python "$$python" .venv >/dev/null 2>&1; } \
	  || { rm -rf .venv; echo "error: $$python cannot make a virtual environment. Install its venv module (Debian, Ubuntu: apt install python3-venv), virtualenv or uv." >&2; exit 1; }; \
	$(PY) -m pip install -q --disable-pip-version-check -e '.[dev]' \
	  || { echo "error: the dependencies could not be installed; see pip's message above. Run make again to retry." >&2; exit 1; }; \
	touch $@; \
	echo "Ready: $$($(PY) -V) in .venv"
