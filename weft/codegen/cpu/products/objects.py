"""Compiles units (``tables``) with LLVM, for a build and for weft alike, each in a process of its own.

LLVM's passes would hold llvmlite's lock, and its switches hold for the whole process. A build has nothing of weft yet:
so nothing of it is imported, and nobody who has it imports this file.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from . import file_name, sealed, tables, unit_key

llvm: Any = importlib.import_module("llvmlite.binding")  # not through weft's table of lazy modules

SWITCHES = [
    "disable-lsr",  # loop strength reduction: addresses are already one add and one scaled index
    "x86-experimental-pref-innermost-loop-alignment=5",  # 32 bytes: by chance some took a tenth longer
]


def _begin() -> None:
    """Prepare LLVM, once in a process."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    for switch in SWITCHES:
        llvm.set_option("", f"-{switch}")


def _target_machine(machine: tables.Machine) -> Any:
    """LLVM's code generator for an instruction set. Its object files are those that weft's own loader reads."""
    family = "aarch64" if machine.name == "neon" else "x86_64"
    return llvm.Target.from_triple(f"{family}-unknown-linux-gnu").create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=2, reloc="pic", codemodel="small"
    )


def _optimized(text: str, machine: Any) -> Any:
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


def files(units: list[str]) -> dict[str, bytes]:
    """The names of the files of units, and what is in them."""
    _begin()
    made = {}
    for unit in units:
        text, of = tables.module_of(unit)
        key, machine = unit_key(unit), _target_machine(of)
        code = machine.emit_object(_optimized(text, machine))
        made[file_name(unit, key)] = sealed(key, code)
    return made


def write(unit: str) -> None:
    """Write what is in the file of a unit to the standard output."""
    sys.stdout.buffer.write(*files([unit]).values())
