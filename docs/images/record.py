"""Record a command's terminal: ``python docs/images/record.py FILE COMMAND...``.

The recording is an asciicast (version 2), without the environment and without the machine's name.
"""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import struct
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

COLUMNS, ROWS = 110, 40


def main() -> int:
    """Run the command in a terminal of its own, and write what it prints and when."""
    path, *command = sys.argv[1:]
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": " ".join(command)}
    pid, terminal = pty.fork()
    if not pid:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(ROWS))
        os.execvp(command[0], command)  # noqa: S606 - the command is the developer's own
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    lines = [json.dumps(header), *map(json.dumps, events(terminal))]
    Path(path).write_text("\n".join(lines) + "\n")
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def events(terminal: int) -> Iterator[tuple[float, str, str]]:
    """Yield what the command prints, with the seconds since its start."""
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    started = time.monotonic()
    while True:
        try:
            printed = os.read(terminal, 65536)
        except OSError:  # the last process that had the terminal open has ended
            return
        if not printed:
            return
        text = decode(printed)
        sys.stdout.write(text)
        sys.stdout.flush()
        yield round(time.monotonic() - started, 2), "o", text


if __name__ == "__main__":
    sys.exit(main())
