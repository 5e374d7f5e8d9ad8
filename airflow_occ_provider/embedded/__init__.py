"""Real ZooKeeper, Hive metastore, S3 server and Spark, from wheels and Maven."""

from __future__ import annotations
