"""Pure: the last exception of Hudi that a log shows, wherever it was printed.

A job that handles its errors prints or logs Hudi's exception, and then ends by an error of its own or by
an exit code. Such an exception did not end the program, but it explains the end better than the code.
"""

from __future__ import annotations

import re

from airflow_occ_provider.attempts.log.causes import Cause, Chain
from airflow_occ_provider.attempts.log.lines import is_log_record

# Spark Connect puts the class in brackets. A cut or retold chain may have Hudi's cause alone.
_HUDI_ERROR = re.compile(
    r"(?:.*?[\s:\"'(])?(?P<type>(?:[\w$]+\.)+(?:Hoodie|SchemaEvolution)\w*(?:Exception|Error)"
    r"|java\.util\.ConcurrentModificationException(?=: (?:Cannot resolve|Early) conflict))"
    r"(?:(?:\)| ?:) (?P<message>.*))?$"
)
_OF_HUDI = ("Hoodie", "ConcurrentModificationException")
_MOST_CAUSES = 20


class PrintedFailure:
    """Collects the last exception of Hudi, and its causes, line by line.

    :ivar last: the exception; ``None`` if the log shows none.
    """

    def __init__(self) -> None:
        self.last: Chain | None = None
        self._is_open = False

    def feed(self, line: str) -> None:
        """Take the next line of the log."""
        text = line.strip()
        if self._is_open and self.last and not is_log_record(line):
            is_part = text.startswith(("at ", "... ")) or line.startswith("Caused by: ")
            if is_part and len(self.last.causes) < _MOST_CAUSES:
                self.last.add_line(text)
                return
        self._is_open = False
        suppressed = line.startswith(("\t", " ")) and text.startswith(("Suppressed: ", "Caused by: "))
        named = not suppressed and any(name in text for name in _OF_HUDI)
        match = _HUDI_ERROR.match(text) if named else None
        if match:
            self.last = Chain()
            self.last.add(Cause(match["type"], match["message"] or "", jvm=True), text)
            self._is_open = True
