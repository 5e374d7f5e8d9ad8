"""The plugin by which Airflow shows the pages; every process of Airflow loads it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

from airflow_occ_provider.ui import SECTION

PREFIX = "hudi"
_ATTEMPTS = f"{PREFIX}/attempts/{{DAG_ID}}/{{RUN_ID}}/{{TASK_ID}}/{{MAP_INDEX}}"


class HudiPlugin(AirflowPlugin):
    """The pages about Hudi tables, in the navigation and on request in task instances."""

    name = "hudi"

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The app with the pages; only the API server asks for it."""
        if not _is_enabled():
            return []
        from airflow_occ_provider.ui.app import make_app
        from airflow_occ_provider.ui.reader_process import ReaderProcess
        from airflow_occ_provider.ui.table_reads import THREADS

        idle_s = conf.getfloat(SECTION, "ui_idle_s", fallback=120.0)
        app = make_app(ReaderProcess(calls=2 * THREADS, idle_s=idle_s))
        return [{"name": "Hudi", "url_prefix": f"/{PREFIX}", "app": app}]

    @cached_property
    def external_views(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The places in Airflow's UI that lead to the pages."""
        if not _is_enabled():
            return []
        views = [_view("Hudi", f"{PREFIX}/", "nav", "hudi")]
        # Airflow shows it on the tasks of all DAGs, also of those without a Hudi table.
        if conf.getboolean(SECTION, "ui_attempts_tab", fallback=False):
            views.append(_view("Hudi attempts", _ATTEMPTS, "task_instance", "hudi_attempts"))
        return views


def _is_enabled() -> bool:
    return conf.getboolean(SECTION, "ui_enabled", fallback=True)


def _view(name: str, href: str, destination: str, url_route: str) -> dict[str, Any]:
    return {"name": name, "href": href, "destination": destination, "url_route": url_route}
