from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from airflow_occ_provider.attempts.identity import IDENTITY_KEY
from airflow_occ_provider.attempts.site import Site, Source, read_site
from airflow_occ_provider.attempts.submission import (
    IDENTITY_VARIABLE,
    SparkJob,
    effective_options,
    local_path,
    offered,
    refuse_unproven,
    remove_leftovers,
)
from airflow_occ_provider.attempts.waits import WaitNeeded
from airflow_occ_provider.driver.attempt import LIFE_S
from airflow_occ_provider.embedded.bundle import pyspark_home
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.writer.options import RULES, SPARK_SETTINGS, contradictions, job_rules
from airflow_occ_provider.in_driver import run_job, session_rules
from airflow_occ_provider.storage.address import parse_table_path
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from tests.support.local_drivers import local_drivers

MODE = "hoodie.write.concurrency.mode"
OURS = {MODE: "OPTIMISTIC_CONCURRENCY_CONTROL", "hoodie.a": "ours"}
EMPTY = Site(Source("spark-defaults.conf", ()))


@pytest.fixture
def job(tmp_path):
    application = tmp_path / "job.py"
    application.touch()
    return SparkJob(str(application), ("--x", 1), {"spark.executor.cores": 2})


@pytest.fixture
def environment(tmp_path):
    (tmp_path / "conf").mkdir()
    return {
        "PATH": os.pathsep.join([str(pyspark_home() / "bin"), os.environ["PATH"]]),
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
        "PYSPARK_PYTHON": sys.executable,
    }


def refused(field):
    return pytest.raises(ConfigurationError, match=rf"^{field}.*Remedy: .+")


def test_the_sites_lines_come_first_then_ours_then_the_users(job):
    site = Site(EMPTY.spark, (Source("site", (("hoodie.site", "s"), ("hoodie.a", "site"))),))
    options = effective_options(OURS, {"hoodie.a": "user", "hoodie.flag": True}, job, site)
    assert list(options.items()) == [
        ("hoodie.site", "s"),
        (MODE, "OPTIMISTIC_CONCURRENCY_CONTROL"),
        ("hoodie.a", "user"),
        ("hoodie.flag", "true"),
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [(MODE, "single_writer"), ("hoodie.cleaner.policy.failed.writes", "EAGER")],
)
@pytest.mark.parametrize("place", ["hudi_options", "conf", "properties", "site"])
def test_what_contradicts_is_refused_wherever_it_is_given(place, key, value, job):
    given = {key: value} if place == "hudi_options" else {}
    conf = {f"spark.{key}": value} if place == "conf" else {}
    spark = Source("properties", ((f"spark.{key}", value),) if place == "properties" else ())
    hudi = (Source("site", ((key, value),)),) if place == "site" else ()
    with refused(place):
        effective_options(OURS, given, SparkJob(job.application, conf=conf), Site(spark, hudi))


CONNECT = "org.apache.spark.sql.connect.SparkConnectPlugin"


@pytest.mark.parametrize("place", ["conf", "properties"])
@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("spark.remote", "sc://host", "Spark Connect"),
        ("spark.api.mode", "connect", "Spark Connect"),
        ("spark.plugins", f"org.example.Mine, {CONNECT}", "Spark Connect"),
        ("spark.yarn.appMasterEnv.SPARK_API_MODE", "connect", "Spark Connect"),
        ("spark.kubernetes.driverEnv.SPARK_REMOTE", "sc://host", "Spark Connect"),
        ("spark.speculation", "true", "two attempts of one task"),
        ("spark.speculation", True, "two attempts of one task"),
    ],
)
def test_settings_of_spark_under_which_no_write_is_safe_are_refused(place, key, value, remedy, job):
    conf = {key: value} if place == "conf" else {}
    spark = Source("properties", ((key, str(value)),) if place == "properties" else ())
    with pytest.raises(ConfigurationError, match=rf"^{place}: {key}=.*{remedy}"):
        effective_options(OURS, {}, SparkJob(job.application, conf=conf), Site(spark))


