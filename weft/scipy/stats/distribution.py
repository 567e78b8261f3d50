"""What all distributions share: promotion, ``loc`` and ``scale``, invalid parameters, the support, derived functions.

A distribution's module states its formulas, on operands that are prepared here::

    _EXPON = Distribution(__name__, (0.5,), support=lambda x: (x >= 0, 0))

    @_EXPON.density(-0.5)  # (x, loc, scale)  ->  formula((x - loc) / scale, loc, scale), -inf below loc
    def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
        return -x - wnp.log(scale)

    pdf = _EXPON.exp(logpdf, 0.6065)

The number is what the function gives at the distribution's example: it ends the docstring, and is tested there.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft._base.record import NamedTuple
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion

P = ParamSpec("P")
Function = Callable[P, Array]

inline = functools.partial(jit_module.jit, inline=True)

SUMMARIES = {
    "logpdf": "Logarithm of the density at ``x``.",
    "pdf": "The density at ``x``.",
    "logpmf": "Logarithm of the probability of ``k``.",
    "pmf": "The probability of ``k``.",
    "cdf": "The probability of at most ``x``.",
    "logcdf": "Logarithm of the probability of at most ``x``.",
    "sf": "The probability of more than ``x``.",
    "logsf": "Logarithm of the probability of more than ``x``.",
    "ppf": "The value that the probability ``q`` is not to exceed, the inverse of ``cdf``; NaN for ``q`` outside 0..1.",
    "isf": "The value that is exceeded with probability ``q``, the inverse of ``sf``; NaN for ``q`` outside 0..1.",
}


def promoted(name: str, *operands: Any) -> list[Any]:
    """Operands of one float dtype; arrays where NumPy does not compute in it, so that no step leaves it."""
    found = promotion.promote_args_inexact(name, *operands)
    return [promotion.as_array(x) for x in found] if promotion.dtype_of(found[0]).isbuiltin != 1 else list(found)


def positive(*shapes: Any) -> Any:
    """Where all parameters of shape are above 0."""
    return functools.reduce(lambda left, right: left & right, [shape > 0 for shape in shapes], True)


def is_probability(p: Any) -> Any:
    """Where a number is a probability."""
    return (p >= 0) & (p <= 1)


class Distribution(NamedTuple):
    """A distribution, for the functions of its module: each method decorates a formula, or derives a function."""

    module: str
    example: tuple[float, ...]  # x or k, and the parameters of shape
    valid: Callable[..., Any] = positive  # (*shapes) -> where they are parameters; elsewhere all functions are NaN
    support: Callable[..., Any] | None = None  # (x or k, *shapes) -> where it is inside, a number inside

    def continuous(self, gives: float) -> Callable[[Function[P]], Function[P]]:
        """For a formula of ``(x - loc) / scale``, the shapes, loc and scale."""
        return functools.partial(self._made, gives, self._standardized)

    def discrete(self, gives: float) -> Callable[[Function[P]], Function[P]]:
        """For a formula of ``k - loc``, the shapes and loc."""
        return functools.partial(self._made, gives, self._counted)

    def inverse(self, gives: float) -> Callable[[Function[P]], Function[P]]:
        """For a formula of a probability q, the shapes, loc and scale: a function that is inverse to another."""
        return functools.partial(self._made, gives, self._leveled)

    def plain(self, gives: float) -> Callable[[Function[P]], Function[P]]:
        """For a formula of operands that are promoted, and no more."""
        return functools.partial(self._made, gives, promoted)

    def density(self, gives: float) -> Callable[[Function[P]], Function[P]]:
        """As ``continuous``, for a formula that holds in the support; outside the density is 0."""
        return functools.partial(self._made, gives, self._standardized, supported=True)

    def mass(self, gives: float) -> Callable[[Function[P]], Function[P]]:
        """As ``discrete``, for a formula that holds in the support; outside the probability is 0."""
        return functools.partial(self._made, gives, self._counted, supported=True)

    def exp(self, log: Function[P], gives: float) -> Function[P]:
        """pdf from ``logpdf``, cdf from ``logcdf``, and so on."""
        return self._derived(log.__name__.removeprefix("log"), gives, log, wnp.exp)

    def log(self, function: Function[P], gives: float) -> Function[P]:
        """logcdf from ``cdf``, and logsf from ``sf``."""
        return self._derived("log" + function.__name__, gives, function, wnp.log)

    def rest(self, log: Function[P], gives: float) -> Function[P]:
        """sf from ``logcdf``, and cdf from ``logsf``."""
        name = {"logcdf": "sf", "logsf": "cdf"}[log.__name__]
        return self._derived(name, gives, log, lambda value: -wnp.expm1(value))

    def mirrored(self, function: Function[P], gives: float) -> Function[P]:
        """sf from ``cdf``, and logsf from ``logcdf``, of a distribution that is symmetric around loc."""
        return self._described(function.__name__.replace("cdf", "sf"), gives, function, negated(function))

    # -- what the methods are made of

    def _standardized(self, name: str, x: Any, *shapes_loc_scale: Any) -> tuple[Any, ...]:
        """``(x - loc) / scale`` before the parameters; NaN where a parameter is not valid: formulas hand it on."""
        x, *rest = promoted(name, x, *shapes_loc_scale)
        *shapes, loc, scale = rest
        return where_valid(self.valid(*shapes) & (scale > 0), (x - loc) / scale), *rest

    def _leveled(self, name: str, q: Any, *shapes_loc_scale: Any) -> tuple[Any, ...]:
        """``q`` before the parameters; NaN where q is no probability or a parameter is not valid."""
        q, *rest = promoted(name, q, *shapes_loc_scale)
        *shapes, _, scale = rest
        return quantile(q, where_valid(self.valid(*shapes) & (scale > 0), q)), *rest

    def _counted(self, name: str, k: Any, *shapes_loc: Any) -> tuple[Any, ...]:
        """``k - loc`` before the parameters; NaN where a parameter is not valid."""
        k, *rest = promoted(name, k, *shapes_loc)
        *shapes, loc = rest
        return where_valid(self.valid(*shapes), k - loc), *rest

    def _made(
        self, gives: float, prepare: Callable[..., Any], formula: Callable[..., Array], *, supported: bool = False
    ) -> Callable[..., Array]:
        """The function that users call: ``formula`` of prepared operands."""
        name, signature = f"{self.module.rpartition('.')[2]}.{formula.__name__}", inspect.signature(formula)
        outside = -np.inf if formula.__name__.startswith("log") else 0

        def call(*args: Any, **kwargs: Any) -> Array:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError:
                return formula(*args, **kwargs)  # Python's own words for what is missing
            bound.apply_defaults()
            x, *rest = prepare(name, *bound.arguments.values())
            if not supported:
                return formula(x, *rest)
            assert self.support is not None
            inside, within = self.support(x, *rest[: len(self.example) - 1])
            value = formula(wnp.where(inside, x, within), *rest)
            return wnp.where(inside, value, wnp.where(wnp.isnan(x), np.nan, outside))

        return self._described(formula.__name__, gives, formula, call)

    def _derived(self, name: str, gives: float, source: Function[P], step: Callable[[Array], Array]) -> Function[P]:
        def call(*args: P.args, **kwargs: P.kwargs) -> Array:
            return step(source(*args, **kwargs))

        return self._described(name, gives, source, call)

    def _described(self, name: str, gives: float, source: Function[P], call: Callable[..., Array]) -> Function[P]:
        """``call`` with the signature of ``source``, jitted, and a docstring that ends with an example."""
        example = (0.25, *self.example[1:]) if name in ("ppf", "isf") else self.example
        lines = [
            inspect.getdoc(source) if source.__name__ == name and source.__doc__ else SUMMARIES[name],
            "",
            f">>> round({name}({', '.join(map(str, example))}).item(), 4)",
            f"{gives}",
        ]
        functools.update_wrapper(call, source, updated=())  # a source may be jitted: what it holds is its own
        call.__module__, call.__name__, call.__qualname__, call.__doc__ = self.module, name, name, "\n".join(lines)
        return inline(call)


def negated(function: Callable[..., Array]) -> Callable[..., Array]:
    """``function`` of -x, around -loc."""

    def call(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
        return function(-x, -loc, scale)

    return call


def where_valid(valid: Any, x: Any) -> Any:
    """``x``, NaN where not ``valid``: ``x`` itself for parameters that are left out."""
    return x if isinstance(valid, (bool, np.bool_)) and valid else wnp.where(valid, x, np.nan)


def quantile(q: Any, value: Any) -> Array:
    """``value`` where q is a probability, otherwise NaN."""
    return wnp.where(is_probability(q), value, np.nan)
