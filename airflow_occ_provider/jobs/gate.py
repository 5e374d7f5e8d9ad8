"""A gate before a driver: it starts when its parent says so, and cannot outlive its parent.

Run as ``gate.py PARENT_PID COMMAND [ARGUMENT ...]``: becomes the command once a byte arrives at its
standard input. So whoever starts a driver can write down who it is before it does anything. Where
the input ends first, the parent is gone and nothing is started. It imports the standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import NoReturn

EXIT_SHUT = 75  # EX_TEMPFAIL
_PR_SET_PDEATHSIG = 1


def main(parent: str, *command: str) -> int:
    """Wait for the word, then become the command.

    :param parent: process id of who starts us.
    :param command: the program and its arguments.
    :return: ``EXIT_SHUT`` where the parent ended before it gave the word.
    """
    die_with_parent()
    if os.getppid() != int(parent) or not os.read(sys.stdin.fileno(), 1):
        return EXIT_SHUT
    return become(command)


def become(command: tuple[str, ...]) -> NoReturn:
    """Replace this process by the command, which finds nothing at its standard input."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    os.execvp(command[0], command)  # noqa: S606 - the command is what we are for


def die_with_parent() -> None:
    """Have Linux kill this process when the thread that started it ends; elsewhere do nothing.

    The setting outlives ``exec``, but does not pass on to children.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
