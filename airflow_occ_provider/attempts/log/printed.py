"""Pure: the exceptions that a log prints, with their cause chains.

Other tools may have put something before each line, so an exception may begin anywhere in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_occ_provider.attempts.log.facts import KIND, Cause, Chain

# Spark Connect puts the class in brackets.
_THROWN = re.compile(rf"(?:^|[\s:\"'(])(?P<type>(?:[\w$]+\.)+{KIND})(?:(?:\)| ?:) (?P<message>.*)|:?$)")
_WORDS = ("Exception", "Error", "Throwable")
_TRACEBACK = "Traceback (most recent call last):"
_PYTHON_ERROR = re.compile(
    r"(?:^|[\s:])(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning))"
    r"(?:: (?P<message>.*))?$"
)
# One that splits a traceback.
_RECORD = re.compile(r"\b(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\s+[\w.$]+:\s")
_JVM = ("java.", "org.", "com.", "scala.")
_UNCAUGHT = re.compile(r'Exception in thread "main"|ApplicationMaster: User class threw exception: ')
_LINKS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_OF_SUPPRESSED = ("Suppressed: ", "\tCaused by: ", "\t\tat ")


@dataclass(slots=True)
class PrintedChain(Chain):
    """One printed exception with its causes.

    :param is_thrown: whether it was printed as an uncaught one is: as a traceback, or by the JVM's main
        thread or YARN's master.
    :param awaits_python: whether its traceback has not named the exception yet.
    :param awaits_jvm: whether the JVM's exception below that of Python is to follow.
    :param has_suppressed: whether it has suppressed others, which do not count.
    """

    is_thrown: bool = False
    awaits_python: bool = False
    awaits_jvm: bool = False
    has_suppressed: bool = False


class PrintedExceptions:
    """Reads the exceptions of a log, line by line.

    :ivar last: the last exception.
    :ivar is_open: whether the last line was part of an exception, so that more of it may follow.
    """

    def __init__(self) -> None:
        self.last: PrintedChain | None = None
        self.is_open = False
        self._is_linked = False

    def feed(self, line: str) -> PrintedChain | None:
        """Take the next line; return the exception that begins with it, if one does."""
        text, last = line.rstrip(), self.last
        if text.endswith(_TRACEBACK):
            return self._begin_traceback()
        if any(sign in text for sign in _OF_SUPPRESSED):
            if last:  # a tool may have dropped the tabs that tell its causes from those of the chain
                last.has_suppressed |= "\tSuppressed: " in text
                last.is_torn |= not last.has_suppressed
            return None
        self._is_linked |= text.endswith(_LINKS)
        if last and last.awaits_python:
            self._end_traceback(last, text)
            return None
        if last and text.endswith("JVM stacktrace:"):
            last.awaits_jvm = True
        is_pasted = self.last is None and "Caused by: " in text
        begun = PrintedChain() if is_pasted else None
        self.last = begun or self.last
        if self.last and self.last.add_line(text):
            self.is_open = True
            return begun
        return self._take_thrown(text)

    def _begin_traceback(self) -> PrintedChain | None:
        begun = None if self._is_linked and self.last else PrintedChain(is_thrown=True)
        self.last = begun or self.last
        if self.last:
            self.last.awaits_python = True
        self._is_linked, self.is_open = False, True
        return begun

    def _end_traceback(self, chain: PrintedChain, text: str) -> None:
        """Take a line of a traceback: its error, or what precedes that."""
        error = None if _RECORD.search(text) else _PYTHON_ERROR.search(text)
        if error:
            kind, message = error["type"], error["message"] or ""
            is_jvms = kind.startswith(_JVM)  # the line with Python's own is lost
            chain.is_torn |= is_jvms
            chain.add(Cause(kind, message, is_jvms or kind.startswith("pyspark.errors.")), error[0])
            chain.awaits_python, chain.awaits_jvm = False, kind.endswith("Py4JJavaError")
            self.is_open = False

    def _take_thrown(self, text: str) -> PrintedChain | None:
        """Take a line that may name an exception which is no cause of another."""
        thrown = _THROWN.search(text) if any(word in text for word in _WORDS) else None
        if thrown is None:
            self.is_open = False
            return None
        cause = Cause(thrown["type"], thrown["message"] or "", jvm=True)
        if self.last and cause in self.last.causes[-1:]:  # printed once more, now with its frames
            return None
        is_part = self.last is not None and self.last.awaits_jvm
        begun = None if is_part else PrintedChain(is_thrown=_UNCAUGHT.search(text) is not None)
        self.last = chain = begun or self.last or PrintedChain()
        chain.awaits_jvm, self.is_open = False, chain.is_thrown
        chain.add(cause, text[thrown.start("type") :])
        return begun
