"""Random programs of all dtypes, of sizes from 0: ``jit`` gives eager's bits, under ``vjp``, ``jvp`` and ``vmap`` too.

    python tests/fuzz/grown_programs.py [PROGRAMS [SEED]]

A program grows step by step (``grown_steps``); a step that raises in weft is left out, and now and then JAX is asked
whether it takes it. Then the program, or a transformation of it, runs under ``jit`` and without, and must give the same
bits (of sums of products: the same within rounding); some run again at other sizes. A failure is printed as a program
that runs by itself.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import weft
from tests.fuzz.grown_steps import BYTES, EXTENTS, FAMILIES, FLOATS, INTEGERS, Pick
from weft.errors import InternalError

jax: Any
try:
    import jax
except ImportError:
    jax = None

MAX_SIZE = 400
FULL = (1, 2, 3, 5)  # extents of programs without empty inputs
WIDE = ("float64", "float64", "complex128", "int64", "uint64", "float32", "int32")
WIDE_EVERY = 8  # programs in 64-bit mode
FORMS = ("call", "call", "call", "vjp", "vjp", "vjp", "jvp", "vmap", "vmap", "vmap vjp", "vjp vmap", "jvp vmap")
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, 1e5, 0.5])


@dataclass
class Program:
    """The types of its inputs (v0, v1, ...), the sources of the steps after them, and the seed of the values."""

    seed: int
    inputs: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    form: str = "call"  # what is done with it: transformations, the last one first
    batch: int = 2  # the size of a batch, and which inputs have one
    mapped: tuple[int, ...] = (0,)

    @property
    def is_wide(self) -> bool:
        return self.seed % WIDE_EVERY == 3

    def arrays(self) -> list[Any]:
        rng = np.random.default_rng(self.seed)
        return [self._array(rng, k, *kind) for k, kind in enumerate(self.inputs)]

    def _array(self, rng: np.random.Generator, k: int, name: str, shape: tuple[int, ...]) -> Any:
        if "vmap" in self.form and k in self.mapped:
            shape = (self.batch, *shape)
        values = np.asarray(rng.normal(size=shape) * 3)
        if name[0] in "fcb":
            values = np.where(rng.random(shape) < 0.05, rng.choice(SPECIAL, shape), values)
        return (values > 0) if name == "bool" else values.astype(dtype_of(name))

    def source(self) -> str:
        first = len(self.inputs)
        names = ", ".join([f"v{i}" for i in range(first)])
        lines = [f"    v{first + k} = {step}" for k, step in enumerate(self.steps)]
        outputs = ", ".join([f"v{i}" for i in range(first, first + len(self.steps))])
        return "\n".join([f"def f({names}{', ' if names else ''}s0, s1):", *lines, f"    return [{outputs}]"])

    def repro(self) -> str:
        wide = ", 64-bit mode" if self.is_wide else ""
        form = f"{self.form}, batch {self.batch} of {self.mapped}" if "vmap" in self.form else self.form
        return f"# {form}; inputs {self.inputs}, seed {self.seed}{wide}; s0 = int32(5), s1 = int32(-1)\n{self.source()}"


def dtype_of(name: str) -> Any:
    return np.dtype(weft.numpy.dtype(name))


def names_of(module: Any) -> dict[str, Any]:
    return {"m": module, "np": module.numpy, "lax": module.lax}


STARTS = (np.int32(5), np.int32(-1))
ASK_EVERY = 16  # programs of which JAX is asked about refusals
RESIZED_EVERY = 3  # programs that run at other sizes too
INNER = ("/compiler/", "/loops/", "/codegen/", "/runtime/", "/dispatch/")
USER_ERRORS = (TypeError, ValueError, IndexError, NotImplementedError, OverflowError)


class Finding(Exception):
    """A program that shows a fault: what happened, and where."""


def is_internal(error: BaseException) -> bool:
    """Whether an error is none of those that tell a user what is wrong with a program."""
    if not isinstance(error, USER_ERRORS) or isinstance(error, (UnicodeError, InternalError)):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    return "[executable]" in str(error) or any(part in frames[-1].filename for part in INNER[:4])


def grow(seed: int, steps: int = 6) -> Program:
    """A program of which every step has a type."""
    pick = Pick(seed)
    program = Program(seed, form=pick.choice(FORMS), batch=pick.choice((0, 1, 2, 3)))
    kinds = pick.choice((FLOATS, FLOATS, FLOATS, INTEGERS, BYTES, ("bool",)))
    main = pick.choice(WIDE if program.is_wide else kinds)
    extents = EXTENTS if pick.random() < 0.4 else FULL
    for _ in range(pick.randint(1, 3)):
        shape = tuple(pick.choice(extents) for _ in range(pick.choice((0, 1, 1, 2, 2, 2, 3))))
        other = pick.choice((FLOATS, INTEGERS, BYTES))
        program.inputs.append((main if pick.random() < 0.6 else pick.choice(other), shape))
    program.mapped = tuple(sorted({0, *pick.sample(range(len(program.inputs)), pick.randint(1, len(program.inputs)))}))
    pool: list[Any] = [weft.ShapeDtypeStruct(shape, dtype_of(name)) for name, shape in program.inputs]
    for _ in range(pick.randint(1, steps)):
        source = pick.choice(FAMILIES)(pick, pool)
        if source is None or "vNone" in source:  # no value has what the step needs
            continue
        made = _typed(program, source, pool)
        if made is not None and made.size <= MAX_SIZE and made.ndim < 5:
            program.steps.append(source)
            pool.append(made)
    return program


def resized(program: Program) -> Program:
    """The same steps over inputs of other extents: those above 1 are one larger."""
    kinds = [(name, tuple([n + (n > 1) for n in shape])) for name, shape in program.inputs]
    return replace(program, inputs=kinds)


def _stepper(module: Any, source: str, count: int) -> Callable[..., Any]:
    names = ", ".join([*[f"v{i}" for i in range(count)], "s0", "s1"])
    return eval(f"lambda {names}: {source}", names_of(module))


def _typed(program: Program, source: str, pool: list[Any]) -> Any:
    """The type of a step's result; None where weft refuses the step, or where it is no array."""
    try:
        made = weft.eval_shape(_stepper(weft, source, len(pool)), *pool, *STARTS)
    except Exception as error:
        asked = program.seed % ASK_EVERY == 0 and not program.is_wide
        if is_internal(error) or (asked and _typed_by_jax(source, pool)):
            trial = replace(program, steps=[*program.steps, source])
            raise Finding(f"{'' if is_internal(error) else 'refused: '}{_told(error)}\n{trial.repro()}") from error
        return None
    return made if isinstance(made, weft.ShapeDtypeStruct) and made.dtype != weft.dtypes.float0 else None


