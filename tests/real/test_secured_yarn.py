"""A YARN whose web services ask for Kerberos: a real one, with a real server of tickets."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.services import kerberos, yarn
from tests.services.yarn import EmbeddedYarn

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(bool(kerberos.why_not()), reason=kerberos.why_not()),
]
ASKS = """
import json, sys
from airflow_occ_provider.submitters.yarn_place import ResourceManager
from airflow_occ_provider.submitters.yarn_place import YarnAccess
address, extra, application = sys.argv[1:]
manager = ResourceManager([address], access=YarnAccess.of(json.loads(extra)))
manager.kill(application)
print(manager.application(application), manager.applications("a tag"))
"""
UNKNOWN = "application_1795412430323_0001"


@pytest.fixture(scope="module")
def realm(tmp_path_factory):
    with kerberos.Realm(tmp_path_factory.mktemp("realm")) as realm:
        realm.add("HTTP/localhost", "HTTP/127.0.0.1", "airflow")
        yield realm


@pytest.fixture(scope="module")
def secured(realm, tmp_path_factory):
    """The address of a ResourceManager that knows its callers by their tickets."""
    settings = {
        "hadoop.http.filter.initializers": "org.apache.hadoop.security.AuthenticationFilterInitializer",
        "hadoop.http.authentication.type": "kerberos",
        "hadoop.http.authentication.kerberos.principal": "*",
        "hadoop.http.authentication.kerberos.keytab": realm.keytab,
        "hadoop.http.authentication.signature.secret.file": realm.folder / "secret",
    }
    (realm.folder / "secret").write_text("of the tests")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={realm.folder}/krb5.conf")
        patch.setattr(yarn, "_answer", lambda address: json.loads(answer(realm, address) or "null"))
        with EmbeddedYarn(tmp_path_factory.mktemp("yarn"), settings) as cluster:
            yield cluster.resource_manager


def asked(realm, program, *arguments, ticket=True):
    """Run a program with this package and Python's library for Kerberos."""
    variables = {**realm.variables, "PYTHONPATH": str(kerberos.python_library(realm))}
    if ticket:
        realm.take_ticket("airflow")
    else:
        variables["KRB5CCNAME"] = f"FILE:{realm.folder}/no_tickets"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def answer(realm, address):
    """What a server answers to a caller with a ticket, as the embedded YARN asks whether it is up."""
    program = (
        "import sys; from airflow_occ_provider.submitters.yarn_place import YarnAccess; "
        "print(YarnAccess('kerberos').ask('GET', sys.argv[1], timeout_s=10).text)"
    )
    return asked(realm, program, address).stdout


def test_a_caller_with_a_ticket_is_answered(realm, secured):
    call = asked(realm, ASKS, secured, json.dumps({"yarn_authentication": "kerberos"}), UNKNOWN)
    assert call.stdout == "None []\n", call.stderr


def test_a_caller_without_a_ticket_is_told_what_is_missing(realm, secured):
    extra = json.dumps({"yarn_authentication": "kerberos"})
    call = asked(realm, ASKS, secured, extra, UNKNOWN, ticket=False)
    assert "no active ResourceManager answers" in call.stderr
    assert "401" in call.stderr or "redential" in call.stderr


def test_a_connection_without_authentication_is_told_to_name_it(realm, secured):
    call = asked(realm, ASKS, secured, "{}", UNKNOWN)
    assert "no active ResourceManager answers" in call.stderr
    assert "yarn_authentication" in call.stderr
