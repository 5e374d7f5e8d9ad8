"""How long the processes of an embedded Airflow wait for the lock of its SQLite."""

from __future__ import annotations

import sys

# A write that waits longer ends the scheduler, the triggerer, or the DAG processor.
TIMEOUT_S = 300
# The API server writes in its event loop. If it waits there for a session that only the loop can end, it
# waits in vain: it then refuses the call, and the caller repeats it.
API_SERVER_TIMEOUT_S = 10

CONNECT_ARGS = {"timeout": API_SERVER_TIMEOUT_S if "api-server" in sys.argv else TIMEOUT_S}
