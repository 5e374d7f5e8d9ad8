"""Pure: what other tools put around the lines of a log, and how to take it off.

No table of tools: what stands before the lines is learned from the log. The first lines show at which
text a driver's lines begin (a record of Log4j, a traceback, a stack frame, a fact of our runner). What
most of them have before that text, with times and numbers left open, is the prefix of the tool.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

_LEVEL = r"(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL)"
_ZONE = r"(?:Z| ?[+-]\d\d:?\d\d)?"
_TIME = (
    rf"(?:\d{{2,4}}[-/]\d\d[-/]\d\d[T ,]+\d\d:\d\d:\d\d(?:[.,]\d+)?{_ZONE}"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|\d\d:\d\d:\d\d(?:[.,]\d+)?)"
)
# The places at which a line of a driver's log can begin. Airflow's own `INFO - ` is none.
_RECORD = rf"\[?{_TIME}\]?\s+(?:\[[^\]]*\]\s+|\([^)]*\)\s+)?\[?{_LEVEL}\b(?!\s+-\s)"
_START = re.compile(
    rf"{_RECORD}"
    r"|Traceback \(most recent call last\):$"
    r'|(?:  )?File "[^"]+", line \d+, in '
    r"|\t?at (?:[\w$]+[.$/])+[\w$<>]+\([^()]*\)"
    r"|Caused by: (?:[\w$]+\.)+[\w$]+"
    r'|Exception in thread "'
    r'|airflow_occ_provider: (?:\{"fact"|(?:not )?protected: )'
    r'|\{"(?:ts|timestamp|@timestamp|instant|time|level|log|msg)":'
)
_VARIABLE = re.compile(
    rf"(?P<time>{_TIME})|(?P<place>\{{[^{{}}]*:\d+\}})|(?P<level>\b{_LEVEL}\b)"
    r"|(?P<stream>\bstd(?:out|err)\b(?: [FP](?= |$))?)"
    r"|(?P<number> *(?<![\w.-])\d+(?![\w.-]))"
)
_PATTERNS = {
    "place": r"\{[^{}]*:\d+\}",
    "level": _LEVEL,
    "stream": "std(?:out|err)(?: [FP])?",  # containerd marks the parts of a long line
    "number": r" *\d+",
}
_COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_KEY = re.compile(r"[A-Za-z_][\w.]*")
_LONGEST_TAIL = 600
# A driver writes these, its executors and neighbours do not.
_OF_DRIVER = re.compile(
    r"SparkContext|DAGScheduler|TaskSetManager|Traceback|airflow_occ_provider: |TransactionManager"
    r"|ApplicationMaster|MicroBatchExecution"
)
_MOST_SHAPES = 50
_LONGEST_HEAD = 500
_LEAST_SHARE = 0.6
_SMALLEST_SHARE = 0.03
_ROUNDS = 3
# What is learned from: the head of a log may be of another program, and so may its tail.
_HEAD = 200
_TAIL = 200
_THROWN = ("exception", "thrown", "throwable", "stack_trace", "error.stack_trace", "exc_info", "error")
_CLASSES = ("class", "name", "exception_class", "type", "className")
_MESSAGES = ("msg", "message", "localizedMessage", "exception_message")
_FRAMES = ("stacktrace", "stackTrace", "extendedStackTrace", "stack_trace", "frames")
# As Airflow, Docker, Fluentd and Cloud Logging name the field that has the line.
_LINE_FIELDS = ("event", "log", "textPayload", "line")


class SavedLine(NamedTuple):
    """A line of a saved log, without what other tools put around it.

    :param logger: of Airflow, which logged the line; ``None`` if the log does not record that.
    :param detail: of Airflow's own record: the error that ended the task.
    """

    text: str
    logger: str | None = None
    detail: str = ""


def is_start(text: str) -> bool:
    """Whether a line begins as those of a driver's log do."""
    return _START.match(text) is not None


@dataclass(frozen=True, slots=True)
class _Layer:
    """What one tool puts around each line.

    :param prefixes: patterns of prefixes; the first is that of the driver's lines.
    :param suffix: pattern of the fields at the end of each line.
    """

    prefixes: tuple[re.Pattern[str], ...] = ()
    suffix: re.Pattern[str] | None = None

    @classmethod
    def learned(cls, lines: Sequence[str]) -> _Layer:
        """Return the layer that most lines of a log have."""
        lines = [line for line in lines if line.strip()]
        suffix = _learned_suffix(lines)
        bare = [_without(suffix, line) for line in lines] if suffix else lines
        return cls(_learned_prefixes(bare), suffix)

    def strip(self, text: str) -> str | None:
        """Return a line without the layer; ``None`` if it is a neighbour's of the driver."""
        if self.suffix:
            text = _without(self.suffix, text)
        for number, prefix in enumerate(self.prefixes):
            match = prefix.match(text)
            if match:
                return None if number else text[match.end() :]
        return text


