# Needs Python 3.11 or newer (with headers), a C compiler and make; everything else goes into .venv.
# What was done is remembered under .stamps/, so that nothing is done twice.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := .stamps
PYX := $(shell find ringbuf ipcbus -name '*.pyx')
PXD := $(shell find ringbuf ipcbus -name '*.pxd' -o -name '*.pxi')
ARGS ?=

# Tests wait for timers and for other processes half of their time: six more of them at a time than there are cores. A
# worker that has nothing left takes tests from the others, else two workers ran the last half of the time alone.
WORKERS ?= $(shell echo $$(($$(nproc) + 6)))
IN_PARALLEL = --dist worksteal -n

# Without compiled bytecode every worker, and each of the hundreds of processes that tests start, compiles all modules
# again, and pytest rewrites all assertions again: a quarter of the time of `make test`.
unexport PYTHONDONTWRITEBYTECODE

# What `test` and `stress` run. Each worker of `test` reads all files of tests but those that need Spark: they take it a second.
TESTS ?= tests

# What `dist` runs against the installed wheel, in a directory without the sources, with a compiler that always fails.
DIST := build/dist
DIST_TESTS := $(addprefix tests/conformance/test_,content.py fragments.py requests.py late_join.py wildcards.py)
TEST_TOOLS := hypothesis pytest pytest-timeout pytest-xdist uvloop

# For targets of several parts: `part NAME COMMAND...` runs one, and at the end, also after a failure, each part's time
# is shown.
PARTS := taken=(); trap 'printf "== %s\n" "$${taken[@]}"' EXIT; \
    part() { \
        local name=$$1 begun=$$SECONDS code=0 how=; shift; printf '== %s\n' "$$name"; \
        "$$@" || { code=$$?; how=', failed'; }; \
        taken+=("$$(printf '%-32s %5d s%s' "$$name" $$((SECONDS - begun)) "$$how")"); \
        return $$code; \
    };

# bash for pipefail: the compile step filters its output and must still fail when the compiler does.
SHELL := bash
.SHELLFLAGS := -e -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-spark stress sim lint check bench bench-peers docs docs-site dist picture clean

help: ## list the targets
	@awk -F ': .*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "PYTHON=... names the interpreter for .venv; ARGS=... is passed on by demo, test, test-spark, stress, sim, bench and bench-peers."

demo: $(STAMPS)/installed ## a live run: three receiving processes, both transports, a table; then Spark reports on what was recorded
	@rm -rf build/demo
	$(BIN)/ipcbus demo --report build/demo $(ARGS)

test: $(STAMPS)/read-tests ## all tests but the long ones, WORKERS at a time (six more than there are cores)
	$(BIN)/python -m pytest $(IN_PARALLEL) $(WORKERS) -q -m "not long and not spark" --ignore tests/spark $(TESTS) $(ARGS)

test-spark: $(STAMPS)/installed ## the tests that need Spark, one after the other, as it takes all cores itself
	$(BIN)/python -m pytest -q -m "spark and not long" tests $(ARGS)

stress: $(STAMPS)/installed ## the long tests (many minutes), four at a time; TESTS=tests/conformance is a part of them
	@$(PARTS) \
	part "long tests without Spark" $(BIN)/python -m pytest $(IN_PARALLEL) 4 -m "long and not spark" --durations=25 $(TESTS) $(ARGS); \
	$(if $(filter tests tests/spark%,$(TESTS)), \
	part "long tests with Spark" $(BIN)/python -m pytest -m "long and spark" --durations=25 $(TESTS) $(ARGS))

