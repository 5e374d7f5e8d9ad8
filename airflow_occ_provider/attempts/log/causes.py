"""Pure: a chain of exceptions, as the runner reports or a log prints it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

KIND = r"[\w$]*(?:Exception|Error|Throwable)(?:\$\w+)?"
# Thrift's exceptions print their fields in brackets.
_CAUSED = re.compile(
    rf"\bCaused by: (?P<type>(?:[\w$]+\.)*{KIND})(?:: (?P<message>.*)|\((?P<fields>.*)|:?$)"
)
_FRAME = re.compile(r"\bat [\w.$/<>-]+\(.*")
_LOST_TASK = re.compile(rf"executor [^)]*\): (?P<type>(?:[\w$]+\.)+{KIND})(?:: (?P<message>.*))?$")
_MAX_LINES = 40
_MAX_CAUSES = 40
_MAX_FRAMES = 12


@dataclass(slots=True)
class Cause:
    """One exception of a chain.

    :param type: class name, fully qualified if the log has it so.
    :param message: first line of its message.
    :param jvm: whether the JVM threw it, not the Python program.
    :param frames: its first stack frames.
    """

    type: str
    message: str
    jvm: bool
    frames: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Chain:
    """One exception with its causes, outermost first.

    :param lines: the lines that name the causes, as they were printed.
    :param is_torn: whether one of its causes could not be read.
    """

    causes: list[Cause] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    is_torn: bool = False

    def add(self, cause: Cause, line: str) -> None:
        """Append a cause, and that of an executor in its message, and the line."""
        self._append(cause, line)
        lost = _LOST_TASK.search(cause.message) if cause.jvm else None
        if lost:
            self._append(Cause(lost["type"], lost["message"] or "", jvm=True), line)

    def add_line(self, text: str) -> bool:
        """Append the cause or the stack frame of the JVM in a line; whether it has one."""
        if "Caused by: " in text:
            caused = _CAUSED.search(text)
            if caused is None:
                self.is_torn = True
            else:
                message = caused["message"] or caused["fields"] or ""
                self.add(Cause(caused["type"], message, jvm=True), text[caused.start() :])
            return True
        frame = _FRAME.search(text)
        if frame and self.causes and len(self.causes[-1].frames) < _MAX_FRAMES:
            self.causes[-1].frames.append(frame[0])
        return frame is not None

    def _append(self, cause: Cause, line: str) -> None:
        if len(self.causes) < _MAX_CAUSES:
            self.causes.append(cause)
        if len(self.lines) < _MAX_LINES and line.strip() not in self.lines:
            self.lines.append(line.strip())
