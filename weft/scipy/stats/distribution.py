"""What all distributions share: promotion, ``loc`` and ``scale``, invalid parameters, the support, derived functions.

A row of the tables (``continuous``, ``discrete``) states a distribution's formulas, of operands that are prepared
here::

    EXPON = Distribution(
        "expon",
        (0.5,),  # an example: x, and the parameters of shape
        support=lambda x: (x >= 0, 0),  # where x is inside, a number inside
        logpdf=lambda x, loc=0, scale=1: -x - wnp.log(scale),  # here x is (x - loc) / scale; -inf outside the support
        gives={"logpdf": -0.5, "pdf": 0.6065},  # the functions, and what they give at the example
    )

Parameters, their names and defaults are those of the formula. Functions without a formula are derived from another
(``DERIVED``, or what the row says). The number that a function gives ends its docstring, and is tested there.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft._base.record import NamedTuple
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion

Function = Callable[..., Array]

inline = functools.partial(jit_module.jit, inline=True)

SUMMARIES = {
    "logpdf": "Logarithm of the density at ``{}``.",
    "pdf": "The density at ``{}``.",
    "logpmf": "Logarithm of the probability of ``{}``.",
    "pmf": "The probability of ``{}``.",
    "cdf": "The probability of at most ``{}``.",
    "logcdf": "Logarithm of the probability of at most ``{}``.",
    "sf": "The probability of more than ``{}``.",
    "logsf": "Logarithm of the probability of more than ``{}``.",
    "ppf": "The value that the probability ``{0}`` is not to exceed, the inverse of ``cdf``; "
    "NaN for ``{0}`` outside 0..1.",
    "isf": "The value that is exceeded with probability ``{0}``, the inverse of ``sf``; NaN for ``{0}`` outside 0..1.",
}
INVERSES = ("ppf", "isf")
DENSITIES = ("logpdf", "pdf", "logpmf", "pmf")


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


def where_valid(valid: Any, x: Any) -> Any:
    """``x``, NaN where not ``valid``: ``x`` itself for parameters that are left out."""
    return x if isinstance(valid, (bool, np.bool_)) and valid else wnp.where(valid, x, np.nan)


def quantile(q: Any, value: Any) -> Array:
    """``value`` where q is a probability, otherwise NaN."""
    return wnp.where(is_probability(q), value, np.nan)


# -- what a row says instead of a formula


class Plain(NamedTuple):
    """A formula of operands that are promoted, and no more."""

    formula: Function


class Derived(NamedTuple):
    """A function that is made of another of the same distribution."""

    source: str
    step: Callable[[Function], Function]


def exp(source: str) -> Derived:
    """pdf from ``logpdf``, cdf from ``logcdf``, and so on."""
    return Derived(source, lambda log: lambda *args, **kwargs: wnp.exp(log(*args, **kwargs)))


def log(source: str) -> Derived:
    """logcdf from ``cdf``, and logsf from ``sf``."""
    return Derived(source, lambda function: lambda *args, **kwargs: wnp.log(function(*args, **kwargs)))


def rest(source: str) -> Derived:
    """sf from ``logcdf``, and cdf from ``logsf``."""
    return Derived(source, lambda log: lambda *args, **kwargs: -wnp.expm1(log(*args, **kwargs)))


def mirrored(source: str) -> Derived:
    """sf from ``cdf``, and logsf from ``logcdf``, of a distribution that is symmetric around loc."""
    return Derived(source, lambda function: lambda x, loc=0, scale=1: function(-x, -loc, scale))


DERIVED = {"pdf": exp("logpdf"), "pmf": exp("logpmf"), "logcdf": log("cdf"), "logsf": log("sf")}


class Distribution:
    """A row of a table. ``valid``: (*shapes) -> where they are parameters; elsewhere all functions are NaN."""

    def __init__(
        self,
        name: str,
        example: tuple[float, ...],
        *,
        gives: dict[str, float],
        valid: Callable[..., Any] = positive,
        support: Callable[..., Any] | None = None,
        **formulas: Function | Plain | Derived,
    ) -> None:
        self.name, self.example, self.gives = name, example, gives
        self.valid, self.support, self.formulas = valid, support, formulas
        self.made: dict[str, Function] | None = None

    @property
    def functions(self) -> dict[str, Function]:
        """What users call, by name: the names of the distribution's module, made when they are first asked for."""
        if self.made is None:
            self.made = self._make()
        return self.made

    def _make(self) -> dict[str, Function]:
        stated = {name: self.formulas.get(name) or DERIVED[name] for name in self.gives}
        made = {name: self._of_formula(name, how) for name, how in stated.items() if not isinstance(how, Derived)}
        for name, how in stated.items():
            if isinstance(how, Derived):
                made[name] = self._described(name, made[how.source], how.step(made[how.source]))
        return {name: made[name] for name in stated}

    def _of_formula(self, name: str, stated: Function | Plain) -> Function:
        """A function of operands that are prepared for the formula, which are ``x`` and the parameters as ``rest``."""
        formula = stated.formula if isinstance(stated, Plain) else stated
        formula.__name__ = formula.__qualname__ = name  # for Python's words about arguments
        signature, full_name = inspect.signature(formula), f"{self.name}.{name}"
        formula.__annotations__ = {**dict.fromkeys(signature.parameters, Any), "return": Array}
        prepare = promoted if isinstance(stated, Plain) else self._preparation(name, signature)
        support = self.support if name in DENSITIES and prepare is not promoted else None
        outside = -np.inf if name.startswith("log") else 0

        def call(*args: Any, **kwargs: Any) -> Array:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError:
                return formula(*args, **kwargs)  # Python's own words for what is missing
            bound.apply_defaults()
            x, *rest = prepare(full_name, *bound.arguments.values())
            if support is None:
                return formula(x, *rest)
            inside, within = support(x, *rest[: len(self.example) - 1])
            value = formula(wnp.where(inside, x, within), *rest)
            return wnp.where(inside, value, wnp.where(wnp.isnan(x), np.nan, outside))

        return self._described(name, formula, call)

    def _preparation(self, name: str, signature: inspect.Signature) -> Callable[..., Any]:
        if "scale" in signature.parameters:
            return self._leveled if name in INVERSES else self._standardized
        return self._counted if "loc" in signature.parameters else promoted

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

    def _described(self, name: str, source: Function, call: Function) -> Function:
        """``call`` with the signature of ``source``, jitted, and a docstring that ends with an example."""
        parameters = inspect.signature(source).parameters
        needed = len([given for given in parameters.values() if given.default is given.empty])
        example = (0.25, *self.example[1:]) if name in INVERSES else self.example[-needed:]
        own = source.__doc__ if source.__name__ == name else None
        summary = own or SUMMARIES[name].format(next(iter(parameters)))
        shown = f">>> round({name}({', '.join(map(str, example))}).item(), 4)\n{self.gives[name]}"
        functools.update_wrapper(call, source, updated=())  # a source may be jitted: what it holds is its own
        call.__module__, call.__name__, call.__qualname__ = f"{__package__}.{self.name}", name, name
        call.__doc__ = f"{summary}\n\n{shown}"
        return inline(call)
