"""The text that the compiler makes of a program: its plan, its loops and its LLVM text, without running LLVM.

    python -m tests.replay.texts FOLDER TARGET ONLY

writes the texts of all programs whose labels match ONLY to files that begin with the name of the target, or ``host``.
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
from tests.aarch64.programs import planned
from tests.replay import programs
from weft import codegen
from weft._base import target
from weft._base.target import Target
from weft.compiler import pipeline
from weft.compiler.plans import steps
from weft.core.programs.jaxpr import ClosedJaxpr


class Texts:
    """Texts of programs for one target; nests that programs share are written once."""

    def __init__(self, on: Target) -> None:
        self.target = on
        self._of_nests: dict[Any, str] = {}

    def of(self, function: Callable[..., Any], args: tuple[Any, ...], x64: bool) -> str:
        """The text of one program; of one that cannot be compiled, the error."""
        try:
            with weft.enable_x64(x64):
                return self._program(weft.make_jaxpr(function)(*args), ())
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def _program(self, closed: ClosedJaxpr, donated: tuple[bool, ...]) -> str:
        _, made = planned(closed, self.target, donated)
        parts = [made.describe()]
        for entry in made.instructions:
            nest = pipeline.nest_of(entry)
            parts += [] if nest is None else [self._nest(nest)]
            if isinstance(entry, steps.Control):
                parts += [self._program(inner, given) for inner, given in entry.programs()]
        return re.sub(r" at 0x[0-9a-f]+", "", "\n\n".join(parts))  # of functions that are called back

    def _nest(self, nest: Any) -> str:
        if nest not in self._of_nests:
            self._of_nests[nest] = f"{pipeline.loops_text(nest, self.target)}\n\n{codegen.text_of(nest, self.target)}"
        return self._of_nests[nest]


def write(folder: Path, name: str, entries: Iterable[programs.Entry], only: str = "") -> int:
    """Store the texts, and their digests; gives how many programs there are."""
    made, found = Texts(target.host() if name == "host" else target.named(name)), dict[str, str]()
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
