# Two commands: `make run` runs your data through the notebooks into a report, `make test` checks everything.
# Both make their own .venv on first use; nothing else has to be installed before.

PYTHON ?= python3
NAME ?= demo
OUT ?= runs/$(NAME)
# The studies look at a part of training on made-up or bundled data, whatever DATA is.
STUDIES := $(sort $(wildcard notebooks/03_*.ipynb notebooks/09_*.ipynb notebooks/10_*.ipynb notebooks/11_*.ipynb))
NOTEBOOKS := $(filter-out $(STUDIES),$(sort $(wildcard notebooks/[01][0-9]_*.ipynb)))
BIN := .venv/bin

# The shell gets values from the environment and not from the text of the recipe, so that spaces,
# quotes and wildcards in a value stay what they are.
export DATA TOKENIZER STEPS NAME OUT
given = $(if $(findstring command,$(origin $(1))),-p "$(1)=$$$(1)")

.PHONY: help run studies test bench lab refresh clean

help:
	@echo 'make run                  run the notebooks into runs/demo and write runs/demo/report.html'
	@echo '  DATA=FILES              your text: a file, a folder or a glob (.txt .jsonl .parquet)'
	@echo '  TOKENIZER=FOLDER        your tokenizer, a Hugging Face folder'
	@echo '  STEPS=N                 training steps'
	@echo '  NAME=NAME or OUT=FOLDER where to: runs/NAME, or any folder'
	@echo 'make studies              run the other notebooks (loss scale, experts, several ranks, alarms) into the same folder'
	@echo 'make test                 the tests, then every notebook against its stored outputs'
	@echo 'make bench                data pipeline, model and training step beside their peers, and the cost of surviving, into runs/bench (about an hour; 4 GB of disk)'
	@echo 'make lab                  open JupyterLab on the notebooks'
	@echo 'make refresh              run the notebooks and store their outputs'
	@echo 'make clean                remove .venv and caches; runs/ stays'
	@echo 'PYTHON=python3.11         the Python to make .venv from (needs 3.11)'

run: .venv/.run-stamp
	$(BIN)/workbench run $(NOTEBOOKS) $(call given,DATA) $(call given,TOKENIZER) $(call given,STEPS) --out "$$OUT"

studies: .venv/.run-stamp
	$(BIN)/workbench run $(STUDIES) --out "$$OUT"

test: .venv/.test-stamp
	$(BIN)/python -m pytest -n 2 --dist loadfile
	$(BIN)/python -m pytest --nbval --nbval-current-env --nbval-cell-timeout=600 notebooks

bench: .venv/.test-stamp
	$(BIN)/python -m tests.bench.reading --out runs/bench/reading.json
	$(BIN)/python -m tests.bench.data --out runs/bench/data.json
	$(BIN)/python -m tests.bench.model --switch --out runs/bench/model.json
	$(BIN)/python -m tests.bench.train --out runs/bench/train.json
	$(BIN)/python -m tests.bench.survival --out runs/bench/survival.json

lab: .venv/.run-stamp
	$(BIN)/jupyter lab --notebook-dir=. --LabApp.default_url=/lab/tree/notebooks

refresh: .venv/.run-stamp
	$(BIN)/workbench refresh

clean:
	rm -rf .venv .pytest_cache .hypothesis *.egg-info
	find workbench notebooks tests -name __pycache__ -o -name .ipynb_checkpoints | xargs rm -rf

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { \
	  echo "Python 3.11 is needed and $(PYTHON) is `$(PYTHON) -V 2>&1`; say which to use: make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.run-stamp: pyproject.toml | .venv/bin/python
	@echo 'installing into .venv, a few minutes the first time'
	$(BIN)/python -m pip install --quiet -e '.[lab]'
	@touch $@

.venv/.test-stamp: pyproject.toml | .venv/bin/python
	@echo 'installing into .venv, a few minutes the first time'
	$(BIN)/python -m pip install --quiet -e '.[lab,test]'
	@touch $@ .venv/.run-stamp
