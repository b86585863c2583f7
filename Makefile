# Every target does its own set-up: only Python 3.11 or newer and make are needed.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt
# What pip would do on one core: a Python that starts need not compile what it imports.
BYTES  := $(BIN)/python -W ignore -m compileall -qq -j 0 $(VENV)/lib
CORES  := $(shell getconf _NPROCESSORS_ONLN)
# Many tests wait for other programs, those of servers most of the time.
SOME   := $(shell expr $(CORES) + 1)
MANY   := $(shell expr $(CORES) \* 2)
PYTEST := $(BIN)/python -m pytest --numprocesses $(SOME) --dist loadfile --junit-xml
# What most tests compile is run once, and need not be fast. Those marked `numerics` are about the
# numbers that XLA computes, or play for long, and have it as users do.
NUMERICS = $$(grep -rl --include='test_*.py' mark.numerics tests)
QUICK  := XLA_FLAGS="--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false" $(PYTEST)
# Hundreds of processes are started, and each would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

# The Debian packages that tests marked `system` need.
DEBIAN_PACKAGES := chromium debootstrap iproute2 munge openssl rabbitmq-server redis-server shellcheck slurm-client slurmctld slurmd strace tmux xauth xvfb

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-release system lint format docs deploy dist bench clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Germline needs Python 3.11 or newer; choose one with: make PYTHON=python3.12 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# Extras of pyproject.toml, each installed by the first target that needs it.
$(VENV)/.demo: $(VENV)/.made pyproject.toml constraints.txt
	$(PIP) --editable '.[atari,dashboard]'
	-@$(BYTES)
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml constraints.txt
	$(PIP) --editable '.[dev]'
	-@$(BYTES)
	@touch $@ $(VENV)/.demo $(VENV)/.docs

$(VENV)/.bench: $(VENV)/.dev
	$(PIP) --editable '.[bench]'
	-@$(BYTES)
	@touch $@

# The site reads the code and never runs it: what it is built with is enough.
$(VENV)/.docs: $(VENV)/.made pyproject.toml constraints.txt
	$(PIP) $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
	@touch $@

demo: $(VENV)/.demo ## a network learns to balance a pole, and is tried on 100 fresh episodes
	@run=runs/demo-$$(date +%Y%m%d-%H%M%S); \
	$(BIN)/germline train cartpole --out $$run && \
	$(BIN)/germline eval $$run --episodes 100 --at-least 475 && \
	echo "Replay the champion with: $(BIN)/germline play $$run" && \
	echo "Look at it in a browser:  $(BIN)/germline dashboard runs --open"

test: $(VENV)/.dev ## every test that needs only Python and no patience
	$(PYTEST) .cache/test-numerics.xml -m "numerics and not (system or slow or release)" $(NUMERICS); one=$$?; \
	$(QUICK) .cache/test.xml -m "not (numerics or system or slow or release)" && exit $$one

test-all: system $(VENV)/.dev ## also those that need servers, a browser or patience
	$(PYTEST) .cache/test-all-numerics.xml -m "numerics and not release" $(NUMERICS); one=$$?; \
	$(QUICK) .cache/test-all.xml --numprocesses $(MANY) -m "not (numerics or release)" && exit $$one

test-release: system $(VENV)/.dev ## what is handed on: wheel, tutorial, image, and whom commands call
	$(PYTEST) .cache/test-release.xml --numprocesses $(MANY) -m release

system: ## install the Debian packages that server tests need (as root)
	@missing=; for p in $(DEBIAN_PACKAGES); do \
	  dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then \
	  apt-get -qq update && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
	    apt-get -qq install --yes --no-install-recommends $$missing; fi

lint: $(VENV)/.dev ## style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.docs ## build the site into site/; broken links and unknown references are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

deploy: $(VENV)/.dev ## write the files in deploy/ anew
	@for t in docker compose kubernetes kuberay slurm aws; do \
	  $(BIN)/germline deploy $$t frostbite-laptop --out deploy/$$t --force || exit 1; done

dist: $(VENV)/.dev ## build the wheel and the source archive, and check them
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*

format: $(VENV)/.dev ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.bench ## print every benchmark's figures (adds PyTorch and the peers to compare with)
	@for b in benchmarks/*.py; do echo "== $$b"; $(BIN)/python $$b || exit 1; done

clean: ## remove the environment and every cache
	rm -rf $(VENV) .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist site
