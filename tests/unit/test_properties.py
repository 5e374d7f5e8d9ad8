from __future__ import annotations

import pytest

from airflow_occ_provider.hudi.properties import format_defaults, parse_defaults, parse_table_properties


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


def test_defaults_are_split_as_hudi_does():
    text = "# no\n\na=1\nb = x=y \nc   two  words\ninclude=other.conf\nloneword\na=2\n"
    assert parse_defaults(text) == [
        ("a", "1"),
        ("b", "x=y"),
        ("c", "two words"),
        ("include", "other.conf"),
        ("a", "2"),
    ]


def test_what_is_written_is_read_back():
    options = {"hoodie.a": "x=y", "_airflow_run_id": "manual__2026-11-21T09:56:43+00:00", "e": ""}
    assert parse_defaults(format_defaults(options)) == list(options.items())


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\u2028b"])
def test_a_line_break_is_refused_not_smuggled_in(value):
    with pytest.raises(ValueError, match="line break"):
        format_defaults({"hoodie.a": value})
