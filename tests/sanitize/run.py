"""``make sanitize``: native tests under AddressSanitizer with UndefinedBehaviorSanitizer, then ThreadSanitizer.

Each sanitizer has a folder of its own, build/sanitize/<name>: the module's build, an environment, a copy of the package
and of the tests, and what the sanitizer reported. Nothing of the working tree or of its environment is changed. Parts
that have passed are not run again until a source changes: after an interruption the same command goes on.
``python tests/sanitize/run.py thread compiler`` runs one part of one of them, ``address -k stream`` hands what follows
to pytest. Reports that are known and not weft's are listed, with reasons, in the .txt files here.
"""

from __future__ import annotations

import collections
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PARTS = {
    "runtime": ("tests/runtime", "tests/control"),
    "compiler": (
        *("tests/compiler/test_side_by_side.py", "tests/compiler/test_disk_cache.py"),
        *("tests/compiler/test_random_programs.py", "tests/compiler/test_budget.py"),
        "tests/dispatch/test_replay.py",
        *("tests/core/test_equations_made_natively.py", "tests/compiler/sizes/test_sizes.py"),
    ),
    "programs": (
        *(
            "tests/compiler/test_plan.py",
            "tests/compiler/matrix_products/test_matrix_products.py",
            "tests/compiler/matrix_products/test_epilogues.py",
        ),
        *(
            "tests/compiler/passes/test_indexing.py",
            "tests/codegen/test_movement.py",
            "tests/codegen/test_few_columns.py",
        ),
        *("tests/codegen/test_flattened_runs.py", "tests/compiler/matrix_products/test_viewed_operands.py"),
        *("tests/operations/test_compiled.py", "tests/operations/test_sort.py"),
        *("tests/operations/test_indexing.py", "tests/compiler/matrix_products/test_wide_products.py"),
        *("tests/compiler/matrix_products/test_matrix_unit.py", "tests/compiler/matrix_products/test_to_and_fro.py"),
        "tests/compiler/matrix_products/test_few_long_rows.py",
    ),
    # Skipped where no plugin is installed (pip install xla-cpu-pjrt).
    "devices": (
        *("tests/devices/test_arrays_on_devices.py", "tests/devices/test_plugins.py"),
        *("tests/devices/test_copies_and_sharing.py", "tests/devices/test_host_steps.py"),
        "tests/devices/test_topologies.py",
    ),
}
# Not asked under sanitizers: resident memory (they keep what is freed), how soon an interrupt comes and what it hits,
# and how long something takes.
NOT = (
    "not leak and not resident and not left_behind and not calls_leave and not interrupt_comes"
    " and not interrupted_programs and not keys_are_cheap"
)


@dataclass(frozen=True)
class Sanitizer:
    """Its options (``{reports}`` is where it writes), what python is started with, and what it tests by default."""

    options: dict[str, str]
    preloaded: tuple[str, ...]
    parts: dict[str, tuple[tuple[str, ...], dict[str, str]]]  # tests, and further variables of the environment
    before: tuple[str, ...] = ()
    keywords: str = NOT


SANITIZERS = {
    # Leaks are counted by tests/runtime: CPython keeps much of what it allocates until the end.
    "address": Sanitizer(
        options={
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=1:handle_segv=1"
            ":log_path={reports}/report",
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:log_path={reports}/report"
            f":suppressions={HERE / 'undefined.txt'}",
            "PYTHONMALLOC": "malloc",
        },
        preloaded=("libasan.so", "libubsan.so", "libstdc++.so.6"),
        # In the last part buffers begin, rather than end, at an inaccessible page.
        parts={
            **{name: (tests, {}) for name, tests in PARTS.items()},
            "low": (PARTS["programs"], {"WEFT_GUARD": "low"}),
        },
    ),
    # Its shadow memory has no room for all of the addresses that randomisation may choose.
    "thread": Sanitizer(
        options={
            "TSAN_OPTIONS": f"suppressions={HERE / 'thread.txt'}:second_deadlock_stack=1:exitcode=66:history_size=4"
            ":die_after_fork=0:log_path={reports}/report",
        },
        preloaded=("libtsan.so", "libstdc++.so.6"),
        parts={name: (PARTS[name], {}) for name in ("runtime", "compiler")},
        before=("setarch", "-R"),
        # GCC 12 keeps the parent's threads in its registry after a fork, and ends the child when a new one has the
        # address of one of them ("dup thread with used id"). A process takes longer to start than the kills wait.
        keywords=f"{NOT} and not fork and not child_of_a_child and not kills_in_the_middle",
    ),
}
QUIETLY = ("-p", "no:cacheprovider", "-p", "no:faulthandler", "-q", "--color=no", "--tb=short", "--durations=10")
CHECK = """
import sys
from weft.runtime import _native
if _native.sanitizer != sys.argv[1] or not _native.__file__.startswith(sys.argv[2]):
    sys.exit(f"{_native.__file__} was built with {_native.sanitizer or 'no sanitizer'}: this run would prove nothing")
print(f"{sys.argv[1]} sanitizer: {_native.__file__}")
"""
# The first line of a report, and the first of its frames in our sources.
REPORT = re.compile(r"(?:ERROR|WARNING): (\w+Sanitizer: [^\n(]*)|(runtime error: [^\n]*)|(weft: byte [^\n]*)")
FRAME = re.compile(r"#\d+ (?:0x\w+ in )?(.*?) (?:\S*/)?weft/runtime/src/(\S+)")


