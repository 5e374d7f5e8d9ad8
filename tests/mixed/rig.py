"""Races of writers of several releases, and of a writer that knows nothing of this provider."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

from airflow.sdk import DAG
from py4j.protocol import Py4JJavaError

from airflow_occ_provider.embedded.bundle import find_bundle
from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.errors import WriteConflictError
from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.hudi.writer.options import writer_options
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.reading.doctor import examine
from airflow_occ_provider.storage.table import HudiTable
from tests.conftest import SMALL_TABLES
from tests.mixed.java_writer import JavaWrite, JavaWriter
from tests.support.rows import count_rows
from tests.support.session_site import SITE
from tests.support.via_runs import Run
from tests.support.writers import JOB, QUIET

JAVA_BESIDE = "1.2.0"
_TRIES = 6
_ROWS = 10
_HARMS = frozenset({"unchecked_commit", "overwritten_commit", "unlisted_commit", "eager_cleaner"})
_ORDERS = ("at once", "first commits", "second commits")


class Races:
    """Races of two tasks, whose drivers have bundles of two releases.

    :param releases: the older one, which creates the table, and the newer one.
    :param told: how many tries ended with an error, by its class.
    """

    def __init__(self, stack: EmbeddedStack, folder: Path, releases: Sequence[str]) -> None:
        self.stack, self._folder, self._releases = stack, folder, releases
        self.table = folder / "lake" / "t"
        self.told = Counter[str]()
        self._expected = Counter[str]()

    def __enter__(self) -> Self:
        os.environ.update(self.stack.environment)
        os.environ["AIRFLOW_CONN_LOCK"] = json.dumps(self.stack.lock_connection)
        spark = {"conn_type": "spark", "host": "local[2]"}
        os.environ["AIRFLOW_CONN_SPARK_OF_RACES"] = json.dumps(spark)
        os.environ["AIRFLOW__HUDI_OCC__SITE_ID"] = SITE
        conf = Path(os.environ["SPARK_CONF_DIR"])
        (conf / "log4j2.properties").write_text(QUIET)
        with (conf / "spark-defaults.conf").open("a") as defaults:
            defaults.write(SMALL_TABLES)
        for partition in ("p0", "p1"):
            name = f"create_{partition}"
            self.task(name, self._releases[0], partition).start().committed()
            self._expected += rows_of(name)
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the files to the caller."""

    def run(self, seed: int, number: int) -> bool:
        """Run a race; return whether a row is not there once that should be, or is and should not."""
        dice = random.Random(f"mixed {seed} {number}")
        gate = self._gate(str(number))
        partitions = dice.choice((["p0", "p0"], ["p0", "p0"], ["p0", "p1"]))
        names = [f"r{number}_by_{release}".replace(".", "_") for release in self._releases]
        tasks = {
            name: self.task(name, release, partition, "--gate", str(gate))
            for name, release, partition in zip(names, self._releases, partitions, strict=True)
        }
        order = dice.choice(_ORDERS)
        for name in dice.sample(names, 2):
            tasks[name].start()
        for name in names:
            tasks[name].reached(gate / f"{name}.begun")
        first, second = names if order != "second commits" else reversed(names)
        (gate / f"{first}.go").touch()
        if order != "at once":
            tasks[first].wait()
        (gate / f"{second}.go").touch()
        committed = [name for name in names if self._commits(tasks[name])]
        return self._is_wrong(f"race {number}, {order}, {' and '.join(partitions)}", committed)

    def task(self, name: str, release: str, partition: str, *more: str) -> Run:
        """Return the run of a task that writes rows of its own into a partition."""
        return Run(
            HudiWriteOperator(
                task_id=name,
                dag=DAG("mixed", schedule=None),
                application=str(JOB),
                application_args=[
                    *(str(self.table), "--writer", name, "--prefix", f"{name}_", "--rows", str(_ROWS)),
                    *("--partition", partition, *more),
                ],
                conn_id="spark_of_races",
                driver_memory="1g",
                # From spark.jars some tries fail by a class that two loaders have (hudi#13410).
                conf={"spark.jars": "", "spark.driver.extraClassPath": str(find_bundle(release))},
                table=str(self.table),
                lock_conn_id="lock",
                deferrable=False,
            )
        )

    def _gate(self, name: str) -> Path:
        gate = self._folder / f"gate_{name}"
        gate.mkdir()
        return gate

    def _commits(self, task: Run) -> bool:
        """Try a task again as long as it tells a conflict; return whether it has committed."""
        while (error := task.wait().error) and task.number < _TRIES:
            self._tell(error)
            if not isinstance(error, WriteConflictError):
                break
            task.start()
        return error is None

    def _tell(self, error: Exception) -> None:
        self.told[type(error).__name__] += 1
        if not isinstance(error, WriteConflictError):
            print(f"  told: {type(error).__name__}: {error}"[:600], flush=True)

    def _is_wrong(self, title: str, committed: Sequence[str]) -> bool:
        self._expected += sum(map(rows_of, committed), Counter[str]())
        rows, problem = count_rows(self.table), ""
        if rows != self._expected:
            missing, more = self._expected - rows, rows - self._expected
            problem = f"missing {sorted(missing)[:3]}, too many {sorted(more)[:3]}"
            self._expected = rows
        print(f"{title}, committed {' and '.join(committed)}: {problem or 'ok'}", flush=True)
        return bool(problem)