@pytest.mark.parametrize("is_exported", [False, True])
@pytest.mark.parametrize("name", ["SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE"])
def test_variables_that_make_a_client_of_spark_connect_are_refused(
    environment, tmp_path, name, is_exported, job
):
    if is_exported:
        write(tmp_path / "conf", f"export {name}='connect'\n", "spark-env.sh")
    else:
        environment[name] = "connect"
    site = read_site("spark-submit", environment)
    with pytest.raises(ConfigurationError, match=rf"^the environment: {name}=.*Spark Connect"):
        effective_options(OURS, {}, job, site)
    environment[name] = "classic" if name == "SPARK_API_MODE" else ""
    write(tmp_path / "conf", "", "spark-env.sh")
    effective_options(OURS, {}, job, read_site("spark-submit", environment))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.api.mode", "classic"),
        ("spark.plugins", "org.example.Mine"),
        ("spark.speculation", False),
        ("spark.speculation.interval", "1s"),
    ],
)
def test_other_settings_of_these_names_are_the_users_own(key, value, job):
    assert effective_options(OURS, {}, SparkJob(job.application, conf={key: value}), EMPTY) == OURS


def test_non_blocking_concurrency_is_refused_with_its_own_reason(job):
    with pytest.raises(ConfigurationError, match=r"\(NBCC\) overlapping writers all commit") as refusal:
        effective_options(OURS, {MODE: "non_blocking_concurrency_control"}, job, EMPTY)
    assert "otherwise Hudi does not check" not in str(refusal.value)


def test_a_contradiction_that_a_later_line_takes_back_is_refused_too(job):
    site = Site(EMPTY.spark, (Source("site", ((MODE, "single_writer"), (MODE, "lazy"))),))
    with refused("site"):
        effective_options(OURS, {}, job, site)


def test_early_detection_has_one_switch(job):
    key = "hoodie.write.concurrency.early.conflict.detection.enable"
    with refused("hudi_options"):
        effective_options(OURS, {key: "false"}, job, EMPTY)


@pytest.mark.parametrize(
    ("changed", "site", "field"),
    [
        ({"deploy_mode": "cluster"}, EMPTY, "deploy_mode"),
        ({"conf": {"spark.submit.deployMode": "cluster"}}, EMPTY, "conf"),
        ({}, Site(Source("p", (("spark.submit.deployMode", "cluster"),))), "p "),
        ({"application": "/lake/job.jar"}, EMPTY, "application"),
        ({"application": "s3a://lake/job.zip"}, EMPTY, "application"),
        ({"application": "/no/such/job.py"}, EMPTY, "application"),
        ({"application": "file:///no/such/job.py"}, EMPTY, "application"),
        ({"application": "local:///no/such/job.py"}, EMPTY, "application"),
    ],
)
def test_what_is_not_proven_is_refused(changed, site, field, job):
    values = {"application": job.application, **changed}
    with refused(field):
        refuse_unproven(SparkJob(**values), site)


def test_client_mode_passes(job):
    refuse_unproven(SparkJob(job.application, deploy_mode="client"), EMPTY)
    refuse_unproven(SparkJob(f"file://{job.application}"), EMPTY)


REMOTE = [
    "s3a://lake/job.py",
    "hdfs:/jobs/job.py",
    "hdfs://nn/job.py",
    "https://host/job.py",
    "abfs:/job.py",
]


@pytest.mark.parametrize("application", REMOTE)
@pytest.mark.parametrize("is_remote", [False, True])
def test_a_job_that_the_driver_reads_by_its_url_stays_there(application, is_remote):
    job = SparkJob(application)
    refuse_unproven(job, EMPTY, is_remote=is_remote)
    assert local_path(application) is None
    with local_drivers().prepared(job, OURS) as submission:
        assert payload_of(submission)["application"] == application


def test_a_local_url_is_a_path_on_the_drivers_machine(job, tmp_path):
    named = f"local://{job.application}"
    refuse_unproven(SparkJob(named), EMPTY)
    with local_drivers().prepared(SparkJob(named), OURS) as submission:
        assert payload_of(submission)["application"] == job.application
    of_image = SparkJob("local:///opt/image/job.py")
    refuse_unproven(of_image, EMPTY, is_remote=True)
    folder = AttemptFolder(f"file://{tmp_path}/run/1")
    with offered(of_image, OURS, folder) as submission:
        payload = json.loads(submission.payload)
    assert payload["application"] == "/opt/image/job.py"


def test_a_driver_is_offered_the_job_that_the_task_has(job, tmp_path):
    folder = AttemptFolder(f"file://{tmp_path}/run/1")
    with offered(job, OURS, folder) as submission:
        payload = json.loads(submission.payload)
        assert submission.arguments == (folder.url,)
        assert submission.application == f"{folder.url}/run_job.py"
        assert payload["application"] == f"{folder.url}/job/{Path(job.application).name}"
        content = Path(job.application).read_bytes()
        assert folder.read(f"job/{Path(job.application).name}") == content
        assert payload["application_digest"] == hashlib.sha256(content).hexdigest()
        assert payload["ttl_s"] == LIFE_S
        assert "payload" not in folder.entries(), "not before a driver waits for it"
        folder.write("payload", b"secret")
        folder.write("revoked", b"")
    assert folder.entries().keys() == {"run_job.py", "job", "revoked"}
    assert AttemptFolder(f"{folder.url}/job").entries() == {}


