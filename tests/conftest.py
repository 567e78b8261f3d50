"""For every test: stages are verified, the oracle runs on the CPU, golden files can be written anew."""

from __future__ import annotations

import compileall
import gc
import importlib
import os
import signal
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
FIRST_CASES, ONE_IN = 2, 16  # of the cases of a test in a run of the whole suite

os.environ.setdefault("WEFT_CHECK", "1")  # before weft is imported: each stage is checked against the one before
os.environ.setdefault("WEFT_CACHE", "off")  # tests count kernels built; those of the disk cache turn it on
os.environ.setdefault("JAX_PLATFORMS", "cpu")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background is started with interrupts ignored


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the texts of tests/golden anew")


def _is_whole(config: pytest.Config) -> bool:
    """Whether the whole suite runs, and not files or folders that somebody named."""
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS


def pytest_configure(config: pytest.Config) -> None:
    """With ``WEFT_TEST_PLATFORM`` weft's programs run there, unless a test says otherwise; the oracle's on the CPU."""
    if _is_whole(config) and not hasattr(config, "workerinput"):
        # for the processes that tests start, where the environment lets Python write no bytecode
        compileall.compile_dir(ROOT / "weft", quiet=2)
    if platform := os.environ.get("WEFT_TEST_PLATFORM"):
        importlib.import_module("weft").config.update("platforms", platform)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The garbage collector rests, and leaves what is collected alone afterwards.

    It would walk a million objects again and again, which took 8 s of each process that collects all tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Large tables of cases are thinned out where the whole suite runs, the same way every time.

    Of a test's cases the first two run, and one in sixteen of the others; all of them where a file or a folder is
    named, with ``WEFT_TESTS=all`` (``make test-all``), and of tests marked ``every_case``.
    """
    if os.environ.get("WEFT_TESTS") == "all" or not _is_whole(config):
        return
    seen: Counter[str] = Counter()
    kept = []
    for item in items:
        name = item.nodeid.partition("[")[0]
        seen[name] += 1
        is_first = seen[name] <= FIRST_CASES or item.get_closest_marker("every_case") is not None
        if is_first or zlib.crc32(item.nodeid.encode()) % ONE_IN == 0:
            kept.append(item)
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = kept


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests have to say at the end, from whichever process they ran in."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    for report in reports:
        if getattr(report, "when", None) == "call":
            for name, text in report.user_properties:
                if name == "summary":
                    terminalreporter.write_line(text)


@pytest.fixture(scope="session")
def chosen(request: pytest.FixtureRequest) -> Callable[[Callable[..., None]], list[Mapping[str, Any]]]:
    """``chosen(test)``: the parameters of the cases of a test that run in this session.

    What computes the expected values of a large table computes those of these cases alone.
    """
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    return lambda test: [item.callspec.params for item in items if item.function is test]


@pytest.fixture(scope="session")
def mpi() -> None:
    """For tests of programs on several processes, which are skipped where MPI itself does not run."""
    if reason := importlib.import_module("tests.distributed.jobs").why_not():
        pytest.skip(reason)
