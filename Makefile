# `make demo` and `make test` do all their set-up: Python 3.11 or later is all that must be there.

PYTHON := $(or $(PYTHON),$(shell for p in python3 python3.11 python3.12 python3.13 python3.14 /usr/bin/python3; do \
	$$p -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done))
BIN := .venv/bin
ARGS ?=
ONLY ?=
# Spark tests share one session, so they run one after another; the others on two cores.
PYTEST := $(BIN)/python -m pytest
POSTGRES := $(BIN)/python -m tests.postgres_server
# Hashes for every platform; no index or folder of this machine gets into the files.
COMPILE := $(BIN)/uv pip compile --no-config --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-header --quiet
SPARK_AND_DATA := pyproject.toml --extra spark --extra demo

.DEFAULT_GOAL := help
.PHONY: help demo test lint test-fast test-spark kill-spark bench fmt lock clean set-up-demo set-up-test

help: ## show what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: set-up-demo ## the main job on real data, in a folder of its own (ARGS=--crash kills it in the middle)
	@$(BIN)/tidemill demo $(ARGS)

test: lint test-fast test-spark ## all that CI checks

lint: set-up-test ## ruff, format, types
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

test-fast: set-up-test ## the tests without Spark, on both databases (ARGS goes to pytest)
	@$(POSTGRES) -- $(PYTEST) -m "not spark" --numprocesses 2 $(ARGS)

test-spark: set-up-test ## the tests with Spark
	@$(POSTGRES) -- $(PYTEST) -m spark $(ARGS)

kill-spark: set-up-test ## kill Spark drivers in the middle of a write, 20 times instead of 5 (TIDEMILL_TEST_KILLS=n: n times)
	@TIDEMILL_TEST_KILLS=$${TIDEMILL_TEST_KILLS:-20} $(PYTEST) -o faulthandler_timeout=0 tests/acceptance/test_killed_writers.py $(ARGS)

bench: set-up-test ## benchmarks, all or some: ONLY="B4 B10"
	@$(BIN)/python -m benchmarks $(ONLY)

fmt: set-up-test ## format and mend what can be mended without thinking
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format

lock: set-up-test ## lock what pyproject.toml asks for (ARGS=--upgrade: the newest it allows)
	@$(PYTHON) tools/install.py test lock
	@$(COMPILE) $(ARGS) $(SPARK_AND_DATA) --extra postgres --group test --group lint -o requirements/test.txt
	@$(COMPILE) $(SPARK_AND_DATA) -c requirements/test.txt -o requirements/demo.txt
	@$(COMPILE) $(ARGS) --group build -o requirements/build.txt
	@$(COMPILE) $(ARGS) --group pgserver -o requirements/pgserver.txt
	@$(COMPILE) $(ARGS) --group lock -o requirements/lock.txt
	@$(COMPILE) pyproject.toml --extra java --no-deps -c requirements/test.txt -o requirements/java.txt

clean: ## remove the environment and all caches
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis

set-up-demo set-up-test: set-up-%:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later with ensurepip is needed (Debian: python3-venv)" >&2; exit 2; }
	@$(PYTHON) tools/install.py $*
	@if [ $* = test ]; then $(POSTGRES) --find >/dev/null || $(PYTHON) tools/install.py pgserver; fi
