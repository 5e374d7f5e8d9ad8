"""Health checks of the stack's services: exit code 0 if the service is healthy.

``check.py http URL [TEXT]``: the page exists and contains the text. ``check.py metastore HOST PORT``:
the metastore finds its catalogue and its locks.
"""

from __future__ import annotations

import sys
import urllib.request

TIMEOUT_S = 5


def http(url: str, text: str = "") -> bool:
    """Whether the page exists and contains the text."""
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:  # noqa: S310 - named by compose.yaml
        return text in answer.read().decode()


def metastore(host: str, port: str) -> bool:
    """Whether the metastore finds its default database and the tables of its locks."""
    from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes
    from thrift.protocol.TBinaryProtocol import TBinaryProtocol
    from thrift.transport import TSocket, TTransport

    connection = TSocket.TSocket(host, int(port))
    connection.setTimeout(TIMEOUT_S * 1000)
    transport = TTransport.TBufferedTransport(connection)
    transport.open()
    try:
        client = ThriftHiveMetastore.Client(TBinaryProtocol(transport))
        client.show_locks(ttypes.ShowLocksRequest())
        return "default" in client.get_all_databases()
    finally:
        transport.close()


if __name__ == "__main__":
    sys.exit(not {"http": http, "metastore": metastore}[sys.argv[1]](*sys.argv[2:]))
