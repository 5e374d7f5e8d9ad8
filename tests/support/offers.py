"""Offers of a driver in a folder of this host."""

from __future__ import annotations

from airflow_occ_provider.attempts.submission import Submission
from airflow_occ_provider.storage.attempt_folder import AttemptFolder


def offer_in(folder):
    return Submission("run_job.py", AttemptFolder(str(folder)), b"{}")
