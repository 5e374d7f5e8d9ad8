"""A driver without a JVM: it follows the contract of its folder, and runs a script once it is granted.

``python folder_job.py FOLDER SCRIPT``
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from airflow_occ_provider.driver.contract import EXIT_REFUSED, FACTS, Leave, Life
from airflow_occ_provider.in_driver import granted, run_job
from airflow_occ_provider.in_driver.folder import LocalFolder
from airflow_occ_provider.in_driver.report import Report


def main(folder, script):
    files = LocalFolder(folder)
    waiting = granted.Waiting(files, {}, granted.end_process)
    admission = waiting.wait()
    if isinstance(admission, Leave):
        return EXIT_REFUSED
    report = Report(lambda content: files.write(FACTS, content), run_job.report)
    life = Life.begin(None, admission.run.since)
    driver = granted.Driver(files, waiting.nonce, life, report, say=run_job.report, kill=end, poll_s=0.2)
    run_job.COPIES.append(report)
    run_job.GRANTED.append(driver)
    driver.start()
    program = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True)
    for line in program.stdout:
        run_job.report("printed", line=line)
    run_job.report("end", exit_code=program.wait(), **{**driver.finish(), "is_certain": True})
    report.close()
    return 0


def end():
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
