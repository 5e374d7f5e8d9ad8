from __future__ import annotations

import json
import re
import subprocess

import pytest
from airflow.configuration import conf
from airflow.models import Connection

from airflow_occ_provider.connection_form import zookeeper_lock
from airflow_occ_provider.embedded.bundle import HUDI_VERSION, pyspark_home
from airflow_occ_provider.provider_info import get_provider_info
from tests.services.compose import DOCKER, ROOT, fetched_jars, load, required_variables

TEXT = (DOCKER / "compose.yaml").read_text()
DOCKERFILE = (DOCKER / "Dockerfile").read_text()
FILE = load()
SERVICES = FILE["services"]
ONE_SHOT = {name for name, service in SERVICES.items() if service["restart"] == "no"}
PINS = dict(
    line.lower().split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if line
)
# The types of connections that providers bring which the image has and this environment has not.
OF_THE_IMAGE = {"aws": "apache-airflow-providers-amazon"}


def settings():
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            yield name, variable, str(value)


def connections():
    return {
        variable.removeprefix("AIRFLOW_CONN_").lower(): value
        for name, variable, value in settings()
        if name == "airflow-scheduler" and variable.startswith("AIRFLOW_CONN_")
    }


def test_whatever_reads_tables_has_the_same_connections():
    given = {
        name: {key: value for key, value in service.get("environment", {}).items() if "_CONN_" in key}
        for name, service in SERVICES.items()
        if name in ("airflow-api-server", "airflow-scheduler", "airflow-triggerer")
    }
    of_spark = {"AIRFLOW_CONN_SPARK_DEFAULT"}
    assert given["airflow-scheduler"] == given["airflow-triggerer"]
    pages = given["airflow-api-server"]
    assert pages.items() <= given["airflow-scheduler"].items()
    assert given["airflow-scheduler"].keys() - pages.keys() == of_spark


def test_the_stack_is_whole():
    assert SERVICES.keys() >= {
        *("airflow-api-server", "airflow-scheduler", "airflow-triggerer", "airflow-dag-processor"),
        *(
            "airflow-db",
            "zk1",
            "zk2",
            "zk3",
            "metastore",
            "metastore-db",
            "spark-master",
            "spark-worker",
            "s3",
        ),
    }
    assert SERVICES["spark-worker"]["deploy"]["replicas"] > 1
    assert {"airflow-init", "metastore-locks", "lake"} == ONE_SHOT


def test_images_are_pinned():
    for name, service in SERVICES.items():
        image, _, digest = service["image"].partition("@")
        assert re.search(r":[\w.-]*\d+\.\d+[\w.-]*$", image), image
        assert not digest or re.fullmatch(r"sha256:[0-9a-f]{64}", digest), name
        if build := service.get("build"):
            assert (DOCKER / build["context"]).resolve() == ROOT
            assert (ROOT / build["dockerfile"]).is_file()


def test_the_image_is_built_from_pinned_ones_that_suit():
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert [base.split(":")[0] for base in bases] == ["eclipse-temurin", "apache/airflow"]
    assert bases[0].split(":")[1].startswith("17.0.")
    assert bases[1].endswith(f":slim-{PINS['apache-airflow']}-python3.11")
    assert SERVICES["airflow-scheduler"]["image"].endswith(PINS["apache-airflow"])


def test_the_image_copies_what_exists_and_is_let_through():
    let_through = (DOCKER / "Dockerfile.dockerignore").read_text().split()
    assert let_through[0] == "*"
    assert let_through[-1] == "docker/.env"  # the last word on a path counts
    copied = [line.split()[2:-1] for line in re.findall(r"^COPY --chown.*", DOCKERFILE, re.MULTILINE)]
    for path in (path for paths in copied for path in paths):
        assert (ROOT / path).exists(), path
        assert f"!{path.split('/')[0]}" in let_through, path


def test_all_that_the_image_installs_has_a_pin():
    wanted = re.findall(r"^[\w-]+", (DOCKER / "requirements.txt").read_text(), re.MULTILINE)
    assert wanted
    assert not [name for name in wanted if name not in PINS]


def test_the_jars_are_the_ones_in_sparks_settings():
    text = (DOCKER / "spark" / "spark-defaults.conf").read_text()
    (line,) = re.findall(r"^spark\.jars (.*)", text, re.MULTILINE)
    s3 = fetched_jars()["S3"]
    fetched = [
        f"hudi-spark3.5-bundle_2.12-{HUDI_VERSION}",
        *(f"{name}-{version}" for _, name, version in s3),
    ]
    assert line.split(",") == [f"local:/opt/stack/jars/spark/{jar}.jar" for jar in fetched]
    assert (pyspark_home() / "jars" / f"hadoop-client-api-{s3[0][2]}.jar").is_file()


