# Every target does its own set-up: only Python 3.11 or newer and make are needed.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PARALLEL := --numprocesses auto --dist loadfile

# The Debian packages that tests marked `system` need.
DEBIAN_PACKAGES := chromium debootstrap iproute2 munge openssl rabbitmq-server redis-server shellcheck slurm-client slurmctld slurmd strace tmux xauth xvfb

.DEFAULT_GOAL := help
.PHONY: help demo test test-all system lint format docs deploy dist bench clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Germline needs Python 3.11 or newer; choose one with: make PYTHON=python3.12 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(READY) ## a network learns to balance a pole, and is tried on 100 fresh episodes
	@run=runs/demo-$$(date +%Y%m%d-%H%M%S); \
	$(BIN)/germline train cartpole --out $$run && \
	$(BIN)/germline eval $$run --episodes 100 --at-least 475 && \
	echo "Replay the champion with: $(BIN)/germline play $$run" && \
	echo "Look at it in a browser:  $(BIN)/germline dashboard runs --open"

test: $(READY) ## every test that needs only Python and no patience
	$(BIN)/python -m pytest $(PARALLEL) --junit-xml .cache/test.xml -m "not system and not slow"

test-all: system $(READY) ## every test there is
	$(BIN)/python -m pytest $(PARALLEL) --junit-xml .cache/test-all.xml

system: ## install the Debian packages that server tests need (as root)
	@missing=; for p in $(DEBIAN_PACKAGES); do \
	  dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then \
	  apt-get -qq update && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
	    apt-get -qq install --yes --no-install-recommends $$missing; fi

lint: $(READY) ## style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY) ## build the site into site/; broken links and unknown references are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

deploy: $(READY) ## write the files in deploy/ anew
	@for t in docker compose kubernetes kuberay slurm aws; do \
	  $(BIN)/germline deploy $$t frostbite-laptop --out deploy/$$t --force || exit 1; done

dist: $(READY) ## build the wheel and the source archive, and check them
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*

format: $(READY) ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.bench: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	@touch $@

bench: $(VENV)/.bench ## print every benchmark's figures (adds PyTorch and the peers to compare with)
	@for b in benchmarks/*.py; do echo "== $$b"; $(BIN)/python $$b || exit 1; done

clean: ## remove the environment and every cache
	rm -rf $(VENV) .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist site
