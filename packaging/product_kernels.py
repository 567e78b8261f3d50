"""Makes object files of the kernels of matrix products: ``python packaging/product_kernels.py FOLDER SYSTEM NAME...``.

CMakeLists.txt calls it. Nothing of weft is built yet then: the package that writes the kernels imports nothing of it.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

sys.path.insert(0, str(Path(__file__).parents[1] / "weft" / "codegen" / "cpu"))
tables = importlib.import_module("products.tables")

SWITCHES = [
    "disable-lsr",  # loop strength reduction: addresses are already one add and one scaled index
    "x86-experimental-pref-innermost-loop-alignment=5",  # 32 bytes: by chance some took a tenth longer
]


def target_machine(machine: Any, system: str) -> Any:
    """LLVM's code generator for an instruction set on a system of CMake's name."""
    family = "aarch64" if machine.name == "neon" else "x86_64"
    triple = f"{family}-{'apple-macosx11.0.0' if system == 'Darwin' else 'unknown-linux-gnu'}"
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=2, reloc="pic", codemodel="small"
    )


def optimized(text: str, machine: Any) -> Any:
    """A module whose variables are in registers."""
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    module.verify()
    manager = llvm.create_new_module_pass_manager()
    manager.add_sroa_pass()
    manager.add_simplify_cfg_pass()
    manager.add_instruction_combine_pass()
    with llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2)) as builder:
        manager.run(module, builder)
    return module


def main(folder: Path, system: str, names: list[str]) -> None:
    """Write an object file for each name."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    for switch in SWITCHES:
        llvm.set_option("", f"-{switch}")
    for name in names:
        text, of = tables.module_of(name)
        machine = target_machine(of, system)
        (folder / f"gemm_{name}.o").write_bytes(machine.emit_object(optimized(text, machine)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
