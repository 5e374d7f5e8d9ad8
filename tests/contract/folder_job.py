"""A driver that is its own JVM: it follows the contract of its folder, and works once it is granted.

``python folder_job.py FOLDER SCRIPT``
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from airflow_occ_provider.driver.contract import EXIT_REFUSED, FACTS, DriverPace, Leave, Life
from airflow_occ_provider.in_driver import granted, run_job
from airflow_occ_provider.in_driver.folder import LocalFolder
from airflow_occ_provider.in_driver.report import Report

PACE = DriverPace(poll_s=0.2)


def follow(folder, work):
    """Wait for the grant, and do the work; return the exit code of the process.

    :param work: takes the payload, reports facts by ``run_job.report``, and returns its exit code.
    """
    files = LocalFolder(folder.removeprefix("file://"))
    details = {**run_job.details_in_yarn(), **run_job.details_of_process(os.getpid())}
    waiting = granted.WaitingDriver(files, details, granted.end_process)
    admission = waiting.wait()
    if isinstance(admission, Leave):
        return EXIT_REFUSED
    report = Report(lambda content: files.write(FACTS, content), run_job.report)
    life = Life.begin(None, admission.run.since)
    driver = granted.GrantedDriver(
        files, waiting.nonce, life, report, say=run_job.report, kill=end, pace=PACE
    )
    run_job.REPORTS.append(report)
    run_job.GRANTED.append(driver)
    driver.start()
    exit_code = work(admission.payload)
    run_job.report("end", exit_code=exit_code, **{**driver.finish(), "is_certain": True})
    report.close()
    return 0


def run(script):
    program = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True)
    for line in program.stdout:
        run_job.report("printed", line=line)
    return program.wait()


def end():
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(follow(sys.argv[1], lambda _: run(sys.argv[2])))
