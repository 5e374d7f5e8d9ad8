"""Pure: a chain of exceptions, as the runner reports or a log prints it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

JVM_CAUSE = re.compile(r"(?:: |Caused by: )(?P<type>[\w$]+(?:\.[\w$]+)+)(?:: (?P<message>.*))?")
FRAME_CALL = re.compile(r"at [\w.$/<>]+\(")
_LOST_TASK = re.compile(r"executor [^)]*\): (?P<type>[\w$]+(?:\.[\w$]+)+)(?:: (?P<message>.*))?$")
_MAX_LINES = 40
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
    """

    causes: list[Cause] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def add(self, cause: Cause, line: str) -> None:
        """Append a cause and the line that names it."""
        self.causes.append(cause)
        if len(self.lines) < _MAX_LINES:
            self.lines.append(line.strip())

    def add_jvm(self, match: re.Match[str], line: str) -> None:
        """Append a cause of the JVM, and the executor's cause that its message names."""
        message = match["message"] or ""
        self.add(Cause(match["type"], message, jvm=True), line)
        self.add_lost_task(message, line)

    def add_lost_task(self, message: str, line: str) -> None:
        """Append the cause of an executor's task that a message names, if it does."""
        lost = _LOST_TASK.search(message)
        if lost:
            self.add(Cause(lost["type"], lost["message"] or "", jvm=True), line)

    def add_line(self, text: str) -> bool:
        """Append the cause or the stack frame in a line; return whether it was a cause."""
        cause = JVM_CAUSE.match(text)
        if cause:
            self.add_jvm(cause, text)
        else:
            self.add_frame(text)
        return cause is not None

    def add_frame(self, text: str) -> None:
        """Append a stack frame of the last cause."""
        if FRAME_CALL.match(text) and len(self.causes[-1].frames) < _MAX_FRAMES:
            self.causes[-1].frames.append(text)