class Unwrapper:
    """Takes off what other tools put around the lines of a log.

    :param sample: the log's first lines, from which it learns.
    """

    def __init__(self, sample: Iterable[str]) -> None:
        self._layers: list[_Layer] = []
        whole = list(sample)
        sample = [*whole[:_HEAD], *whole[max(_HEAD, len(whole) - _TAIL) :]]
        for _ in range(_ROUNDS):
            lines = [saved.text for line in sample for saved in self.unwrapped(line)]
            layer = _Layer.learned(lines)
            if not (layer.prefixes or layer.suffix):
                break
            self._layers.append(layer)

    def unwrapped(self, raw: str) -> list[SavedLine]:
        """Return the lines in a line of the log; a record in JSON may have several."""
        lines = _read_json(SavedLine(_COLOURS.sub("", raw.rstrip("\r\n")).removeprefix("\ufeff")))
        for layer in self._layers:
            stripped = [
                line._replace(text=text)
                for line in lines
                if (text := layer.strip(line.text)) is not None
            ]
            lines = [inner for line in stripped for inner in _read_json(line)]
        return lines


def _learned_suffix(lines: Sequence[str]) -> re.Pattern[str] | None:
    """Return the pattern of the ``key=value`` fields at the end of most lines."""
    keys: Counter[str] = Counter()
    for line in lines:
        keys.update(_last_keys(line[-_LONGEST_TAIL:]))
    common = [key for key, count in keys.items() if len(lines) > 1 and count > _LEAST_SHARE * len(lines)]
    return re.compile(rf"(?:\s+(?:{'|'.join(map(re.escape, common))})=\S*)+\s*$") if common else None


def _without(suffix: re.Pattern[str], text: str) -> str:
    """Return a line without its fields; they are sought at its end only, however long it is."""
    cut = max(0, len(text) - _LONGEST_TAIL)
    return text[:cut] + suffix.sub("", text[cut:])


def _last_keys(tail: str) -> set[str]:
    """Return the keys of the fields that follow each other at the end of a line."""
    keys = set()
    for word in reversed(tail.split()):
        key, is_field, _ = word.partition("=")
        if not (is_field and _KEY.fullmatch(key)):
            break
        keys.add(key)
    return keys


