"""Our Avro decoder: equal to fastavro's, and within a limit where that has none."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
import zipfile
import zlib
from pathlib import Path

import fastavro
import pytest

from airflow_occ_provider.hudi.format.avro import TooLargeError, decode, decode_value
from airflow_occ_provider.hudi.format.commit_metadata import read_commit

TABLES = Path(__file__).parents[1] / "golden" / "tables"
SYNC = b"s" * 16
MIB = 1 << 20


def array(items):
    return {"type": "array", "items": items}


EVERYTHING = {
    "type": "record",
    "name": "Everything",
    "namespace": "org.example",
    "fields": [
        {"name": "yes", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "large", "type": "long"},
        {"name": "single", "type": "float"},
        {"name": "double", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "text", "type": {"type": "string", "avro.java.string": "String"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "other_kind", "type": "Kind"},
        {"name": "hash", "type": {"type": "fixed", "name": "org.other.Hash", "size": 3}},
        {"name": "other_hash", "type": "org.other.Hash"},
        {"name": "one_of", "type": ["string", "null", "long"]},
        {
            "name": "inner",
            "type": {"type": "map", "values": {"type": "array", "items": ["null", "Kind"]}},
        },
    ],
}
VALUE = {
    "yes": True,
    "small": -1,
    "large": -(2**62) - 3,
    "single": 0.5,
    "double": 0.1,
    "raw": b"\x00\xff",
    "text": "é" * 70,
    "kind": "B",
    "other_kind": "A",
    "hash": b"abc",
    "other_hash": b"def",
    "one_of": 300,
    "inner": {"a": [None, "A"], "": []},
}


def number(value):
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def container(field, block, codec="null"):
    """A container of one record with one field, as an attacker writes it."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "extraMetadata", "type": field}]}
    return bare_container(json.dumps(schema), block, codec)


def bare_container(schema, block, codec="null"):
    parts = (b"avro.schema", schema.encode(), b"avro.codec", codec.encode())
    header = b"".join(number(len(part)) + part for part in parts)
    return b"Obj\x01\x04" + header + b"\0" + SYNC + b"\x02" + number(len(block)) + block + SYNC


def bomb():
    """A block of 300 MB of zeros, deflated to some 300 kB."""
    deflate = zlib.compressobj(wbits=-15)
    piece = deflate.compress(bytes(MIB)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return container("bytes", piece * 300 + deflate.flush(), "deflate")


def chain(length):
    """Records that hold the next one twice: 2 to the power of ``length`` values in no byte at all."""
    kind = "null"
    for link in range(length):
        fields = [
            {"name": "a", "type": kind},
            {"name": "b", "type": kind if link == 0 else f"L{link - 1}"},
        ]
        kind = {"type": "record", "name": f"L{link}", "fields": fields}
    return kind


BOOLEAN = {"type": "record", "name": "B", "fields": [{"name": "b", "type": "boolean"}]}
NESTED = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}
HOSTILE = {
    "deflate bomb": bomb,
    "3e7 nulls": lambda: container(array("null"), number(30_000_000) + b"\0"),
    "3e7 nulls in blocks": lambda: container(array("null"), number(1_000_000) * 30 + b"\0"),
    "3e7 booleans": lambda: container(array("boolean"), number(30_000_000) + bytes(30_000_001)),
    "3e7 records": lambda: container(array(BOOLEAN), number(30_000_000) + bytes(30_000_001)),
    "2**62 nulls": lambda: container(array("null"), number(2**62) + b"\0"),
    "2**60 records": lambda: container(chain(60), b""),
    "deep record": lambda: container(NESTED, b"\x02" * MIB + b"\0"),
    "deep schema": lambda: bare_container("[" * 100_000, b""),
    "endless number": lambda: container("long", b"\xff" * 30 * MIB),
    "long string": lambda: container("string", number(2**40) + b"x"),
    "negative string": lambda: container("string", number(-5) + b"x" * 9),
    "json of 3e7 lists": lambda: b"[" + b"[]," * 30_000_000 + b"[]]",
}


def peak_mib():
    # Not ru_maxrss: that is the peak of the process that started this one, if that is higher.
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) // 1024


def refuse_all():
    """Decode each hostile input; print its error and the peak of this process so far, in MiB."""
    for name, make in HOSTILE.items():
        content = make()
        begun = time.process_time()
        try:
            told = f"no error: {read_commit(content)}"
        except ValueError as error:
            told = f"{type(error).__name__}: {error}"
        spent_s = round(time.process_time() - begun, 3)
        print(json.dumps([name, told, peak_mib(), spent_s]))


@pytest.fixture(scope="module")
def refused():
    code = f"from {__name__} import refuse_all; refuse_all()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    print(done.stdout)
    return {name: (told, peak) for name, told, peak, _ in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_metadata_is_refused_within_256_mb(refused, name):
    told, peak = refused[name]
    assert told.startswith(("ValueError: ", "TooLargeError: "))
    assert peak < 256


def test_the_work_is_bounded_not_only_the_outcome():
    block = number(100) + bytes(101)
    assert len(decode(container(array("boolean"), block), limit=104)["extraMetadata"]) == 100
    with pytest.raises(TooLargeError, match="more than 103 values"):
        decode(container(array("boolean"), block), limit=103)


def test_every_type_is_read_as_fastavro_reads_it():
    out, bare = io.BytesIO(), io.BytesIO()
    schema = fastavro.parse_schema(EVERYTHING)
    fastavro.writer(out, schema, [VALUE, VALUE])
    fastavro.schemaless_writer(bare, schema, VALUE)
    assert decode(out.getvalue()) == VALUE
    assert decode_value(json.dumps(EVERYTHING), bare.getvalue()) == VALUE


def test_all_that_hudi_wrote_is_read_as_fastavro_reads_it():
    read = 0
    for path in TABLES.glob("*/*.zip"):
        with zipfile.ZipFile(path) as packed:
            for name in packed.namelist():
                content = packed.read(name)
                if content[:4] == b"Obj\x01":
                    assert decode(content) == next(fastavro.reader(io.BytesIO(content)))
                    read += 1
    assert read > 500


@pytest.mark.parametrize("cut", [3, 20, 60, -1, -17, -30])
def test_a_cut_off_container_is_an_error(cut):
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(EVERYTHING), [VALUE])
    with pytest.raises(ValueError, match=r".+"):
        decode(out.getvalue()[:cut])
