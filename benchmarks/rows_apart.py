"""Rows that a child process runs, each with a time limit: what hangs or ends its process is one line, and others go on.

The parent asks by the names of rows; the child answers with numbers, or with why there are none. After a row that took
too long, or that left its process unable to go on, the next one has a new process.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

START_S = 90.0  # seconds that a process has until it can take its first row
TEXT = 300  # characters of an error


class RowError(Exception):
    """Why a row has no numbers."""


class Child:
    """A process that runs rows, started when the first one is asked for."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        self._command, self._variables = [sys.executable, *command], {**os.environ, **variables}
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread
        self._errors: IO[str] | None = None
        self._answers: queue.Queue[str | None] = queue.Queue()

    def ask(self, row: str, seconds: float) -> list[float]:
        """The numbers of a row; RowError says why there are none."""
        if self._process is None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(row) + "\n")
            self._process.stdin.flush()
        answer = self._answer(seconds)
        if "stop" in answer:
            self.end()
        if "error" in answer:
            raise RowError(answer["error"])
        return answer["numbers"]

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - as long as the process
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            self._command, env=self._variables, stdin=pipe, stdout=pipe, stderr=self._errors, text=True
        )
        answers = self._answers = queue.Queue()
        self._reader = threading.Thread(target=_pass_on, args=(self._process.stdout, answers), daemon=True)
        self._reader.start()
        self._answer(START_S)

    def _answer(self, seconds: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.end()
            raise RowError(f"it took more than {seconds:.0f} s, and its process was ended") from None
        if line is None:
            raise RowError(f"its process ended: {self.end()}")
        return json.loads(line)

    def end(self) -> str:
        """Ends the process; what it said last."""
        if self._process is None or self._errors is None:
            return ""
        self._process.kill()
        code = self._process.wait()
        self._reader.join()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._errors.seek(0)
        said = self._errors.read().strip().splitlines()
        self._errors.close()
        self._process = self._errors = None
        return f"{said[-1][:TEXT] if said else 'without a word'} ({code})"


def _pass_on(lines: IO[str], answers: queue.Queue[str | None]) -> None:
    with lines:
        for line in lines:
            answers.put(line)
    answers.put(None)


def serve(run: Callable[[str], Sequence[float]], stops: Callable[[], bool] = lambda: False) -> None:
    """What the child does: answers with the numbers of each row it is asked for. ``stops``: whether it cannot go on."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer

    def answer(**what: Any) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    answer(ready=True)
    for line in sys.stdin:
        try:
            answer(numbers=list(run(json.loads(line))))
        except Exception as error:  # the next row may be well
            text = " ".join(f"{type(error).__name__}: {error}".split())[:TEXT]
            answer(error=text, **({"stop": True} if stops() else {}))
