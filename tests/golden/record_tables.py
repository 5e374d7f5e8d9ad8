"""Make the golden tables in ``tables/`` anew with real Hudi: ``python -m tests.golden.record_tables``.

Each is an archive of a small table (``table_archive``) and, beside it, what Hudi's own Java API said
of the same table before it was packed (``java_view``).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from airflow_occ_provider.embedded.bundle import find_bundle
from airflow_occ_provider.embedded.spark import spark_environment
from tests.golden import HUDI_RELEASES
from tests.golden.hudi_table import GoldenTable
from tests.golden.java_view import JavaView
from tests.golden.scenarios import BEFORE, OLD, Scenario, scenarios
from tests.golden.table_archive import pack, unpack

TABLES = Path(__file__).parent / "tables"
LAKE = Path("/tmp/golden")
LOCAL_ZONE = "Asia/Kolkata"


def spark_session(folder: Path, hudi_version: str, zone: str = LOCAL_ZONE) -> SparkSession:
    """Start a Spark with a Hudi release; a JVM holds one release only."""
    os.environ.update(spark_environment(folder, hudi_version))
    java = f"-Duser.timezone={zone}"
    bundle = find_bundle(hudi_version)  # 1.0.2 casts Avro records: one loader has to load it all
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--master local[2] --driver-memory 1536m --driver-java-options {java} "
        f"--driver-class-path {bundle} pyspark-shell"
    )
    extension = "org.apache.spark.sql.hudi.HoodieSparkSessionExtension"
    catalog = "org.apache.spark.sql.hudi.catalog.HoodieCatalog"
    session = SparkSession.builder.config("spark.sql.extensions", extension)
    session = session.config("spark.sql.catalog.spark_catalog", catalog)
    spark = session.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def make(spark: SparkSession, hudi_version: str, name: str, scenario: Scenario) -> GoldenTable:
    """Let a scenario write its table."""
    table = GoldenTable(spark, hudi_version, LAKE / name)
    scenario(table)
    return table


def record(table: GoldenTable) -> None:
    """Ask Hudi about a table, and pack it."""
    version, name = table.hudi_version, table.path.name
    view = JavaView(table.spark, table.path, version)
    said = {"hudi": version, "local_zone": LOCAL_ZONE, **view.describe()}
    folder = TABLES / version
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / f"{name}.json", said)
    archive = folder / f"{name}.zip"
    pack(table.path, archive, metadata_table=table.metadata_table, checksums=table.checksums)
    size = archive.stat().st_size
    print(f"{version} {name}: {len(said['instants'])} instants, {size} bytes", flush=True)


def record_archive(spark: SparkSession, hudi_version: str, name: str) -> None:
    """Ask Hudi what a recorded table has archived, if the record does not contain that yet."""
    described = TABLES / hudi_version / f"{name}.json"
    said = json.loads(described.read_text())
    if said["archive_read"]:
        return
    table = unpack(described.with_suffix(".zip"), LAKE / f"again_{name}")
    archived = JavaView(spark, table, hudi_version).archived()
    _write(described, said | {"archive_read": True, "instants": [*archived, *said["instants"]]})
    shutil.rmtree(LAKE / f"again_{name}")
    print(f"{hudi_version} {name}: {len(archived)} archived instants", flush=True)


def _write(file: Path, said: dict[str, Any]) -> None:
    text = json.dumps(said, ensure_ascii=False)
    file.write_text(text.replace('{"time"', '\n{"time"') + "\n")


def record_version(hudi_version: str, names: list[str]) -> int:
    """Record tables of one release, whose JVM is this process's; return how many failed."""
    if hudi_version != OLD:
        _begin_with_the_old_release([name for name in names if name in BEFORE])
    failed = 0
    with tempfile.TemporaryDirectory(prefix="airflow_occ_golden_") as scratch:
        spark = spark_session(Path(scratch), hudi_version)
        for name in names:
            if name not in BEFORE:
                shutil.rmtree(LAKE / name, ignore_errors=True)
            try:
                record(make(spark, hudi_version, name, scenarios(hudi_version)[name]))
            except Exception:  # noqa: BLE001 - the other tables are still wanted
                failed += 1
                print(f"{hudi_version} {name}: FAILED\n{_why()}", flush=True)
            shutil.rmtree(LAKE / name, ignore_errors=True)
        spark.stop()
    return failed


def record_archives(hudi_version: str) -> int:
    """Complete the records of tables that were made before their archive could be compared."""
    with tempfile.TemporaryDirectory(prefix="airflow_occ_golden_") as scratch:
        spark = spark_session(Path(scratch), hudi_version)
        for described in sorted((TABLES / hudi_version).glob("*.json")):
            record_archive(spark, hudi_version, described.stem)
        spark.stop()
    return 0


def _why() -> str:
    lines = traceback.format_exc().splitlines()
    return "\n".join(line for line in lines if not line.startswith("\tat "))


def _begin_with_the_old_release(names: list[str]) -> None:
    command = [sys.executable, "-m", "tests.golden.record_tables", "--begin", *names]
    if names:
        subprocess.run(command, check=True)


def begin(names: list[str]) -> int:
    """Run the old release's part of the tables that a newer one continues."""
    with tempfile.TemporaryDirectory(prefix="airflow_occ_golden_") as scratch:
        spark = spark_session(Path(scratch), OLD)
        for name in names:
            shutil.rmtree(LAKE / name, ignore_errors=True)
            make(spark, OLD, name, BEFORE[name])
        spark.stop()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hudi", choices=HUDI_RELEASES)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--archives", action="store_true", help="only complete records")
    parser.add_argument("--begin", nargs="*", choices=list(BEFORE), default=[], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    LAKE.mkdir(exist_ok=True)
    if arguments.begin:
        return begin(arguments.begin)
    if arguments.hudi and arguments.archives:
        return record_archives(arguments.hudi)
    if arguments.hudi:
        known = list(scenarios(arguments.hudi))
        return record_version(arguments.hudi, [n for n in known if n in (arguments.only or known)])
    command = [sys.executable, "-m", "tests.golden.record_tables", *sys.argv[1:]]
    return max(subprocess.run([*command, "--hudi", v], check=False).returncode for v in HUDI_RELEASES)


if __name__ == "__main__":
    sys.exit(main())
