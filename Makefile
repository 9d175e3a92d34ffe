# gridaware: everything a developer runs. `make` alone lists the targets.
#
# Every target works in an empty clone: it first makes .venv, or brings it up to date.

PYTHON ?= python3
WORKERS ?= 2
TESTS ?= tests
SITE ?= gridaware-site

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.up-to-date
WITNESSES := .venv-witnesses

# A virtual environment whose interpreter does not start (moved, half made, Python upgraded
# underneath) is made anew, whatever its stamp says.
ifneq ($(shell $(BIN)/python -c 'print("works")' 2>/dev/null),works)
$(shell rm -f $(STAMP))
endif

.DEFAULT_GOAL := help
.PHONY: help setup demo serve test test-all fuzz witnesses check fmt docs bench clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

setup: $(STAMP) ## make .venv with everything pinned, or bring it up to date
	@:

$(STAMP): pyproject.toml constraints.txt Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: gridaware needs Python 3.11 or newer; PYTHON=$(PYTHON) is" \
	    "$$($(PYTHON) --version 2>&1 || true)" >&2; \
	  echo "fix:   make $(or $(MAKECMDGOALS),setup) PYTHON=python3.12   (any 3.11 or newer)" >&2; \
	  exit 1; }
	@$(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt hatchling editables
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $(STAMP)

demo: $(STAMP) ## a simulated cluster on real Ray yields to a signed signal; no GPU needed
	@$(BIN)/gridaware demo

serve: $(STAMP) ## run the controller and the web process of ./$(SITE), made where missing
	@test -e $(SITE)/site.yaml || $(BIN)/gridaware init $(SITE)
	@$(BIN)/gridaware serve --config $(SITE)/site.yaml

# Whole sites that are judged by the clock run by themselves, after everything else; a selection
# may hold none of either kind (pytest then says 5).
define pytest
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(2) \
	  -m '$(1) and not real_time' $(TESTS) || [ $$? -eq 5 ]
	$(BIN)/python -m pytest -n 0 -m '$(1) and real_time' $(TESTS) || [ $$? -eq 5 ]
endef

test: $(STAMP) ## the whole suite, architecture, types and lint with it (minutes)
	$(call pytest,not slow and not live)

test-all: $(STAMP) ## the suite and everything slow (up to an hour)
	-@$(MAKE) --no-print-directory witnesses
	$(call pytest,not live,--timeout 1200)

MESSAGES ?= 200000

fuzz: $(STAMP) ## MESSAGES=200000 mutated messages a feed kind (minutes); `make test` takes a slice
	GRIDAWARE_FUZZ=$(MESSAGES) $(BIN)/python -m pytest -n $(WORKERS) tests/fuzz

witnesses: $(WITNESSES)/.up-to-date ## nvitop and gpustat in an environment of their own
	@:

# Apart from .venv: what they pin must not decide what gridaware runs with. Without a network the
# tests that need them are skipped.
$(WITNESSES)/.up-to-date: constraints-witnesses.txt
	$(PYTHON) -m venv --clear $(WITNESSES)
	$(WITNESSES)/bin/python -m pip install --quiet -c constraints-witnesses.txt nvitop gpustat
	@touch $@

check: $(STAMP) ## lint, format, types and import contracts alone (seconds)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: $(STAMP) ## format, and mend what the linter can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP) ## write the reference pages from the code
	$(BIN)/python docs/generate.py

TRIALS ?= 100

bench: $(STAMP) ## every benchmark, one JSON object each; TRIALS=10 for a short one
	@$(BIN)/python -m benchmarks.plan -o json
	@$(BIN)/python -m benchmarks.metering -o json
	@$(BIN)/python -m benchmarks.jobword -o json
	@$(BIN)/python -m benchmarks.respond --trials $(TRIALS) -o json
	@$(BIN)/python -m benchmarks.fanout --rounds $(TRIALS) -o json
	@$(BIN)/python -m benchmarks.frequency -o json

clean: ## remove what was built, the virtual environment too
	rm -rf $(VENV) $(WITNESSES) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	  .import_linter_cache htmlcov .coverage gridaware-demo
