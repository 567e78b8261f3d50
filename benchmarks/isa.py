"""Which instructions the systems may use: ``--isa v3`` holds all of them to AVX2, as on a processor without AVX-512.

Libraries choose their instructions when they are loaded, by variables of the environment: ``environment`` says which,
before a process starts; ``restart`` starts a script again with them. ``findings`` looks, in the process of a system,
at the code that was made there: each finding is a line, and one that begins with ``NOT HELD`` tells of a system that
does not obey. A library that reads the processor itself and knows no variable is switched off (YNN, which makes JAX's
matrix products; XLA's own code multiplies instead).
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

NAMES = ("host", "v3")
NOT_HELD = "NOT HELD"

_V3 = {
    "WEFT_TARGET": "x86-64-v3",
    "WEFT_MATRIX_UNIT": "0",
    "ATEN_CPU_CAPABILITY": "avx2",
    "TORCHINDUCTOR_CPP_MARCH": "haswell",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt,+movbe",  # unset, numba adds the host's
}
_XLA = "--xla_cpu_max_isa=AVX2"
_WITHOUT_YNN = "--xla_cpu_experimental_ynn_fusion_type="
_WIDE_OF_NUMPY = """
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
print(*[name for name in __cpu_dispatch__ if ("AVX512" in name or name == "X86_V4") and __cpu_features__.get(name)])
"""


def environment(isa: str, python: str = sys.executable) -> dict[str, str]:
    """The variables that hold every system of an interpreter to ``isa``; none for ``host``.

    Raises:
        ValueError: if ``isa`` is not one of ``NAMES``.
    """
    if isa not in NAMES:
        raise ValueError(f"[isa] unknown instruction set {isa!r}; known: {', '.join(NAMES)}.")
    if isa == "host":
        return {}
    wide = subprocess.run([python, "-c", _WIDE_OF_NUMPY], capture_output=True, text=True, check=False).stdout.split()
    held = {**_V3, "XLA_FLAGS": _xla_flags(python)}
    return {**held, "NPY_DISABLE_CPU_FEATURES": " ".join(wide)} if wide else held


def _xla_flags(python: str) -> str:
    """The user's flags and ours; XLA ends the process at a flag it does not know, so the newer one is tried first."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} {_XLA}".strip()
    trial = {**os.environ, "XLA_FLAGS": f"{flags} {_WITHOUT_YNN}", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([python, "-c", "import jax; jax.devices()"], env=trial, capture_output=True, check=False)
    return trial["XLA_FLAGS"] if done.returncode == 0 else flags


def restart(isa: str) -> None:
    """Replace this process by the same command with the variables of ``isa`` set, unless they are."""
    if isa == "host" or os.environ.get("WEFT_BENCHMARKS_ISA") == isa:
        return
    held = {**os.environ, **environment(isa), "WEFT_BENCHMARKS_ISA": isa}
    os.execve(sys.executable, [sys.executable, *sys.argv], held)


def findings(system: str, isa: str) -> list[str]:
    """What was seen of the instructions that a system uses in this process; nothing to see for ``host``."""
    if isa == "host":
        return []
    check = {"weft": _weft, "before": _weft, "jax": _jax, "numba": _numba}.get(system)
    lines = list(check() if check else _torch(system) if system.startswith("torch") else ())
    return [*lines, *_numpy()]


def _line(what: str, wide: bool) -> str:
    return f"{NOT_HELD}: {what} uses 512-bit registers" if wide else f"{what}: no 512-bit register"


def _weft() -> Iterator[str]:
    weft, jnp = (importlib.import_module(name) for name in ("weft", "weft.numpy"))
    importlib.import_module("weft.nn")
    x = jnp.ones((1000, 100))
    for name, f in (("tanh", jnp.tanh), ("sum", jnp.sum), ("softmax", weft.nn.softmax)):
        yield _line(f"assembly of {name}", "zmm" in weft.jit(f).lower(x).compile().as_text("asm"))


_JAX_TRIAL = """
import jax, jax.numpy as jnp
x = jnp.ones((300, 300))
jax.jit(lambda x: jnp.tanh(x).sum(1))(x)
print(jax.jit(lambda x: x @ x).lower(x).compile().as_text())
"""


def _jax() -> Iterator[str]:
    """A process of its own, whose object files XLA writes down."""
    with tempfile.TemporaryDirectory() as folder:
        held = {**os.environ, "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={folder}"}
        done = subprocess.run([sys.executable, "-c", _JAX_TRIAL], env=held, capture_output=True, text=True, check=False)
        objects = [str(path) for path in Path(folder).glob("*.o")]
        yield _disassembled("object files", objects)
    wide = "ynn" in done.stdout and bool(re.search(r"\bavx512f\b", Path("/proc/cpuinfo").read_text()))
    yield (
        f"{NOT_HELD}: matrix products are those of YNN, which reads the processor itself"
        if wide
        else "matrix products: XLA's own"
    )


def _disassembled(what: str, objects: list[str]) -> str:
    try:
        text = subprocess.run(["objdump", "-d", *objects], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return f"{what}: not looked at, objdump is not installed"
    return _line(what, "zmm" in text) if "ymm" in text else f"{what}: not looked at, none was found"


def _numba() -> Iterator[str]:
    numba = importlib.import_module("numba")
    f = numba.njit(numba_trial)
    f(np.ones(64, np.float32))
    yield _line("assembly", any("zmm" in text for text in f.inspect_asm().values()))


def numba_trial(x: Any) -> Any:
    for i in range(x.size):
        x[i] = x[i] * 2 + 1
    return x


def _torch(system: str) -> Iterator[str]:
    torch = importlib.import_module("torch")
    found = torch.backends.cpu.get_cpu_capability()
    yield f"{'' if found == 'AVX2' else NOT_HELD + ': '}capability {found}"
    if system == "torch.compile":
        chosen = str(importlib.import_module("torch._inductor.cpu_vec_isa").pick_vec_isa())
        yield f"{'' if chosen == 'avx2' else NOT_HELD + ': '}generated vectors {chosen}"


def _numpy() -> Iterator[str]:
    made = importlib.import_module("numpy._core._multiarray_umath")
    used = [name for name in made.__cpu_dispatch__ if made.__cpu_features__.get(name)]
    wide = any("AVX512" in name or name == "X86_V4" for name in used)
    yield f"{NOT_HELD + ': ' if wide else ''}NumPy's code for {', '.join(used)}"
    name = _openblas()
    if name is not None:
        yield f"{'' if name == 'Haswell' else NOT_HELD + ': '}OpenBLAS's core {name}"


def _openblas() -> str | None:
    """The processor whose kernels the loaded OpenBLAS has chosen."""
    paths = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "openblas" in line}
    for path in sorted(paths):
        library = ctypes.CDLL(path)
        for name in ("scipy_openblas_get_corename64_", "scipy_openblas_get_corename", "openblas_get_corename"):
            if hasattr(library, name):
                function = getattr(library, name)
                function.restype = ctypes.c_char_p
                return function().decode()
    return None


def main() -> None:
    """``python isa.py SYSTEM ISA``: the findings of this process, a line each."""
    print(*findings(sys.argv[1], sys.argv[2]), sep="\n")


if __name__ == "__main__":
    main()
