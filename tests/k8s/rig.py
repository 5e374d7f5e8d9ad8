"""Kill and freeze what runs drivers in pods; then each task run must have committed once.

Run inside the cluster, by ``make test-k8s`` or ``python -m tests.k8s python -m tests.k8s.rig``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil

from airflow_occ_provider.attempts.identity import IDENTITY_KEY, Signature
from airflow_occ_provider.attempts.record import RECORD_KEY
from airflow_occ_provider.embedded.spark import spark_environment
from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.submitters.kubernetes_place import IDENTITY_LABEL, Pod
from tests.k8s.cluster.node import ADDRESS
from tests.k8s.conftest import Kubelet, left
from tests.k8s.jobs.insert_rows import ROWS
from tests.k8s.pod_script import api, has_begun
from tests.k8s.spark import CONNECTION, NAMESPACE, environment, prepare_namespace
from tests.k8s.stand_in import PLACE
from tests.support.hand_made_tables import add
from tests.support.session_site import SITE
from tests.support.table_properties import table_properties

MOST_TRIES = 6
MOST_DRAWS = 2  # for each run, as a fault may meet nothing
PATIENCE_S = 1800
SETTLED_S = 120
DRIVER = "--deploy-mode client"
OPEN = {"clientPortAddress": "0.0.0.0"}  # noqa: S104 - inside the cluster's own network


class Rig:
    def __init__(self, folder, seed):
        self.folder, self.random, self.api = folder, random.Random(seed), api()
        self.worker, self.name, self.hit = None, "", False
        self.faults = {
            "none": lambda: False,
            "worker killed while it submits": self.kill_worker,
            "worker killed at the gate": self.kill_at_gate,
            "worker killed": self.kill_worker,
            "worker asked to stop": self.stop_worker,
            "pod deleted": lambda: self.of_driver(self.api.delete),
            "pod deleted by force": self.delete_by_force,
            "pod deleted and worker killed": self.delete_and_kill,
            "pod evicted": self.evict,
            "driver killed": self.kill_driver,
            "driver out of memory": self.out_of_memory,
            "executor deleted": self.delete_executor,
            "kubelet frozen": self.freeze,
        }

    # Faults. Each returns whether it met what it ends: a driver may have ended just before.

    def pods(self):
        with suppress(Exception):
            return [one for one in self.api.drivers(IDENTITY_LABEL) if one.is_living]
        return []

    def of_driver(self, act):
        found = self.pods()
        for pod in found:
            act(pod)
        return bool(found)

    def kill_worker(self, number=signal.SIGKILL):
        is_running = self.worker.poll() is None
        self.worker.send_signal(number)
        return is_running

    def stop_worker(self):
        return self.kill_worker(signal.SIGTERM)

    def kill_at_gate(self):
        self.until(self.pods)
        return self.kill_worker()

    def delete_by_force(self):
        def act(pod):
            self.api._call("DELETE", f"pods/{pod.name}", body={"gracePeriodSeconds": 0})

        return self.of_driver(act)

    def delete_and_kill(self):
        is_running = self.kill_worker()
        return self.of_driver(self.api.delete) and is_running

    def evict(self):
        def act(pod):
            asked = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.name}}
            self.api._call("POST", f"pods/{pod.name}/eviction", body=asked)

        return self.of_driver(act)

    def kill_driver(self):
        found = drivers()
        for process in found:
            process.kill()
        return bool(found)

    def out_of_memory(self):
        """Leave the container the memory that it has, until the kernel kills it for one page more."""
        found = drivers()
        for process in found:
            groups = Path(f"/proc/{process.pid}/cgroup").read_text().splitlines()
            (group,) = (one.partition(":memory:")[2] for one in groups if ":memory:" in one)
            folder = Path(f"/sys/fs/cgroup/memory{group}")
            deadline = time.monotonic() + PATIENCE_S
            while folder.exists() and time.monotonic() < deadline:
                with suppress(OSError):
                    used = (folder / "memory.usage_in_bytes").read_text()
                    (folder / "memory.limit_in_bytes").write_text(used)
                time.sleep(0.05)
        return bool(found)

    def delete_executor(self):
        query = {"labelSelector": f"{IDENTITY_LABEL},spark-role=executor"}
        pods = json.loads(self.api._call("GET", "pods", query))["items"]
        for pod in pods:
            self.api.delete(Pod(pod))
        return bool(pods)

    def freeze(self):
        kubelet, is_met = Kubelet(), bool(self.pods())
        kubelet.freeze()
        try:
            time.sleep(self.random.uniform(10, 30))
        finally:
            kubelet.thaw()
        return is_met

    # One task run.

    def until(self, ready):
        deadline = time.monotonic() + PATIENCE_S
        while not ready() and self.worker.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)

    def wait_for(self, fault):
        """Wait for a moment at which a fault can happen."""
        if fault == "worker killed while it submits":
            log = self.folder / f"{self.name}.log"
            self.until(lambda: "Early conflict detection" in log.read_text())
            time.sleep(self.random.uniform(0, 8))
        elif fault != "worker killed at the gate":
            self.until(lambda: any(map(has_begun, self.pods())))
            time.sleep(self.random.uniform(0, 6 if "RIG_FOLDER" in os.environ else 25))

    def run(self, name, fault):
        self.name = name
        for number in range(1, MOST_TRIES + 1):
            with (self.folder / f"{name}.log").open("a") as log:
                words = [sys.executable, "-m", "tests.k8s.worker", str(self.folder), name, str(number)]
                self.worker = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)
            if number == 1 and fault != "none":
                self.wait_for(fault)
                self.hit = self.faults[fault]()
            code = self.worker.wait(PATIENCE_S)
            if code == 0:
                return number
            if code == 1:
                break
        raise AssertionError(f"{name} ({fault}) did not end in {MOST_TRIES} tries")


def drivers():
    """Return the JVMs of Spark's drivers in pods."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = process.cmdline()
            if "org.apache.spark.deploy.SparkSubmit" in words and DRIVER in " ".join(words):
                found.append(process)
    return found