sim: $(STAMPS)/installed ## ten thousand buses, sessions over UDP, recoveries and archives in virtual time, each from a seed (ARGS="--seed 7" is one of them)
	@$(PARTS) \
	part "buses in virtual time" $(BIN)/python -m tests.sim $(ARGS); \
	part "sessions over UDP" $(BIN)/python -m tests.sim.reliability $(ARGS); \
	part "recoveries" $(BIN)/python -m tests.sim.recovery $(ARGS); \
	part "guaranteed deliveries" $(BIN)/python -m tests.sim.gmd $(ARGS); \
	part "archives" $(BIN)/python -m tests.sim.archive $(ARGS); \
	part "areas of guaranteed senders" $(BIN)/python -m tests.sim.gmd_area $(ARGS)

lint: $(STAMPS)/installed ## style, format, types, and what is generated: layouts, reference pages, schemas
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/python -m ringbuf.layout --check
	$(BIN)/python -m ringbuf.item_layout --check
	$(BIN)/python -m ipcbus.wire.wire_layout --check
	$(BIN)/python -m ipcbus.archive.archive_layout --check
	$(BIN)/python -m ipcbus.gmd.journal_layout --check
	$(BIN)/python -m ipcbus.config.options_reference --check
	$(BIN)/python -m ipcbus.stats.statistics_reference --check
	$(BIN)/python -m ipcbus.reliability.reliability_reference --check
	$(BIN)/python -m ipcbus.spark.spark_reference --check
	$(BIN)/python -m ipcbus_tools.json_schemas --check
	$(BIN)/python -m ipcbus_tools.reference_pages --check

# The lint comes first (seconds against minutes); make keeps this order unless it is asked for -j.
check: lint test ## lint, then test: what has to pass before a commit

bench: $(STAMPS)/installed ## measure throughput and latency beside the native limit of this machine
	$(BIN)/python -m benchmarks $(ARGS)

bench-peers: $(STAMPS)/installed ## the alternatives in Python that are installed, and ipcbus, in one table (PEERS="..." installs some first)
	$(if $(PEERS),$(BIN)/python -m pip install --disable-pip-version-check -q $(PEERS))
	$(BIN)/python -m benchmarks --only "Other buses" $(ARGS)

docs: $(STAMPS)/installed ## the reference pages of options and statistics and the diagrams from their tables, and the schemas of JSON
	$(BIN)/python -m ipcbus.config.options_reference
	$(BIN)/python -m ipcbus.stats.statistics_reference
	$(BIN)/python -m ipcbus.reliability.reliability_reference
	$(BIN)/python -m ipcbus.spark.spark_reference
	$(BIN)/python -m ipcbus_tools.json_schemas
	$(BIN)/python -m ipcbus_tools.reference_pages

docs-site: $(STAMPS)/docs-tools ## the documentation as a site in build/site; fails on a link that leads nowhere
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "built build/site/index.html"

