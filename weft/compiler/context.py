"""All that a compilation reads beside its jaxpr: one object, made where the compilation begins, and part of every key.

Passes, plans and steps get it, and read no option, variable of the environment, device or number of a process
elsewhere (``tests/structure/test_context.py``). A program is therefore what its jaxpr, its donated arguments and this
object make it, in this process and in any other.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any

from weft import config, dtypes
from weft._base.record import NamedTuple
from weft._base.target import Target
from weft.core.programs.jaxpr import Jaxpr, jaxprs_in_params
from weft.dispatch import devices


class Context(NamedTuple):
    """The options, the machine, and the number of this process among those that run the program together."""

    token: int  # options that affect tracing or code, named axes and meshes (``config.token``)
    target: Target
    grid: Target | None  # of the device, if kernels are written for its threads
    library: Any  # of matrix products of that device, if there is one and the option wants it (``library_products``)
    device: int  # the number of the one that runs the program: 0 is the CPU
    process: int
    processes: int
    devices: int  # of the CPU, in this process
    checks: str  # the option: guards in the program
    show: str
    dump: str
    skip: str
    check: bool  # verify every stage
    log: bool  # tell of every compilation
    in_blocks: bool = True  # cells of a GPU's grids may be blocks of one launch (``resident_cells``)

    @property
    def threads(self) -> int:
        """0 for a processor, 1 for a GPU, 2 for a GPU where cells of grids may be blocks of one launch."""
        return 0 if self.grid is None else 1 + self.in_blocks

    @property
    def watched(self) -> bool:
        """Whether every compilation is shown or changed by an option, so that none may be left out."""
        return bool(self.show or self.dump or self.skip)

    def options(self) -> AbstractContextManager[None]:
        """Sets the options of this context, where a part of the compilation is done later."""
        return contextlib.nullcontext() if config.token() == self.token else config.restored(self.token)

    @property
    def key(self) -> tuple[object, ...]:
        """The key that tells programs of this process apart."""
        number = self.device, self.process, self.processes, self.devices
        return self.token, self.target.key, self.library, *number, self.in_blocks

    @property
    def text(self) -> str | None:
        """The key in words that mean the same in every process. None: such programs are not kept on disk.

        That is so where a stage is shown, left out or verified, which needs a compilation, inside of meshes and named
        axes, which may be any objects, and for other devices than the CPU.
        """
        if self.device or self.show or self.dump or self.skip or self.check or self.checks:
            return None
        values = config.values_of(self.token)
        if values.axes or values.sizes or values.mesh is not config.NO_MESH:
            return None
        return f"{values.options} {self.target.key} {self.process}/{self.processes} {self.devices}"


def current(device: devices.Device = devices.CPU) -> Context:
    """The context of a compilation for a device that begins now, on this thread."""
    return Context(
        config.token(),
        device.target,
        device.grid,
        None if device.grid is None else device.product_library(config.read("product_library")),
        device.number,
        devices.process_index(),
        devices.process_count(),
        devices.cpu_count(),
        *[config.read(option) for option in ("checks", "show", "dump", "skip", "check", "log_compiles")],
    )


def verifies() -> bool:
    """Whether programs that follow from others are compiled all the same, to be compared."""
    return bool(config.read("check"))


def is_too_narrow(jaxpr: Jaxpr) -> bool:
    """Whether a program has values of 64 bits where the configuration has none: passes would narrow what they trace.

    Such values come from outside, or the program makes them, which the configuration has to allow.
    """
    return not config.x64_enabled() and _has_64_bits(jaxpr, config.read("explicit_x64_dtypes") == "allow")


def _has_64_bits(jaxpr: Jaxpr, may_make_them: bool) -> bool:
    if any(dtypes.narrows(v.aval.dtype) for v in (*jaxpr.constvars, *jaxpr.invars, *jaxpr.outvars)):
        return True
    return may_make_them and any(
        any(dtypes.narrows(v.aval.dtype) for v in eqn.outvars)
        or any(_has_64_bits(inner, True) for inner in jaxprs_in_params(eqn.params))
        for eqn in jaxpr.eqns
    )


def of_64_bits() -> AbstractContextManager[None]:
    """A block in which values of 64 bits keep them."""
    return config.overlaid("enable_x64", True)
