"""A test that runs the tests of its file again, in a process that writes code for AVX2."""

from __future__ import annotations

import os
import subprocess
import sys

from weft._base import target

NAME = "x86-64-v3"


def run_again(file: str) -> None:
    """Run the tests of a file once more, unless they are written for AVX2 already, or this is no such processor."""
    if os.environ.get("WEFT_TARGET") == NAME or not target.host().triple.startswith("x86_64"):
        return
    tests = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", file]
    held = {**os.environ, "WEFT_TARGET": NAME}
    done = subprocess.run(tests, env=held, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:]
