"""The GPU of the tests of this folder: that of the test driver, or of this machine (``WEFT_TEST_GPU=real``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.gpu import driver


@pytest.fixture(scope="module")
def device() -> Iterator[Any]:
    with driver.gpus() as devices:
        yield devices[0]
