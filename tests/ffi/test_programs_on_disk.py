"""Programs with foreign functions on disk: another process finds the function by name, or says that it is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.ffi.library import built

CODE = """
import ctypes, sys
import numpy as np
import weft
from weft import errors
library = ctypes.CDLL(sys.argv[1])
def register(function):
    weft.ffi.register_ffi_target("f", weft.ffi.pycapsule(getattr(library, function)))
if sys.argv[2] != "nothing":
    register(sys.argv[2])
call = weft.ffi.ffi_call("f", weft.ShapeDtypeStruct((3,), np.float32), input_output_aliases={0: 0})
f = weft.jit(lambda x: call(x * 2) - 1)
x = np.arange(3, dtype=np.float32)
try:
    print(f(x).tolist(), "codegen" in f.cache_info().milliseconds)
except errors.JaxRuntimeError as error:
    print(str(error))
    register("in_place")
    print(f(x).tolist())
"""


def test_found_by_name_in_another_process(tmp_path: Path) -> None:
    def run(function: str) -> str:
        environment = {**os.environ, "WEFT_CHECK": "0", "WEFT_CACHE": "on", "WEFT_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, "-c", CODE, str(built()), function]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("in_place") == "[0.0, 2.0, 4.0] True\n"
    assert run("in_place") == "[0.0, 2.0, 4.0] False\n"  # read, not compiled
    assert run("doubled") == "[-1.0, 3.0, 7.0] False\n"  # the same program, of another function of that name
    missing, answer = run("nothing").split("\n", 1)
    assert "no target 'f' is registered for cpu; registered are: none" in missing and answer == "[0.0, 2.0, 4.0]\n"
