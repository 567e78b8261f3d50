"""A long compilation says where it is on a terminal, and nothing anywhere else unless asked."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

PROGRAM = """
import sys, time
import weft, weft.numpy as wnp
from weft import codegen
from weft.compiler import progress
progress.PATIENCE_S, progress.REFRESH_S = 0.3, 0.05
if len(sys.argv) > 1:
    weft.config.update("progress", sys.argv[1])
x = wnp.ones((4, 4))
compile_text = codegen.compile_text
def slow(*args):
    time.sleep(0.8)
    return compile_text(*args)
codegen.compile_text = slow
train_step = weft.jit(lambda x: [wnp.cumsum(x + 1, axis=0), wnp.sum(x * 2), wnp.argmax(x, axis=0), x.T + x])
for _ in range(2):
    train_step(x)
print("done")
"""


def _on_terminal(*options: str) -> str:
    """What the program writes when its standard error is a terminal."""
    parent, child = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, *options], stdout=subprocess.DEVNULL, stderr=child)
    os.close(child)
    written = b""
    while True:
        try:
            data = os.read(parent, 4096)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        written += data
    os.close(parent)
    assert process.wait() == 0
    return written.decode()


def test_a_terminal_shows_stage_and_kernels() -> None:
    text = _on_terminal()
    assert "weft: compiling <lambda>: codegen" in text
    assert re.search("[1-9] of 3 kernels", text)
    assert text.count("\x1b[?25h") == text.count("\x1b[?25l") == 1  # the cursor is back, and so is the line
    assert text.rstrip().endswith("\x1b[2K")


def test_a_terminal_shows_nothing_where_it_is_off() -> None:
    assert _on_terminal("off") == ""


@pytest.mark.parametrize("mode", ["auto", "on", "off"])
def test_pipes_show_lines_only_when_asked(mode: str) -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM, mode], capture_output=True, text=True, check=True)
    lines = ran.stderr.splitlines()
    assert ran.stdout == "done\n"
    assert bool(lines) is (mode == "on")
    assert all(line.startswith("weft: compiling ") for line in lines)  # a busy machine is slow in other stages too
    assert any(line.startswith("weft: compiling <lambda>: codegen, ") for line in lines) is (mode == "on")
