# One target a task; `make` alone explains. Works with GNU make 3.81 (macOS) and newer.
# Each target sets up what it needs: a Python environment in .venv, jars in .work.

PYTHON  ?= python3
ARGS    ?=
LOG     ?=
# Test processes that run at a time, each with its own Kafka and MariaDB: 1 GB of memory a process. More than
# cores, because many tests wait for a timer or for a process that starts.
WORKERS ?= 3

VENV   := .venv
PY     := $(VENV)/bin/python
WORK   := $(if $(SLUICEGATE_WORK),$(SLUICEGATE_WORK),.work)
STAMP  := $(VENV)/.installed
DOCS   := $(WORK)/docs
$(if $(word 2,$(SLUICEGATE_WORK)),$(error SLUICEGATE_WORK has a blank: name a folder without))
# The library with its jobs, the operator, infra and tests.
TYPED  := jobs/src operators/src infra tests

.DEFAULT_GOAL := help
.PHONY: help release demo services test screenshots lint coverage format bench catch-up mutants model robustness soak docs clean lock preflight environment jars classes store apiserver clients browser tools kind-up kind-down images charts manifests e2e

##@ Use

demo: environment classes ## Run the main job on this machine, failures included (LOG=access.log.gz: your own log)
	@$(PY) -m infra.demo $(if $(LOG),--log "$(LOG)")

services: environment classes store ## Keep Kafka, MariaDB, Valkey and an S3 up until Ctrl-C, and say how to reach them
	@$(PY) -m infra.local_services $(ARGS)

images: environment jars store ## Build the platform's container images (ARGS="jobs --load": one, into docker)
	@$(PY) -m infra.images $(if $(filter e2e soak,$(MAKECMDGOALS)),,$(ARGS))

##@ A cluster of your own

tools: environment ## Build kubectl, helm and kind, and say where they are (.work/bin)
	@$(PY) -m infra.toolchain.go_programs

kind-up: environment ## Start a Kubernetes cluster of one node on this machine
	@$(PY) -m infra.kind up

e2e: images charts kind-up ## Install the platform there, kill what can be killed, check that all is exact (ARGS="-k trace")
	@$(PY) -m infra.kind load
	@$(PY) -m pytest --numprocesses 0 tests/e2e $(ARGS)

soak: images charts kind-up ## Run two jobs there for hours, kill a pod every minute, report what grows (MINUTES=120, SEED=7)
	@$(PY) -m infra.kind load
	@$(PY) -m tests.soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(ARGS)

kind-down: environment ## Remove it
	@$(PY) -m infra.kind down

##@ Develop

test: environment classes store apiserver clients browser ## Run the tests (ARGS="tests/unit -k name": some of them)
	@$(PY) -m pytest --numprocesses $(WORKERS) --dist worksteal $(ARGS)

screenshots: environment classes ## Stage the faults of docs/guides/console-faults.md and take its screenshots again
	@$(PY) -m infra.toolchain.chromium
	@SLUICEGATE_SCREENSHOTS=docs/images/console $(PY) -m pytest --numprocesses 0 tests/integration/console $(ARGS)

lint: environment ## Check style, types, layers, English and dead code (BASE=main: commit subjects since then too)
	@echo "Checking style ..."
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@echo "Checking types ..."
	@$(PY) -m mypy $(TYPED)
	@echo "Checking layers ..."
	@$(VENV)/bin/lint-imports
	@echo "Checking English ..."
	@git ls-files -z | xargs -0 $(VENV)/bin/codespell
	@$(PY) -m infra.prose $(if $(BASE),--commits $(BASE))
	@echo "Checking for dead code ..."
	@$(VENV)/bin/vulture

format: environment ## Format the code and repair what can be repaired
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

coverage: environment ## Measure how much of the product the unit tests and simulations run
	@$(PY) -m coverage erase
	@$(PY) -m coverage run -m pytest --numprocesses 0 tests/unit tests/robustness/model $(ARGS)
	@$(PY) -m coverage combine --quiet
	@$(PY) -m coverage report

charts: environment clients ## Vendor and lint the Helm charts; write their schemas and READMEs
	@$(PY) -m infra.chart_docs

manifests: environment clients ## Render plain manifests of the operator, for kubectl (ARGS="--namespace shop")
	@$(PY) -m infra.manifests $(ARGS)

bench: environment classes store apiserver ## Measure jobs and operator side by side with their peers (ARGS="--only operator")
	@$(PY) -m tests.bench $(ARGS)

catch-up: environment classes ## Copy 10 GiB from Kafka to Kafka in one epoch, on a heap of 1 GiB (GIB=2: less)
	@SLUICEGATE_CATCH_UP_GIB=$(or $(GIB),10) $(PY) -m pytest --numprocesses 0 --log-cli-level INFO \
	    tests/robustness/scenarios/test_catch_up.py $(ARGS)

