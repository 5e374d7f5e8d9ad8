"""Hudi's two property formats: ``hoodie.properties`` and ``hudi-defaults.conf``."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = {character: f"\\{name}" for name, character in _NAMED.items()}
_SPECIAL = r"\\\t\n\r\f"
_SPECIAL_IN_KEYS = rf"{_SPECIAL} :=#!"
_KEY = re.compile(r"(?:\\.|[^\\ \t\f:=])*")
_LINE_END = re.compile(r"\r\n?|\n")


# Hudi writes all of these, in any order, with a line break after the last line.
_ALWAYS_WRITTEN = frozenset({"hoodie.table.name", "hoodie.table.type", "hoodie.table.version"})
_CHECKSUM = "hoodie.table.checksum"
_SINCE_VERSION_4 = frozenset({_CHECKSUM, "hoodie.timeline.layout.version"})
_WITHOUT_CHECKSUM = frozenset("0123")  # table versions


def format_properties(properties: Mapping[str, str]) -> str:
    """Return a file of properties as ``parse_table_properties`` and Java read it."""

    def escape(match: re.Match[str]) -> str:
        return _ESCAPED.get(match[0], f"\\{match[0]}")

    def escaped(text: str, special: str) -> str:
        return re.sub(f"^[ \\t]|[{special}]", escape, text)

    return "".join(
        f"{escaped(key, _SPECIAL_IN_KEYS)}={escaped(value, _SPECIAL)}\n"
        for key, value in properties.items()
    )


def complete_table_properties(content: bytes, *, needs_checksum: bool = True) -> dict[str, str] | None:
    """Parse ``hoodie.properties``; ``None`` if it is cut off.

    Hudi's checksum covers only the names of database and table (0.15.0 to 1.2.0,
    ``HoodieTableConfig.generateChecksum``), so required keys and the last line break are checked too.
    Table versions before 4 (Hudi before 0.12) have no checksum.

    :param needs_checksum: whether a file without one counts as cut off.
    """
    properties = parse_table_properties(content.decode("utf-8", errors="replace"))
    return None if _fault(content, properties, needs_checksum=needs_checksum) else properties


def properties_fault(content: bytes | None) -> str:
    """Return what is wrong with a ``hoodie.properties``; empty if it is complete.

    :param content: ``None`` if there is no such file.
    """
    if content is None:
        return "is missing"
    return _fault(content, parse_table_properties(content.decode("utf-8", errors="replace")))


def _fault(content: bytes, properties: Mapping[str, str], *, needs_checksum: bool = True) -> str:
    if not content.strip():
        return "is empty"
    if not content.endswith(b"\n"):
        return "is cut off: its last line has no line break"
    is_early = properties.get("hoodie.table.version") in _WITHOUT_CHECKSUM
    required = _ALWAYS_WRITTEN if is_early else _ALWAYS_WRITTEN | _SINCE_VERSION_4
    missing = sorted(required - properties.keys() - (set() if needs_checksum else {_CHECKSUM}))
    if missing:
        return f"has no {', '.join(missing)}"
    checksum = properties.get(_CHECKSUM)
    if checksum is not None and checksum != table_checksum(properties):
        return f"has the wrong checksum {checksum} for its database and table name"
    return ""


def table_checksum(properties: Mapping[str, str]) -> str:
    """Return the ``hoodie.table.checksum`` of a table's properties."""
    database = properties.get("hoodie.database.name", "")
    return str(zlib.crc32(f"{database}.{properties['hoodie.table.name']}".encode()))


def parse_table_properties(text: str) -> dict[str, str]:
    """Parse ``hoodie.properties``, a Java properties file."""
    result: dict[str, str] = {}
    for line in _logical_lines(text):
        key = _KEY.match(line)
        end = key.end() if key else 0
        value = re.sub(r"^[ \t\f]*[:=]?[ \t\f]*", "", line[end:], count=1)
        result[_unescape(line[:end])] = _unescape(value)
    return result


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for raw in _LINE_END.split(text):
        line = pending + raw.lstrip(" \t\f")
        pending = ""
        if not line or line[0] in "#!":
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        yield line


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _NAMED.get(code, code)

    # Java escapes a character beyond the BMP as two surrogates.
    return _ESCAPE.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def parse_defaults(text: str) -> list[tuple[str, str]]:
    """Parse the lines of a ``hudi-defaults.conf`` in order, as Hudi splits them.

    White space is folded. A line is split at its first ``=``, or at its first blank if it has none
    (Hudi 1.2.0, ``DFSPropertiesConfiguration``). An ``include`` line is returned with the key
    ``include``.
    """
    result = []
    for raw in _LINE_END.split(text):
        line = fold(raw)
        delimiter = "=" if "=" in line else " "
        if raw.startswith("#") or delimiter not in line:
            continue
        key, _, value = line.partition(delimiter)
        result.append((key.strip(), value.strip()))
    return result


def fold(text: str) -> str:
    """Fold white space as Hudi does in a line of ``hudi-defaults.conf``."""
    return re.sub(r"\s+", " ", text).strip()
