"""The Airflow deployment of this process's tests and rigs.

A try whose record is lost ends all processes of this host with its task run's identity: a digest of the
deployment and of the names of DAG, run and task. Those names are the same in each clone of the
repository, so another run of the tests on this host has to be another deployment.
"""

from __future__ import annotations

import secrets

SITE = f"tests-{secrets.token_hex(4)}"
