# `make up` runs the whole product on this machine; `make test` passes its tests. Both make their own
# Python environment and, as root, install the system packages that are missing (named first).
PYTHON ?= /usr/bin/python3
BOOTSTRAP := $(shell command -v $(PYTHON) || echo python3) scripts/bootstrap.py
BIN := .venv/bin

.PHONY: help up test test-all lint demo bench lock clean
.DEFAULT_GOAL := help

help:
	@echo "make up     run Skillyard on this machine (ARGS=--help for its options)"
	@echo "make test   run the tests; those that this machine cannot run are named"
	@echo "make test-all  the slow ones too (whole contract suites, crashes at random; over an hour)"
	@echo "make lint   ruff, mypy and the import rules"
	@echo "make demo   the main job in the terminal: install skills, build, run (ARGS=--json)"
	@echo "make bench  measure speed and size, into bench-*.json"
	@echo "make lock   resolve the dependencies of pyproject.toml anew"
	@echo "make clean  remove .venv and caches; never data"

up:
	@$(BOOTSTRAP) --for run
	@exec $(BIN)/python manage.py up $(ARGS)

test:
	@$(BOOTSTRAP) --for test
	@[ "$$(id -u)" != 0 ] || $(BIN)/python -m sandboxes.sandboxd.templates build
	$(BIN)/pytest $(ARGS)

test-all:
	@$(MAKE) test ARGS="--slow $(ARGS)"

lint:
	@$(BOOTSTRAP) --for test
	@failed=0; \
	$(BIN)/ruff format --check --diff . || failed=1; \
	$(BIN)/ruff check . || failed=1; \
	$(BIN)/lint-imports || failed=1; \
	$(BIN)/mypy || failed=1; \
	exit $$failed

demo:
	@$(BOOTSTRAP) --for run
	@$(BIN)/python manage.py demo $(ARGS)

bench:
	@$(BOOTSTRAP) --for test
	@$(BIN)/python tests/bench/run.py $(ARGS)

lock:
	@$(BOOTSTRAP) --for test
	$(BIN)/uv pip compile -q --upgrade --universal --python-version 3.11 --group dev --extra postgres pyproject.toml -o requirements.lock

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
