"""A table and a ``spark-submit`` for whole tries of a task without Spark."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.support import stand_in_spark
from tests.support.session_site import SITE
from tests.support.table_properties import table_properties
from tests.support.task_state import Instance


class Writer(Instance):
    """A task instance whose results are not asked for."""

    def xcom_push(self, **_: object) -> None:
        pass


def make_empty_table(table: Path) -> None:
    """Make a table without commits."""
    metadata = table / ".hoodie"
    (metadata / "timeline" / "history").mkdir(parents=True)
    (metadata / ".heartbeat").mkdir()
    (metadata / "hoodie.properties").write_text(table_properties())


def stand_in_variables(folder: Path, table: Path) -> dict[str, str]:
    """Make a ``spark-submit`` that commits to a table, and return the variables by which tasks use it.

    :param folder: of the installation.
    :param table: on the local disk.
    """
    (folder / "bin").mkdir(parents=True)
    (folder / "conf").mkdir()
    submit = folder / "bin" / "spark-submit"
    submit.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{stand_in_spark.__file__}" "$@"\n')
    submit.chmod(0o755)
    return {
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
        "AIRFLOW__HUDI_OCC__SITE_ID": SITE,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "SPARK_HOME": str(folder),
        "STAND_IN_TABLE": str(table),
    }
