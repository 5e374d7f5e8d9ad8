"""A new place is one file with an entry point; ``test_submitters.py`` runs drivers in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.spark import spark_hook
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.places.of_task import PlacedTask, drivers_of, follower
from tests.contract import spool_place

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "cluster-mode.md"


def place():
    task = HudiWriteOperator(task_id="t", application="job.py", table="/lake/t", conn_id="spool")
    return drivers_of(PlacedTask(task, {}, spark_hook(task))).place(None)


def test_a_new_place_is_one_file_of_sixty_lines_which_its_page_shows():
    source = Path(spool_place.__file__).read_text()
    assert len(source.splitlines()) <= 60
    assert f"```python\n{source}```\n" in PAGE.read_text()


def test_the_master_of_the_connection_names_the_place(spool):
    assert type(place()).__module__ == "spool_place"
    handle = Handle("spool", "job 1", {"root": str(spool), "job": "1"})
    assert type(follower(handle).place).__module__ == "spool_place"


def test_a_place_that_is_not_installed_is_named_with_those_that_are(monkeypatch):
    extra = {"deploy-mode": "cluster"}
    connection = {"conn_type": "spark", "host": "spool:///srv/spool", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPOOL", json.dumps(connection))
    installed = "which no installed package has .there are: kubernetes, local, via, yarn"
    with pytest.raises(ConfigurationError, match=f"connection 'spool': .*'spool', {installed}.*install"):
        place()
    with pytest.raises(ConfigurationError, match=f"submitter: job 1 needs .*'spool', {installed}"):
        follower(Handle("spool", "job 1"))


def test_a_place_that_cannot_be_imported_is_named_with_the_cause(spool):
    Path(sys.path[0], "spool_place.py").write_text("import not_there")
    with pytest.raises(ConfigurationError, match=r"'spool', which cannot be imported: .*'not_there'"):
        place()


def test_an_operator_imports_no_place_before_its_task_runs():
    code = (
        "import sys, airflow_occ_provider.operators.hudi_write, airflow_occ_provider.triggers.driver; "
        "names = ('places.yarn', 'places.kubernetes', 'submitters.yarn', 'submitters.kubernetes'); "
        "print([name for name in names if f'airflow_occ_provider.{name}' in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"
