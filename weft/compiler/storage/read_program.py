"""Programs as plain data, read: instructions in which types and kernels are numbers become an Executable.

In: what ``stored`` and ``saving`` have written. Nothing of the compiler is loaded for this but the records of
instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import runtime
from weft.compiler.plans.instructions import (
    INSTRUCTIONS,
    OUTPUTS,
    Branch,
    Callback,
    Gemm,
    Guard,
    Instruction,
    Kernel,
    Loop,
    Routine,
)


class ProgramReader:
    """Reads programs; ``avals`` and ``kernels`` are what the numbers in them stand for.

    What cannot be read raises IndexError, RuntimeError, TypeError or ValueError: the runtime checks every location that
    an instruction names.
    """

    def __init__(self, avals: Sequence[Any], kernels: Sequence[Any]) -> None:
        self.avals = avals
        self.kernels = kernels

    def program(
        self, n_inputs: int, outputs: Any, temps: Any, arena_bytes: int, made: Any, name: str, in_avals: Any
    ) -> Any:
        avals = self.avals
        return runtime.Executable(
            n_inputs, [OUTPUTS[kind](*fields, avals[aval]) for kind, *fields, aval in outputs], temps, arena_bytes,
            [self._instruction(*entry) for entry in made], name, [avals[number] for number in in_avals],
        )  # fmt: skip

    def _instruction(self, number: int, *fields: Any) -> Instruction:
        """An instruction with the kernels and programs that its numbers stand for."""
        kind = INSTRUCTIONS[number]
        if kind is Callback or kind is Guard:
            raise ValueError("it calls Python")
        made = kind(*fields)
        if isinstance(made, Kernel | Routine):
            return made._replace(kernel=self.kernels[made.kernel])
        if isinstance(made, Gemm) and made.epilogue is not None:
            return made._replace(epilogue=self._instruction(*made.epilogue))
        if isinstance(made, Loop):
            return made._replace(body=self._nested(*made.body), cond=made.cond and self._nested(*made.cond))
        if isinstance(made, Branch):
            return made._replace(branches=tuple([self._nested(*branch) for branch in made.branches]))
        return made

    def _nested(self, program: Any, consts: Any) -> tuple[Any, tuple[Any, ...]]:
        return self.program(*program), self.consts(consts)

    def consts(self, consts: Sequence[tuple[int, bytes]]) -> tuple[Any, ...]:
        avals = [(self.avals[number], data) for number, data in consts]
        return tuple(
            [
                runtime.array_from_numpy(np.frombuffer(data, aval.dtype).reshape(aval.shape), aval)
                for aval, data in avals
            ]
        )
