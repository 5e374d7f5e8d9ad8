"""Run a command, by default the tests marked ``k8s``, inside a one-node Kubernetes.

``python -m tests.k8s [--] [COMMAND...]``. It needs root; the first run builds Kubernetes.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.k8s.cluster.one_node import OneNode

SUITE = ("tests/k8s", "tests/contract/test_submitters.py")
TESTS = (sys.executable, "-m", "pytest", "-m", "k8s", *SUITE)


def main(words):
    if os.geteuid():
        sys.exit("Kubernetes' namespaces need root")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="airflow_occ_k8s_"))
    try:
        with OneNode(folder / "cluster") as node:
            return node.run(*(words or TESTS))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main([word for word in sys.argv[1:] if word != "--"]))
