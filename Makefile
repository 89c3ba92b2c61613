# Everything here works as the first command in a fresh clone: what is missing is set up on the way.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.complete
PLOTS := $(VENV)/.plots
LINKS := build/src/tvm_ethosu
PYTHON ?=
WORKERS ?= 2
# Further networks, or options of the benchmark: make bench BENCH="model.tflite"
BENCH ?=
# Further networks, and suites of small ones: make coverage COVERAGE="models --suite operators"
COVERAGE ?= $(if $(wildcard ../shared/models),../shared/models \
  $(addprefix --suite ,$(wildcard ../shared/conformance/*_*)))

# An environment that was moved, or whose Python is gone, is as good as none.
USABLE := import pathlib, sys, tvm_ethosu as t; \
  sys.exit(pathlib.Path(t.__file__).resolve().parents[2] != pathlib.Path.cwd())
ifneq ($(wildcard $(STAMP)),)
ifneq ($(shell $(PY) -c "$(USABLE)" >/dev/null 2>&1; echo $$?),0)
$(shell rm -f $(STAMP))
endif
endif

.PHONY: help demo test test-all test-browser bench coverage docs lint type layers fmt dev gcc arm-gcc networks chromium clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(STAMP)  ## compile a trained network, run it on the simulator, compare with TFLite Micro
	@$(PY) -m tvm_ethosu.backend.demo

test: $(STAMP) gcc arm-gcc networks  ## run the tests that take seconds
	@$(PY) -m pytest -m "not slow" -n $(WORKERS)

test-all: $(STAMP) gcc arm-gcc networks  ## run all tests
	@$(PY) -m pytest -n $(WORKERS)

test-browser: $(STAMP) chromium  ## run the tests of the report's page in headless Chromium
	@$(PY) -m pip install -q --disable-pip-version-check -e '.[browser]'
	$(PY) -m pytest tests/backend/html

bench: $(PLOTS)  ## measure SRAM and cycles against Vela, write docs/benchmarks.md and its plots
	@$(PY) -m tvm_ethosu.backend.bench -o docs/benchmarks.md --workers $(WORKERS) $(BENCH)

coverage: $(STAMP)  ## write docs/coverage.md: which networks and operators are on the NPU
	@$(PY) -m tvm_ethosu.backend.coverage -o docs/coverage.md $(COVERAGE)

docs: $(STAMP)  ## write docs/operators.md from the table of operators, build the pages into build/docs
	@$(PY) -c 'import mkdocs' 2>/dev/null || $(PY) -m pip install -q --disable-pip-version-check -e '.[docs]'
	$(PY) -m tvm_ethosu.partition.operator_docs > docs/operators.md
	$(VENV)/bin/mkdocs build --strict --quiet

lint: $(STAMP)  ## check style and formatting
	@$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

type: $(STAMP) $(LINKS)/py.typed  ## check types (mypy, strict)
	@MYPYPATH=build/src $(VENV)/bin/mypy -p tvm_ethosu

layers: $(STAMP) $(LINKS)/py.typed  ## check that imports point one way
	@PYTHONPATH=build/src $(VENV)/bin/lint-imports

fmt: $(STAMP)  ## format the sources and mend what ruff can mend
	@$(VENV)/bin/ruff check --fix-only .
	$(VENV)/bin/ruff format .

dev: $(STAMP) $(LINKS)/py.typed  ## only set up: .venv, and the links that mypy and editors need

clean:  ## remove all that make has made, .venv too
	@rm -rf $(VENV) build .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# --- set-up ---------------------------------------------------------------------------------------

# The stamp is written last, so an environment without one is half-finished and is made anew.
$(STAMP): pyproject.toml setup.py
	@if [ ! -e $@ ]; then
	  rm -rf $(VENV)
	  $(find_python)
	  echo "Creating $(VENV) with $$python ($$("$$python" --version))"
	  "$$python" -m venv $(VENV)
	fi
	rm -f $@
	echo "Installing into $(VENV), once (a minute or two, 200 MB of downloads):"
	echo "  TVM 0.19 and its LLVM    imports the network and compiles what stays on the CPU"
	echo "  ethos-u-vela, tflite     encode weights and commands, read the files"
	echo "  tflite-micro             the reference that every result is compared with"
	echo "  pytest, ruff, mypy, ...  tests and checks"
	if ! $(PY) -um pip install --disable-pip-version-check --progress-bar off \
	     -e '.[relay,test]' 2>&1 | tee $(VENV)/install.log | sed -un $(pip_progress); then
	  tail -n 12 $(VENV)/install.log >&2
	  echo "The installation failed (above: the end of $(VENV)/install.log)." >&2
	  echo "Is the package index reachable? The next make begins anew." >&2
	  exit 1
	fi
	touch $@

# The benchmark alone draws pictures.
$(PLOTS): $(STAMP)
	@$(PY) -m pip install -q --disable-pip-version-check -e '.[bench]'
	touch $@

pip_progress = \
  -e 's/^ *\(Downloading\|Using cached\) \([^ ]*\)-[0-9][^ ]*\.whl.*(\(.*\))$$/    \2 (\3)/p' \
  -e 's/^Installing collected packages.*/    unpacking/p'

# Sets $$python to an interpreter that the wheels are made for and that can make environments.
define find_python
python=
  seek() {
    for candidate in $(PYTHON) python3.11 python3.12 python3.10 python3 /usr/bin/python3; do
      if "$$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 13))'
      then python=$$candidate; return; fi
    done 2>/dev/null
  }
  seek
  if [ -z "$$python" ] && ! command -v python3 >/dev/null; then
    $(call debian,python3 python3-venv,to create $(VENV),true)
    seek
  fi
  if [ -z "$$python" ]; then
    echo "tvm-ethosu needs Python 3.10, 3.11 or 3.12, which is not on the PATH: install one" >&2
    echo "(Debian 12: apt-get install python3 python3-venv), or say make PYTHON=/path/to/python" >&2
    exit 1
  fi
  if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then
    version=$$("$$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    $(call debian,$$version-venv,to create $(VENV),exit 1)
  fi
endef

# Trained networks for the tests of firmware and of the pages; without them these are skipped.
networks: $(STAMP)
	@$(PY) -m tvm_ethosu.backend.demo_network || echo "Tests on these networks are skipped." >&2

gcc:
	@if ! command -v gcc >/dev/null; then
	  $(call debian,gcc libc6-dev,for the tests that compile C; without it they are skipped,true)
	fi

arm-gcc:
	@if ! command -v arm-none-eabi-gcc >/dev/null; then
	  $(call debian,gcc-arm-none-eabi libnewlib-arm-none-eabi,for the tests that build firmware; without it they are skipped,true)
	fi

chromium:
	@if ! command -v chromium >/dev/null; then
	  $(call debian,chromium,for the tests of the report in a browser; without it they are skipped,true)
	fi

# $(call debian,packages,why,what to do when they cannot be installed)
define debian
if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
      && echo "Installing the Debian packages $(1) ($(2))" && apt-get update -qq \
      && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(1) >/dev/null
    then :
    else
      echo "Missing: $(1) ($(2)). As root: apt-get install $(1)" >&2
      $(3)
    fi
endef

# Links that show the folders as the package they are installed as.
$(LINKS)/py.typed: Makefile
	@mkdir -p $(LINKS)
	for folder in backend partition scheduler; do ln -sfn ../../../$$folder $(LINKS)/$$folder; done
	ln -sfn ../../../backend/_root/__init__.py $(LINKS)/__init__.py
	ln -sfn ../../../backend/_root/entry.py $(LINKS)/entry.py
	ln -sfn ../../../backend/_root/interrupts.py $(LINKS)/interrupts.py
	ln -sfn ../../../backend/_root/pytest_plugin.py $(LINKS)/pytest_plugin.py
	ln -sfn ../../../backend/_root/tvmc_hook.py $(LINKS)/tvmc_hook.py
	ln -sfn ../../../backend/_root/py.typed $(LINKS)/py.typed
	touch -h $@
