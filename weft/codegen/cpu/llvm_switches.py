"""Switches of LLVM's code generator: our value and LLVM's default.

Each was measured; together they save a third to a half of the compile time and cost no run time. They are process-wide,
so they are set only while we emit: other users of llvmlite find LLVM's defaults
(runtime/src/machine_code/llvm_switches.cpp). Only switches that LLVM reads while it emits, and that can be restored,
are listed: -fast-isel, for example, has a state "not given" that cannot be restored.
"""

SWITCHES = {
    "disable-lsr": ("true", "false"),  # loop strength reduction: our addresses are already one add and one scaled index
    "enable-misched": ("false", "true"),  # the machine scheduler; out-of-order cores do not need it
    "disable-post-ra": ("true", "false"),  # post-register-allocation scheduling
    "disable-machine-cse": ("true", "false"),  # the text has no common subexpressions worth finding
    "disable-cgp": ("true", "false"),  # IR-level preparation of address modes
    "disable-block-placement": ("true", "false"),  # blocks are written in order, cold ones marked
    "disable-branch-fold": ("true", "false"),  # there are no equal tails to merge
    "disable-tail-duplicate": ("true", "false"),
    "disable-early-taildup": ("true", "false"),
    # with and without these, 41 kernels of every family are the same to the bit; saves a tenth of the compile time
    "disable-constant-hoisting": ("true", "false"),
    "disable-copyprop": ("true", "false"),
    "disable-early-ifcvt": ("true", "false"),
    "disable-machine-sink": ("true", "false"),
    "disable-mergeicmps": ("true", "false"),
    "disable-partial-libcall-inlining": ("true", "false"),
    "disable-postra-machine-licm": ("true", "false"),
    "disable-postra-machine-sink": ("true", "false"),
    "disable-replace-with-vec-lib": ("true", "false"),
    "disable-x86-domain-reassignment": ("true", "false"),
    "disable-x86-lea-opt": ("true", "false"),
    "no-stack-coloring": ("true", "false"),
    "x86-disable-avoid-SFB": ("true", "false"),
    "x86-promote-anyext-load": ("false", "true"),
}
