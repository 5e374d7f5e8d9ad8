from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from airflow_occ_provider.hudi.format.properties import (
    complete_table_properties,
    format_properties,
    parse_defaults,
    parse_table_properties,
)
from tests.support.table_properties import table_properties


def test_java_properties():
    text = (
        "#Updated at 2026-11-21\n! also a comment\nhoodie.table.name=t\n  a : b\nspaced value here\n"
        "url=s3a\\://lake/x\nlong=one,\\\n   two\nempty=\nuni=\\u00e9\\tq\nback=c\\\\d\nkey\\=x=1\n"
    )
    assert parse_table_properties(text) == {
        "hoodie.table.name": "t",
        "a": "b",
        "spaced": "value here",
        "url": "s3a://lake/x",
        "long": "one,two",
        "empty": "",
        "uni": "é\tq",
        "back": "c\\d",
        "key=x": "1",
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.a", "plain"),
        ("spark.hadoop.fs.s3a.secret.key", "a/b+c=d:e#f!g"),
        ("empty", ""),
        ("c:\\d e=f", " two  words "),
        ("#no comment", "!none"),
        ("lines", "one\ntwo\r\n\tthree\f"),
        ("back", "c\\d\\\\\\n"),
        ("unicode", "é \u2028 日本"),
    ],
)
def test_properties_are_read_as_they_were_written(key, value):
    text = format_properties({"first": "1", key: value, "last": "2"})
    assert parse_table_properties(text) == {"first": "1", key: value, "last": "2"}


def test_defaults_are_split_as_hudi_does():
    text = "# no\n\na=1\nb = x=y \nc   two  words\ninclude=other.conf\nloneword\na=2\n"
    assert parse_defaults(text) == [
        ("a", "1"),
        ("b", "x=y"),
        ("c", "two words"),
        ("include", "other.conf"),
        ("a", "2"),
    ]


def test_values_keep_what_looks_like_a_delimiter():
    options = {"hoodie.a": "x=y", "_airflow_run_id": "manual__2026-11-21T09:56:43+00:00", "e": ""}
    text = "".join(f"{key}={value}\n" for key, value in options.items())
    assert parse_defaults(text) == list(options.items())


GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "tables").glob("*/created.zip"))
NEEDED = ("hoodie.table.version", "hoodie.timeline.layout.version", "hoodie.table.type")


@pytest.mark.parametrize("archive", GOLDEN, ids=lambda path: path.parent.name)
def test_a_file_that_hudi_wrote_is_not_taken_for_whole_when_it_is_cut_off(archive):
    content = zipfile.ZipFile(archive).read("table/.hoodie/hoodie.properties")
    whole = complete_table_properties(content)
    assert {key: whole[key] for key in NEEDED}
    taken = [cut for cut in range(len(content)) if complete_table_properties(content[:cut]) is not None]
    # Only where whole lines are missing which are not needed to find the table's instants.
    assert all(content[:cut].endswith(b"\n") for cut in taken)
    assert all(
        complete_table_properties(content[:cut])[key] == whole[key] for cut in taken for key in NEEDED
    )
    assert len(taken) <= 3


def test_every_golden_table_has_its_checksum():
    for archive in GOLDEN[0].parents[1].glob("*/*.zip"):
        with zipfile.ZipFile(archive) as packed:
            for name in packed.namelist():
                if name.endswith("/hoodie.properties"):
                    assert complete_table_properties(packed.read(name)), (archive, name)


def test_properties_of_another_table_are_not_whole():
    text = table_properties()
    assert complete_table_properties(text.encode())
    assert complete_table_properties(text.replace("name=t\n", "name=u\n").encode()) is None
    assert complete_table_properties(text.replace("checksum=", "checksum=0").encode()) is None


@pytest.mark.parametrize("field", ["table__name", "database__name"])
def test_a_name_beyond_the_first_65536_characters_of_unicode_is_whole(field):
    text = table_properties(**{field: "\U0001f41f"})
    escaped = text.replace("\U0001f41f", "\\ud83d\\udc1f")
    assert (
        complete_table_properties(escaped.encode())[f"hoodie.{field.replace('__', '.')}"] == "\U0001f41f"
    )


def test_half_a_surrogate_pair_is_replaced():
    assert parse_table_properties("name=a\\ud83db\n") == {"name": "a\ufffdb"}
