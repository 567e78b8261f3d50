"""LLVM IR to PTX by llvmlite's NVPTX backend, and kernels of single instructions for the tests."""

from __future__ import annotations

import functools
from typing import Any

import llvmlite.binding as llvm

LAYOUT = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
HEAD = f'target triple = "nvptx64-nvidia-cuda"\ntarget datalayout = "{LAYOUT}"\n'
ISA = {"sm_80": "+ptx70", "sm_90": "+ptx78", "sm_100": "+ptx86"}  # the oldest text that knows the processor


@functools.lru_cache(maxsize=8)
def target_machine(cpu: str) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("nvptx64-nvidia-cuda")
    return target.create_target_machine(cpu=cpu, features=ISA[cpu], opt=3)


def ptx(ir: str, cpu: str = "sm_90") -> str:
    """The PTX of a module's text, without the header of its target."""
    module = llvm.parse_assembly(HEAD + ir)
    module.verify()
    machine = target_machine(cpu)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    return machine.emit_assembly(module)


INDEX = """
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %cta = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %ntid = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %first = mul i32 %cta, %ntid
  %i32 = add i32 %first, %tid
  %i = zext i32 %i32 to i64
"""
SPECIAL = "\n".join(f"declare i32 @llvm.nvvm.read.ptx.sreg.{name}()" for name in ("tid.x", "ctaid.x", "ntid.x"))


def elementwise(result: str, operands: list[str], body: str, declarations: str = "") -> str:
    """The IR of a kernel "k" over n elements: ``body`` makes %r of %x0, %x1, ... of these types."""
    params = [
        *(f"ptr addrspace(1) noalias %p{k}" for k in range(len(operands))),
        "ptr addrspace(1) noalias %o",
        "i64 %n",
    ]
    loads = ""
    for k, kind in enumerate(operands):
        loads += f"  %q{k} = getelementptr {kind}, ptr addrspace(1) %p{k}, i64 %i\n"
        loads += f"  %x{k} = load {kind}, ptr addrspace(1) %q{k}\n"
    return f"""{SPECIAL}
{declarations}
define ptx_kernel void @k({", ".join(params)}) {{
{INDEX}
  %inside = icmp slt i64 %i, %n
  br i1 %inside, label %go, label %end
go:
{loads}
{body}
  %to = getelementptr {result}, ptr addrspace(1) %o, i64 %i
  store {result} %r, ptr addrspace(1) %to
  br label %end
end:
  ret void
}}
"""
