"""The services of docker/, run by its own commands, settings and health checks without containers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager

import psycopg2
import pytest

from airflow_occ_provider.embedded.bundle import pyspark_home, resolve_jar
from airflow_occ_provider.embedded.java import find_java_home
from airflow_occ_provider.embedded.ports import free_port, free_ports
from airflow_occ_provider.embedded.process import Server
from airflow_occ_provider.hooks.metastore_lock import HudiMetastoreLockHook
from tests.services.compose import DOCKER, check_of, command_of, environment_of, fetched_jars, load, swap
from tests.services.postgres import Postgres

pytestmark = pytest.mark.real
TIMEOUT_S = 300
LOCK = "AIRFLOW_CONN_HUDI_LOCK_METASTORE"
SERVICES = load()["services"]


def healthy(service, swaps, environment=None):
    done = subprocess.run(
        check_of(service, {"python": sys.executable, "/opt/stack": str(DOCKER), **swaps}),
        env=environment,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.returncode == 0


@contextmanager
def running(name, command, environment, folder, ready):
    java = find_java_home()
    path = os.pathsep.join([str(java / "bin"), str(pyspark_home() / "bin"), os.environ["PATH"]])
    world = {**os.environ, "JAVA_HOME": str(java), "SPARK_HOME": str(pyspark_home()), "PATH": path}
    with Server(name, command, {**world, **environment}, folder / f"{name}.log") as server:
        server.wait_until(ready, TIMEOUT_S)
        yield server


def eventually(what, timeout_s=TIMEOUT_S):
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.2)


def zookeeper(number, hosts, folder):
    """Start one of the three as its image's entrypoint does: its number in a file, then the server."""
    home = folder / f"zk{number}"
    for name in ("data", "datalog"):
        (home / name).mkdir(parents=True)
    (home / "data" / "myid").write_text(SERVICES[f"zk{number}"]["environment"]["ZOO_MY_ID"])
    own = {"=/data\n": f"={home / 'data'}\n", "=/datalog\n": f"={home / 'datalog'}\n"}
    (home / "zoo.cfg").write_text(swap((DOCKER / "zookeeper" / "zoo.cfg").read_text(), {**own, **hosts}))
    return Server(
        f"zk{number}",
        [str(find_java_home() / "bin" / "java"), "-Xmx128m", "-cp", str(pyspark_home() / "jars" / "*"),
         "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(home / "zoo.cfg")],
        os.environ, home / "log",
    )  # fmt: skip


def test_two_of_the_three_zookeepers_are_enough(tmp_path):
    ports = {number: free_ports(3) for number in (1, 2, 3)}
    hosts = {
        f"zk{number}:2888:3888;2181": f"127.0.0.1:{votes}:{election};127.0.0.1:{client}"
        for number, (votes, election, client) in ports.items()
    }
    answers = {
        number: lambda n=number: healthy(SERVICES[f"zk{n}"], {"/2181 ": f"/{ports[n][2]} "})
        for number in ports
    }
    with ExitStack() as stack:
        servers = {n: stack.enter_context(zookeeper(n, hosts, tmp_path)) for n in ports}
        for number, server in servers.items():
            server.wait_until(answers[number], TIMEOUT_S)
        servers[1].stop()
        eventually(lambda: answers[2]() and answers[3]())
        assert not answers[1]()
        servers[2].stop()
        eventually(lambda: not answers[3]())  # one alone answers no client, and is not healthy


def metastore(database, password, folder):
    """Run the schema's command twice, then return what starts the metastore, with other timings."""
    swaps = {"metastore-db": "127.0.0.1", ":5432": f":{database.port}"}
    locks = SERVICES["metastore-locks"]
    psql, *words = command_of(locks, {"/locks.sql": str(DOCKER / "metastore" / "locks.sql")})
    assert psql == "psql"
    environment = {**environment_of(locks, swaps), "PGPORT": str(database.port)}
    for _ in range(2):
        subprocess.run(
            [str(database.programs / psql), *words], env={**os.environ, **environment}, check=True,
            capture_output=True, timeout=TIMEOUT_S,
        )  # fmt: skip
    site = folder / "metastore"
    site.mkdir()
    port = free_port()
    outside = {
        "/opt/stack/metastore": str(site),
        "/opt/stack/jars/metastore/*": str(resolve_jar(*fetched_jars()["POSTGRES"])),
        "/opt/stack/spark": str(pyspark_home()),
        "9083": str(port),
    }
    service = SERVICES["metastore"]
    command, secrets = command_of(service, outside), environment_of(service, {})
    assert secrets == {"METASTORE_DB_PASSWORD": password}

    def start(timings):
        text = (DOCKER / "metastore" / "hive-site.xml").read_text()
        (site / "hive-site.xml").write_text(swap(text, {**swaps, **timings}))
        ready = {"9083": str(port)}
        return running("metastore", command, secrets, folder, lambda: healthy(service, ready))

    return port, start


@contextmanager
def lock_client(port):
    from pymetastore.hive_metastore import ThriftHiveMetastore
    from thrift.protocol.TBinaryProtocol import TBinaryProtocol
    from thrift.transport import TSocket, TTransport

    connection = TSocket.TSocket("127.0.0.1", port)
    connection.setTimeout(TIMEOUT_S * 1000)
    transport = TTransport.TBufferedTransport(connection)
    transport.open()
    yield ThriftHiveMetastore.Client(TBinaryProtocol(transport))
    transport.close()


def ask(client, table="trips"):
    """Request a table's lock as Hudi's provider does: exclusive, without operation and transaction."""
    from pymetastore.hive_metastore import ttypes

    component = ttypes.LockComponent(
        type=ttypes.LockType.EXCLUSIVE, level=ttypes.LockLevel.TABLE, dbname="lake", tablename=table
    )
    answer = client.lock(ttypes.LockRequest(component=[component], user="test", hostname="here"))
    return answer.lockid, answer.state == ttypes.LockState.ACQUIRED


@pytest.mark.nightly
def test_the_metastore_locks_in_postgresql(tmp_path, monkeypatch):
    from pymetastore.hive_metastore import ttypes

    password = SERVICES["metastore-db"]["environment"]["POSTGRES_PASSWORD"]
    quick = {">300s<": ">20s<", ">10s<": ">0s<", ">15s<": ">1s<"}
    with Postgres("metastore", password) as database:
        port, start = metastore(database, password, tmp_path)
        with start(quick), lock_client(port) as client:
            first, granted = ask(client)
            assert granted
            second, granted = ask(client)
            assert not granted
            client.unlock(ttypes.UnlockRequest(lockid=first))
            state = client.check_lock(ttypes.CheckLockRequest(lockid=second)).state
            assert state == ttypes.LockState.ACQUIRED
            eventually(lambda: ask_once(client))  # the second lock gets no heartbeat: it is dropped
            kept, granted = ask(client, "fares")  # its timeout is longer than the stop
            assert granted
        database.stop()
        database.start()
        with start({}), lock_client(port) as client:
            client.heartbeat(ttypes.HeartbeatRequest(lockid=kept))  # it outlived both
            swaps = {"metastore:9083": f"127.0.0.1:{port}"}
            monkeypatch.setenv(LOCK, environment_of(SERVICES["airflow-scheduler"], swaps)[LOCK])
            message = HudiMetastoreLockHook("hudi_lock_metastore").check()
            assert "drops a lock 300 s after its last heartbeat" in message


def ask_once(client):
    """Request, and withdraw the request if it is not granted, as Hudi's provider does."""
    from pymetastore.hive_metastore import ttypes

    lock, granted = ask(client)
    if not granted:
        client.unlock(ttypes.UnlockRequest(lockid=lock))
    return granted


JOB = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.appName("job").getOrCreate()
assert spark.conf.get("spark.master").startswith("spark://")
print("sum", spark.sparkContext.parallelize(range(100), 4).sum())
"""


def spark_conf(folder, ports):
    """Write the stack's settings without the jars, which only a write to S3 needs."""
    conf = folder / "conf"
    conf.mkdir()
    text = (DOCKER / "spark" / "spark-defaults.conf").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("spark.jars ")]
    (conf / "spark-defaults.conf").write_text(swap("\n".join(lines), ports) + "\n")
    return conf