class JavaRaces(Races):
    """Races of a task and Hudi's client for Java.

    :param harmed: races without the lock that lost rows, or whose task failed.
    :param named: those of them in which the doctor names the client's commit.
    """

    def __init__(self, stack: EmbeddedStack, folder: Path) -> None:
        super().__init__(stack, folder, (JAVA_BESIDE,))
        self.harmed = self.named = 0

    @cached_property
    def _java(self) -> JavaWriter:
        return JavaWriter(self._folder / "java")

    def __enter__(self) -> Self:
        self._java.start()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        """End the client's JVM."""
        self._java.stop()

    def run(self, seed: int, number: int, *, locked: bool = True) -> bool:
        """Run a race; return whether a row is not there once that should be, or is and should not.

        :param locked: whether the client has Hudi's lock. Without it both write the same partition.
        """
        dice = random.Random(f"java {seed} {number} {locked}")
        of_race = f"{'locked' if locked else 'control'}{number}"
        theirs, ours = f"java_{of_race}", f"task_{of_race}"
        gate = self._gate(of_race)
        partition = dice.choice(("p0", "p0", "p1")) if locked else "p0"
        begins, commits = dice.choice(("client", "task")), dice.choice(("client", "task"))
        task = self.task(ours, JAVA_BESIDE, "p0", "--gate", str(gate))
        write = self._write(theirs, partition, locked) if begins == "client" else None
        task.start().reached(gate / f"{ours}.begun")
        write = write or self._write(theirs, partition, locked)
        has_committed = False
        if commits == "client":
            has_committed = self._client_commits(write, theirs, partition, locked)
        (gate / f"{ours}.go").touch()
        if commits == "task":
            task.wait()  # for one try: the next one may wait for the client
            has_committed = self._client_commits(write, theirs, partition, locked)
        committed = [theirs] if has_committed else []
        if self._commits(task):
            committed.append(ours)
        title = f"{of_race}, {begins} begins, {commits} commits first, {partition}"
        is_wrong = self._is_wrong(title, committed)
        if not locked and (is_wrong or ours not in committed):
            self.harmed += 1
            self.named += self._is_named(write)
        return is_wrong

    def _write(self, prefix: str, partition: str, locked: bool) -> JavaWrite:
        lock = lock_hook("lock").options(str(self.table)) if locked else {}
        options = writer_options(lock, {}) if locked else {}
        return self._java.begin(self.table, rows_of(prefix), partition, options)

    def _client_commits(self, write: JavaWrite, prefix: str, partition: str, locked: bool) -> bool:
        """Commit, and write again as long as Hudi tells a conflict."""
        for _ in range(_TRIES):
            try:
                write.commit()
            except Py4JJavaError as error:
                self.told["of the client"] += 1
                if "HoodieWriteConflictException" not in str(error):
                    print(f"  told the client: {error}"[:600], flush=True)
                    return False
                write = self._write(prefix, partition, locked)
            else:
                return True
        return False

    def _is_named(self, write: JavaWrite) -> bool:
        findings = [
            finding
            for finding in examine(HudiTable(str(self.table)))
            if finding.check in _HARMS
            and (write.instant in finding.instants or write.instant in finding.evidence)
        ]
        for finding in findings:
            print(f"  {finding.severity.value} {finding.check}: {finding.evidence}"[:300], flush=True)
        return bool(findings)


def rows_of(prefix: str) -> Counter[str]:
    """Return the keys that a writer writes, each once."""
    return Counter(f"{prefix}_{row}" for row in range(_ROWS))
