"""The writers of a round as tasks: a DAG for each way in which ``HudiWriteOperator`` runs them."""

from __future__ import annotations

import json
import os

from airflow.sdk import DAG, Param

from tests.bench.conflict.arms import ARMS
from tests.bench.conflict.events import job_of
from tests.bench.conflict.ours import operator_of
from tests.bench.conflict.place import TIMES_VARIABLE, arguments
from tests.bench.conflict.scheduled import JOBS_VARIABLE, POOL, dag_id

JOBS = [job_of(given) for given in json.loads(os.environ[JOBS_VARIABLE])]
TABLE, FOLDER = "{{ params.table }}", "{{ params.folder }}"

for letter, arm in ARMS.items():
    if not arm.is_scheduled:
        continue
    params = {name: Param("", type="string") for name in ("table", "folder")}
    with DAG(dag_id(letter), schedule=None, params=params):
        for place, job in enumerate(JOBS):
            operator_of(
                job,
                TABLE,
                arguments(TABLE, job),
                arm,
                pool=POOL,
                priority_weight=len(JOBS) - place,
                env_vars={TIMES_VARIABLE: f"{FOLDER}/{job.writer}-{{{{ ti.try_number }}}}.times"},
            )