def _typed_by_jax(source: str, pool: list[Any]) -> bool:
    if jax is None:
        return False
    try:
        structs = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in pool]
        jax.eval_shape(_stepper(jax, source, len(pool)), *structs, *STARTS)
    except Exception:
        return False
    return True


def _told(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/weft/" in f.filename]
    location = f" ({frames[-1].filename.rpartition('/weft/')[2]}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}{location}"


def is_moved(x: Any) -> bool:
    """Whether derivatives are taken by a value: sums of tangents begin with zero, which one dtype of floats lacks."""
    return weft.numpy.issubdtype(x.dtype, weft.numpy.inexact) and x.dtype.name != "float8_e8m0fnu"


def of_floats(f: Callable[..., Any], inputs: list[Any], moving: list[int], *starts: Any) -> Callable[..., Any]:
    """The inexact results of ``f`` as a function of its inexact inputs, and all results beside them."""

    def run(*floats: Any) -> Any:
        found = list(inputs)
        for i, x in zip(moving, floats, strict=True):
            found[i] = x
        outs = f(*found, *starts)
        return [y for y in outs if is_moved(y)], outs

    return run


def pulled(f: Callable[..., Any], moving: list[int]) -> Callable[..., Any]:
    """The function of (inputs, s0, s1) that gives the results of ``f`` and the cotangents of its float inputs."""

    def run(*args: Any) -> Any:
        *inputs, s0, s1 = args
        function = of_floats(f, inputs, moving, s0, s1)
        outs, pull, every = weft.vjp(function, *[inputs[i] for i in moving], has_aux=True)
        return every, pull([weft.numpy.ones_like(y) for y in outs])

    return run


def pushed(f: Callable[..., Any], moving: list[int]) -> Callable[..., Any]:
    """The same for tangents: those of the results, where the float inputs move by 1."""

    def run(*args: Any) -> Any:
        *inputs, s0, s1 = args
        floats = [inputs[i] for i in moving]
        function = of_floats(f, inputs, moving, s0, s1)
        return weft.jvp(lambda *xs: function(*xs)[0], floats, [weft.numpy.ones_like(x) for x in floats])

    return run


def in_form(program: Program, f: Callable[..., Any], arrays: list[Any]) -> Callable[..., Any]:
    """The function to run: the program under its transformations, from the last word to the first."""
    moving = [i for i, x in enumerate(arrays) if is_moved(x)]
    in_axes = [0 if k in program.mapped else None for k in range(len(arrays))] + [None, None]
    for word in reversed(program.form.split()):
        if word == "vmap":
            f = weft.vmap(f, in_axes=in_axes)
        elif moving and word != "call":
            f = (pulled if word == "vjp" else pushed)(f, moving)
    return f


def check(program: Program) -> None:
    """``jit`` of the program in its form beside the same without ``jit``; then, of some, at other sizes."""
    scope = names_of(weft)
    exec(program.source(), scope)
    others = [resized(program)] if program.seed % RESIZED_EVERY == 0 else []
    function: Any = None
    for number, one in enumerate([program, *others]):
        inputs = [weft.numpy.asarray(x) for x in one.arrays()]
        function = function or weft.jit(in_form(one, scope["f"], inputs))
        try:
            got = function(*inputs, *STARTS)
            want = in_form(one, scope["f"], inputs)(*inputs, *STARTS)
        except Exception as error:
            if is_internal(error):
                raise Finding(f"{_told(error)}\n{one.repro()}") from error
            if number or one.form == "call":
                return  # no meaning at other sizes
            return check(replace(one, form="call"))  # it has no derivative, say: the program alone is run
        compare(one, got, want)


def compare(program: Program, got: Any, want: Any) -> None:
    rounded = any(word in program.source() for word in ROUNDED)
    leaves = zip(weft.tree.leaves(got), weft.tree.leaves(want), strict=True)
    for number, (a, b) in enumerate(leaves):
        if not _same(np.asarray(a), np.asarray(b), rounded):
            raise Finding(f"jit and eager differ: result {number}: {a!r} {b!r}\n{program.repro()}")


ROUNDED = ("@", "dot", "matmul", "einsum", "conv", "kron", "det", "norm", "softmax", "cov", "inner", "fft")


def _same(a: np.ndarray, b: np.ndarray, rounded: bool) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.tobytes() == b.tobytes():
        return True
    if a.dtype.kind in "biu" or "int" in a.dtype.name:
        return False
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        a, b = a.astype(wide), b.astype(wide)
        return bool(np.array_equal(a, b, equal_nan=True) or (rounded and np.allclose(a, b, 0.05, 0.1, equal_nan=True)))


def run_one(seed: int) -> str | None:
    """What is wrong with the program of a seed, or None."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            with weft.enable_x64(True) if seed % WIDE_EVERY == 3 else contextlib.nullcontext():
                program = grow(seed)
                if program.steps:
                    check(program)
        except Finding as finding:
            return f"seed {seed}: {finding}"
    return None


def main() -> int:
    count, first = int((*sys.argv, 1000)[1]), int((*sys.argv, 0, 0)[2]) if len(sys.argv) > 2 else 0
    failed = 0
    for seed in range(first, first + count):
        told = run_one(seed)
        if told is not None:
            failed += 1
            print(told, flush=True)
        if (seed + 1) % 200 == 0:
            weft.clear_caches()
            print(f"{seed + 1 - first} programs, {failed} failed", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
