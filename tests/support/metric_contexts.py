"""Contexts of tasks that send metrics."""

from __future__ import annotations

import json
from types import SimpleNamespace


class Store(dict):
    def set(self, key, value, *, retention=None):
        self[key] = json.loads(json.dumps(value))


def context(task_id, store):
    ids = {"dag_id": "d", "run_id": "r", "task_id": task_id, "map_index": -1}
    ti = SimpleNamespace(**ids, try_number=1, max_tries=5, xcom_push=lambda **_: None)
    return {"ti": ti, "task_state_store": store}