mutants: environment ## Change the packages that decide over data, and report what no test notices (ARGS="storage --resume")
	@nice $(PY) -m tests.mutation $(ARGS)

model: environment ## Search the Promela model of the commit protocol, with Spin (about a minute)
	@$(PY) -m tests.robustness.model.promela.check

robustness: environment classes ## Inject the faults of a seed into a running job (SEED=7, FAULTS=100, JOB=ip_count or joined_payments, QUICK=1: below 10 minutes; ALL=1: every cell, some hours; SUM="FOLDER...": sum up reports; PAGE=FILE: write the page of published runs)
ifdef ALL
	@$(PY) -m tests.robustness.all_runs --seed $(or $(SEED),$(shell date +%y%m%d)) $(ARGS)
else
	@$(PY) -m tests.robustness $(if $(SUM),--sum $(SUM)) $(if $(PAGE),--page $(PAGE)) $(if $(QUICK),--minutes 4 --end-minutes 10) $(if $(SEED),--seed $(SEED)) \
	    $(if $(FAULTS),--faults $(FAULTS)) $(if $(JOB),--job $(JOB)) $(ARGS)
endif

docs: environment $(DOCS)/.installed ## Write docs/reference from the code and build the site in .work/site
	@$(PY) -m infra.reference_docs
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --site-dir "$(WORK)/site"
	@echo "The site is in $(WORK)/site. Read it with: $(PYTHON) -m http.server --directory $(WORK)/site"

##@ Keep house

lock: environment ## Pin again: requirements/*.in and infra/versions.py into their lock files
	@echo "Pinning Python packages ..."
	@$(PY) -m venv $(WORK)/uv && $(WORK)/uv/bin/python -m pip install --quiet \
	    "uv==$$($(PY) -c "from infra.versions import UV; print(UV)")"
	@for set in build runtime operator dev go java flink profile docs; do \
	    UV_CUSTOM_COMPILE_COMMAND="make lock" $(WORK)/uv/bin/uv pip compile --quiet --universal \
	        --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	        requirements/$$set.in --output-file requirements/$$set.txt || exit 1; \
	done
	@$(PY) -m infra.toolchain.maven lock

release: $(if $(VERSION),environment,images charts) ## Build wheels, chart packages and images of this version (VERSION=0.2.0: write that version first)
	@$(PY) -m infra.release $(if $(VERSION),$(VERSION),--build)

clean: ## Remove everything that make made here: .venv, .work, caches; not what clones share
	@echo "Removing .venv, $(WORK) and caches ..."
	@# infra/preflight.py marks a folder that make may remove: it was empty then.
	@rm -rf .work
	@[ ! -e "$(WORK)/.made-by-sluicegate" ] || rm -rf "$(WORK)"
	@rm -rf $(VENV) .coverage .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find infra jobs operators tests -name __pycache__ -type d -prune -exec rm -rf {} +

help:
	@awk 'BEGIN {FS = ":.*## "; print "Sluicegate: exactly-once streaming on Spark. Usage: make TARGET"} \
	    /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	    /^[a-z0-9-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' Makefile

# Set-up, done by the targets above.

preflight:
	@$(PYTHON) infra/preflight.py

environment: $(STAMP)

$(STAMP): requirements/build.txt requirements/runtime.txt requirements/dev.txt jobs/pyproject.toml operators/pyproject.toml | preflight
	@echo "Making the Python environment in $(VENV) (a few minutes the first time) ..."
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-build-isolation --require-hashes -r requirements/dev.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e jobs -e operators
	@touch $@

# The tools of the site have a newer click than the library is tested with.
$(DOCS)/.installed: requirements/docs.txt | preflight
	@echo "Installing what builds the site in $(DOCS) ..."
	@rm -rf "$(DOCS)"
	@$(PYTHON) -m venv "$(DOCS)"
	@"$(DOCS)/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	@touch "$@"

jars: environment
	@$(PY) -m infra.toolchain.maven fetch
	@$(PY) -m infra.toolchain.javac

classes: jars
	@$(PY) -m infra.class_data_sharing

store: environment
	@$(PY) -m infra.toolchain.go_programs --optional versitygw

apiserver: environment
	@$(PY) -m infra.toolchain.go_programs --optional etcd kube-apiserver

# What the tests of charts, alerts and of the operator's page run; without one of them these are left out.
clients: environment
	@$(PY) -m infra.toolchain.go_programs --optional helm kubectl promtool prometheus

# What opens the pages of the console; without it those tests are left out.
browser: environment
	@$(PY) -m infra.toolchain.chromium --optional
