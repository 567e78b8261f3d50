"""Texts of LLVM and of kernels assemble for each processor, and the assembler's report is read right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.gpu import native_build, prototypes, ptxas
from tests.gpu.forms import FORMS
from tests.gpu.llvm_ptx import ISA, elementwise, ptx
from weft.codegen import llvm
from weft.codegen.gpu import kernel
from weft.compiler.plans.steps import Launched


@pytest.mark.parametrize("cpu", list(ISA))
def test_a_kernel_of_each_processor_assembles(cpu: str) -> None:
    ptxas.needed()
    report = ptxas.assemble(ptx(elementwise("double", ["double"], "  %r = fdiv double %x0, 3.0\n"), cpu), cpu)
    assert list(report) == ["k"] and 4 < report["k"].registers < 64 and report["k"].spill_stores == 0


def test_a_wrong_text_is_refused() -> None:
    ptxas.needed()
    text = prototypes.text("exp").replace("mul.rn.f32", "mul.rn.b32", 1)
    with pytest.raises(AssertionError, match="mul"):
        ptxas.assemble(text, "sm_90")


def test_prototypes_take_the_registers_that_were_measured() -> None:
    ptxas.needed()
    for name in ("exp", "softmaxb_4096", "transpose64o"):
        report = ptxas.assemble(prototypes.text(name), "sm_90")[prototypes.kernel_name(name)]
        assert report.spill_stores == 0 and abs(report.registers - prototypes.MEASURED[name].registers) <= 8


def test_the_report_is_read() -> None:
    said = """ptxas info    : Compiling entry function 'a' for 'sm_90'
ptxas info    : Function properties for a
    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 2048 bytes smem
ptxas info    : Compiling entry function 'b' for 'sm_90'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 7 registers
"""
    assert ptxas.parse(said) == {"a": ptxas.Assembled(40, 12, 16, 2048, 8), "b": ptxas.Assembled(7, 0, 0, 0, 0)}


needs_a_driver = pytest.mark.skipif(native_build.compiler() is None, reason="there is no C++ compiler for the driver")


def assembled(device: Any, function: Any, *args: Any) -> None:
    """Assembles all kernels of a program for two processors."""
    ptxas.needed()
    with weft.default_device(device):
        plan = weft.jit(function).lower(*args).compile()._program().plan
    launches = [entry for entry in plan.instructions if isinstance(entry, Launched)]
    for launch in launches:
        text = llvm.emit_assembly(kernel.text_of(launch.nest, device.grid), device.grid)
        for cpu in ("sm_90", "sm_100"):
            assert set(ptxas.assemble(text, cpu)) >= {wide or name for name, wide, *_ in launch.grids}


@needs_a_driver
def test_functions_of_rare_lanes_assemble(device: Any) -> None:
    with weft.enable_x64(True):
        assembled(device, lambda x: jnp.sin(x) + x % 3, np.ones(10))


@needs_a_driver
@pytest.mark.parametrize("name", FORMS)
def test_a_form_assembles(device: Any, name: str) -> None:
    _, function, args = FORMS[name]
    assembled(device, function, *args)
