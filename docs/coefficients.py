"""Computes coefficients of vector math anew: interpolations at Chebyshev nodes, in 160 digits (mpmath).

    python docs/coefficients.py     # each set, and whether the code has its numbers

A test in tests/codegen fails where a number differs. The sets that are not among them came from searches (tables whose
points are chosen, coefficients under a condition): docs/coefficient_errors.py measures their errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp

from weft.codegen.vector_math import coefficients, gamma_coefficients

DIGITS = 160
NEAR_ZERO = 1e-60  # a node in the middle of an interval is 0 but for rounding: there a function has its limit
Set = tuple[Callable[[Any], Any], Any, Any]  # what is interpolated, from where, to where


def of_square(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of x, as a function of x**2."""
    return lambda u: function(mp.sqrt(u))


def of_inverse_square(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of x, as a function of 1 / x**2."""
    return lambda z: function(1 / mp.sqrt(z))


def with_limit(function: Callable[[Any], Any], limit: Any) -> Callable[[Any], Any]:
    return lambda x: function(x) if abs(x) > NEAR_ZERO else limit


def log_ratio(s: Any) -> Any:
    return mp.log((1 + s) / (1 - s))


def stirling_rest(x: Any) -> Any:
    return x * (mp.loggamma(x) - (x - mp.mpf(1) / 2) * mp.log(x) + x - mp.log(2 * mp.pi) / 2)


def digamma_rest(x: Any) -> Any:
    return x**2 * (mp.digamma(x) - mp.log(x) + 1 / (2 * x))


def sets() -> dict[str, Set]:
    """Each set by its name in the code; the squares of ranges end where the range reduction may just reach."""
    lgamma = with_limit(lambda d: mp.loggamma(2 + d) / d, 1 - mp.euler)
    half, eighth = mp.mpf(1) / 2, mp.mpf(1) / 8  # lgamma and digamma of x >= 8
    angle, mantissa, octant = mp.mpf("0.617"), mp.mpf("0.02945"), mp.mpf("0.1915")
    of_log = mp.log(2) / 2 + mp.mpf("1e-5")
    return {
        "LGAMMA_F64": (lgamma, -half, half),
        "LGAMMA_LITE": (lgamma, -half, half),
        "STIRLING_F64": (of_inverse_square(stirling_rest), 0, eighth**2),
        "STIRLING_LITE": (of_inverse_square(stirling_rest), 0, eighth**2),
        "DIGAMMA_F64": (of_inverse_square(digamma_rest), 0, eighth**2),
        "DIGAMMA_LITE": (of_inverse_square(digamma_rest), 0, eighth**2),
        "SINPI_F64": (of_square(lambda r: mp.sin(mp.pi * r) / r), 0, half**2),
        "COSPI_F64": (of_square(lambda r: mp.cos(mp.pi * r)), 0, half**2),
        "ASIN_F64": (of_square(lambda x: (mp.asin(x) / x - 1) / x**2), 0, half**2),
        "ASIN_LITE": (of_square(lambda x: mp.asin(x) / x), 0, half**2),
        "ATAN_F64": (of_square(lambda x: (mp.atan(x) / x - 1) / x**2), 0, octant),
        "COS_F64": (of_square(lambda r: (mp.cos(r) - 1 + r**2 / 2) / r**4), 0, angle),
        "COS_LITE": (of_square(mp.cos), 0, angle),
        "SIN_F64": (of_square(lambda r: (mp.sin(r) / r - 1 + r**2 / 6) / r**4), 0, angle),
        "SIN_LITE": (of_square(lambda r: mp.sin(r) / r), 0, angle),
        "SINH_F64": (of_square(lambda x: (mp.sinh(x) / x - 1) / x**2), 0, 1),
        "R_COTH_F64": (of_square(lambda r: (r * mp.coth(r) - 1) / r**2), 0, mp.mpf("0.625001") ** 2),
        "EXP_F64": (with_limit(lambda r: (mp.exp(r) - 1 - r) / r**2, half), -of_log, of_log),
        "EXP_LITE": (mp.exp, -of_log, of_log),
        "EXP2_LITE": (lambda r: mp.power(2, r), -half, half),
        "LOG_F64": (of_square(lambda s: (log_ratio(s) / s - 2 - 2 * s**2 / 3) / s**4), 0, mantissa),
        "LOG_LITE": (of_square(lambda s: log_ratio(s) / s), 0, mantissa),
        "LOG2_LITE": (of_square(lambda s: log_ratio(s) / s / mp.log(2)), 0, mantissa),
    }


def interpolated(wanted: Set, degree: int) -> tuple[float, ...]:
    """The polynomial through a function at the Chebyshev nodes of an interval, highest power first."""
    function, low, high = wanted
    nodes = [
        (low + high) / 2 + (high - low) * mp.cos(mp.pi * (2 * k + 1) / (2 * degree + 2)) / 2 for k in range(degree + 1)
    ]
    differences = [function(x) for x in nodes]  # divided, in place
    for order in range(1, degree + 1):
        for i in range(degree, order - 1, -1):
            differences[i] = (differences[i] - differences[i - 1]) / (nodes[i] - nodes[i - order])
    powers: list[Any] = []
    for node, difference in zip(reversed(nodes), reversed(differences), strict=True):
        shifted = [0, *(node * power for power in powers)]  # the polynomial so far, times x - node
        powers = [power - lower for power, lower in zip([*powers, difference], shifted, strict=True)]
    return tuple(float(power) for power in powers)


def committed(name: str) -> tuple[float, ...]:
    return getattr(coefficients, name, None) or getattr(gamma_coefficients, name)


def differing() -> dict[str, int]:
    """How many numbers of each set in the code are not those computed here."""
    with mp.workdps(DIGITS):
        made = {name: interpolated(wanted, len(committed(name)) - 1) for name, wanted in sets().items()}
    return {name: sum(a != b for a, b in zip(made[name], committed(name), strict=True)) for name in made}


def main() -> None:
    for name, count in differing().items():
        print(f"{name:16}", f"{count} numbers differ" if count else "as in the code")


if __name__ == "__main__":
    main()