dist: $(STAMPS)/dist-tools ## wheel, source distribution and list of dependencies in dist/, checked; short tests against the installed wheel
	rm -rf dist $(DIST)
	$(BIN)/python -m build --outdir $(DIST)/built .
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m auditwheel repair --strip --wheel-dir dist $(DIST)/built/*.whl
	cp $(DIST)/built/*.tar.gz dist
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv $(DIST)/venv
	$(DIST)/venv/bin/python -m pip install --disable-pip-version-check -q --only-binary :all: dist/*.whl
	$(BIN)/cyclonedx-py environment $(DIST)/venv --output-file dist/sbom.json
	$(DIST)/venv/bin/python -m pip install --disable-pip-version-check -q --only-binary :all: $(TEST_TOOLS)
	cp -r tests pyproject.toml $(DIST)
	cd $(DIST) && CC=false venv/bin/python -m pytest $(IN_PARALLEL) $(WORKERS) -q -m "not long and not spark" $(DIST_TESTS) $(ARGS)
	@ls -l dist

picture: $(STAMPS)/installed ## the pictures in the README, made by a live run
	@mkdir -p docs/images
	$(BIN)/ipcbus demo --seconds 30 --domain picture --svg docs/images/demo.svg & \
	    $(BIN)/ipcbus top --count 24 --domain picture --svg docs/images/top.svg && wait

clean: ## remove what was built; .venv stays
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis $(STAMPS) $(PYX:.pyx=.c)
	find ringbuf ipcbus -name '*.so' -delete
	find ringbuf ipcbus tools tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# ---- how .venv comes to be ----------------------------------------------------------------------------

# The tests in this recipe exist for their texts: pip would fail too, but pages later and less clearly.
$(VENV)/pyvenv.cfg:
	@command -v $(PYTHON) >/dev/null || \
	    { echo "error: '$(PYTHON)' was not found; install Python 3.11 or newer, or run make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "error: $$($(PYTHON) --version) is too old, ipcbus needs 3.11 or newer: run make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' || \
	    { echo "error: the headers of $(PYTHON) (Python.h) are missing; install its development package (python3-dev, python3-devel)"; exit 1; }
	@command -v $${CC:-gcc} >/dev/null || \
	    { echo "error: no C compiler '$${CC:-gcc}'; install gcc, or name another with CC=..."; exit 1; }
	@echo "== creating $(VENV) with $$($(PYTHON) --version)"
	$(PYTHON) -m venv $(VENV)

$(STAMPS)/tools: $(VENV)/pyvenv.cfg
	@mkdir -p $(STAMPS)
	@echo "== installing the build tools into $(VENV)"
	$(BIN)/python -m pip install --disable-pip-version-check 'setuptools>=77' 'cython>=3.1'
	@touch $@

# setuptools leaves alone what is current. It builds one module after the other, so each core gets a process of its own
# with a part of the modules (setup.py). Shown are the module names, warnings and errors; hidden are the compiler's
# command lines.
$(STAMPS)/compiled: $(STAMPS)/tools pyproject.toml setup.py $(PYX) $(PXD)
	@echo "== compiling the extension modules (a few seconds each)"
	@export IPCBUS_BUILD_PARTS=$$(nproc); seq 0 $$((IPCBUS_BUILD_PARTS - 1)) | \
	    xargs -P "$$IPCBUS_BUILD_PARTS" -I @ env IPCBUS_BUILD_PART=@ $(BIN)/python setup.py build_ext --inplace 2>&1 | \
	    sed -u -E '/^[^ ]*(gcc|cc|clang)(-[0-9.]+)? -/d; /^copying build/d'
	@touch $@

# Without build isolation pip uses the tools above; the modules are compiled already.
$(STAMPS)/linked: $(STAMPS)/tools pyproject.toml | $(STAMPS)/compiled
	@echo "== installing ipcbus and its development tools into $(VENV)"
	IPCBUS_IS_COMPILED=1 $(BIN)/python -m pip install --disable-pip-version-check --no-build-isolation -e '.[dev,spark]'
	@touch $@

$(STAMPS)/installed: $(STAMPS)/compiled $(STAMPS)/linked
	@touch $@

# pytest rewrites the assertions of each module that it reads for the first time. Two processes do it for all workers:
# else each worker would do it at the same time as the others, which took a fifth of the first `make test`.
$(STAMPS)/read-tests: $(STAMPS)/installed $(shell find tests -name '*.py')
	@printf '%s\n' tests/unit 'tests --ignore tests/unit' | \
	    xargs -L 1 -P 2 $(BIN)/python -m pytest --collect-only -q >$(STAMPS)/read-tests.log 2>&1 || { cat $(STAMPS)/read-tests.log; exit 1; }
	@touch $@

# What an extra of pyproject.toml brings, for one target: docs-tools, dist-tools. Installing ipcbus with the extra would
# look at all extension modules again, for minutes.
EXTRA := import sys, tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"][sys.argv[1]], sep="\n")

$(STAMPS)/%-tools: $(STAMPS)/installed
	@echo "== installing the extra '$*' into $(VENV)"
	$(BIN)/python -c '$(EXTRA)' $* | $(BIN)/python -m pip install --disable-pip-version-check -q -r /dev/stdin
	@touch $@
