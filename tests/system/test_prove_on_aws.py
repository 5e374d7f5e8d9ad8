"""The program that users run on AWS, against emulators with Spark behind them."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import boto3
import pytest

from airflow_occ_provider.embedded.s3proxy import EmbeddedS3proxy
from airflow_occ_provider.embedded.spark import spark_environment
from tests.conftest import SMALL_TABLES
from tests.services.dynamodb import EmbeddedDynamo
from tests.services.emr import ACCOUNT, REGION, ROLE, emulated_emr
from tests.support.stores import BUCKET

pytestmark = [pytest.mark.system, pytest.mark.nightly]
PROGRAM = Path(__file__).parents[2] / "docs" / "how-to" / "prove_on_aws.py"
_TIMEOUT_S = 1800


@pytest.fixture
def run(tmp_path):
    """Return a function that runs the program with emulators for the services of AWS."""
    with EmbeddedS3proxy(tmp_path / "s3") as store, EmbeddedDynamo(tmp_path / "dynamodb") as dynamodb:
        store.make_bucket(BUCKET)
        spark = spark_environment(tmp_path / "spark", store=store)
        with (tmp_path / "spark" / "conf" / "spark-defaults.conf").open("a") as conf:
            conf.write(SMALL_TABLES)
        connections = dynamodb.connections(tmp_path / "lock")
        connections["hudi_lock_default"]["host"] = "of_the_program"
        with emulated_emr(spark, tmp_path) as emr:
            environment = {
                **os.environ,
                # As in the container of an Airflow that must not notice.
                "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/foreign.db",
                "AWS_ACCESS_KEY_ID": store.KEY,
                "AWS_SECRET_ACCESS_KEY": store.SECRET,
                "AWS_ENDPOINT_URL_S3": store.url,
                "AWS_ENDPOINT_URL_DYNAMODB": dynamodb.url,
                "AWS_ENDPOINT_URL_EMR_SERVERLESS": emr.url,
                **{f"AIRFLOW_CONN_{name.upper()}": json.dumps(c) for name, c in connections.items()},
            }

            def run(*more):
                words = (
                    *("--patience", str(_TIMEOUT_S // 2)),
                    *("--table", store.table(BUCKET, "prove/trips"), "--role", ROLE),
                    *("--region", REGION, "--lease-table", "of_the_program", "--jars", "", *more),
                )
                return subprocess.run(
                    [sys.executable, str(PROGRAM), *words],
                    cwd=tmp_path,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=_TIMEOUT_S,
                    check=False,
                )

            run.applications = lambda: applications(emr)
            yield run


def applications(emr):
    client = boto3.client(
        "emr-serverless",
        endpoint_url=emr.url,
        region_name=REGION,
        aws_access_key_id="k",
        aws_secret_access_key="s",
    )
    listed = client.list_applications()["applications"]
    return [application["id"] for application in listed if application["state"] != "TERMINATED"]


@pytest.mark.parametrize(
    "text",
    [
        "arn:aws:iam::123456789012:role/emr_123456789012",
        "logs_123456789012 acct123456789012 AKIAIOSFODNN7EXAMPLE",
    ],
)
def test_what_is_sent_has_no_number_of_an_account(text):
    told = runpy.run_path(str(PROGRAM))["without_account"](text)
    assert "123456789012" not in told
    assert "AKIA" not in told
    assert runpy.run_path(str(PROGRAM))["without_account"]("20261129162702076") == "20261129162702076"


def test_it_proves_a_conflict_and_says_what_to_send(run, tmp_path):
    before = run.applications()
    done = run("--overlap", "20")
    assert done.returncode == 0, done.stdout + done.stderr
    assert run.applications() == before  # its own is deleted
    assert not (tmp_path / "foreign.db").exists()
    report = (tmp_path / "prove_on_aws.txt").read_text()
    assert report in done.stdout
    assert report.endswith("PROVEN\n")
    assert ACCOUNT not in report
    assert re.search(r"Outcome: \w*conflict", report)
    assert "== write_a attempt=1" in report
    assert "== write_b attempt=1" in report
    assert "== write_a attempt=2" in report or "== write_b attempt=2" in report
    assert len(re.findall(r"\| commit +\| COMPLETED", report)) == 3
