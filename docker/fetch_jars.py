"""Copy the jars of Hudi, the S3 client and PostgreSQL's driver."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from airflow_occ_provider.embedded.bundle import find_bundle, resolve_jar

# The version of PySpark 3.5's Hadoop, and the SDK with which it was built.
S3 = (
    ("org.apache.hadoop", "hadoop-aws", "3.3.4"),
    ("com.amazonaws", "aws-java-sdk-bundle", "1.12.262"),
)
POSTGRES = ("org.postgresql", "postgresql", "42.7.8")


def main(folder: Path) -> None:
    """Fill the folder; only the metastore's subfolder gets the database driver."""
    for target, jars in (
        (folder / "spark", [find_bundle(), *(resolve_jar(*jar) for jar in S3)]),
        (folder / "metastore", [resolve_jar(*POSTGRES)]),
    ):
        target.mkdir(parents=True, exist_ok=True)
        for jar in jars:
            shutil.copy(jar, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
