"""Functions of weft's are adapted at their second call, on interpreters that wait longer by themselves."""

from __future__ import annotations

import subprocess
import sys
import types
from typing import Any

import pytest

from weft import runtime

PROGRAM = """
import dis
import numpy as np
import weft
from weft.compiler import flat

def adapted():
    return any(i.opname.startswith("LOAD_ATTR_") for i in dis.get_instructions(flat.Flat.__init__, adaptive=True))

f = weft.jit(lambda x: x * 2 + 1)
f(np.ones((2, 3), np.float32))
before = adapted()
f(np.ones((4, 5), np.float32))  # makes the function adaptive, and it is adapted as it runs
print(before, adapted())
"""


def test_the_second_call_runs_adapted_code() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    before, after = done.stdout.split()
    assert after == "True"
    assert before == "False" or sys.version_info >= (3, 12)


def _module() -> dict[str, Any]:
    text = """
def plain(): return lambda: 1
class Own:
    @property
    def p(self): return 1
    @staticmethod
    def s(): return 1
    @classmethod
    def c(cls): return 1
    def m(self): return 1
"""
    names: dict[str, Any] = {"__name__": "weft.made_up"}
    exec(text, names)
    return names


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the interpreter adapts functions at their second call itself")
def test_functions_of_a_module_and_of_its_classes_are_found_once() -> None:
    names = _module()
    assert runtime.quicken(names, "weft.made_up") == 6  # plain and its lambda, and the four of the class
    assert runtime.quicken(names, "weft.made_up") == 0
    assert names["plain"]()() == names["Own"]().p == names["Own"].s() == names["Own"].c() == names["Own"]().m() == 1


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the interpreter adapts functions at their second call itself")
def test_what_an_adapted_function_makes_is_found_too() -> None:
    names = _module()
    for _ in range(20):
        names["plain"]()
    assert runtime.quicken(names, "weft.made_up") == 5  # not plain, but its lambda


def test_what_belongs_to_others_is_left_alone() -> None:
    other = _module()
    names = {"types": types, "Other": other["Own"], "plain": other["plain"], "number": 3, "none": None}
    assert runtime.quicken(names, "weft.another") == 0


def test_classes_that_have_each_other_end() -> None:
    names = _module()
    names["Own"].itself = names["Own"]
    assert runtime.quicken(names, "weft.made_up") >= 0


def test_bad_input_raises() -> None:
    with pytest.raises(TypeError):
        runtime.quicken([], "weft")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        runtime.quicken({}, 3)  # type: ignore[arg-type]
