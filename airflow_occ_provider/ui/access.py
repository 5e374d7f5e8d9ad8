"""What a user may open, and which names a page shows to that user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import get_user, requires_access_asset, requires_access_dag
from fastapi import Depends
from starlette.concurrency import run_in_threadpool

from airflow_occ_provider.ui.links import Viewer

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser

SIGNED_IN = [Depends(get_user)]
TABLES = [Depends(requires_access_asset("GET"))]
ATTEMPTS = [Depends(requires_access_dag("GET", DagAccessEntity.TASK_INSTANCE))]


async def viewer(user: BaseUser, home: str, site: str) -> Viewer:
    """Return a user as the viewer of a page: owners of other DAGs have no names there.

    :param home: relative path from the page to the app's root.
    :param site: of this Airflow; owners elsewhere have no names, either.
    """
    return Viewer(home, await run_in_threadpool(_readable, user), site)


def _readable(user: BaseUser) -> frozenset[str]:
    return frozenset(get_auth_manager().get_authorized_dag_ids(user=user, method="GET"))
