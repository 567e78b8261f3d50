"""Every elementwise function of ``weft.lax`` on floating-point numbers beside JAX and NumPy.

    python benchmarks/functions.py              # all of them, float32 and float64: two minutes
    python benchmarks/functions.py erf pow      # those with these names
    python benchmarks/functions.py --isa v3     # with nothing above AVX2 (isa.py)

All three compute the same million numbers in one process, in turns, weft and JAX on all cores, NumPy on its one; the
least time counts. weft's results are kept until the next one is there, as a program keeps them. Functions that are more
than a tenth slower than the best peer are listed first, then the lowest others.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import isa
import jax
import numpy as np
from listing import Row, print_lowest, watched

import weft
import weft.lax

SIZE = 1_000_000
ROUNDS, LEAST_ROUNDS = 12, 2
TIMES = 3  # one after the other, in each round
MOST_SECONDS = 1.5  # seconds for a function's rounds; LEAST_ROUNDS are run in any case
ASKED = 1 / 1.1
Draw = Callable[[np.random.Generator], Any]


def uniform(low: float, high: float) -> Draw:
    return lambda rng: rng.uniform(low, high, SIZE)


def normal(rng: np.random.Generator) -> Any:
    return rng.standard_normal(SIZE)


def large(rng: np.random.Generator) -> Any:
    """Both signs, magnitudes of 1e-3 to 1e6."""
    return rng.choice((-1, 1), SIZE) * 10.0 ** rng.uniform(-3, 6, SIZE)


UNIT, POSITIVE = uniform(-1, 1), uniform(0.01, 20)
# The function's name, NumPy's function for it if it has one, and how each argument is drawn.
FUNCTIONS: list[tuple[str, Any, tuple[Draw, ...]]] = [
    *((name, getattr(np, name), (normal,)) for name in ("abs", "sign", "floor", "ceil", "square", "reciprocal")),
    ("neg", np.negative, (normal,)),
    ("round", np.round, (normal,)),
    ("is_finite", np.isfinite, (normal,)),
    *((name, getattr(np, name), (POSITIVE,)) for name in ("sqrt", "cbrt", "log", "log1p")),
    ("rsqrt", None, (POSITIVE,)),
    *((name, getattr(np, name), (normal,)) for name in ("exp", "exp2", "expm1", "tanh", "sinh", "cosh")),
    ("logistic", None, (normal,)),
    *((name, getattr(np, name), (normal,)) for name in ("sin", "cos", "tan")),
    *((name, getattr(np, name), (large,)) for name in ("sin", "cos", "tan")),
    *((name, getattr(np, "arc" + name[1:]), (UNIT,)) for name in ("asin", "acos", "atanh")),
    *((name, getattr(np, "arc" + name[1:]), (large,)) for name in ("atan", "asinh")),
    ("acosh", np.arccosh, (uniform(1, 100),)),
    ("erf", None, (normal,)),
    ("erfc", None, (normal,)),
    ("erf_inv", None, (UNIT,)),
    ("lgamma", None, (POSITIVE,)),
    ("lgamma", None, (uniform(-20, 20),)),
    ("digamma", None, (POSITIVE,)),
    ("digamma", None, (uniform(-20, 20),)),
    ("bessel_i0e", None, (uniform(-20, 20),)),
    ("bessel_i1e", None, (uniform(-20, 20),)),
    ("add", np.add, (normal, normal)),
    ("sub", np.subtract, (normal, normal)),
    ("mul", np.multiply, (normal, normal)),
    ("div", np.divide, (normal, POSITIVE)),
    ("rem", np.fmod, (normal, POSITIVE)),
    ("rem", np.fmod, (large, POSITIVE)),
    ("max", np.maximum, (normal, normal)),
    ("min", np.minimum, (normal, normal)),
    ("pow", np.power, (POSITIVE, normal)),
    ("atan2", np.arctan2, (normal, normal)),
    ("nextafter", np.nextafter, (normal, normal)),
    ("eq", np.equal, (normal, normal)),
    ("lt", np.less, (normal, normal)),
    ("clamp", None, (uniform(-2, -1), normal, uniform(1, 2))),
    ("igamma", None, (POSITIVE, POSITIVE)),
    ("igammac", None, (POSITIVE, POSITIVE)),
    ("igamma_grad_a", None, (POSITIVE, POSITIVE)),
    ("random_gamma_grad", None, (POSITIVE, POSITIVE)),
    ("betainc", None, (POSITIVE, POSITIVE, uniform(0, 1))),
    ("polygamma", None, (lambda rng: rng.integers(1, 5, SIZE), POSITIVE)),
    ("zeta", None, (uniform(1.1, 10), POSITIVE)),
]


def seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def best_times(name: str, numpy: Any, arguments: list[Any]) -> dict[str, float]:
    """The least seconds of each system."""
    calls: dict[str, Callable[[], object]] = {}
    for system, module, array in (("weft", weft, weft.numpy.array), ("JAX", jax, jax.numpy.asarray)):
        compiled, given = module.jit(getattr(module.lax, name)), [array(x) for x in arguments]
        calls[system] = keeping(lambda compiled=compiled, given=given: compiled(*given).block_until_ready())
    if numpy is not None:
        calls["NumPy"] = keeping(lambda: numpy(*arguments))
    found = {system: seconds(call) for system, call in calls.items()}
    end = time.perf_counter() + MOST_SECONDS
    for turn in range(ROUNDS):
        if turn >= LEAST_ROUNDS and time.perf_counter() > end:
            break
        for system, call in calls.items():
            found[system] = min(found[system], *(seconds(call) for _ in range(TIMES)))
    return found


def keeping(call: Callable[[], Any]) -> Callable[[], object]:
    kept: list[Any] = [None]

    def again() -> None:
        kept[0] = call()

    return again


def points() -> Iterator[tuple[str, tuple[str, Any, tuple[Draw, ...], type]]]:
    for name, numpy, draws in FUNCTIONS:
        for dtype in (np.float32, np.float64):
            label = f"{name}, {np.dtype(dtype)}{', magnitudes to 1e6' if large in draws else ''}"
            yield label, (name, numpy, draws, dtype)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help="functions; none: all")
    parser.add_argument("--isa", choices=isa.NAMES, default="host", help="v3: nobody uses more than AVX2")
    options = parser.parse_args()
    names = options.names
    isa.restart(options.isa)
    chosen = [point for point in points() if not names or point[1][0] in names]
    if not chosen:
        sys.exit(f"no function has one of the names {names}")
    for system in ("weft", "jax"):
        for line in isa.findings(system, options.isa):
            print(f"{system}: {line}")
    jax.config.update("jax_enable_x64", True)
    rows: list[Row] = []
    with weft.enable_x64(True):
        for label, (name, numpy, draws, dtype) in watched(chosen):
            rng = np.random.default_rng(0)
            times = best_times(name, numpy, [draw(rng).astype(dtype) for draw in draws])
            ours = times.pop("weft")
            ratio = min(times.values()) / ours
            others = ", ".join(f"{system} {found * 1e6:.0f}" for system, found in times.items())
            rows.append((ratio, f"{ratio:7.2f}  {ours * 1e6:9.0f} us  {others:34} {label}"))
    low = sum(ratio < ASKED for ratio, _ in rows)
    print(f"{len(rows)} functions, {low} more than a tenth slower than the best peer")
    print("best peer's time over weft's, weft's, the peers', function")
    print_lowest(rows, low, 15)


if __name__ == "__main__":
    main()
