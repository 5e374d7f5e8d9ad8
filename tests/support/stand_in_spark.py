"""A ``spark-submit`` that commits in the form of Hudi, without Spark.

It is started as ``spark-submit ... FOLDER``, and waits there for its grant. With
``STAND_IN_ZOOKEEPER`` it takes Hudi's lock there.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path


def main(words):
    options = granted(Path(words[-1]))["options"]
    say(fact="protected", options=len(options), followed=True)
    folder = Path(os.environ["STAND_IN_TABLE"], ".hoodie")
    instant = moment()
    say(
        fact="hudi",
        logger="org.apache.hudi.ActiveTimelineV2",
        thread="main",
        message=f"Creating a new instant [==>{instant}__commit__REQUESTED]",
    )
    (folder / ".heartbeat" / instant).touch()
    for state in (".commit.requested", ".inflight"):
        (folder / "timeline" / f"{instant}{state}").touch()
    with locked(options):
        say(
            fact="hudi",
            logger="org.apache.hudi.TransactionUtils",
            thread="main",
            message="Successfully resolved conflicts, if any",
        )
        path = Path(folder.parent, "p=1", f"f1-0_1-0_{instant}.parquet")
        path.parent.mkdir(exist_ok=True)
        path.touch()
        stats = {"fileId": "f1-0", "path": f"p=1/{path.name}", "prevCommit": "null", "numInserts": 1}
        signature = {key: value for key, value in options.items() if key.startswith("_airflow_")}
        commit = {
            "partitionToWriteStats": {"p=1": [stats]},
            "operationType": "UPSERT",
            "extraMetadata": signature,
        }
        (folder / "timeline" / f"{instant}_{moment()}.commit").write_text(json.dumps(commit))
    (folder / ".heartbeat" / instant).unlink()
    say(fact="end", exit_code=0)


def granted(folder):
    """Wait for the grant, and return the payload."""
    (folder / "hello.stand_in").write_text("{}")
    while not (folder / "grant").exists():
        time.sleep(0.01)
    return json.loads((folder / "payload").read_text())


def say(**fact):
    with Path(sys.argv[-1], "facts.jsonl").open("a") as facts:
        facts.write(f"{json.dumps(fact)}\n")


def moment():
    return dt.datetime.now(dt.UTC).strftime("%Y%m%d%H%M%S%f")[:17]


@contextmanager
def locked(options):
    hosts = os.environ.get("STAND_IN_ZOOKEEPER")
    if not hosts:
        yield
        return
    from kazoo.client import KazooClient

    client = KazooClient(hosts)
    client.start()
    lock = f"{options['hoodie.write.lock.zookeeper.base_path']}/t"
    entry = client.create(f"{lock}/_c_x-lock-", ephemeral=True, sequence=True, makepath=True)
    yield
    client.delete(entry)
    client.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