def environment(folder: Path, tree: Path) -> Path:
    """The python of an environment that has our packages but not their hooks: an editable install has one."""
    python = folder / "venv" / "bin" / "python"
    if not python.exists():
        venv.create(folder / "venv", symlinks=True)
    paths = {tree: None, **{Path(sysconfig.get_path(name)): None for name in ("purelib", "platlib")}}
    paths.update({Path(path): None for path in sys.path if path.endswith("-packages")})
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    (site / "weft.pth").write_text("".join(f"{path}\n" for path in paths))
    needed = [name for name in ("cmake", "ninja", "xdist") if importlib.util.find_spec(name) is None]
    if needed:
        names = ["pytest-xdist" if name == "xdist" else name for name in needed]
        subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "-q", *names], check=True)
    return python


def build(name: str, folder: Path, tree: Path, python: Path) -> None:
    """The native module with one sanitizer, in a copy of the package."""
    settings = [f"-DWEFT_SANITIZE={name}", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", f"-DPython_EXECUTABLE={python}"]
    path = os.pathsep.join([str(python.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    native = folder / "native"
    for command in (
        ["cmake", "-S", ROOT, "-B", native, "-GNinja", *settings],
        ["cmake", "--build", native, "-j", str(os.cpu_count() or 1)],
    ):
        subprocess.run(command, check=True, env={**os.environ, "PATH": path})
    shutil.rmtree(tree, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", "_native*.so", "src")
    for part in ("weft", "tests"):
        shutil.copytree(ROOT / part, tree / part, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tree)
    for module in native.glob("_native*.so"):
        shutil.copy(module, tree / "weft" / "runtime")
    shutil.copytree(native / "products", tree / "weft" / "runtime" / "products", dirs_exist_ok=True)


def library(name: str) -> str:
    """Where the compiler keeps a sanitizer's library."""
    found = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return os.path.realpath(found.stdout.strip())


def found(reports: Path) -> collections.Counter[str]:
    """What was reported, by kind and location, in all processes."""
    counts: collections.Counter[str] = collections.Counter()
    for path in sorted(reports.glob("report*")):
        text = path.read_text(errors="replace")
        heads = list(REPORT.finditer(text))
        for head, after in zip(heads, [*heads[1:], None]):
            frame = FRAME.search(text, head.end(), after.start() if after else len(text))
            location = f" in {frame[1]}, {frame[2]}" if frame else ", no frame of weft's"
            counts[next(filter(None, head.groups())).strip() + location] += 1
    return counts


def processors() -> float:
    """What the processes that have ended took of the processors, in seconds: the same on a busy machine."""
    spent = os.times()
    return spent.children_user + spent.children_system


def state(tree: Path) -> str:
    """A digest of the package, its native module and the tests: what has passed with the same is not run again."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(path for path in tree.rglob("*") if path.suffix in (".py", ".so", ".toml", ".txt")):
        digest.update(str(path.relative_to(tree)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def tested(command: list[Any], tree: Path, variables: dict[str, str]) -> tuple[int, str]:
    """The exit code of pytest and its last line; what it says is printed meanwhile."""
    last = ""
    with subprocess.Popen(command, cwd=tree, env=variables, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    return process.returncode, last


def run(name: str, wanted: list[str], arguments: list[str]) -> tuple[int, list[str]]:
    """Build and test with one sanitizer; gives 0 if it found nothing and the tests pass, and a summary."""
    sanitizer = SANITIZERS[name]
    folder = ROOT / "build" / "sanitize" / name
    tree = folder / "tree"
    python = environment(folder, tree)
    build(name, folder, tree, python)
    before = state(tree)
    status, lines = 0, [f"{name} sanitizer:"]
    parts = {"chosen": ((*arguments,), {})} if arguments else sanitizer.parts
    for part, (tests, more) in parts.items():
        reports, passed = folder / "reports" / part, folder / f"passed-{part}"
        if wanted and part not in wanted and not arguments:
            continue
        if not arguments and passed.exists() and passed.read_text() == before:
            lines.append(f"  {part}: passed before")
            continue
        shutil.rmtree(reports, ignore_errors=True)
        reports.mkdir(parents=True)
        variables = {
            **os.environ,
            **{key: value.format(reports=reports) for key, value in sanitizer.options.items()},
            "LD_PRELOAD": " ".join(library(part) for part in sanitizer.preloaded),
            "PYTHONPATH": str(tree),
            "WEFT_CACHE": "off",
            **more,
        }
        start = [*sanitizer.before, python]
        subprocess.run([*start, "-c", CHECK, name, str(tree)], cwd=tree, env=variables, check=True)
        command = [*start, "-m", "pytest", *QUIETLY, *tests]
        if not arguments:  # two processes: one that a sanitizer ends is replaced, and the other tests run
            command += ["-n", "2", "--dist", "worksteal", "-m", "not oracle", "-k", sanitizer.keywords]
        began, worked = time.monotonic(), processors()
        code, said = tested(command, tree, variables)
        reported = found(reports)
        lines.append(
            f"  {part}: {said} ({time.monotonic() - began:.0f} s, {processors() - worked:.0f} s of processors)"
        )
        lines += [f"    {count} x {what}" for what, count in reported.most_common()] or ["    no reports"]
        if reported:
            lines.append(f"    the reports are in {reports}")
        status = max(status, code, int(bool(reported)))
        if not arguments and not code and not reported:
            passed.write_text(before)
        print(*lines, sep="\n", flush=True)
    return status, lines


def main() -> int:
    given = sys.argv[1:]
    names = [name for name in given if name in SANITIZERS] or list(SANITIZERS)
    every = {part for sanitizer in SANITIZERS.values() for part in sanitizer.parts}
    wanted = [name for name in given if name in every]
    arguments = [argument for argument in given if argument not in SANITIZERS and argument not in every]
    results = [run(name, wanted, arguments) for name in names]
    print("", *(line for _, lines in results for line in lines), sep="\n")
    return max(status for status, _ in results)


if __name__ == "__main__":
    sys.exit(main())
