"""The text that the compiler makes of a program: its plan, its loops and its LLVM text, without running LLVM.

    python -m tests.replay.texts FOLDER NAME ONLY

writes the texts of all programs whose labels match ONLY, for the target of this process, to files that begin with NAME.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import weft
from tests.replay import programs
from weft import codegen
from weft._base import target
from weft.compiler import chain, pass_manager, pipeline, plan, steps
from weft.core.jaxpr import ClosedJaxpr


class Texts:
    """Texts of programs for the target of this process; nests that programs share are written once."""

    def __init__(self) -> None:
        self._of_nests: dict[Any, str] = {}

    def of(self, function: Callable[..., Any], args: tuple[Any, ...], x64: bool) -> str:
        """The text of one program; of one that cannot be compiled, the error."""
        try:
            with weft.enable_x64(x64):
                return self._program(weft.make_jaxpr(function)(*args), ())
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def _program(self, closed: ClosedJaxpr, donated: tuple[bool, ...]) -> str:
        forms = pipeline.make_forms(closed, pass_manager.Stages("program"))
        out_avals = tuple([v.aval for v in closed.jaxpr.outvars])
        planned = chain.chain(plan.plan(forms.kernels, forms.lowered, donated, out_avals))
        parts = [planned.describe()]
        for entry in planned.instructions:
            nest = pipeline._nest_of(entry)
            parts += [] if nest is None else [self._nest(nest)]
            if isinstance(entry, steps.Control):
                parts += [self._program(inner, given) for inner, given in entry.programs()]
        return "\n\n".join(parts)

    def _nest(self, nest: Any) -> str:
        if nest not in self._of_nests:
            text = f"{pipeline._loops_text(nest)}\n\n{codegen.text_of(nest, target.host())}"
            self._of_nests[nest] = text
        return self._of_nests[nest]


def write(folder: Path, name: str, entries: Iterable[programs.Entry], only: str = "") -> int:
    """Store the texts, and their digests; gives how many programs there are."""
    made, found = Texts(), dict[str, str]()
    for label, function, args, x64 in entries:
        if re.search(only, label):
            assert label not in found, label
            found[label] = made.of(function, args, x64)
    folder.mkdir(parents=True, exist_ok=True)
    digests = {label: hashlib.blake2b(text.encode(), digest_size=16).hexdigest() for label, text in found.items()}
    (folder / f"{name}.digests.json").write_text(json.dumps(digests, indent=0) + "\n")
    with gzip.open(folder / f"{name}.texts.gz", "wt", encoding="utf-8", compresslevel=1) as file:
        json.dump(found, file)
    return len(found)


if __name__ == "__main__":
    count = write(Path(sys.argv[1]), sys.argv[2], programs.every(), sys.argv[3])
    print(f"{sys.argv[2]}: {count} programs")