def test_no_secret_has_a_default():
    secrets = [
        (variable, value)
        for _, variable, value in settings()
        if re.search("PASSWORD|SECRET|_KEY", variable)
    ]
    secrets += [
        (f"{name}.{field}", json.loads(value)[field])
        for name, value in connections().items()
        for field in ("login", "password")
        if field in json.loads(value)
    ]
    assert len(secrets) > 20
    assert not [one for one in secrets if not re.fullmatch(r"value-of-\w+", one[1])]
    urls = [value for _, variable, value in settings() if variable.endswith("SQL_ALCHEMY_CONN")]
    assert urls
    assert all("//airflow:value-of-airflow_db_password@" in url for url in urls)
    site = (DOCKER / "metastore" / "hive-site.xml").read_text()
    assert re.findall(r"Password</name><value>(.*?)<", site) == ["${env.METASTORE_DB_PASSWORD}"]


def test_the_secrets_are_made_once_and_for_the_owner_alone(tmp_path):
    (tmp_path / "docker").mkdir()
    script = tmp_path / "docker" / "make-secrets"
    script.write_bytes((DOCKER / "make-secrets").read_bytes())
    made = []
    for _ in range(2):
        subprocess.run(["sh", str(script)], check=True, capture_output=True, timeout=30)
        made.append((tmp_path / "docker" / ".env").read_text())
    assert made[0] == made[1]
    assert (tmp_path / "docker" / ".env").stat().st_mode & 0o777 == 0o600
    secrets = dict(line.split("=", 1) for line in made[0].splitlines())
    assert secrets.keys() == required_variables(TEXT)
    assert len(set(secrets.values())) == len(secrets)
    assert all(len(value) >= 20 for value in secrets.values())
    # They stand in URLs and in JSON as they are.
    assert all(re.fullmatch(r"[0-9A-Za-z_=-]+", value) for value in secrets.values())
    from cryptography.fernet import Fernet

    Fernet(secrets["FERNET_KEY"])


def test_the_secrets_stay_out_of_git():
    ignored = (ROOT / ".gitignore").read_text().split()
    assert "docker/.env*" in ignored


def test_services_come_back_are_watched_and_have_bounds():
    for name, service in SERVICES.items():
        assert re.fullmatch(r"\d+[mg]", service["mem_limit"]), name
        assert service["logging"]["driver"] == "local", name
        if name in ONE_SHOT:
            continue
        assert service["restart"] == "unless-stopped", name
        check = service["healthcheck"]
        assert check["test"][0] in ("CMD", "CMD-SHELL"), name
        assert {"interval", "timeout", "retries", "start_period"} <= check.keys(), name


def test_services_wait_for_services_that_can_be_waited_for():
    for service in SERVICES.values():
        for other, how in service.get("depends_on", {}).items():
            expected = "service_completed_successfully" if other in ONE_SHOT else "service_healthy"
            assert other in SERVICES
            assert how == {"condition": expected}, other


def test_what_ends_is_waited_for_by_name():
    # Else "up --wait" takes its end for a failure.
    waited = {other for service in SERVICES.values() for other in service.get("depends_on", {})}
    assert waited >= ONE_SHOT


def test_only_loopback_is_published():
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published.keys() == {"airflow-api-server", "spark-master"}
    for ports in published.values():
        assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in ports)


def test_mounts_exist():
    for mount in (one for service in SERVICES.values() for one in service.get("volumes", [])):
        source, target, *mode = mount.split(":")
        assert target.startswith("/")
        if source.startswith("."):
            assert (DOCKER / source).resolve().is_relative_to(ROOT)
            assert (DOCKER / source).exists()
            assert mode == ["ro"]
        else:
            assert source in FILE["volumes"]
            assert not mode


def test_what_must_last_is_in_a_volume_of_its_own():
    used = [mount.split(":")[0] for service in SERVICES.values() for mount in service.get("volumes", [])]
    assert set(FILE["volumes"]) == {source for source in used if not source.startswith(".")}
    shared = {"airflow-logs", "meeting"}
    assert all(used.count(volume) == 1 for volume in FILE["volumes"].keys() - shared)
    kept = {
        name: [mount.split(":")[1] for mount in SERVICES[name]["volumes"]]
        for name in ("airflow-db", "zk2")
    }
    assert kept == {"airflow-db": ["/var/lib/postgresql"], "zk2": ["/conf/zoo.cfg", "/data", "/datalog"]}


