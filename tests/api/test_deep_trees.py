"""Deeply nested containers: the answer where the stack allows it, RecursionError beyond, never a crash."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp

RAISED_LIMIT = """
import sys, threading
import weft
sys.setrecursionlimit(10**7)
def nested(depth):
    tree = 1.0
    for _ in range(depth):
        tree = [tree]
    return tree
walks = (weft.tree.flatten, weft.tree.leaves, weft.tree_util.tree_flatten_with_path, weft.jit(lambda x: x))
def look(depth):
    found = []
    for walk in walks:
        try:
            walk(nested(depth))
            found.append("fine")
        except RecursionError as error:
            found.append("refused" if "stack of this thread" in str(error) else str(error))
    print(depth, *found)
look(10_000)
look(400_000)
threading.stack_size(1 << 18)
thread = threading.Thread(target=look, args=(5_000,))
thread.start()
thread.join()
"""


def _nested(depth: int, kind: type) -> Any:
    tree: Any = wnp.ones(2)
    for _ in range(depth):
        tree = {"a": tree} if kind is dict else kind([tree])
    return tree


@pytest.mark.parametrize("kind", [list, tuple, dict])
def test_five_hundred_levels(kind: type) -> None:
    doubled = weft.jit(lambda t: weft.tree.map(lambda x: x * 2, t))
    tree = _nested(500, kind)
    for _ in range(2):
        np.testing.assert_array_equal(np.asarray(weft.tree.leaves(doubled(tree))[0]), [2, 2])
    leaves, treedef = weft.tree.flatten(tree)
    assert treedef == weft.tree.structure(weft.tree.unflatten(treedef, leaves))
    assert hash(treedef) == hash(weft.tree.structure(_nested(500, kind)))
    assert repr(treedef).count("[" if kind is list else "{" if kind is dict else "(") >= 500


@pytest.mark.parametrize("depth", [2_000, 10_000])
def test_beyond_the_recursion_limit(depth: int) -> None:
    tree = _nested(depth, list)
    for walk in (weft.tree.flatten, weft.jit(lambda t: t), lambda t: weft.tree.map(lambda x: x, t)):
        with pytest.raises(RecursionError, match="in flatten"):
            walk(tree)


def test_a_raised_limit_never_crashes() -> None:
    ran = subprocess.run([sys.executable, "-c", RAISED_LIMIT], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stdout.splitlines() == [
        "10000 fine fine fine fine", "400000 refused refused refused refused", "5000 refused refused refused refused",
    ]  # fmt: skip