def test_what_a_waiting_task_has_offered_stays(job, tmp_path):
    folder = AttemptFolder(f"file://{tmp_path}/run/1")
    with suppress(WaitNeeded), offered(job, OURS, folder):
        folder.write("payload", b"1")
        raise WaitNeeded(None)
    assert folder.entries().keys() == {"run_job.py", "job", "payload"}


def payload_of(submission):
    return json.loads(submission.payload)


def test_the_deploy_mode_that_spark_takes_decides(job):
    site = Site(Source("p", (("spark.submit.deployMode", "cluster"),)))
    refuse_unproven(SparkJob(job.application, deploy_mode="client"), site)
    refuse_unproven(SparkJob(job.application, conf={"spark.submit.deployMode": "client"}), site)
    with refused("deploy_mode"):
        refuse_unproven(SparkJob(job.application, deploy_mode="cluster"), EMPTY)


def test_the_folder_is_its_owners_alone_and_the_driver_is_given_all_that_it_needs(job):
    given = {**OURS, " hoodie.b ": " x=y\nz ", IDENTITY_KEY: "one"}
    with local_drivers().prepared(job, given, without=("hoodie.clustering.",)) as submission:
        (argument,) = submission.arguments
        folder = Path(argument)
        assert argument == submission.folder
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert [path.name for path in folder.iterdir()] == ["run_job.py"], "the job is read where it is"
        assert folder.name.startswith("airflow_occ_one_")
        assert submission.application == str(folder / "run_job.py")
        assert submission.environment == {IDENTITY_VARIABLE: "one"}
        content = payload_of(submission)
        assert len(content.pop("salt")) == 32
        session = content.pop("session")
        assert session.pop("program") == Path(session_rules.__file__).read_text()
        rules = [rule._asdict() for rule in job_rules(given)]
        assert session == {"rules": rules, "table": "", "may_read": False}
        assert content == {
            "application": job.application,
            "arguments": ["--x", "1"],
            "options": {**OURS, "hoodie.b": "x=y\nz", IDENTITY_KEY: "one"},
            "without": ["hoodie.clustering."],
            "pause_s": 120.0,
            "rules": [rule._asdict() for rule in RULES],
            "spark": SPARK_SETTINGS,
            "classes": [],
            "ttl_s": LIFE_S,
            "is_leased": False,
            "is_private": True,
        }
    assert not folder.exists()


def test_the_folder_goes_also_when_the_attempt_fails(job):
    with pytest.raises(KeyError), local_drivers().prepared(job, OURS) as submission:
        raise KeyError
    assert not Path(*submission.arguments).exists()


def test_what_an_attempt_could_not_remove_is_removed_by_its_identity(job):
    with (
        local_drivers().prepared(job, {IDENTITY_KEY: "mine"}) as mine,
        local_drivers().prepared(job, {IDENTITY_KEY: "other"}) as other,
    ):
        remove_leftovers("mine")
        assert not Path(*mine.arguments).exists()
        assert Path(*other.arguments).exists()


@pytest.mark.parametrize(
    ("key", "value", "refused"),
    [
        (MODE, "SINGLE_WRITER", True),
        (MODE, "optimistic_concurrency_control", False),
        (f"spark.{MODE}", "  single_writer ", True),
        ("hoodie.clean.failed.writes.policy", "EAGER", True),
        ("hoodie.clean.failed.writes.policy", "lazy", False),
        ("hoodie.write.lock.provider", "a.InProcessLockProvider", True),
        ("hoodie.write.lock.provider", "a.NoopLockProvider", True),
        ("hoodie.write.lock.provider", "a.InProcessLockProviderOfMine", False),
        ("hoodie.write.lock.provider", "a.ZookeeperBasedLockProvider", False),
        ("hoodie.datasource.write.commitmeta.key.prefix", "_air", False),
        ("hoodie.datasource.write.commitmeta.key.prefix", "", False),
        ("hoodie.datasource.write.commitmeta.key.prefix", "_airflow_x", True),
        ("hoodie.datasource.write.commitmeta.key.prefix", "air", True),
        ("_airflow_identity", "x", True),
        ("spark.remote", "sc://shared", True),
        ("SPARK_REMOTE", "", True),
        ("_airflow", "x", False),
        ("hoodie.write.concurrency.mode.x", "SINGLE_WRITER", False),
    ],
)
def test_the_driver_refuses_what_the_worker_refuses(key, value, refused):
    """The rules are one; each side applies them with code of its own."""
    rules = json.loads(json.dumps([rule._asdict() for rule in RULES]))
    found = run_job.contradiction([("hoodie.a", "b"), (key, value)], rules, "the site")
    (here,) = list(contradictions([(key, value)], "the site")) or [None]
    assert (found is not None, here is not None) == (refused, refused)
    if here:
        assert found == f"the site has {key}={here.value}: {here.remedy}"


