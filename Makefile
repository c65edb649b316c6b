# Everything sets itself up into .venv; Python 3.11 or later and make are all that is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python scripts/install.py
SOURCES := $(shell find csrc -type f) pyproject.toml hatch_build.py src/cotenant/__init__.py

# A test run starts Python thousands of times: what was compiled once is kept, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run test quick testbed cluster keda deploy docs protos lint format bench clean

help:  ## list these targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

run: $(VENV)/.ready  ## the story of sharing, told by real processes on simulated cards
	$(BIN)/cotenant demo
	@echo "The command is $(BIN)/cotenant: $(BIN)/cotenant --simulate 2x16GiB gpus"

test: quick cluster  ## all tests: quick ones first, then those on a real Kubernetes; and how many were FLAKY
	$(BIN)/python scripts/tests.py total

quick: $(VENV)/.test  ## the tests that need no Kubernetes
	$(BIN)/python scripts/tests.py quick

testbed: $(VENV)/.test  ## find or build the binaries of a real Kubernetes, once
	PYTHONPATH=tests $(BIN)/python -m cluster.testbed build

cluster: testbed  ## the tests on a real Kubernetes: the control plane's, and beside them those with a kubelet
	$(BIN)/python scripts/tests.py cluster

keda: testbed  ## the tests with the real KEDA and prometheus-adapter, built once; it takes long: not part of make test
	PYTHONPATH=tests $(BIN)/python -m cluster.testbed keda
	$(BIN)/python scripts/tests.py keda

deploy: $(VENV)/.test  ## make deploy/, the chart's version and the schema of its values
	PYTHONPATH=tests $(BIN)/python scripts/deploy.py

docs: $(VENV)/.test  ## make the pages of docs/ that are generated from the code
	$(BIN)/python scripts/docs.py

protos: $(VENV)/.protos  ## make src/cotenant/kube/protos from the .proto files of the kubelet and KEDA in protos/
	$(BIN)/python scripts/protos.py

lint: $(VENV)/.lint  ## ruff, mypy --strict, import contracts, clang-format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror $(shell find csrc -name '*.[ch]')

format: $(VENV)/.lint  ## rewrite Python and C in the project's format
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(shell find csrc -name '*.[ch]')

bench: $(VENV)/.test  ## measure everything and write docs/benchmarks.md; those on a real Kubernetes take long
	$(BIN)/python -m bench

clean:  ## remove what was built and installed
	rm -rf $(VENV) src/cotenant/native .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .zig-cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or later is needed: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Built without isolation, so that the compiler (zig, a large wheel) is fetched once.
$(VENV)/.ready: $(BIN)/python $(SOURCES)
	@echo "setting up: the compiler, the C libraries, the package"
	$(INSTALL) 'hatchling>=1.27' ziglang==0.17.0
	$(INSTALL) --no-build-isolation -e '.[scaling]'
	$(BIN)/python -m compileall -q src/cotenant
	@touch $@

$(VENV)/.test: $(VENV)/.ready scripts/extras.py scripts/install.py scripts/pycuda.py scripts/clients.py scripts/servers.py scripts/mps.py
	@echo "setting up: test tools, real CUDA clients, the servers of queues and MPS (about 1.2 GB, once)"
	$(INSTALL) $$($(BIN)/python scripts/extras.py cluster test protos clients)
	$(BIN)/python scripts/pycuda.py
	$(BIN)/python scripts/clients.py
	$(BIN)/python scripts/servers.py
	$(BIN)/python scripts/mps.py
	@touch $@

$(VENV)/.protos: $(VENV)/.ready
	$(INSTALL) $$($(BIN)/python scripts/extras.py cluster protos)
	@touch $@

$(VENV)/.lint: $(VENV)/.ready
	$(INSTALL) $$($(BIN)/python scripts/extras.py cluster lint test)
	@touch $@
