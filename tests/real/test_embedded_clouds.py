"""The embedded object stores of Azure and Google answer, refuse other keys, and leave nothing behind."""

from __future__ import annotations

import fsspec
import psutil
import pytest
from azure.core.exceptions import HttpResponseError

from tests.services.azurite import EmbeddedAzurite
from tests.services.clouds import CLOUDS, NEEDS_NODE
from tests.support.observed import processes_in

pytestmark = [pytest.mark.real, pytest.mark.nightly]


def listening():
    return {tuple(one.laddr) for one in psutil.net_connections("tcp") if one.status == "LISTEN"}


@pytest.mark.parametrize("kind", CLOUDS)
def test_it_answers_once_started_and_ends_when_stopped(kind, tmp_path, monkeypatch):
    before = listening()
    with kind(tmp_path) as store:
        for variable, value in store.environment.items():
            monkeypatch.setenv(variable, value)
        for _ in range(2):
            store.make_bucket("lake")
        scheme = {"wasb": "abfs"}.get(store.SCHEME, store.SCHEME)
        one = fsspec.filesystem(scheme, skip_instance_cache=True)
        one.pipe_file("lake/folder/file", b"1")
        assert [entry["name"] for entry in one.ls("lake/folder", detail=True)] == ["lake/folder/file"]
        own = {address for address in listening() - before if address[1] == store.port}
        assert own == {("127.0.0.1", store.port)}
    assert not own & listening()


@NEEDS_NODE
def test_azurite_refuses_another_key_and_keeps_its_own_to_itself(tmp_path):
    with EmbeddedAzurite(tmp_path) as store:
        store.make_bucket("lake")
        other = store.connection_string.replace(store.KEY, "b3RoZXI=")
        one = fsspec.filesystem("abfs", connection_string=other, skip_instance_cache=True)
        with pytest.raises(HttpResponseError, match="AuthorizationFailure"):
            one.pipe_file("lake/file", b"1")
        commands = [" ".join(process.cmdline()) for process in processes_in(tmp_path)]
        assert commands
        assert store.KEY not in "".join(commands)
    assert processes_in(tmp_path) == []
    assert store.KEY not in (tmp_path / "azurite.log").read_text()
