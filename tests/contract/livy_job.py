"""What a batch of Livy runs in the contract suite: a shell script whose output is the report.

It ends with its JVM, as the shipped runner does. In YARN the standard output serves for a report: ``-``.
There it makes a context: without one Spark replaces its exit code.
"""

from __future__ import annotations

import ctypes
import json
import signal
import subprocess
import sys
from pathlib import Path

from pyspark import SparkContext


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def fact(**values: object) -> bytes:
    return f"airflow_occ_provider: {json.dumps(values)}\n".encode()


if __name__ == "__main__":
    die_with_parent()
    report, script = sys.argv[1:]
    if report == "-":
        SparkContext().stop()
    out = Path("/dev/stdout" if report == "-" else report)
    with out.open("ab", buffering=0) as output:
        output.write(fact(fact="protected", followed=True))
        code = subprocess.run(
            ["sh", "-c", script], stdout=output, check=False, preexec_fn=die_with_parent
        ).returncode
        output.write(fact(fact="end", exit_code=code))
    sys.exit(code)
