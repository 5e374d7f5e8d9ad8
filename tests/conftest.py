from __future__ import annotations

import os
import tempfile

os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow_occ_tests_")
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"

pytest_plugins = ["airflow_occ_provider.embedded.pytest_plugin"]


def pytest_unconfigure(config):
    import shutil

    shutil.rmtree(os.environ["AIRFLOW_HOME"], ignore_errors=True)
