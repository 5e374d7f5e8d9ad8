"""A writer without Spark and without this provider: Hudi's own client for Java, in a JVM of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway

from airflow_occ_provider.embedded.bundle import find_bundle, pyspark_home, resolve_jar, resolve_jars
from airflow_occ_provider.embedded.java import find_java_home
from airflow_occ_provider.embedded.service import EmbeddedService

RELEASE = "1.2.1"
_ITS_JARS = ("hudi-java-client", "hudi-client-common", "hudi-common", "hudi-hadoop-common", "hudi-io")
_FURTHER = (
    ("org.apache.parquet", "parquet-avro", "1.13.1"),
    ("com.github.ben-manes.caffeine", "caffeine", "2.9.1"),
    ("org.openjdk.jol", "jol-core", "0.16"),
    ("com.google.protobuf", "protobuf-java", "3.25.5"),
)
# What these jars need of the timeline server, which is off, comes with the bundle of this release.
_BUNDLE = "1.2.0"
_FIELDS = {"id": "string", "who": "string", "p": "string", "ts": "long"}
_OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.index.type": "SIMPLE",  # by default it has an index in memory, which knows no earlier rows
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
}
_MODULES = ("java.lang", "java.util", "java.nio", "sun.nio.ch")


class JavaWriter(EmbeddedService):
    """The client's JVM during a ``with`` block."""

    _NAME = "Hudi's client for Java"
    _LOG = "java_writer.log"
    _gateway: JavaGateway | None = None

    def stop(self) -> None:
        """Stop it; its objects are forgotten before, or each of them would look for it."""
        if self._gateway:
            self._gateway.shutdown()
            self._gateway = None
        super().stop()

    def begin(
        self, table: Path, keys: Iterable[str], partition: str, options: Mapping[str, str]
    ) -> JavaWrite:
        """Write rows into files, and commit nothing yet.

        :param options: further ones, such as those of a lock.
        :raises py4j.protocol.Py4JJavaError: if Hudi fails.
        """
        parameters = GatewayParameters(port=self.port, auto_convert=True)
        self._gateway = self._gateway or JavaGateway(gateway_parameters=parameters)
        jvm: Any = self._gateway.jvm
        schema = {
            "type": "record",
            "name": "t",
            "fields": [
                {"name": name, "type": ["null", kind], "default": None} for name, kind in _FIELDS.items()
            ],
        }
        properties = jvm.java.util.Properties()
        for key, value in {**_OPTIONS, **options}.items():
            properties.setProperty(key, value)
        hudi, avro = jvm.org.apache.hudi, jvm.org.apache.avro
        config = (
            hudi.config.HoodieWriteConfig.newBuilder()
            .withPath(str(table))
            .withSchema(json.dumps(schema))
            .withProps(properties)
            .build()
        )
        conf = hudi.storage.hadoop.HadoopStorageConfiguration(jvm.org.apache.hadoop.conf.Configuration())
        client = hudi.client.HoodieJavaWriteClient(
            hudi.client.common.HoodieJavaEngineContext(conf), config
        )
        parsed = getattr(avro, "Schema$Parser")().parse(json.dumps(schema))
        records = jvm.java.util.ArrayList()
        for key in keys:
            row = {"id": key, "who": "java", "p": partition, "ts": 1}
            text = json.dumps({name: {_FIELDS[name]: value} for name, value in row.items()})
            decoder = avro.io.DecoderFactory.get().jsonDecoder(parsed, text)
            record = avro.generic.GenericDatumReader(parsed).read(None, decoder)
            payload = hudi.common.model.OverwriteWithLatestAvroPayload(
                hudi.common.util.Option.of(record)
            )
            records.add(
                hudi.common.model.HoodieAvroRecord(hudi.common.model.HoodieKey(key, partition), payload)
            )
        instant = client.startCommit()
        return JavaWrite(client, instant, client.upsert(records, instant))

    def _command(self) -> list[str]:
        of_client = [resolve_jar("org.apache.hudi", name, RELEASE) for name in _ITS_JARS]
        further = resolve_jars(f"java-writer-{RELEASE}", (), alone=_FURTHER)
        classes = (*of_client, f"{further}/*", find_bundle(_BUNDLE), f"{pyspark_home()}/jars/*")
        opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _MODULES]
        java = find_java_home() / "bin" / "java"
        return [
            *(str(java), "-Xmx512m", "-XX:TieredStopAtLevel=1", *opened),
            *("-cp", ":".join(map(str, classes)), "py4j.GatewayServer", str(self.port)),
        ]


class JavaWrite:
    """A write whose files are there, and whose commit is not.

    :param instant: its requested time.
    """

    def __init__(self, client: Any, instant: str, statuses: Any) -> None:
        self._client, self.instant, self._statuses = client, instant, statuses

    def commit(self) -> None:
        """Commit, and end the client whether that succeeds or not.

        :raises py4j.protocol.Py4JJavaError: if Hudi refuses it.
        """
        try:
            self._client.commit(self.instant, self._statuses)
        finally:
            self._client.close()
