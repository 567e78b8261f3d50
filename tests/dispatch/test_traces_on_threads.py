"""Threads that trace one function for new shapes at once: keys that they share are read while others add some."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

import weft
import weft.numpy as jnp


@pytest.fixture(autouse=True)
def _switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_new_shapes_of_one_function() -> None:
    double = weft.jit(lambda x: x * 2)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for size in range(1 + number, 400, 8):
                assert double(jnp.ones(size)).shape == (size,)
        except BaseException as error:  # told by the test, on its own thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures and not any(thread.is_alive() for thread in threads)
