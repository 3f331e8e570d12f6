# The two commands are `make run` and `make test`. Both need Python 3.11 or newer, and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# WHY a folder in the checkout: trying the worker leaves nothing behind anywhere else, but for root in
# a folder that others cannot enter (README, Recipes).
export MAINT_DATA_DIR ?= $(CURDIR)/.data

.DEFAULT_GOAL := help
.PHONY: help run test test-all check format bench dashboards docs lock wheel wheel-test image clean

help: ## Show this list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

# WHY a stamp per lock: what a lock names is installed again exactly when it changes; what it names no
# longer goes with `make clean`.
$(VENV)/.python: Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; name one with make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.runtime: $(VENV)/.python requirements.lock pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

run: $(VENV)/.runtime ## Everything in one process on a sample ledger; Ctrl-C stops it.
	$(BIN)/sema-maintenance run --sample

# WHY more processes than cores: many tests wait for something. Each has servers of its own.
test: $(VENV)/.dev ## Every test but the longest, on servers it starts itself.
	$(BIN)/python -m pytest -n 4 --dist worksteal -m 'not long' $(PYTEST_ARGS)

# WHY one after the other: each of these takes minutes, and most of what it takes is shared.
test-all: test ## Every test, also those that take minutes: image built and started, alerts followed.
	$(BIN)/python -m pytest -m long $(PYTEST_ARGS)

check: $(VENV)/.dev ## Lint, format, types, import contracts.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.dev ## Put the code into the house format.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev ## Rows per second, as ratios against one statement and against one CAS per row.
	$(BIN)/python -m bench $(BENCH_ARGS)

dashboards: $(VENV)/.dev ## Write the chart's dashboards anew.
	$(BIN)/python -m deploy.dashboards.generate

docs: $(VENV)/.dev ## Write docs/configuration.md anew.
	$(BIN)/python -m deploy.configuration

lock: $(VENV)/.dev ## Resolve the dependencies anew and write the lock files.
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header \
		--extra embedded --group build pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header \
		--extra embedded --group dev pyproject.toml -c requirements.lock -o requirements-dev.lock
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header \
		--group sbom -o requirements-sbom.lock

wheel: $(VENV)/.dev ## Build the wheel into dist/.
	rm -rf build/lib build/bdist* dist
	$(BIN)/python -m build --wheel --no-isolation --outdir dist .

wheel-test: wheel ## Install the wheel in a clean environment and try it there.
	rm -rf build/wheel-env
	$(PYTHON) -m venv build/wheel-env
	build/wheel-env/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	build/wheel-env/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-index dist/*.whl
	build/wheel-env/bin/python -I tests/wheel/check.py

# BUILDER is docker, podman or buildah; BASE another base; IMAGE_ARGS what else the builder is to be told.
BUILDER ?= docker
IMAGE ?= sema-maintenance
IMAGE_VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
image: ## Build the container image, IMAGE:version.
	$(BUILDER) build $(if $(BASE),--build-arg BASE=$(BASE)) --build-arg VERSION=$(IMAGE_VERSION) \
		--build-arg REVISION=$$(git rev-parse HEAD) --build-arg CREATED=$$(git log -1 --format=%cI) \
		$(if $(SOURCE),--build-arg SOURCE=$(SOURCE)) $(IMAGE_ARGS) -t $(IMAGE):$(IMAGE_VERSION) .

clean: ## Remove the environment and the build products; the ledger in .data stays.
	rm -rf $(VENV) build dist *.egg-info
