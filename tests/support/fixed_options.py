"""Runs of a task whose options are fixed: nothing asks the table, the lock or the site for them."""

from __future__ import annotations

from airflow_occ_provider.attempts.identity import IDENTITY_KEY, Signature
from airflow_occ_provider.attempts.preparation import Preparation


def fix_options(run, site, options, task):
    """Give a ``ProtectedTry`` its options.

    :param task: what its commits are signed with, besides the run's identity.
    """

    def prepare(order_token=""):
        identity = run.journal.record.identity
        signature = Signature(identity, *task, order_token=order_token)
        snapshot = run.table.snapshot(missing_ok=True)
        return Preparation(signature, site, {**options, IDENTITY_KEY: identity}, "", snapshot)

    def known_options(preparation):
        run.spark.refuse(run.job, site)
        return dict(options)

    run.look_up, run.prepare, run.known_options = (lambda: None), prepare, known_options
