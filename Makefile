# Every target does its own set-up: a virtual environment in .venv, and the few Debian packages that tests use.
# On a fresh Debian 12:  apt-get install make python3 && make demo && make test

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# Commands that tests use, each from the Debian package of the same name. Installed only if missing.
DEB_PACKAGES ?= strace
# Test processes side by side.
WORKERS ?= 2
# More arguments for the command at hand: make unit ARGS='-k codec -x'
ARGS ?=
# The interpreter that .venv is made from; the first of these that is 3.11 or newer.
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)

VENV := .venv
BENCH_VENV := .venv-bench
PY := $(VENV)/bin/python
PYTEST := $(PY) -m pytest -q --dist=worksteal -n $(WORKERS)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

SOURCES := src tests $(wildcard bench examples)

# $(call deb,PACKAGE): installs it where we may, else says how.
define deb
	sudo=(); \
	if [ "$$(id -u)" != 0 ]; then sudo=(sudo -n); fi; \
	if ! command -v apt-get >/dev/null || { [ "$$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null; }; then \
		echo "$(1) is missing and cannot be installed from here. Run: sudo apt-get install -y $(1)" >&2; exit 1; \
	fi; \
	echo "installing the Debian package $(1)" >&2; \
	apt=("$${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120); \
	log=$$(mktemp); \
	{ "$${apt[@]}" install -y --no-install-recommends $(1) || \
		{ "$${apt[@]}" update && "$${apt[@]}" install -y --no-install-recommends $(1); }; } >"$$log" 2>&1 || \
		{ cat "$$log" >&2; rm -f "$$log"; echo "apt-get could not install $(1): see above" >&2; exit 1; }; \
	rm -f "$$log"
endef

.PHONY: help setup packages lint format types layers unit test campaign soak bench demo clean

help:  ## what there is
	@grep -hE '^[a-z]+:.*## ' Makefile | sed -E 's/:.*## /:/' | while IFS=: read -r name what; do \
		printf '  make %-10s%s\n' "$$name" "$$what"; done

# ---------------------------------------------------------------- set-up

$(VENV)/.python:
	@if [ -z "$(PYTHON)" ]; then echo "Python 3.11 or newer is missing. Run: apt-get install -y python3" >&2; exit 1; fi
	@if ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then $(call deb,python3-venv); fi
	@if ! $(PY) -m pip --version >/dev/null 2>&1; then \
		echo "making $(VENV) with $$($(PYTHON) --version)" >&2; rm -rf $(VENV); $(PYTHON) -m venv $(VENV); \
	fi
	@touch $@

# What `make demo` needs.
$(VENV)/.runtime: pyproject.toml $(VENV)/.python
	@echo "installing perdure into $(VENV)" >&2
	@$(PY) -m pip install -qq -e .
	@touch $@

# What everything else needs.
$(VENV)/.tools: pyproject.toml $(VENV)/.python
	@echo "installing perdure and the tools into $(VENV)" >&2
	@$(PY) -m pip install -qq -e '.[dev]'
	@touch $(VENV)/.runtime $@

# Peers bring pytest plugins and dozens of packages: they get an environment of their own.
$(BENCH_VENV)/.peers: pyproject.toml $(VENV)/.python
	@echo "installing perdure and the peers that it is measured beside into $(BENCH_VENV)" >&2
	@if ! $(BENCH_VENV)/bin/python -m pip --version >/dev/null 2>&1; then $(PYTHON) -m venv --clear $(BENCH_VENV); fi
	@$(BENCH_VENV)/bin/python -m pip install -qq -e '.[bench]'
	@touch $@

setup: $(VENV)/.tools packages  ## everything that the other targets need; they do it themselves

packages:
	@for p in $(DEB_PACKAGES); do if ! command -v "$$p" >/dev/null; then $(call deb,$$p); fi; done

# ---------------------------------------------------------------- checks

lint: $(VENV)/.tools  ## ruff: rules and format
	@$(VENV)/bin/ruff check --quiet $(SOURCES)
	@$(VENV)/bin/ruff format --quiet --diff $(SOURCES)
	@echo "lint: ok"

format: $(VENV)/.tools  ## let ruff format and fix what it safely can
	@$(VENV)/bin/ruff check --quiet --fix-only $(SOURCES)
	@$(VENV)/bin/ruff format --quiet $(SOURCES)

types: $(VENV)/.tools  ## pyright strict on src, mypy strict on the public API
	@$(VENV)/bin/pyright
	@$(VENV)/bin/mypy

layers: $(VENV)/.tools  ## import-linter: who may import whom
	@$(VENV)/bin/lint-imports --no-logo

unit: $(VENV)/.tools packages  ## the quick tests only
	@$(PYTEST) $(wildcard tests/fundamentals tests/unit tests/repo) $(ARGS)

test: $(VENV)/.tools packages  ## lint, types, layers and tests; under 10 minutes
	@$(MAKE) lint
	@$(MAKE) types
	@$(MAKE) layers
	@$(PYTEST) $(ARGS)

campaign: $(VENV)/.tools packages  ## minutes of kills, zombies and damaged files; under 30
	@$(call marked,campaign,1500)

soak: $(VENV)/.tools packages  ## an hour of the same, by hand; under 80
	@$(call marked,soak,4500)

# $(call marked,MARK,SECONDS): an empty campaign proves nothing, so finding no test is a failure.
define marked
	code=0; $(PYTEST) -m $(1) --timeout=$(2) -o faulthandler_timeout=0 $(ARGS) || code=$$?; \
	if [ "$$code" = 5 ]; then \
		echo "$(1): no test was found. Mark at least one with @pytest.mark.$(1), or fix ARGS." >&2; \
	fi; \
	exit "$$code"
endef

# ---------------------------------------------------------------- things to run

bench: $(BENCH_VENV)/.peers packages  ## ratios against the raw disk and against peers
	@$(BENCH_VENV)/bin/python bench/run.py $(ARGS)

demo: $(VENV)/.runtime  ## an agent is killed and goes on; under a minute
	@$(PY) -m perdure.cli.main demo $(ARGS)

clean:  ## remove the environment, caches and builds
	@rm -rf $(VENV) $(BENCH_VENV) build dist .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
	@find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
