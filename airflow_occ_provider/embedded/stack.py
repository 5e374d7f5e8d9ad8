"""All that a test of concurrent Hudi writers needs, in one ``with`` block."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Self

from airflow_occ_provider.embedded.bundle import HUDI_VERSION
from airflow_occ_provider.embedded.spark import spark_environment
from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper


class EmbeddedStack:
    """A running ZooKeeper and an environment for ``spark-submit``, in a folder of their own.

    :param folder: where everything lives; ``None`` for a scratch folder that is removed after.
    :param hudi_version: release of Hudi's bundle.
    """

    def __init__(self, folder: Path | None = None, hudi_version: str = HUDI_VERSION) -> None:
        self._temporary = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="airflow_occ_stack_"))
        self.hudi_version = hudi_version
        self.zookeeper = EmbeddedZookeeper(self.folder / "zookeeper")
        self.environment: dict[str, str] = {}

    def __enter__(self) -> Self:
        try:
            self.environment = spark_environment(self.folder / "spark", self.hudi_version)
            self.zookeeper.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop what runs; safe to repeat."""
        self.zookeeper.stop()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)