@pytest.mark.nightly
def test_spark_runs_a_job_on_its_worker(tmp_path):
    master_port, master_page, worker_page = free_ports(3)
    swaps = {
        "spark-master": "127.0.0.1", "7077": str(master_port), "8081": str(master_page),
        "8082": str(worker_page), "/opt/stack/work": str(tmp_path / "work"), "3g": "1g",
    }  # fmt: skip
    job = tmp_path / "job.py"
    job.write_text(JOB)
    master, worker = SERVICES["spark-master"], SERVICES["spark-worker"]
    secrets = environment_of(master, swaps)
    common = {
        **secrets, "SPARK_CONF_DIR": str(spark_conf(tmp_path, swaps)), "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip
    submit = [
        str(pyspark_home() / "bin" / "spark-submit"),
        "--conf=spark.executor.memory=512m",
        str(job),
    ]
    with (
        running(
            "spark-master", command_of(master, swaps), common, tmp_path, lambda: healthy(master, swaps)
        ),
        running(
            "spark-worker", command_of(worker, swaps), common, tmp_path, lambda: healthy(worker, swaps)
        ),
    ):
        world = {"JAVA_HOME": str(find_java_home()), "SPARK_HOME": str(pyspark_home())}
        environment = {**os.environ, **common, **world}
        done = subprocess.run(
            submit, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    assert "sum 4950" in done.stdout, done.stderr[-3000:]


def test_the_bucket_is_made_once(monkeypatch):
    import boto3
    from moto.server import ThreadedMotoServer

    store = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    store.start()
    try:
        host, port = store.get_host_and_port()
        lake = SERVICES["lake"]
        environment = environment_of(lake, {"s3:8333": f"{host}:{port}"})
        for _ in range(2):
            subprocess.run(
                command_of(lake, {"python": sys.executable, "/opt/stack": str(DOCKER)}),
                env={**os.environ, **environment}, check=True, timeout=TIMEOUT_S,
            )  # fmt: skip
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert [one["Name"] for one in boto3.client("s3").list_buckets()["Buckets"]] == ["lake"]
    finally:
        store.stop()


def test_airflow_finds_database_and_connections(tmp_path):
    scheduler = SERVICES["airflow-scheduler"]
    password = SERVICES["airflow-db"]["environment"]["POSTGRES_PASSWORD"]
    with Postgres("airflow", password) as database:
        environment = {
            **os.environ,
            **environment_of(scheduler, {"airflow-db:5432": f"127.0.0.1:{database.port}"}),
            "AIRFLOW_HOME": str(tmp_path),
            "AIRFLOW__CORE__DAGS_FOLDER": str(DOCKER.parent / "dags"),
        }
        environment.pop("AIRFLOW__CORE__AUTH_MANAGER")  # its provider is in the image alone
        environment["AIRFLOW__CORE__FERNET_KEY"] = ""

        def airflow(*words):
            command = [sys.executable, "-m", "airflow", *words]
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
            assert done.returncode == 0, done.stderr[-3000:]
            return done.stdout

        airflow("db", "migrate")
        with psycopg2.connect(
            host="127.0.0.1", port=database.port, user="airflow", password=password
        ) as connection:
            cursor = connection.cursor()
            cursor.execute(
                "select count(*) from information_schema.tables where table_name = 'task_instance'"
            )
            assert cursor.fetchone() == (1,)
        connection.close()
        found = airflow("connections", "get", "hudi_lock_default", "-o", "json")
        assert "zk1:2181,zk2:2181,zk3:2181" in found
