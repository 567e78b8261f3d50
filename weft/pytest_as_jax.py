"""A plugin of pytest, ``-p weft.pytest_as_jax``: tests and the libraries they test run on weft where they say jax.

Its worker processes inherit it. At the end it lists the names of JAX that were asked for and that weft lacks.
"""

from __future__ import annotations

from typing import Any

from weft.launch import requests
from weft.launch.install import install_as_jax


def pytest_addoption(parser: Any) -> None:
    """The first hook that is called, before any conftest or test module is imported: weft stands in for JAX."""
    install_as_jax()


def pytest_report_header() -> str:
    """A line at the top of the report, so that nobody mistakes which library was tested."""
    return "jax: weft stands in for it (weft.pytest_as_jax)"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The names that were missing, in this process."""
    missing = requests.recorded()
    if missing:
        terminalreporter.section("names of JAX that weft lacks")
        for line in requests.listing(missing).splitlines():
            terminalreporter.write_line(line)
