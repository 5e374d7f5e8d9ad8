from __future__ import annotations

from airflow_occ_provider.attempts.identity import Signature, new_identity
from airflow_occ_provider.hudi.writer.options import SIGNATURE_PREFIX


def test_a_signature_is_read_back_from_a_commit():
    signature = Signature("i", "d", "r", "t", 3, 2, "20261121092507982", "1.2", "here")
    options = signature.options()
    assert all(key.startswith(SIGNATURE_PREFIX) for key in options)
    assert Signature.from_extra({**options, "schema": "{}", "_other": "x"}) == signature


def test_an_unsigned_commit_has_none():
    assert Signature.from_extra({"schema": "{}", "_other": "x"}) is None


def test_broken_labels_do_not_hide_the_identity():
    assert Signature.from_extra({"_airflow_identity": "i", "_airflow_map_index": "?"}).identity == "i"


def test_identities_differ():
    assert new_identity() != new_identity()
