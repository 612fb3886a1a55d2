# The commands for users and developers:
#   up, flights             run Quafka here; the data of a tutorial
#   test, test-all          each feature once, in minutes; everything
#   test-bare, test-store   `make test` without optional programs; integration tests on an object store
#   test-pythons            `make test-bare` on Python 3.12 and 3.13
#   check                   format, lint, types, layers, and `make test`
#   crash, fuzz, hostile, sim, soak, chaos, spark-versions    long runs, one subject each
#   docs                    the documentation as a site, in site
#   screenshots             the pictures of the console in docs/images
#   dist                    what a release consists of, in dist, tried as users install it
#   bench, clean
VENV   := .venv
BIN    := $(VENV)/bin
PYTHON ?= python3
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
ARGS   ?=
# Tests of processes mostly wait, the others compute: two workers more than there are cores keep the
# cores busy. In the order of the folders the short tests come last, so that all workers end at about
# the same time.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
SPREAD  := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# What `make test` runs; CONTRIBUTING has the rule.
SHORT   := -m "not long"
# The versions of Python that `make test-pythons` looks for.
OTHERS  ?= 3.12,3.13
ALL     := --hypothesis-profile long
KILLS  ?= 200
SECONDS ?= 60
SEEDS  ?= 1000
MINUTES ?= 30

.PHONY: up test test-all test-pythons test-store test-bare check bench docs screenshots crash fuzz hostile sim soak spark-versions chaos flights dist deb clean

up: $(VENV)/.installed            ## run a broker and a gateway here, until Ctrl-C
	@$(BIN)/quafka up $(ARGS)

test: $(VENV)/.installed-dev      ## install what the tests need, and run those that show each feature once
	$(BIN)/python -m pytest $(SPREAD) $(SHORT) $(ARGS)

test-all: $(VENV)/.installed-dev  ## every test, with more examples, seeds and mutations; before, the short ones on other Pythons
	$(BIN)/python -m tests.release.suite $(OTHERS) $(SPREAD) $(SHORT)
	$(BIN)/python -m pytest $(SPREAD) $(ALL) $(ARGS)

test-pythons: $(VENV)/.installed-dev ## `make test-bare` on the other Pythons (OTHERS) that this machine has
	$(BIN)/python -m tests.release.suite $(OTHERS) $(SPREAD) $(SHORT) $(ARGS)

test-store: $(VENV)/.installed-dev ## the integration tests with the log in an object store
	$(BIN)/python -m pytest tests/integration $(SPREAD) $(ALL) --on-store $(ARGS)

test-bare: $(VENV)/.installed-dev ## `make test` with every optional program (kcat, java, ...) hidden
	$(BIN)/python -m tests.support.bare $(BIN)/python -m pytest $(SPREAD) $(SHORT) --bare $(ARGS)

check: $(VENV)/.installed-dev     ## format, lint, types, layers, and `make test`
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy proto/quafka_proto mesh_ops/quafka_loop mesh_ops/quafka_telemetry mesh_ops/quafka_mesh_ops mesh_ops/quafka_objects broker/quafka_broker \
		gateway/quafka_gateway spark/pyspark_quafka deploy/quafka deploy/quafka_client deploy/quafka_console tests
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m pytest $(SPREAD) $(SHORT) $(ARGS)

bench: $(VENV)/.installed-dev     ## print the table of figures (a few minutes)
	$(BIN)/python -m tests.bench $(ARGS)

docs: $(VENV)/.installed-dev      ## the documentation as a site; fails for a link that leads nowhere
	$(BIN)/python -m tests.site $(ARGS)

screenshots: $(VENV)/.installed-dev ## pictures of the console for the docs, by Chromium
	$(BIN)/python -m tests.console.screenshots $(ARGS)

crash: $(VENV)/.installed-dev     ## kill -9, power cuts and damaged files: nothing lost, nothing twice
	$(BIN)/python -m tests.crash --kills $(KILLS) $(ARGS)

fuzz: $(VENV)/.installed-fuzz     ## other examples for the property tests; mutated bytes, guided by coverage: SECONDS per target
	$(BIN)/python -m pytest tests/property $(SPREAD) --hypothesis-profile random
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(ARGS)

hostile: $(VENV)/.installed-dev   ## every known attack beside a bystander that must notice nothing
	$(BIN)/python -m tests.hostile $(ARGS)

sim: $(VENV)/.installed-dev       ## the whole product under simulated trouble: SEEDS runs, or one with SEED=n
	$(BIN)/python -m tests.sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(ARGS)

spark-versions: $(VENV)/.installed-dev ## the Spark tests on every PySpark that is supported
	$(BIN)/python -m tests.spark.versions $(ARGS)

soak: $(VENV)/.installed-dev      ## the mesh over an ever worse link, for MINUTES (ARGS=groups, consumer-groups, share-groups, copies, streams, connect, transactions, redis)
	$(BIN)/python -m tests.soak --minutes $(MINUTES) $(ARGS)

chaos: $(VENV)/.installed-dev     ## brokers on one store are killed, paused and stopped, for MINUTES: nothing lost, nothing twice
	$(BIN)/python -m tests.chaos --minutes $(MINUTES) $(ARGS)

flights: flights.txt              ## the tutorial's data: 336,776 flights, one CARRIER:JSON line each

flights.txt: $(VENV)/.installed-dev
	$(BIN)/python -m tests.support.flights > $@.part && mv $@.part $@

dist: $(VENV)/.installed-dev      ## wheel, sdist, SBOM and constraints, tried on each Python that is here
	$(BIN)/python -m tests.release

deb:                              ## a Debian package with the systemd units, for this machine's release
	sh deploy/debian/build.sh dist

clean:
	rm -rf $(VENV) dist .fuzz flights.txt .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; name one with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || sh deploy/install-venv-module.sh $(PYTHON) $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	@echo "installing Quafka into $(VENV) ..."
	@$(PIP) -e '.[console]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	@echo "installing Quafka and its tests' needs into $(VENV) ..."
	@$(PIP) 'pip>=25.1' # Debian's pip does not know dependency groups
	@$(PIP) -e '.[avro,console,redis,s3,spark]' --group dev
	@echo "compiling the tests, which each worker would do otherwise ..."
	@$(BIN)/python -m pytest --collect-only --quiet >/dev/null || true
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-fuzz: $(VENV)/.installed-dev
	@$(PIP) --group fuzz \
		|| { echo "atheris cannot be installed here: it has wheels for Linux x86-64" \
			"only; \`make test-all\` runs half a million mutations without it" >&2; \
			exit 1; }
	@touch $@
