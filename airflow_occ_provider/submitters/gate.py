"""A gate that starts a driver at its parent's signal, and not without the parent.

Run as ``gate.py PARENT_PID COMMAND [ARGUMENT ...]``: becomes the command once a byte arrives at its
standard input, and is killed if the parent dies, also before that byte. If the input ends first, the
parent is gone and nothing is started. It imports the standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

EXIT_SHUT = 75  # EX_TEMPFAIL
_PR_SET_PDEATHSIG = 1


def main(parent: str, *command: str) -> int:
    """Wait for the parent's byte, then become the command.

    :param parent: process id of the parent.
    :param command: the program and its arguments.
    :return: ``EXIT_SHUT`` if the parent ended before it sent the byte.
    """
    die_with_parent()
    if os.getppid() != int(parent) or not os.read(sys.stdin.fileno(), 1):
        return EXIT_SHUT
    return become(command)


def become(command: tuple[str, ...]) -> int:
    """Replace this process by the command, with an empty standard input; never return."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    os.execvp(command[0], command)  # noqa: S606 - the command is what we are for


def die_with_parent() -> None:
    """Have Linux kill this process when the thread that started it ends.

    Does nothing on other systems. The setting survives ``exec``, but children do not inherit it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
