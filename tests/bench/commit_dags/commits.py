"""A DAG on all assets of each group, each with a watcher of its own, and one on the probe's."""

from __future__ import annotations

from airflow.sdk import DAG, Asset, AssetWatcher

from airflow_occ_provider.triggers.commit import HudiCommitTrigger
from tests.bench.commit_load import APART, SHARED, CommitLoad
from tests.bench.commit_watchers import ProbeWatcher

LOAD = CommitLoad.from_environment()


def watched(name, trigger):
    return Asset(name, watchers=[AssetWatcher(name="watcher", trigger=trigger)])


def commits(name, table):
    return watched(name, HudiCommitTrigger(table=str(table), asset=name, poll_s=LOAD.period_s))


probe = DAG("probe", schedule=[watched("probe", ProbeWatcher())])
apart, shared = (
    DAG(group, schedule=[commits(name, table) for name, table in LOAD.watched(group)])
    for group in (APART, SHARED)
)
