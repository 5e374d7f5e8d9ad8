"""Drivers of one table in a bucket, whose folders a process lists together."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter

import pytest

from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.hooks.hudi_table import storage_of
from airflow_occ_provider.storage import attempt_folder
from airflow_occ_provider.storage.attempt_folder import (
    STALE_S,
    AttemptFolder,
    SharedFolder,
    run_folder,
    shared_folder,
)
from airflow_occ_provider.storage.listing import list_objects


class Clock:
    def __init__(self):
        self.now_s = time.monotonic()

    def monotonic(self):
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(attempt_folder, "time", clock := Clock())
    return clock


@pytest.fixture
def requests(s3, monkeypatch):
    """The prefixes that were listed since the last look, by how often."""
    call, counted = s3.file_system.call_s3, Counter()

    def call_s3(method, *args, **kwargs):
        if method == "list_objects_v2":
            counted[kwargs["Prefix"].partition(".airflow_occ/")[2]] += 1
        return call(method, *args, **kwargs)

    monkeypatch.setattr(s3.file_system, "call_s3", call_s3)
    return counted


@pytest.fixture
def folder_of(s3):
    database = f"{s3.root}/{uuid.uuid4().hex}"

    def folder_of(identity, table="trips"):
        url = f"{run_folder(f'{database}/{table}', identity)}/1"
        return shared_folder(url, None, opens(s3.file_system))

    return folder_of


def opens(file_system):
    return lambda url: AttemptFolder(url, file_system=file_system)


def test_drivers_of_a_table_share_a_listing(folder_of, s3, clock, requests):
    folders = [folder_of(identity) for identity in ("a", "b", "c")]
    other = folder_of("a", "other_trips")
    for number, folder in enumerate([*folders, other]):
        folder.write("grant", b"")
        folder.write(f"hello.n{number}", b"{}")
    clock.now_s += STALE_S + 1
    alone = [AttemptFolder(folder.url, s3.file_system).entries() for folder in folders]
    requests.clear()
    assert [folder.entries() for folder in folders] == alone
    assert requests == {"trips/": 1}
    assert other.entries().keys() == {"grant", "hello.n3"}
    assert requests == {"trips/": 1, "other_trips/a/1/": 1}


def test_a_listing_is_no_older_than_it_may_be_and_shows_what_this_process_has_written(
    folder_of, s3, clock, requests
):
    first, second = folder_of("a"), folder_of("b")
    for folder in (first, second):
        folder.write("grant", b"")
    clock.now_s += 1
    assert first.entries().keys() == second.entries().keys() == {"grant"}
    AttemptFolder(first.url, s3.file_system).write("facts.jsonl", b"{}")  # by the driver
    clock.now_s += STALE_S
    assert first.entries().keys() == {"grant"}
    clock.now_s += 0.1
    assert first.entries().keys() == {"grant", "facts.jsonl"}
    clock.now_s += 0.1
    second.write("revoked", b"")
    requests.clear()
    clock.now_s += 0.1
    assert second.entries().keys() == {"grant", "revoked"}
    assert first.entries().keys() == {"grant", "facts.jsonl"}
    assert requests == {"trips/": 1}


def test_a_folder_that_is_missing_in_a_listing_is_looked_for_again(folder_of, s3, clock, requests):
    first, second, third = (folder_of(identity) for identity in "abc")
    first.write("grant", b"")
    assert first.entries().keys() == {"grant"}
    AttemptFolder(second.url, s3.file_system).write("hello.n2", b"{}")
    requests.clear()
    assert second.entries().keys() == {"hello.n2"}
    assert third.entries() == {}
    assert requests == {"trips/b/1/": 1, "trips/c/1/": 1}


def test_one_driver_or_very_many_files_have_listings_of_their_own(
    folder_of, s3, clock, requests, monkeypatch
):
    monkeypatch.setattr(attempt_folder, "_MOST_FILES", 2)
    first, second = folder_of("a"), folder_of("b")
    for folder in (first, second):
        folder.write("grant", b"")
        folder.write("life", b"")
    clock.now_s += 1
    assert first.entries().keys() == {"grant", "life"}
    requests.clear()
    assert first.entries().keys() == second.entries().keys() == {"grant", "life"}
    assert requests == {"trips/a/1/": 1, "trips/b/1/": 1}
    alone = folder_of("a", "other_trips")
    alone.write("grant", b"")
    assert alone.entries().keys() == {"grant"}
    assert requests["other_trips/a/1/"] == 1


def test_a_listing_that_fails_fails_for_all_that_would_have_shared_it(folder_of, s3, clock, monkeypatch):
    first, second = folder_of("a"), folder_of("b")
    first.write("grant", b"")
    clock.now_s += 1
    calls = []

    def fail(method, *args, **kwargs):
        calls.append(method)
        raise OSError("no route to the bucket")

    with monkeypatch.context() as away:
        away.setattr(s3.file_system, "call_s3", fail)
        for folder in (first, second):
            with pytest.raises(TableUnreadableError, match="no route to the bucket"):
                folder.entries()
    assert len(calls) == 1
    clock.now_s += STALE_S + 0.1
    assert first.entries().keys() == {"grant"}


def test_folders_elsewhere_share_nothing(folder_of, s3, tmp_path):
    disk = f"{run_folder(f'{tmp_path}/trips', 'a')}/1"
    loose = f"{s3.root}/db/folder/a/1"
    for url in (disk, loose):
        folder = shared_folder(url, None, opens(s3.file_system))
        assert isinstance(folder, AttemptFolder)
        assert folder.url == url
    assert isinstance(folder_of("a"), SharedFolder)


def test_drivers_of_a_table_share_the_client_of_their_storage(s3):
    opened = []

    def open_folder(url):
        opened.append(url)
        return AttemptFolder(url, file_system=s3.file_system)

    table = f"{s3.root}/{uuid.uuid4().hex}/trips"
    urls = [f"{run_folder(table, identity)}/1" for identity in "abc"]
    folders = [shared_folder(url, "lake", open_folder) for url in urls]
    assert opened == [run_folder(table, "").rstrip("/")]
    folders[0].write("grant", b"")
    assert folders[0].entries().keys() == {"grant"}
    assert [folder.url for folder in folders] == urls


def test_times_of_listings_are_those_that_botocore_reads(s3, monkeypatch):
    folder = f"{s3.root}/{uuid.uuid4().hex}"
    url = str(s3.file_system.client_kwargs.get("endpoint_url") or s3.file_system.endpoint_url)
    connection = {"conn_type": "aws", "login": "k", "password": "s", "extra": {"endpoint_url": url}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    AttemptFolder(folder, s3.file_system).write("life", b"1")
    path = folder.partition("://")[2]

    def times(client):
        listed = list_objects(client, path)["life"]["LastModified"]
        return listed, client.info(f"{path}/life", refresh=True)["LastModified"]  # of a header

    expected = times(s3.file_system)
    monkeypatch.setattr("botocore.parsers.DEFAULT_TIMESTAMP_PARSER", None)
    assert times(storage_of(folder, "lake")) == expected
