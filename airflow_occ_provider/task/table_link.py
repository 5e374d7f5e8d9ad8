"""The link from a task to its table's page, and what the task publishes for it."""

from __future__ import annotations

import hashlib
import logging
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow.sdk import BaseOperatorLink, conf

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.storage.address import canonical_table

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context
    from airflow.sdk.types import TaskInstanceKey

TABLE_KEY = "hudi_table"
"""XCom of a task: the path of its table, and the connections by which it is read and queued for."""
_ROUTE = "/plugin/hudi/hudi/t/"  # the frame of the view, then the page in it
_OTHERS = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 40
_log = logging.getLogger(__name__)


class HudiTableLink(BaseOperatorLink):
    """The link to the page of the table that a task works on."""

    name = "Hudi table"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """Return the path of the page; empty if the task's table is not a path."""
        try:
            return page_path(vars(operator).get("table"))
        except ConfigurationError:
            return ""


def table_key(table: object) -> str:
    """Return the key by which URLs name a table: one for all spellings of its path.

    :param table: base path of the table.
    :raises ConfigurationError: if it is not a path.
    """
    path = canonical_table(table)
    name = _OTHERS.sub("-", path.rpartition("/")[2].lower())[:_LONGEST_NAME].strip("-")
    digest = hashlib.sha256(path.encode()).hexdigest()[:12]
    return f"{name}-{digest}" if name else digest


def page_path(table: object) -> str:
    """Return the path of a table's page in Airflow's UI.

    :param table: base path of the table.
    :raises ConfigurationError: if it is not a path.
    """
    prefix = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
    return f"{prefix}{_ROUTE}{table_key(table)}"


def show_table(context: Context) -> None:
    """Publish a running task's table and link; Airflow pushes links at a task's end."""
    try:
        values = vars(context["task"])
        ti = context["ti"]
        connections = {name: values.get(name) for name in ("storage_conn_id", "lock_conn_id")}
        ti.xcom_push(TABLE_KEY, {"table": canonical_table(values.get("table")), **connections})
        ti.xcom_push(HudiTableLink().xcom_key, page_path(values.get("table")))
    except Exception as error:  # noqa: BLE001 - what the UI shows must not fail the job
        _log.debug("The UI does not show the task's table yet: %s", error)
