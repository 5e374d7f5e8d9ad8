"""A real Hive metastore on a free port, from Spark's jars."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from airflow_occ_provider.embedded.bundle import pyspark_home
from airflow_occ_provider.embedded.java import SHORT_LIVED, find_java_home
from airflow_occ_provider.embedded.process import EmbeddedError
from airflow_occ_provider.embedded.service import EmbeddedService

_DB_TXN = "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager"


class EmbeddedMetastore(EmbeddedService):
    """A Hive metastore 2.3 with a Derby database, during a ``with`` block.

    It listens on all addresses of the machine: this release has no setting for that.

    :param folder: folder of its database and logs.
    :param port: its port; ``None`` for a free one.
    :param lock_timeout_s: seconds without a heartbeat after which a lock expires.
    :param reaper_interval_s: seconds between two checks for expired locks.
    :param settings: further properties of its ``hive-site.xml``.
    """

    _NAME = "The metastore"
    _LOG = "metastore.log"

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        *,
        lock_timeout_s: int = 30,
        reaper_interval_s: int = 1,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(folder, port)
        self.lock_timeout_s = lock_timeout_s
        self._reaper_interval_s = reaper_interval_s
        self._settings = settings or {}
        self._first_settings: Mapping[str, object] = {}

    @property
    def uris(self) -> str:
        """The value of ``hive.metastore.uris`` for its clients."""
        return f"thrift://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and return when it answers.

        After ``stop`` it starts on the same port, with its locks.

        :raises EmbeddedError: if it does not answer; then nothing is left running.
        """
        if not (self.folder / "database").is_dir():
            self._make_database()
        super().start()
        self._fixed = True

    def _make_database(self) -> None:
        # Without its background threads: they would create the tables too (TxnDbUtil.prepDb).
        self._first_settings = {"hive.in.test": "true", "hive.compactor.initiator.on": "false"}
        try:
            super().start()
            self._make_lock_tables()
        except BaseException:
            self.stop()
            shutil.rmtree(self.folder / "database", ignore_errors=True)
            raise
        finally:
            self._first_settings = {}
        self.stop()

    def _command(self) -> list[str]:
        self._write_site({**self._own_settings(), **self._first_settings, **self._settings})
        return [
            str(find_java_home() / "bin" / "java"),
            *("-Xmx256m", *SHORT_LIVED),
            f"-Dhive.log.dir={self.folder / 'logs'}",
            f"-Dderby.stream.error.file={self.folder / 'derby.log'}",
            *("-cp", os.pathsep.join([str(self.folder), str(pyspark_home() / "jars" / "*")])),
            *("org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(self.port)),
        ]

    def _own_settings(self) -> dict[str, object]:
        return {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:{self.folder / 'database'};create=true",
            "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": self.folder / "warehouse",
            # A class of the asynchronous logger is missing in Spark's jars.
            "hive.async.log.enabled": "false",
            # Locks of dead processes expire only with these three (AcidHouseKeeperService).
            "hive.txn.manager": _DB_TXN,
            "hive.support.concurrency": "true",
            "hive.compactor.initiator.on": "true",
            "hive.txn.timeout": f"{self.lock_timeout_s}s",
            "hive.timedout.txn.reaper.start": "0s",
            "hive.timedout.txn.reaper.interval": f"{self._reaper_interval_s}s",
        }

    def _write_site(self, settings: Mapping[str, object]) -> None:
        properties = "".join(
            f"<property><name>{escape(name)}</name><value>{escape(str(value))}</value></property>\n"
            for name, value in settings.items()
        )
        (self.folder / "hive-site.xml").write_text(
            f'<?xml version="1.0"?>\n<configuration>\n{properties}</configuration>\n'
        )

    def _make_lock_tables(self) -> None:
        """Create the lock tables by a lock request under ``hive.in.test``.

        That setting is used only for this: with it the metastore refuses Hudi's requests, which name
        no operation.
        """
        from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol
        from thrift.Thrift import TException
        from thrift.transport import TSocket, TTransport

        connection = TSocket.TSocket("127.0.0.1", self.port)
        connection.setTimeout(self._START_TIMEOUT_S * 1000)
        transport = TTransport.TBufferedTransport(connection)
        request = ttypes.LockRequest(
            component=[
                ttypes.LockComponent(
                    type=ttypes.LockType.SHARED_READ,
                    level=ttypes.LockLevel.TABLE,
                    dbname="first",
                    tablename="start",
                    operationType=ttypes.DataOperationType.NO_TXN,
                )
            ],
            user="embedded",
            hostname="localhost",
        )
        try:
            transport.open()
            client = ThriftHiveMetastore.Client(TBinaryProtocol(transport))
            client.unlock(ttypes.UnlockRequest(lockid=client.lock(request).lockid))
        except TException as error:
            raise EmbeddedError(f"The metastore did not create the lock tables: {error}") from error
        finally:
            transport.close()
