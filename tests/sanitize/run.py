"""``make sanitize``: native tests under AddressSanitizer with UndefinedBehaviorSanitizer, then ThreadSanitizer.

Each sanitizer builds in a folder of its own, build/sanitize/<name>, with a copy of the package and the tests beside it,
so that the working tree keeps its module. ``python tests/sanitize/run.py address -k stream`` runs one of them, and
hands what follows to pytest. Reports that are known and not weft's are listed, with reasons, in the .txt files here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
TESTS = ("tests/runtime", "tests/compiler/test_random_programs.py", "tests/compiler/test_budget.py")
# Not asked under sanitizers: resident memory (they keep what is freed), 200 forks (each copies the shadow memory).
NOT = "not leak and not resident and not left_behind and not forks_with and not calls_leave"

# address: leaks are counted by tests/runtime/test_leaks.py (CPython keeps much of what it allocates until the end)
OPTIONS = {
    "address": {
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=1:handle_segv=1",
        "UBSAN_OPTIONS": f"print_stacktrace=1:halt_on_error=1:suppressions={HERE / 'undefined.txt'}",
        "PYTHONMALLOC": "malloc",
    },
    "thread": {
        "TSAN_OPTIONS": f"suppressions={HERE / 'thread.txt'}:second_deadlock_stack=1:exitcode=66:history_size=4"
        ":die_after_fork=0",
    },
}
# An editable install finds its own module before PYTHONPATH is looked at: it is put aside, in every process.
SITE = """import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "Redirecting" not in type(finder).__name__]
"""
CHECK = "import sys; from weft.runtime import _native; sys.exit(not _native.__file__.startswith(sys.argv[1]))"
PRELOADED = {"address": ("libasan.so", "libubsan.so", "libstdc++.so.6"), "thread": ("libtsan.so", "libstdc++.so.6")}


def build(name: str) -> Path:
    """The folder with package and tests of one sanitizer."""
    folder = ROOT / "build" / "sanitize" / name
    tree = folder / "tree"
    generator = ["-GNinja"] if shutil.which("ninja") else []
    settings = [f"-DWEFT_SANITIZE={name}", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", f"-DPython_EXECUTABLE={sys.executable}"]
    subprocess.run(["cmake", "-S", ROOT, "-B", folder / "native", *generator, *settings], check=True)
    subprocess.run(["cmake", "--build", folder / "native", "-j", str(os.cpu_count() or 1)], check=True)
    shutil.rmtree(tree, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", "_native*.so", "src")
    for part in ("weft", "tests"):
        shutil.copytree(ROOT / part, tree / part, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tree)
    (tree / "sitecustomize.py").write_text(SITE)
    for module in (folder / "native").glob("_native*.so"):
        shutil.copy(module, tree / "weft" / "runtime")
    return tree


def library(name: str) -> str:
    """Where the compiler keeps a sanitizer's library."""
    found = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return os.path.realpath(found.stdout.strip())


def run(name: str, arguments: list[str]) -> int:
    """Build and test with one sanitizer; the exit status of pytest."""
    tree = build(name)
    environment = {
        **os.environ,
        **OPTIONS[name],
        "LD_PRELOAD": " ".join(library(part) for part in PRELOADED[name]),
        "PYTHONPATH": str(tree),
        "WEFT_SANITIZED": name,
        "WEFT_CACHE": "off",
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-q",
        "-s",
        *(arguments or (*TESTS, "-k", NOT)),
    ]
    if name == "thread":  # its shadow memory has no room for all of the addresses that randomisation may choose
        command = ["setarch", "-R", *command]
    subprocess.run([*command[: command.index("-m")], "-c", CHECK, str(tree)], cwd=tree, env=environment, check=True)
    print("+", " ".join(command), flush=True)
    return subprocess.run(command, cwd=tree, env=environment).returncode


def main() -> int:
    names = [name for name in sys.argv[1:] if name in OPTIONS] or list(OPTIONS)
    arguments = [argument for argument in sys.argv[1:] if argument not in OPTIONS]
    return max(run(name, arguments) for name in names)


if __name__ == "__main__":
    sys.exit(main())
