"""The garbage collector rests during the stages of a compilation, and is as it was afterwards."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import numpy as np
import pytest

import weft
from weft._base import collector
from weft.compiler import pipeline


@pytest.fixture
def collections():
    """The generations of the collections so far."""
    found: list[int] = []

    def note(phase, info):
        if phase == "start":
            found.append(info["generation"])

    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)


def test_there_are_no_collections_while_a_function_runs(collections):
    def allocate():
        before = len(collections)
        kept = [[n] for n in range(20_000)]
        return len(kept), len(collections) - before

    with collector.resting():
        assert allocate() == (20_000, 0)
    assert allocate()[1] > 0
    assert gc.isenabled()


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was_after_a_compilation_and_after_a_failure(enabled):
    if not enabled:
        gc.disable()
    try:
        pipeline.clear()
        weft.jit(lambda x: x * 3 - 1)(np.ones(3, np.float32))
        assert gc.isenabled() is enabled
        with pytest.raises(ZeroDivisionError), collector.resting():
            1 // 0
        assert gc.isenabled() is enabled
    finally:
        gc.enable()


@pytest.mark.filterwarnings("ignore:os.fork")  # JAX's, where the oracle has been imported
def test_a_child_forked_meanwhile_collects():
    def fork():
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    with collector.resting():
        assert fork() == 0


def test_an_import_leaves_the_collector_alone():
    """In a process of its own: weft is imported here already."""
    program = "import gc; gc.disable = gc.freeze = gc.unfreeze = None; import weft, weft.numpy, weft.nn"
    subprocess.run([sys.executable, "-c", program], check=True)
