from __future__ import annotations

import os
import subprocess
import sys

import pytest

from airflow_occ_provider import errors

FACING = (
    *("operators.hudi_write", "sensors.commit", "triggers.heartbeat", "hooks.hudi_lock"),
    *("decorators.hudi_write", "assets.table"),
)
IMPORT = """
import importlib
for name in {names}:
    try:
        importlib.import_module(f"airflow_occ_provider.{{name}}")
        print(f"{{name}}: imported")
    except ImportError as error:
        print(f"{{name}}: {{error}}")
"""


@pytest.fixture
def imported(tmp_path):
    """Return what an import of each package says where Airflow has a release."""

    def run(package, release):
        metadata = tmp_path / f"{package.replace('-', '_')}-{release}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: {release}\n"
        )
        path = os.pathsep.join([str(tmp_path), *sys.path])
        script = IMPORT.format(names=FACING)
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    return run


def test_an_older_airflow_is_refused_wherever_its_classes_are_imported(imported):
    lines = imported("apache-airflow-core", "3.2.2")
    assert len(lines) == len(FACING)
    assert all("needs Airflow 3.3" in line and "installed is Airflow 3.2.2" in line for line in lines)


@pytest.mark.parametrize("release", ["3.3.0b1", "3.3.2", "3.10.0", "4.0"])
def test_a_later_one_is_not(imported, release):
    assert imported("apache-airflow-core", release) == [f"{name}: imported" for name in FACING]


@pytest.mark.parametrize("release", ["2.11.0", "1.10.15"])
def test_airflow_2_has_another_package(release, monkeypatch):
    def version(package):
        if package == "apache-airflow":
            return release
        raise errors.PackageNotFoundError(package)

    monkeypatch.setattr(errors, "version", version)
    with pytest.raises(ImportError, match=rf"installed is Airflow {release}\. Remedy: upgrade"):
        errors.require_airflow_release()


def test_without_airflow_nothing_is_refused(monkeypatch):
    def version(package):
        raise errors.PackageNotFoundError(package)

    monkeypatch.setattr(errors, "version", version)
    errors.require_airflow_release()
