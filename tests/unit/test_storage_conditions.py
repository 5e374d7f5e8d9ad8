"""The check that a storage carries out writes on a condition exactly: who passes, who does not."""

from __future__ import annotations

import hashlib
import threading

import obstore.store
import pytest

from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError
from airflow_occ_provider.leases.storage.bucket import BucketObject
from airflow_occ_provider.leases.storage.objects import (
    FolderObject,
    ObjectContent,
    SupersededError,
    UnansweredError,
    check_conditions,
)


class Inexact:
    """A storage with a fault in its conditions.

    :param fault: ``create`` and ``replace`` ignore those of such a write; ``never`` matches none;
        ``race`` checks and writes in two steps; ``away`` does not answer.
    """

    place = "fake://queue"

    def __init__(self, fault):
        self.fault, self.content = fault, ObjectContent(b"", "")
        self.deleted = 0

    def beside(self, name):
        return self

    def delete(self):
        self.deleted += 1

    def read(self, known):
        return self.content

    def write(self, data, tag):
        if self.fault == "away":
            raise UnansweredError("503")
        checked = threading.Event() if self.fault == "race" else None
        is_ignored = self.fault == ("replace" if tag else "create")
        if (self.fault == "never" and tag) or (tag != self.content.tag and not is_ignored):
            raise SupersededError
        if checked:
            checked.wait(0.005)
        self.content = ObjectContent(data, hashlib.sha256(data).hexdigest())
        return self.content.tag


def bucket(_):
    return BucketObject(obstore.store.MemoryStore(), "leases/queue.json", "memory://leases/queue.json")


@pytest.mark.parametrize("make", [bucket, lambda folder: FolderObject(folder / "l" / "queue.json")])
def test_a_storage_with_exact_conditions_passes_and_keeps_nothing(make, tmp_path):
    shared = make(tmp_path)
    assert "one was carried out each time" in check_conditions(shared, race_s=0.5)
    assert list((tmp_path / "l").glob("*")) == []
    assert shared.read("") == ObjectContent(b"", "")


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        ("create", "created an object that existed .If-None-Match is ignored"),
        ("never", "refused to replace an object that was unchanged .If-Match never matches"),
        ("replace", "replaced an object that had changed .If-Match is ignored"),
        ("race", "carried out [0-9]+ of 16 writes on one condition .If-Match is not atomic"),
    ],
)
def test_a_storage_whose_conditions_do_not_hold_is_refused(fault, seen):
    shared = Inexact(fault)
    with pytest.raises(ConfigurationError, match=f"lease_root: fake://queue .*{seen}.*Remedy: keep"):
        check_conditions(shared)
    assert shared.deleted == 1


def test_a_storage_that_does_not_answer_is_no_verdict():
    with pytest.raises(LockUnreachableError, match="fake://queue did not answer 3 times: 503"):
        check_conditions(Inexact("away"))
