"""Files of the timeline that are empty or cannot be decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_occ_provider.hudi.doctor.finding import Finding, Severity
from airflow_occ_provider.hudi.format.instant import Instant

_COMPLETED_WRITE = (
    "Hudi's readers and writers fail at it: restore the file from an earlier version of the object or a "
    "backup; if there is none, end the writers and delete the file: its instant is pending again, and "
    "the next clean rolls it back; then run the job that wrote it again"
)
_COMPLETED = (
    "restore the file from an earlier version of the object or a backup; if there is none, end the "
    "writers and delete the file: its instant is pending again, and Hudi's next run continues it"
)
_PENDING = (
    "Hudi cannot continue it: if no driver of the table runs, delete the files of this instant in the "
    "timeline, and let Hudi plan it again"
)


def damaged_files(faults: Mapping[Instant, str]) -> Iterator[Finding]:
    """Yield a finding for each instant with a damaged file.

    :param faults: the file's name and what is wrong with it, of each such instant.
    """
    for instant, fault in sorted(faults.items()):
        if instant.completed:
            severity, remedy = Severity.ERROR, _COMPLETED_WRITE if instant.is_write else _COMPLETED
        else:
            severity, remedy = Severity.WARNING, _PENDING
        yield Finding("damaged_file", severity, (instant.time,), f"{instant}: {fault}", remedy)
