"""Bring the jars that PySpark lacks into a folder: Hudi's bundle, the S3 client, PostgreSQL's driver."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from airflow_occ_provider.embedded.bundle import find_bundle, resolve_jar

# Of the Hadoop that PySpark 3.5 carries, and the SDK that it was built with.
S3 = (
    ("org.apache.hadoop", "hadoop-aws", "3.3.4"),
    ("com.amazonaws", "aws-java-sdk-bundle", "1.12.262"),
)
POSTGRES = ("org.postgresql", "postgresql", "42.7.8")


def main(folder: Path) -> None:
    """Fill the folder; the database's driver goes into one of its own, for the metastore alone."""
    for target, jars in (
        (folder / "spark", [find_bundle(), *(resolve_jar(*jar) for jar in S3)]),
        (folder / "metastore", [resolve_jar(*POSTGRES)]),
    ):
        target.mkdir(parents=True, exist_ok=True)
        for jar in jars:
            shutil.copy(jar, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