def signed(table):
    """Count the completed commits of each task."""
    snapshot = HudiTable(str(table)).snapshot()
    found = Counter()
    for instant in snapshot.timeline.completed_writes():
        metadata = snapshot.reader.commit(instant)
        signature = Signature.from_extra(metadata.extra) if metadata else None
        found[signature.task_id if signature else "unsigned"] += 1
    return found


def rows(table, folder):
    """Count the rows and the distinct rows of each task, by Spark on this machine."""
    program = folder / "count.py"
    program.write_text(
        "import json, sys\n"
        "from pyspark.sql import SparkSession, functions as f\n"
        "found = SparkSession.builder.getOrCreate().read.format('hudi').load(sys.argv[1])\n"
        "counts = found.groupBy('writer').agg(f.count('*'), f.countDistinct('uuid')).collect()\n"
        "print(json.dumps({one[0]: [one[1], one[2]] for one in counts}))\n"
    )
    done = subprocess.run(
        ["spark-submit", "--master", "local[1]", str(program), str(table)],
        env=spark_environment(folder / "local"),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--faults", nargs="*", help="these instead of all")
    parser.add_argument("--stand-in", action="store_true", help="a driver without Spark and Hudi")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="airflow_occ_k8s_rig_"))
    try:
        prepare_namespace()
        os.environ["AIRFLOW_CONN_SPARK_DEFAULT"] = json.dumps(CONNECTION)
        if args.stand_in:
            stand_in(folder)
            return measure(folder, args)
        with EmbeddedZookeeper(folder / "zookeeper", settings=OPEN) as zookeeper:
            with_spark(folder, zookeeper)
            return measure(folder, args)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def with_spark(folder, zookeeper):
    """Have workers run Spark's own drivers."""
    os.environ.update(environment(folder / "spark", folder))
    lock = {"conn_type": "hudi_zookeeper_lock", "host": f"{ADDRESS}:{zookeeper.port}"}
    os.environ["AIRFLOW_CONN_LOCK"] = json.dumps({**lock, "extra": {"base_path": "/hudi/locks"}})
    os.environ["AIRFLOW__HUDI_OCC__SITE_ID"] = SITE


def stand_in(folder):
    """Have workers run stand-ins, which write to a table that exists."""
    metadata = folder / "lake" / "rows" / ".hoodie"
    (metadata / "timeline" / "history").mkdir(parents=True)
    (metadata / ".heartbeat").mkdir()
    (metadata / "hoodie.properties").write_text(table_properties())
    scratch = folder / "scratch"
    (scratch / "timeline").mkdir(parents=True)
    add(scratch, "1_1.commit", identity=PLACE)
    (scratch / "timeline" / "1_1.commit").rename(folder / "commit")
    bin_folder = Path(__file__).parent / "bin"
    os.environ["PATH"] = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    os.environ |= {"RIG_FOLDER": str(folder), "RIG_PYTHON": sys.executable}
    unused = {"conn_type": "hudi_zookeeper_lock", "host": "127.0.0.1:1"}
    os.environ["AIRFLOW_CONN_LOCK"] = json.dumps(unused)


def identities(folder):
    """Count the completed commits of each task, by the identity in its state store."""
    of = {}
    for path in folder.glob("*.json"):
        of[json.loads(path.read_text())[RECORD_KEY]["identity"]] = path.stem
    snapshot = HudiTable(str(folder / "lake" / "rows")).snapshot()
    found = Counter()
    for instant in snapshot.timeline.completed_writes():
        extra = snapshot.reader.commit(instant).extra
        found[of.get(extra[IDENTITY_KEY], "another")] += 1
    return found


def play(rig, name, fault, folder):
    """Run a task with a fault, and return whether the fault met anything."""
    started, rig.hit = time.monotonic(), False
    try:
        tries = rig.run(name, fault)
    except (AssertionError, subprocess.TimeoutExpired):
        print((folder / f"{name}.log").read_text()[-20_000:], flush=True)
        raise
    missed = "" if rig.hit or fault == "none" else ", met nothing"
    print(f"{name}: {fault}: {tries} tries, {time.monotonic() - started:.0f} s{missed}", flush=True)
    return rig.hit


def measure(folder, args):
    rig = Rig(folder, args.seed)
    kinds = args.faults or [one for one in rig.faults if one != "none"]
    tasks, hits = {"first": "none"}, 0
    play(rig, "first", "none", folder)
    while hits < args.runs and len(tasks) <= MOST_DRAWS * args.runs:
        name, fault = f"t{len(tasks)}", kinds[hits % len(kinds)]
        tasks[name] = fault
        hits += play(rig, name, fault, folder)
    table = folder / "lake" / "rows"
    if args.stand_in:
        commits = identities(folder)
        counted = {name: [ROWS * number] for name, number in commits.items()}
    else:
        commits, counted = signed(table), rows(table, folder)
    lost = [one for one in tasks if not commits[one] or min(counted.get(one, [0])) < ROWS]
    doubled = [one for one in tasks if commits[one] > 1 or max(counted.get(one, [0])) > ROWS]
    deadline = time.monotonic() + SETTLED_S
    while left() and time.monotonic() < deadline:
        time.sleep(1)
    print(f"{hits} faults: lost {lost}, doubled {doubled}, left in {NAMESPACE}: {left()}", flush=True)
    return int(bool(lost or doubled or left() or len(commits) != len(tasks) or hits < args.runs))


if __name__ == "__main__":
    sys.exit(main())