def write(folder, text, name="hudi-defaults.conf"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return str(folder)


def hudi_of(environment, **given):
    return [dict(source.options) for source in read_site("spark-submit", environment, **given).hudi]


def test_a_site_without_files(environment):
    site = read_site("spark-submit", environment)
    assert site.hudi == ()
    assert site.spark.options == ()


def test_sparks_conf_folder_hides_hudi_conf_dir_as_it_does_from_hudi(environment, tmp_path):
    environment["HUDI_CONF_DIR"] = write(tmp_path / "hudi", "a=env\n")
    assert hudi_of(environment) == [{"a": "env"}]
    write(tmp_path / "conf", "a=spark\n")
    assert hudi_of(environment) == [{"a": "spark"}]
    classes = write(tmp_path / "classes", "a=class path\n")
    assert hudi_of(environment, class_path=[classes]) == [{"a": "class path"}]


def test_what_spark_env_exports_wins_over_the_environment(environment, tmp_path):
    environment["HUDI_CONF_DIR"] = write(tmp_path / "hudi", "a=env\n")
    exported = write(tmp_path / "exported", "a=exported\n")
    write(tmp_path / "conf", f"export HUDI_CONF_DIR={exported}\n", "spark-env.sh")
    assert hudi_of(environment) == [{"a": "exported"}]


def test_includes_are_taken_in(environment, tmp_path):
    folder = tmp_path / "hudi"
    environment["HUDI_CONF_DIR"] = write(folder, "a=1\ninclude=more.conf\nb=2\n")
    write(folder, "a=more\nc=3\n", "more.conf")
    assert hudi_of(environment) == [{"a": "more", "b": "2", "c": "3"}]
    write(folder, "include=hudi-defaults.conf\n", "more.conf")
    with refused(str(folder)):
        hudi_of(environment)


def test_a_folder_that_cannot_be_taken_over_is_refused(environment):
    with refused("HUDI_CONF_DIR"):
        hudi_of({**environment, "HUDI_CONF_DIR": "s3a://lake/conf"})


def test_the_properties_file_replaces_sparks_own(environment, tmp_path):
    write(tmp_path / "conf", "spark.a from-defaults\n", "spark-defaults.conf")
    assert read_site("spark-submit", environment).spark_property("spark.a") == "from-defaults"
    named = tmp_path / "my.properties"
    named.write_text("spark.b=mine\n")
    site = read_site("spark-submit", environment, properties_file=str(named))
    assert site.spark_property("spark.b") == "mine"
    assert site.spark_property("spark.a") is None
    with refused("properties_file"):
        read_site("spark-submit", environment, properties_file=str(tmp_path / "none"))


def test_a_missing_spark_submit_is_refused(environment):
    with refused("spark_binary"):
        read_site("no-such-submit", environment)


@pytest.mark.parametrize(
    "table",
    ["trips", "db.trips", "", None, "lake/trips", "s3a:", 3, "s3a:/x", "file://host/x", "//", "s3a:///"],
)
def test_a_table_that_is_not_a_path_is_refused(table):
    with refused("table"):
        parse_table_path(table)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("/lake/trips/", ("file", "/lake/trips")),
        ("/lake//x/../trips", ("file", "/lake/trips")),
        ("s3a://lake/trips/", ("s3a", "s3a://lake/trips")),
        ("file:///lake/trips", ("file", "file:///lake/trips")),
        ("file:/lake/trips", ("file", "file:///lake/trips")),
        ("S3A://lake//x/../trips/.", ("s3a", "s3a://lake/trips")),
    ],
)
def test_table_paths(table, expected):
    assert parse_table_path(table) == expected
