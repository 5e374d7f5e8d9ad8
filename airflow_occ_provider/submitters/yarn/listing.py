"""The running applications of a cluster, listed once for all that follow one."""

from __future__ import annotations

from airflow_occ_provider.attempts.shared_call import SharedCall
from airflow_occ_provider.submitters.yarn.resource_manager import Application, ResourceManager
from airflow_occ_provider.submitters.yarn.submission_conf import COMMON_TAG


class RunningApplications:
    """Looks up applications in a listing of those that run.

    An application that is not in the listing has ended, or has no common tag: it is asked for alone.

    :param manager: the cluster's.
    :param period_s: seconds for which a listing is used.
    """

    def __init__(self, manager: ResourceManager, period_s: float) -> None:
        self._manager = manager
        self._listing = SharedCall(self._list, period_s)

    def application(self, name: str) -> Application | None:
        """Return an application; ``None`` if the ResourceManager does not know it.

        :raises SubmitterUnreachableError: if no active ResourceManager answers.
        """
        return self._listing.get().get(name) or self._manager.application(name)

    def _list(self) -> dict[str, Application]:
        return {one.id: one for one in self._manager.running(COMMON_TAG)}
