"""Finds the program keepwatch."""

import functools
import os
import re
import shutil
import subprocess
from typing import Optional

VERSION = "0.1.0"


class KeepwatchError(Exception):
    """The program cannot be started, or has ended with an error. Its text is the program's last message."""

    def __init__(self, message: str, code: Optional[int] = None) -> None:
        super().__init__(message)
        self.code = code  #: the exit code; negative for a signal; None if the program was not started


def find_program(program: Optional[str] = None) -> str:
    """Returns the path of the program: the argument, or the environment variable KEEPWATCH, or keepwatch on the PATH.

    Raises KeepwatchError if it is missing, or the release of another minor version than this package.
    """
    wanted = program or os.environ.get("KEEPWATCH") or "keepwatch"
    found = shutil.which(wanted)
    if found is None:
        raise KeepwatchError(
            f"{wanted} is no program: install keepwatch v{_minor(VERSION)}, and put it on the PATH or set KEEPWATCH "
            "to its path; see https://github.com/keepwatch/keepwatch#install"
        )
    _check_version(found)
    return found


@functools.cache
def _check_version(program: str) -> None:
    printed = subprocess.run(
        [program, "version"], stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace"
    )
    if printed.returncode != 0 or not printed.stdout.startswith("keepwatch "):
        raise KeepwatchError(f"{program} is not keepwatch: {program} version printed {printed.stdout[:80]!r}")
    release = re.match(r"keepwatch v(\d+\.\d+\.\d+) ", printed.stdout)  # not of a build from a commit
    if release and _minor(release[1]) != _minor(VERSION):
        raise KeepwatchError(
            f"{program} is keepwatch v{release[1]}, but this package is made for v{_minor(VERSION)}: install keepwatch "
            f"v{_minor(VERSION)}, or version {_minor(release[1])} of the package"
        )


def _minor(version: str) -> str:
    return version[: version.rindex(".")]