def test_new_volumes_belong_to_the_images_user():
    # A new volume takes its owner from the image's folder.
    (made,) = re.findall(r"install -d -o airflow (.*?)$", DOCKERFILE, re.MULTILINE)
    mounts = [mount for mount in SERVICES["spark-worker"]["volumes"] if not mount.startswith(".")]
    assert mounts == ["meeting:/opt/stack/meeting"]
    assert {"/opt/stack", "/opt/stack/meeting", "/opt/stack/work"} <= set(made.split())


def test_airflow_knows_each_setting():
    known = conf.configuration_description
    found = 0
    for _, variable, _ in settings():
        if match := re.fullmatch(r"AIRFLOW__([A-Z_]+?)__([A-Z_]+)", variable):
            section, option = match[1].lower(), match[2].lower()
            assert option in known[section]["options"] or conf.has_option(section, option), variable
            found += 1
    assert found > 20


def test_the_connections_are_connections():
    known = {one["connection-type"] for one in get_provider_info()["connection-types"]}
    found = {}
    for name, value in connections().items():
        connection = Connection.from_json(value, conn_id=name)
        found[name] = connection.conn_type
        assert connection.host or connection.conn_type == "aws"
        json.dumps(connection.extra_dejson)
    assert found == {
        "hudi_lock_default": "hudi_zookeeper_lock",
        "hudi_lock_metastore": "hudi_metastore_lock",
        "spark_default": "spark",
        "lake": "aws",
    }
    for kind in found.values():
        if kind in OF_THE_IMAGE:
            assert OF_THE_IMAGE[kind] in (DOCKER / "requirements.txt").read_text()
        elif kind != "spark":
            assert kind in known


def test_the_lock_is_in_all_three_zookeepers():
    lock = Connection.from_json(connections()["hudi_lock_default"])
    zoo = (DOCKER / "zookeeper" / "zoo.cfg").read_text()
    assert lock.host == "zk1:2181,zk2:2181,zk3:2181"
    for number in (1, 2, 3):
        assert f"server.{number}=zk{number}:2888:3888;2181\n" in zoo
        assert SERVICES[f"zk{number}"]["environment"]["ZOO_MY_ID"] == str(number)
    asked = zookeeper_lock()["conn-fields"]["session_timeout_ms"]["schema"]["default"]
    (most,) = re.findall(r"^maxSessionTimeout=(\d+)", zoo, re.MULTILINE)
    assert int(most) >= asked


def test_one_password_a_database():
    for user, service in (("airflow", "airflow-init"), ("metastore", "metastore")):
        database = SERVICES[f"{user}-db"]["environment"]
        assert (database["POSTGRES_USER"], database["POSTGRES_DB"]) == (user, user)
        assert database["POSTGRES_PASSWORD"] in json.dumps(SERVICES[service]["environment"])
    site = (DOCKER / "metastore" / "hive-site.xml").read_text()
    assert "jdbc:postgresql://metastore-db:5432/metastore" in site
    assert "${env.METASTORE_DB_PASSWORD}" in site


@pytest.mark.parametrize("script", ["make-secrets", "init_airflow"])
def test_scripts_parse(script):
    path = DOCKER / script
    assert path.stat().st_mode & 0o100
    subprocess.run(["bash", "-n", str(path)], check=True, timeout=30)


def test_the_services_run_files_that_the_image_has():
    words = [
        word
        for service in SERVICES.values()
        for given in (service.get("command", []), service.get("healthcheck", {}).get("test", []))
        for word in (given.split() if isinstance(given, str) else given)
    ]
    found = {match[1] for word in words if (match := re.fullmatch(r"/opt/stack/(\w+(?:\.py)?)", word))}
    assert found - {"work"} == {"check.py", "init_airflow", "make_bucket.py"}
    assert all(f"docker/{name}" in DOCKERFILE for name in found - {"work"})


def test_one_service_builds_the_image_and_none_pulls_it():
    ours = {
        name: one for name, one in SERVICES.items() if one["image"].startswith("airflow-occ-provider:")
    }
    assert [name for name, one in ours.items() if "build" in one] == ["airflow-init"]
    assert {one["pull_policy"] for name, one in ours.items() if name != "airflow-init"} == {"never"}
