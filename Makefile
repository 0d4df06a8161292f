# Two commands do all the set-up: `make demo` and `make test`. Running them again is quick.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.NOTPARALLEL:
.DEFAULT_GOAL := help

VENV ?= .venv
# The first interpreter of a version that pyproject.toml allows.
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3; do \
	"$$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
	&& echo "$$name" && break; done)
ENGINE_TIMEOUT ?= 90m

BIN := $(VENV)/bin

# What decides which packages an environment holds, and what decides whether the package is linked
# right: two digests, since an environment may serve several clones one after another.
define KEYS
import hashlib, json, os, platform, sys, tomllib
with open("pyproject.toml", "rb") as file:
    document = tomllib.load(file)
project = document["project"]
def digest(*parts):
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
packages = [project["dependencies"], project["optional-dependencies"]]
print(digest(packages, platform.python_version(), platform.machine()))
print(digest(project, document["build-system"], os.getcwd()))
endef
export KEYS

define TOOLS
import importlib.util, pathlib, sys, sysconfig
if not (3, 11) <= sys.version_info < (3, 14):
    sys.exit(f"Python 3.11, 3.12 or 3.13 is needed; {sys.executable} is {sys.version.split()[0]}")
package = f"python{sys.version_info.major}.{sys.version_info.minor}"
if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
    sys.exit(f"Python's venv is missing; on Debian and Ubuntu: apt install {package}-venv")
if not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists():
    sys.exit(f"Python's headers are missing; on Debian and Ubuntu: apt install {package}-dev")
endef
export TOOLS

# $(call install,KIND) brings the environment up to date as cheaply as may be. KIND is `full`, or
# `fast` for one without SGLang, which a full one serves as well. The stamp holds KIND and KEYS.
define install
mapfile -t keys < <("$(PYTHON)" -c "$$KEYS")
had=(none none none)
if [ -f "$(VENV)/.installed" ] && "$(BIN)/python" -c '' 2> /dev/null; then
    mapfile -t had < "$(VENV)/.installed"
fi
kind=$(1)
if [ "$${had[*]:0:2}" = "full $${keys[0]}" ]; then kind=full; fi
if [ "$${had[*]}" = "$$kind $${keys[*]}" ]; then exit 0; fi
rm -f "$(VENV)/.installed"
pip=("$(BIN)/python" -m pip --disable-pip-version-check --quiet install --editable)
if [ "$${had[*]:0:2}" = "$$kind $${keys[0]}" ]; then
    "$${pip[@]}" . --no-deps
else
    "$(PYTHON)" -m venv "$(VENV)"
    if [ "$$kind" = full ]; then
        echo "Installing SGLang and autospec in $(VENV), once: about 11 GB and 5 minutes."
        "$${pip[@]}" '.[sglang,demo,report,dev]'
    else
        "$${pip[@]}" '.[report,dev]'
    fi
fi
printf '%s\n' "$$kind" "$${keys[@]}" > "$(VENV)/.installed"
endef

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1: /p' Makefile | column -t -s: -l 2

.PHONY: tools
tools:
	@if [ -z "$(PYTHON)" ]; then
	    echo "Python 3.11, 3.12 or 3.13 is needed and none was found; name one: make PYTHON=..." >&2
	    exit 1
	fi
	"$(PYTHON)" -c "$$TOOLS"
	for tool in gcc g++ c++; do
	    if ! command -v "$$tool" > /dev/null; then
	        echo "$$tool is missing; on Debian and Ubuntu: apt install build-essential" >&2
	        exit 1
	    fi
	done

.PHONY: install
install: tools ## set up the environment, with SGLang and this package in it
	@$(call install,full)

.PHONY: requirements-key
requirements-key: ## tell apart environments that hold different packages
	@"$(PYTHON)" -c "$$KEYS" | sed -n 1p

.PHONY: model
model: install ## fetch and convert the demo model
	@"$(BIN)/python" -m autospec.demo > /dev/null

.PHONY: demo
demo: model ## set everything up, then tune the demo model on this CPU
	@"$(BIN)/autospec" tune --demo

.PHONY: lint
lint: install ## format check, ruff, mypy
	@"$(BIN)/ruff" format --check .
	"$(BIN)/ruff" check .
	"$(BIN)/mypy"

.PHONY: test-fast
test-fast: tools ## the tests that need no SGLang
	@($(call install,fast))
	"$(BIN)/pytest" -q -m 'not engine' -n 2 --dist worksteal

.PHONY: test
test: lint model ## set everything up, then all checks and all tests
	@"$(BIN)/pytest" -q -m 'not engine' -n 2 --dist worksteal
	timeout --foreground --kill-after=60 "$(ENGINE_TIMEOUT)" "$(BIN)/pytest" -q -m engine

.PHONY: bench-cpu
bench-cpu: model ## SGLang on this CPU against transformers
	@"$(BIN)/python" benchmarks/cpu_engine.py --repeats 5

.PHONY: clean
clean: ## remove what tools left here; the environment and the demo model stay
	@rm -rf dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find autospec tests benchmarks examples tools -name __pycache__ -prune -exec rm -rf {} +
