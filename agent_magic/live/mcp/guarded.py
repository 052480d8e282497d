"""Runs a program that ends with the process that started it, even if that is killed. Standard library only.

    python guarded.py PID PROGRAM ARGUMENTS

This process watches whether PID is still its parent, and else kills the program's whole process group: the caller must
start it in a new session.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

LOOK_S = 0.5


def main(parent: int, command: list[str]) -> int:
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    try:
        return subprocess.call(command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return 127


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
