"""Updates that must not copy: ``x.at[i].set(v, inplace="require")`` marks its equations by a name scope.

The compiler checks the programs that have such updates (``compiler.plans.requirements``), and raises if a marked one
would copy its array.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from weft.core.programs.jaxpr import Jaxpr, JaxprEqn, jaxprs_in_params
from weft.core.tracing import source_info

SCOPE = "update in place"


def check_word(value: object) -> None:
    """ValueError unless the option says what there is."""
    if value != "require":
        raise ValueError(f"[at] inplace is 'require' or left out, not {value!r}")


def required() -> AbstractContextManager[None]:
    """A context whose equations are updates that must not copy."""
    source_info.in_place_required = True
    return source_info.name_scope(SCOPE)


def is_marked(equation: JaxprEqn) -> bool:
    """Whether an equation belongs to such an update."""
    return equation.source is not None and SCOPE in equation.source[2]


def asked(jaxpr: Jaxpr) -> bool:
    """Whether a program has such an update."""
    return any(is_marked(equation) or any(map(asked, jaxprs_in_params(equation.params))) for equation in jaxpr.eqns)
