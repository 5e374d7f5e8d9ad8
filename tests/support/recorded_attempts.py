"""The record of an attempt, for tests of what starts its driver."""

from __future__ import annotations

import logging
import os
from dataclasses import replace

from airflow_occ_provider.attempts.attempt import Attempt
from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.record import TryKey
from airflow_occ_provider.storage.table import HudiTable
from tests.support.hand_made_tables import T1

LOG = logging.getLogger(__name__)
KEY = f"key-of-a-task-run-{os.getpid()}"  # a later try ends all processes with its key
REQUESTED = f"x INFO ActiveTimelineV2: Creating a new instant [==>{T1}__commit__REQUESTED]"


class Store:
    record = None

    def get(self):
        return self.record

    def set(self, record):
        self.record = record


def attempt_of(folder, journal, submitter, **more):
    table, signature = HudiTable(str(folder.parent)), Signature(KEY, "dag", "run", "task")
    return Attempt(journal, table, signature, Driver(submitter), log=LOG, **more)


def journal(store, number=1):
    opened = Journal(store, TryKey(number, 5))
    opened.record = replace(opened.record, identity=KEY)
    return opened
