"""The stage combinator: every stage of the pipeline is named, timed, printed, dumped, skipped and verified here.

``WEFT_SHOW=fuse,schedule`` prints what a stage made (``all``: each); ``WEFT_DUMP=dir`` writes it to files;
``WEFT_SKIP=simplify`` leaves out the optional parts of a stage; ``WEFT_CHECK=1`` verifies programs after every stage
and, while they are small, compares their results bit for bit before and after.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, TypeVar

from weft import config
from weft.compiler import progress, verify
from weft.core.jaxpr import ClosedJaxpr
from weft.errors import InternalError

Result = TypeVar("Result")
STAGES = ("simplify", "fuse", "lower", "schedule", "edges", "plan", "chain", "codegen", "link", "llvm", "asm")
_MADE_BY = {"jaxpr": "simplify", "kernel": "fuse", "loops": "schedule"}
_serial = itertools.count()


class Stages:
    """One run of the pipeline."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.milliseconds: dict[str, float] = {}
        self._show = _stage_names("show")
        self._skip = _stage_names("skip")
        self._dump = config.read("dump")
        self._check = bool(config.read("check"))
        self._prefix = f"{next(_serial):04d}-{name}" if self._dump else ""

    @property
    def watched(self) -> bool:
        """Whether somebody wants to see, or to leave out, what the stages do."""
        return bool(self._show or self._skip or self._dump)

    @property
    def checked(self) -> bool:
        return self._check

    def run(self, stage: str, function: Callable[..., Result], *args: Any) -> Result:
        """``function(*args)`` as the stage of that name."""
        start = time.perf_counter()
        progress.stage(stage)
        if stage in self._skip:
            function = getattr(sys.modules[function.__module__], f"without_{stage}", function)
        try:
            result = function(*args)
        except (AssertionError, AttributeError, LookupError) as error:
            raise self._bug(stage, error, args[0]) from error
        self.milliseconds[stage] = self.milliseconds.get(stage, 0.0) + (time.perf_counter() - start) * 1e3
        if self._check and isinstance(result, ClosedJaxpr):
            verify.verify(stage, args[0], result)
        if self._show or self._dump:
            self._write(stage, result)
        return result

    def forms(self, text: Callable[[str], str]) -> None:
        """Print and dump the forms that no stage gives as its result."""
        for form in ("llvm", "asm"):
            if form in self._show or (self._dump and form == "llvm"):
                self._write(form, text(form))

    def _bug(self, stage: str, error: Exception, program: Any) -> InternalError:
        """What a stage's failure becomes: the stage, and the program it was given, kept in a file."""
        handle, path = tempfile.mkstemp(prefix=f"weft-{stage}-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(form_text(program) + "\n")
        return InternalError(f"{type(error).__name__}: {error}", stage=stage, node=self.name, dump=path)

    def _write(self, stage: str, result: Any) -> None:
        if stage in self._show:
            print(f"-- {self.name}: {stage}\n{form_text(result)}", file=sys.stderr)
        if self._dump:
            os.makedirs(self._dump, exist_ok=True)
            with open(os.path.join(self._dump, f"{self._prefix}.{stage}"), "w", encoding="utf-8") as file:
                file.write(form_text(result) + "\n")


def _stage_names(option: str) -> frozenset[str]:
    """The stages that an option names; a form stands for the stage that makes it, ``all`` for every stage."""
    text = config.read(option)
    if not text:
        return frozenset()
    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word not in (*STAGES, *_MADE_BY, "all")]
    if unknown:
        names = ", ".join((*STAGES, *_MADE_BY, "all"))
        raise ValueError(f"[config] {option}={text!r}: no stage is called {unknown[0]!r}; the names are {names}")
    return frozenset(STAGES if "all" in words else [str(_MADE_BY.get(word, word)) for word in words])


def form_text(form: Any) -> str:
    """Any form of a program as text."""
    if isinstance(form, (list, tuple)):
        return "\n".join(form_text(part) for part in form)
    describe = getattr(form, "describe", None)
    return describe() if describe is not None else str(form)
