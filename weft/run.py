"""``weft run``, also ``python -m weft.run``: a Python program in which ``import jax`` is weft.

    weft run script.py args          weft run -m module args          weft run -c "import jax; ..."
    weft run --missing script.py     ... and after it, every name of JAX that it asked for and that weft lacks

The program is started as Python itself starts it, in this process, with what its child processes inherit already set.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from typing import NoReturn

from weft.launch import requests
from weft.launch.install import environment_of_children

USAGE = "usage: weft run [--missing] (script.py | -m module | -c code) [argument ...]"
_ISOLATING = ("-I", "-E", "-S")  # options of Python that ignore its environment


def _new_list() -> str:
    """The file in which the names that are missing are collected."""
    descriptor, name = tempfile.mkstemp(prefix="weft-missing-", suffix=".tsv")
    os.close(descriptor)
    return name


def run(arguments: Sequence[str]) -> NoReturn:
    """Become the program that the command line ``arguments`` names; comes back only with an error."""
    rest = list(arguments)
    missing = bool(rest) and rest[0] == "--missing"
    if missing:
        del rest[0]
    if not rest or rest[0] in ("-h", "--help"):
        print(USAGE, file=sys.stdout if rest else sys.stderr)
        sys.exit(0 if rest else 2)
    if rest[0] in _ISOLATING:
        print(f"weft run: Python's option {rest[0]} ignores what makes jax weft; leave it out", file=sys.stderr)
        sys.exit(2)
    environment = {**os.environ, **environment_of_children(dict(os.environ))}
    environment.pop(requests.ENVIRONMENT, None)
    if missing:
        environment[requests.ENVIRONMENT] = f"{os.getpid()}:{_new_list()}"
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *rest], environment)


if __name__ == "__main__":
    run(sys.argv[1:])
