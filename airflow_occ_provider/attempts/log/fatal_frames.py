"""Pure: the exceptions of a log that ended a program, by what printed them.

Not each program prints its end as the JVM's main thread or the Python interpreter does.
"""

from __future__ import annotations

import re

from airflow_occ_provider.attempts.log.causes import Cause, Chain
from airflow_occ_provider.attempts.log.lines import is_log_record

_KIND = r"(?P<type>(?:[\w$]+\.)+[\w$]*(?:Exception|Error|Throwable))(?:: (?P<message>.*))?$"
_THROWN = re.compile(_KIND)
_THROWN_LATER = re.compile(rf"(?:^|.*?[\s:]){_KIND}")
_CAUSED = re.compile(rf"(?:: |Caused by: ){_KIND}")
# What comes before the exception, in its line or before it.
_FRAMES = (
    r"ApplicationMaster: (?:User class threw exception|Uncaught exception|Final app status: FAILED)",
    r"User class threw exception: ",  # the diagnostics of YARN's client
    r"ProcessLauncher\b.*(?:Error from Python|Exception in User Class)",
    r"GlueExceptionAnalysisListener",
    r"SparkUncaughtExceptionHandler: Uncaught exception",
    r"MicroBatchExecution: Query .* terminated with error",
    r"(?:StreamExecution|ContinuousExecution): Query .* terminated with error",
    r"Hoodie(?:Multi)?(?:Delta)?(?:Table)?Streamer\w*: (?:Shutting down|error while|Got error)",
    r"Hoodie(?:Cleaner|Compactor|Clustering\w*|Indexer)\w*: .*(?:fail|error)",
    r'Exception in thread "(?!Timer-|main")[^"]*"',
    r"Exception in User Class",
)
_FRAME = re.compile(rf"(?:{'|'.join(_FRAMES)})", re.IGNORECASE)
# An exception that only says that something else has failed.
_OF_ANOTHER = re.compile(
    r"finished with failed status|terminated with (?:exception|error)|\[STREAM_FAILED\]"
    r"|User application exited with|SparkUserAppException|User class threw exception"
)


def is_of_another(chain: Chain) -> bool:
    """Whether an exception says only that another ended the job."""
    return any(_OF_ANOTHER.search(f"{cause.type}: {cause.message}") for cause in chain.causes)


class FatalFrames:
    """Collects the last exception that such a frame printed, line by line.

    :ivar last: that exception; ``None`` if the log shows none.
    """

    def __init__(self) -> None:
        self.last: Chain | None = None
        self._is_open = False

    def feed(self, line: str) -> None:
        """Take the next line of the log."""
        text = line.strip()
        if _FRAME.search(line):
            self._begin(text)
        elif is_log_record(line):
            self._is_open = False
        elif self._is_open and self.last is not None:
            self._go_on(line, text)

    def _begin(self, text: str) -> None:
        """Begin an exception, unless the line repeats the last one."""
        thrown = _THROWN_LATER.match(text)
        chain = Chain()
        if thrown:
            chain.add_jvm(thrown, text)
        is_repeated = self.last and self.last.causes and (not thrown or self._is_last(thrown))
        if not is_repeated:
            self.last = chain
        self._is_open = True

    def _go_on(self, line: str, text: str) -> None:
        chain = self.last
        assert chain is not None  # noqa: S101 - set by _begin
        caused, thrown = _CAUSED.match(text), _THROWN.match(text)
        is_suppressed = line.startswith(("\t", " ")) and text.startswith(("Suppressed: ", "Caused by: "))
        if is_suppressed:
            return
        if caused:
            chain.add_jvm(caused, text)
        elif thrown and not (chain.causes and self._is_last(thrown)):
            chain.add_jvm(thrown, text)
        elif chain.causes:
            chain.add_frame(text)

    def _is_last(self, thrown: re.Match[str]) -> bool:
        """Whether the last exception has the same class and message."""
        same = Cause(thrown["type"], thrown["message"] or "", jvm=True)
        causes = self.last.causes if self.last else []
        return any((one.type, one.message) == (same.type, same.message) for one in causes)
