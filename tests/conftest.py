"""For every test: stages are verified, the oracle runs on the CPU, golden files can be written anew."""

from __future__ import annotations

import importlib
import os
import signal

import pytest

os.environ.setdefault("WEFT_CHECK", "1")  # before weft is imported: each stage is checked against the one before
os.environ.setdefault("WEFT_CACHE", "off")  # tests count kernels built; those of the disk cache turn it on
os.environ.setdefault("JAX_PLATFORMS", "cpu")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background is started with interrupts ignored


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the texts of tests/golden anew")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests have to say at the end, from whichever process they ran in."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    for report in reports:
        if getattr(report, "when", None) == "call":
            for name, text in report.user_properties:
                if name == "summary":
                    terminalreporter.write_line(text)


@pytest.fixture(scope="session")
def mpi() -> None:
    """For tests of programs on several processes, which are skipped where MPI itself does not run."""
    if reason := importlib.import_module("tests.distributed.jobs").why_not():
        pytest.skip(reason)
