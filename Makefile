# `make demo` and `make test` do all their set-up: Python 3.11 or later is all that must be there.

PYTHON := $(or $(PYTHON),$(shell for p in python3 python3.11 python3.12 python3.13 python3.14 /usr/bin/python3; do \
	$$p -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done))
BIN := .venv/bin
ARGS ?=
ONLY ?=
SEEDS ?= 10000
SECONDS ?= 600
DRIVERS ?= 100
FILES ?= 2000
LAUNCHES ?= 10000
CHANGES ?= 5000
SCHEDULES ?= 5000
KILLS ?= 200
RUNS ?= 1000
DEMO_KILLS ?= 50
# Spark tests share one session, so they run one after another; the other tests on two cores.
# pytest names the slowest tests: look at these first when the whole takes too long.
PYTEST := $(BIN)/python -m pytest --durations 20 --durations-min 10
POSTGRES := $(BIN)/python -m tests.postgres_server
# Each of the many JVMs of Spark tests would read and check all of Spark's classes again.
SPARK_CLASSES := $(BIN)/python -m tests.spark_classes
# Hashes for every platform; no index or folder of this machine gets into the files.
COMPILE := $(BIN)/uv pip compile --no-config --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-header --quiet
SPARK_AND_DATA := pyproject.toml --extra spark --extra demo

# Without compiled modules each of the many processes that tests start compiles the package again, for 0.2 s.
unexport PYTHONDONTWRITEBYTECODE

# A half of the tests that fails is not hidden by what keeps a copy of its lines.
SHELL := bash
.SHELLFLAGS := -o pipefail -c
KEPT = 2>&1 | tee build/$@.txt
# The lines of both halves mix, and the half that failed may be the one that ended first.
define together
@$(MAKE) --no-print-directory --jobs 2 $(1) || { \
	echo "=== what failed in $(1):"; grep -hE '^(E  |FAILED |ERROR )' $(1:%=build/%.txt) | tail -n 100; exit 1; }
endef

.DEFAULT_GOAL := help
.PHONY: help demo test lint test-without-spark test-long test-long-without-spark test-long-with-spark test-both test-jdbc ui-test test-fast test-proof test-spark sim explore mutants fail-points chaos chaos-spark chaos-cluster chaos-s3 demo-s3-crash launches servers roles day year takeover zones s3-course fuzz-rest bench bench-page first-minutes fmt reference screenshots stubs lock clean \
	set-up-demo set-up-test

help: ## show what there is
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: set-up-demo ## the main job on real data, in a folder of its own (ARGS=--crash kills it in the middle)
	@$(BIN)/tidemill demo $(ARGS)

test: lint ## ruff, format, types, and the tests with a share of the long ones
	@# Together: tests wait for databases, processes and Spark's start, and leave the cores to the short campaigns.
	$(call together,test-without-spark test-spark)

test-without-spark: set-up-test | build
	@$(POSTGRES) -- $(PYTEST) -m "not spark and not long and not twin" --numprocesses 3 --dist worksteal $(ARGS) $(KEPT)

test-long: set-up-test ## the long cases of the short campaigns and of the slowest tests, which `make test` leaves out
	$(call together,test-long-without-spark test-long-with-spark)

test-long-without-spark: set-up-test | build
	@$(POSTGRES) -- $(PYTEST) -m "long and not spark and not twin" --numprocesses 3 --dist worksteal $(ARGS) $(KEPT)

test-long-with-spark: set-up-test | build
	@$(POSTGRES) -- $(SPARK_CLASSES) -- $(PYTEST) -m "long and spark" $(ARGS) $(KEPT)

test-both: set-up-test ## cases of tests with many cases, on the database that CI leaves out
	@$(POSTGRES) -- $(PYTEST) -m "twin and not spark" --numprocesses 2 --dist worksteal $(ARGS)

test-jdbc: set-up-test ## the tests that are skipped where MariaDB or a JDBC driver is missing
	@$(POSTGRES) -- $(SPARK_CLASSES) -- $(PYTEST) -m jdbc $(ARGS)

lint: set-up-test ## ruff, format, types
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

ui-test: set-up-test ## all pages in a real browser
	@$(PYTEST) -m browser $(ARGS)

test-fast: set-up-test ## the tests without Spark, on both databases (ARGS goes to pytest)
	@$(POSTGRES) -- $(PYTEST) -m "not spark and not proof and not long" --numprocesses 2 $(ARGS)

test-proof: set-up-test ## short forms of the campaigns below that need no Spark
	@$(POSTGRES) -- $(PYTEST) -m "proof and not spark" --numprocesses 2 --dist worksteal $(ARGS)

test-spark: set-up-test | build ## the tests with Spark, but for the long ones
	@$(POSTGRES) -- $(SPARK_CLASSES) -- $(PYTEST) -m "spark and not long" $(ARGS) $(KEPT)

sim: set-up-test ## simulate that many schedules: SEEDS=1000000 (ARGS goes to tests.sim; --help says what there is)
	@$(BIN)/python -m tests.sim --seeds $(SEEDS) $(ARGS)

explore: set-up-test ## all interleavings of consumers and of the scheduler
	@$(BIN)/python -m tests.explore $(ARGS)

mutants: set-up-test ## small wrong changes of the product, each to be found by simulation or interleavings
	@$(BIN)/python -m tests.mutants $(ARGS)

fail-points: set-up-test ## each marked step of the product by each kind of fault, on both databases
	@$(POSTGRES) -- $(BIN)/python -m tests.acceptance.fail_points $(ARGS)

