"""Runs passes and stages by name, with timing, printing, dumping, skipping and verification.

``WEFT_SHOW=algebra,fuse`` prints the result of a pass or stage (passes: only if they changed something; ``all``: each);
``WEFT_DUMP=dir`` writes it to files; ``WEFT_SKIP=algebra`` skips it (``simplify``: all optional passes);
``WEFT_CHECK=1`` verifies programs after every pass and, if they are small, compares their results bit for bit.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, TypeVar

from weft._base.target import Target
from weft.compiler import context, progress
from weft.compiler.checks import verify
from weft.compiler.passes import pass_list
from weft.core.programs.jaxpr import ClosedJaxpr
from weft.core.symbolic import sized_programs, sizes
from weft.errors import InternalError

Result = TypeVar("Result")
PASSES = tuple([entry.name for entry in pass_list.PASSES])
STAGES = (
    "fuse",
    "viewed_operands",
    "lower",
    "schedule",
    "boundary_fusion",
    "plan",
    "chain",
    "launches",
    "codegen",
    "link",
)
FORMS = ("jaxpr", "llvm", "asm")  # forms that are not the result of a stage
OPTIONAL = (
    "fuse",
    "viewed_operands",
    "boundary_fusion",
    "chain",
    *[entry.name for entry in pass_list.PASSES if not entry.required],
)
_MADE_BY = {"kernel": "fuse", "loops": "schedule"}
_serial = itertools.count()


class Stages:
    """One run of the pipeline."""

    def __init__(self, name: str, within: context.Context | None = None) -> None:
        self.name = name
        self.context = within = within or context.current()
        self.milliseconds: dict[str, float] = {}
        self._show = _stage_names("show", within.show)
        self._skip = _skipped(within.skip)
        self._dump = within.dump
        self._compilation = progress.current()
        self._check = within.check
        self._results: verify.Results | None = None  # of the last program that was checked
        self.sizes: sizes.Guards | None = None  # of a program with symbols
        self._latest: tuple[ClosedJaxpr, ClosedJaxpr] | None = None  # the last one, and with numbers
        self._prefix = f"{next(_serial):04d}-{name}" if self._dump else ""

    @property
    def target(self) -> Target:
        """The processor that the program is for."""
        return self.context.target

    @property
    def watched(self) -> bool:
        """Whether an option shows, dumps, skips or checks stages."""
        return bool(self._show or self._skip or self._dump)

    @property
    def checked(self) -> bool:
        return self._check

    def run(self, stage: str, function: Callable[..., Result], *args: Any) -> Result:
        """``function(*args)`` as the stage of that name."""
        start = time.perf_counter()
        if self._compilation is not None:
            self._compilation.stage = stage
        if stage in self._skip:
            function = getattr(sys.modules[function.__module__], f"without_{stage}", _unchanged)
        try:
            result = function(*args)
        except (AssertionError, AttributeError, LookupError) as error:
            raise self._bug(stage, error, args[0]) from error
        self.milliseconds[stage] = self.milliseconds.get(stage, 0.0) + (time.perf_counter() - start) * 1e3
        if isinstance(result, ClosedJaxpr):
            if result is args[0]:  # the pass changed nothing
                return result
            if self._check:
                self._results = verify.verify(stage, self._plain(args[0]), self._plain(result), self._results)
        if self._show or self._dump:
            self._write(stage, result)
        return result

    def _plain(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        """A program with numbers for its sizes: to verify it asks nothing of them."""
        if self.sizes is None:
            return closed
        if self._latest is None or self._latest[0] is not closed:
            self._latest = closed, sized_programs.with_numbers(closed)
        return self._latest[1]

    def passes(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        """The program after all passes."""
        skip = self._skip

        def one(entry: pass_list.Pass, program: ClosedJaxpr) -> ClosedJaxpr:
            return self.run(entry.name, entry.run, program, self.context, skip)

        return pass_list.run(closed, skip, one)

    def forms(self, text: Callable[[str], str]) -> None:
        """Print and dump the forms that are not the result of a stage."""
        for form in FORMS:
            if form in self._show or (self._dump and form != "asm"):
                self._write(form, text(form))

    def _bug(self, stage: str, error: Exception, program: Any) -> InternalError:
        """The InternalError for a stage's failure, with the stage and a file that contains its input."""
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


def _unchanged(form: Any, *more: Any) -> Any:
    """A stage that is left out gives back the forms that it gets."""
    return (form, *more) if more else form


def _stage_names(option: str, text: str) -> frozenset[str]:
    """The passes, stages and forms that an option names; a form may stand for its stage, ``all`` for every name."""
    if not text:
        return frozenset()
    known = (*PASSES, *STAGES, *FORMS, *_MADE_BY, "simplify", "all")
    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word not in known]
    if unknown:
        names = ", ".join(known)
        raise ValueError(f"[config] {option}={text!r}: no stage is called {unknown[0]!r}; the names are {names}")
    if "all" in words:
        return frozenset((*PASSES, *STAGES, *FORMS))
    simplify = PASSES if "simplify" in words else ()
    return frozenset([*simplify, *[str(_MADE_BY.get(word, word)) for word in words if word != "simplify"]])


def _skipped(text: str) -> frozenset[str]:
    """The passes and stages that the option ``skip`` leaves out."""
    if not text:
        return frozenset()
    named, words = _stage_names("skip", text), [word.strip() for word in text.split(",")]
    needed = [word for word in words if word in named and word not in OPTIONAL]
    if needed:
        raise ValueError(
            f"[config] skip={text!r}: the others rely on {needed[0]!r}; what may be left out is {', '.join(OPTIONAL)}, "
            "or 'simplify' for all passes of these"
        )
    return named.intersection(OPTIONAL)


def form_text(form: Any) -> str:
    """Any form of a program as text."""
    if isinstance(form, (list, tuple)):
        return "\n".join(form_text(part) for part in form)
    describe = getattr(form, "describe", None)
    return describe() if describe is not None else str(form)