def _learned_prefixes(lines: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    """Return the patterns of what stands before the lines, the driver's first; none if nothing does.

    A log of several programs has a prefix for each.
    """
    shapes: Counter[str] = Counter()
    bare = 0
    for line in lines:
        starts = [match.start() for match in _START.finditer(line[:_LONGEST_HEAD])]
        bare += 0 in starts
        shapes.update({_shape(line[:start]) for start in starts if start})
    anchored = sum(shapes.values())
    if 2 * bare > anchored:
        return ()
    common = [
        re.compile(shape)
        for shape, count in shapes.most_common(_MOST_SHAPES)
        if count > 1 or anchored == 1
    ]
    rest, sources = list(lines), []
    while common:
        matched = {prefix: [line for line in rest if prefix.match(line)] for prefix in common}
        best = max(matched, key=lambda prefix: len(matched[prefix]))
        if len(matched[best]) < max(1, _SMALLEST_SHARE * len(lines)):
            break
        sources.append((best, sum(bool(_OF_DRIVER.search(line)) for line in matched[best])))
        rest = [line for line in rest if not best.match(line)]
        common.remove(best)
    if len(rest) > (1 - _LEAST_SHARE) * len(lines):
        return ()
    return tuple(prefix for prefix, _ in sorted(sources, key=lambda source: -source[1]))


def _shape(prefix: str) -> str:
    """Return the pattern of a prefix, with its times, numbers, levels and places left open."""
    parts, end = [], 0
    for match in _VARIABLE.finditer(prefix):
        parts += [re.escape(prefix[end : match.start()]), _open(match)]
        end = match.end()
    shape = "".join((*parts, re.escape(prefix[end:])))
    body = re.sub(r"(?:\\ )+$", "", shape)  # of an empty line a tool may trim it
    return f"{body}(?:{shape[len(body) :]}|\\s*$)" if body and body != shape else shape


def _open(match: re.Match[str]) -> str:
    kind = str(match.lastgroup)
    if kind != "time":
        return _PATTERNS[kind]
    time = re.sub(r"[.,]\d+", "(?:[.,]0+)?", re.escape(match[0]).replace("\\.", "."))
    time = re.sub(r"^[A-Z][a-z]{2}", "[A-Z][a-z][a-z]", time)
    return re.sub(r"\d", r"[\\d ]" if time.startswith("[A-Z]") else r"\\d", time)


def _read_json(line: SavedLine) -> list[SavedLine]:
    """Return the lines of a record in JSON: Airflow's, a log collector's, or one of Spark's own."""
    text = line.text.strip()
    if (text[:1], text[-1:]) not in (("{", "}"), ("[", "]")):
        return [line]
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return [line]
    texts = _of_record(record, line) if isinstance(record, dict) else []
    return texts or _of_document(record, line)


def _of_record(record: Mapping[str, Any], line: SavedLine) -> list[SavedLine]:
    for field in _LINE_FIELDS:
        value = record.get(field)
        if isinstance(value, str):
            return _of_collector(record, value, line)
    if isinstance(record.get("message"), str) and not _level(record):
        return _of_collector(record, record["message"], line)
    return [line._replace(text=text) for text in _of_log4j(record)]


def _of_document(document: Any, line: SavedLine) -> list[SavedLine]:
    """Return the driver's lines in an answer of a service, such as Livy's log of a batch."""
    lines = list(_lines_in(document, line))
    return lines if any(is_start(inner.text) for inner in lines) else [line]


def _lines_in(value: Any, line: SavedLine, *, listed: bool = False) -> Iterator[SavedLine]:
    if isinstance(value, str) and (listed or "\n" in value):
        yield from (line._replace(text=text) for text in value.strip("\r\n").splitlines() or [""])
    elif isinstance(value, dict):
        record = _of_record(value, line) if listed else []
        yield from record or (inner for part in value.values() for inner in _lines_in(part, line))
    elif isinstance(value, list):
        yield from (inner for part in value for inner in _lines_in(part, line, listed=True))


def _of_collector(record: Mapping[str, Any], value: str, line: SavedLine) -> list[SavedLine]:
    logger = str(record["logger"]) if "logger" in record else line.logger
    detail = json.dumps(record["error_detail"]) if "error_detail" in record else ""
    texts = value.rstrip("\r\n").splitlines() or [""]
    thrown = (record.get(name) for name in ("exception", "exc_info"))  # of structlog, of logging
    texts += [text for trace in thrown if isinstance(trace, str) for text in trace.splitlines()]
    found = [SavedLine(text, logger, detail) for text in texts]
    return [inner for one in found for inner in (_read_json(one) if one.text != line.text else [one])]


def _level(record: Mapping[str, Any]) -> str:
    log = record.get("log")
    nested = log.get("level") if isinstance(log, dict) else None
    level = record.get("level") or record.get("log.level") or record.get("severity") or nested
    level = level or record.get("levelname")  # of Python's own logging
    return str(level or "").upper()


def _of_log4j(record: Mapping[str, Any]) -> list[str]:
    """Return a structured record as a logger with a text layout would have printed it."""
    message, level = record.get("msg", record.get("message")), _level(record)
    if not isinstance(message, str) or not level:
        return []
    times = (record.get(name) for name in ("ts", "timestamp", "@timestamp", "time", "asctime"))
    time = next((one for one in times if isinstance(one, str) and re.match(_TIME, one)), "00:00:00")
    names = (record.get(name) for name in ("logger", "loggerName", "logger_name", "log.logger", "name"))
    logger = next((one for one in names if isinstance(one, str)), "-")
    first, *more = message.splitlines() or [""]
    thrown = next((record[name] for name in _THROWN if record.get(name)), None)
    return [f"{time} {level} {logger}: {first}", *more, *_trace(thrown)]


def _trace(thrown: Any, prefix: str = "") -> list[str]:
    """Return an exception of a structured record as the JVM prints it."""
    if isinstance(thrown, str):
        return thrown.splitlines()
    if not isinstance(thrown, dict):
        return []
    kind = next((thrown[name] for name in _CLASSES if thrown.get(name)), "")
    message = next((thrown[name] for name in _MESSAGES if isinstance(thrown.get(name), str)), "")
    frames = next((thrown[name] for name in _FRAMES if thrown.get(name)), ())
    if isinstance(frames, str) and str(kind) in frames.partition("\n")[0]:
        return [prefix + frames.splitlines()[0], *frames.splitlines()[1:]]
    lines = (f"{prefix}{kind}: {message}" if message else f"{prefix}{kind}").splitlines()
    if isinstance(frames, str):
        lines += frames.splitlines()
    else:
        lines += [_frame(one) for one in frames]
    cause = next((thrown[name] for name in ("cause", "causedBy", "caused_by") if thrown.get(name)), None)
    return [*lines, *_trace(cause, "Caused by: ")]


def _frame(frame: Any) -> str:
    if not isinstance(frame, dict):
        return f"\tat {str(frame).strip().removeprefix('at ')}"
    place = f"{frame.get('file') or 'Unknown Source'}:{frame.get('line', 0)}"
    return f"\tat {frame.get('class')}.{frame.get('method')}({place})"