chaos: set-up-test ## kill and stop real processes, and PostgreSQL, for SECONDS=600
	@$(POSTGRES) -- $(BIN)/python -m tests.chaos --seconds $(SECONDS) $(ARGS)

chaos-spark: set-up-test ## kill and stop real Spark drivers while they publish: DRIVERS=100
	@$(POSTGRES) -- $(SPARK_CLASSES) -- $(BIN)/python -m tests.chaos.spark --drivers $(DRIVERS) $(ARGS)

chaos-cluster: set-up-test ## kill drivers, executors, workers and the master of a Spark cluster: DRIVERS=40
	@$(POSTGRES) -- $(SPARK_CLASSES) -- $(BIN)/python -m tests.chaos.spark --cluster --drivers $(DRIVERS) $(ARGS)

chaos-s3: set-up-test ## a bucket that breaks a fifth of all requests: FILES=2000, on both databases
	@$(POSTGRES) -- $(BIN)/python -m tests.chaos.s3 --files $(FILES) $(ARGS)

demo-s3-crash: set-up-test ## kill -9 DEMO_KILLS=50 drivers of the demo in a bucket
	@$(BIN)/python -m tests.chaos.demo --kills $(DEMO_KILLS) $(ARGS)

launches: set-up-test ## kill -9 four schedulers while they launch runs under limits: LAUNCHES=10000
	@$(POSTGRES) -- $(BIN)/python -m tests.chaos.launches --launches $(LAUNCHES) $(ARGS)

servers: set-up-test ## kill -9 two servers while callers make CHANGES=5000 changes with keys
	@$(POSTGRES) -- $(BIN)/python -m tests.chaos.servers --changes $(CHANGES) $(ARGS)

day: set-up-test ## a virtual day of SCHEDULES=5000 schedules with two schedulers that crash, on both databases
	@$(POSTGRES) -- $(BIN)/python -m tests.chaos.day --schedules $(SCHEDULES) $(ARGS)

year: set-up-test ## a virtual year at RUNS=1000 runs a day: the catalog stays as large as after 100 days
	@$(BIN)/python -m tests.upkeep.year --runs $(RUNS) $(ARGS)

roles: set-up-test ## kill -9 nodes with separate roles while files land, KILLS=200 times
	@$(POSTGRES) -- $(BIN)/python -m tests.chaos.roles --kills $(KILLS) $(ARGS)

takeover: set-up-test ## kill one of two schedulers after each second, KILLS=200 times
	@$(POSTGRES) -- $(BIN)/python -m tests.chaos.takeover --kills $(KILLS) $(ARGS)

zones: set-up-test ## the daily times of all time zones over 15 years
	@$(BIN)/python -m tests.test_crontab

s3-course: set-up-test ## ten thousand objects through an inbox of S3 that answers after 20 ms, with bounds of time
	@$(BIN)/python -m tests.lake.s3_course $(ARGS)

fuzz-rest: set-up-test ## twenty thousand requests, made from the description of the REST routes
	@TIDEMILL_FUZZ=250 $(PYTEST) tests/server/test_openapi.py -s $(ARGS)

bench: set-up-test ## benchmarks, all or some: ONLY="B4 B10"
	@$(BIN)/python -m benchmarks $(ONLY)

bench-page: set-up-test ## table and plots of docs/benchmarks.md, from the figures of the last `make bench`
	@$(BIN)/python -m benchmarks.page

first-minutes: set-up-test ## the README's first five minutes, from the built wheel in a fresh environment
	@$(BIN)/python -m tests.first_minutes

reference: set-up-test ## docs/reference.md, from the list of operations
	@$(BIN)/python -m tools.reference

screenshots: set-up-test ## docs/images/: ten pages of the demo, as a browser shows them
	@$(BIN)/python -m tools.screenshots $(ARGS)

stubs: set-up-test ## types of the statements in .sql files, for mypy and editors (x_sql.pyi)
	@$(BIN)/python -m tools.stubs

fmt: set-up-test ## format and mend what can be mended without thinking
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format

lock: set-up-test ## lock what pyproject.toml asks for (ARGS=--upgrade: the newest it allows)
	@$(PYTHON) tools/install.py test lock
	@$(COMPILE) $(ARGS) $(SPARK_AND_DATA) --extra postgres --extra hive --group test --group lint -o requirements/test.txt
	@$(COMPILE) $(SPARK_AND_DATA) -c requirements/test.txt -o requirements/demo.txt
	@$(COMPILE) $(ARGS) --group build -o requirements/build.txt
	@$(COMPILE) $(ARGS) --group pgserver -o requirements/pgserver.txt
	@$(COMPILE) $(ARGS) --group lock -o requirements/lock.txt
	@for peer in airflow apscheduler dagster; do \
		$(COMPILE) $(ARGS) --group $$peer -o requirements/$$peer.txt || exit 1; done
	@$(COMPILE) pyproject.toml --extra java --no-deps -c requirements/test.txt -o requirements/java.txt

clean: ## remove the environment and all caches
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build/class-data

build:
	@mkdir $@

set-up-demo set-up-test: set-up-%:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later with ensurepip is needed (Debian: python3-venv)" >&2; exit 2; }
	@$(PYTHON) tools/install.py $*
	@if [ $* = test ]; then $(POSTGRES) --find >/dev/null || $(PYTHON) tools/install.py pgserver; fi
