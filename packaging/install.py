"""Installs this checkout with the extras that are named, and says meanwhile what is waited for.

``python packaging/install.py demo,test``, called by ``make demo`` and ``make test``. Two pips run at the same time: one
has the C++ compiler build the native module, file by file, the other downloads and installs the packages that weft
needs. On a terminal one line is kept up to date; elsewhere a line is written whenever there is news, every few seconds
at most. All that pip and the compiler say is in build/install.log.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
import tomllib
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parents[1]
LOG, LOG_LOCK = ROOT / "build" / "install.log", threading.Lock()
SOURCES = ROOT / "weft" / "runtime" / "src"
LAST_FILES = 4  # files left to compile, so few that they are named
LAST_LINES = 30  # lines of the log that are shown when the installation fails
REFRESH_S, NEWS_S, QUIET_S = 0.5, 5, 30  # seconds between lines: on a terminal; elsewhere with news; without

# What a line of pip's or of the build's says, for people.
SAYINGS = [
    (r"Collecting ([\w.-]+)", "looking for {}"),
    (r"Downloading (\S+?)-\d\S* (\(.*\))", "downloading {} {}"),
    (r"Downloading (\S+)", "downloading {}"),
    (r"Installing build dependencies", "installing the tools of the build"),
    (r"\*\*\* Configuring CMake", "looking for the compiler and its options"),
    (r"\*\*\* Building project", "compiling the first files"),
    (r"\[\d+/\d+\] Linking CXX shared module", "linking the native module"),
    (r"Installing collected packages: (.*)", "installing {}"),
]


class Progress:
    """The stage that one pip has reached, taken from the lines it writes."""

    def __init__(self, sources: set[str]) -> None:
        self.left = sources
        self.stage = "starting pip"

    def read(self, line: str) -> None:
        compiled = re.search(r"\[\s*(\d+)(?:/(\d+)|%)\].*Building CXX object \S*?([^/\s]+)\.o\b", line)
        if compiled:
            done, total, file = compiled.groups()
            self.left.discard(file)
            self.stage = f"compiled {done} of {total} files" if total else f"compiled {done} % of the files"
            few = len(self.left) <= LAST_FILES and bool(self.left)
            self.stage += f", waiting for {', '.join(sorted(self.left))}" if few else f": {file}"
            return
        for pattern, said in SAYINGS:
            if found := re.search(pattern, line):
                # of a list, such as that of the packages to install, only the length is said
                parts = [f"{part.count(',') + 1} packages" if "," in part else part for part in found.groups()]
                self.stage = said.format(*parts)
                return


class Pip:
    """A pip that runs until it is waited for: its lines go into the log, and say which stage it has reached."""

    def __init__(self, name: str, arguments: Sequence[str], log: TextIO, sources: set[str]) -> None:
        self.name, self.log, self.progress = name, log, Progress(sources)
        self.latest: deque[str] = deque(maxlen=LAST_LINES)
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--verbose", *arguments]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | {"PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with LOG_LOCK:
                self.log.write(f"{self.name}: {line}")
            self.latest.append(line)
            self.progress.read(line)

    def stage(self) -> str:
        """What it does at the moment, or "" once it has ended."""
        return self.progress.stage if self.thread.is_alive() else ""

    def wait(self) -> int:
        """pip's exit status, after its last line was read."""
        self.thread.join()
        return self.process.wait()


class Shown:
    """The line that people see, written by a thread of its own until the installation ends."""

    def __init__(self, pips: Sequence[Pip]) -> None:
        self.pips, self.start, self.ended = pips, time.monotonic(), threading.Event()
        self.is_terminal = sys.stdout.isatty()
        self.thread = threading.Thread(target=self._write, daemon=True)
        self.thread.start()

    def _line(self, text: str) -> str:
        return f"[{time.monotonic() - self.start:4.0f} s] {text}"

    def _write(self) -> None:
        last, written = "", time.monotonic()
        while not self.ended.wait(REFRESH_S):
            stage, now = "; ".join(filter(None, [pip.stage() for pip in self.pips])), time.monotonic()
            if self.is_terminal:
                width = shutil.get_terminal_size().columns  # 80 where the terminal does not say
                print(f"\r{self._line(stage)[: width - 1]}\x1b[K", end="", flush=True)
            elif now - written >= (NEWS_S if stage != last else QUIET_S) or not last:
                print(self._line(stage), flush=True)
                last, written = stage, now

    def end(self, text: str) -> None:
        self.ended.set()
        self.thread.join()
        print(f"\r{self._line(text)}\x1b[K" if self.is_terminal else self._line(text), flush=True)


def requirements(extras: Sequence[str]) -> list[str]:
    """The packages that weft needs, and those of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project.get("optional-dependencies", {})
    return [*project.get("dependencies", []), *[needed for extra in extras for needed in optional[extra]]]


def main() -> int:
    extras = sys.argv[1].split(",") if sys.argv[1:] else []
    print("pip downloads what weft needs, and meanwhile the C++ compiler builds weft's native module, which takes some")
    print("minutes. Later runs need neither.", flush=True)
    LOG.parent.mkdir(exist_ok=True)
    # the whole list is to be compiled unless a build was there before
    is_first = not any(LOG.parent.glob("*/CMakeCache.txt"))
    sources = {file.name for file in SOURCES.rglob("*.cpp")} if is_first else set[str]()
    with LOG.open("w", encoding="utf-8") as log:
        pips = [Pip("weft", ["--no-deps", "-e", "."], log, sources), Pip("packages", requirements(extras), log, set())]
        shown = Shown(pips)
        failed = [pip for pip in pips if pip.wait()]
    if not failed:
        shown.end("installed")
        return 0
    stages = " and ".join(pip.progress.stage for pip in failed)
    shown.end(f"the installation failed; its last stage was: {stages}; all that was said is in {LOG.relative_to(ROOT)}")
    for pip in failed:
        print("".join(pip.latest), end="")
    return failed[0].wait()


if __name__ == "__main__":
    sys.exit(main())
