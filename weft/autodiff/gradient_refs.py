"""What ``vjp(...)[1].with_refs`` takes and gives for each argument: a reference to add to, a value, or nothing.

DontWant()   given: this cotangent is not wanted              DidntWant()  what is given instead
GradValue()  given: the cotangent is wanted as a value        GradRef()    given instead: a reference has it
"""

from __future__ import annotations

from typing import Any

from weft import tree_util
from weft._base.record import Record
from weft.core.avals import get_aval
from weft.core.ref_types import is_ref
from weft.core.tangents import FLOAT0
from weft.dispatch.calls import flat_functions
from weft.operations import linear


class GradValue(Record):
    """Asks ``with_refs`` for the cotangent as a value; whatever is no reference does."""


class DontWant(Record):
    """Tells ``with_refs`` that a cotangent is not wanted."""


class GradRef(Record):
    """Stands for a cotangent that was added to a reference."""


class DidntWant(Record):
    """Stands for a cotangent that was not wanted."""


for _kind in (GradRef, DidntWant):
    tree_util.register_pytree_node(_kind, lambda _: ((), None), lambda _, rest, kind=_kind: kind())


def delivered(wanted: Any, ct: Any) -> Any:
    """What stands for one cotangent in the result: added to the reference ``wanted``, itself, or left out."""
    if isinstance(wanted, DontWant):
        return DidntWant()
    if not is_ref(wanted):
        return flat_functions.finished(ct)
    if get_aval(ct).dtype != FLOAT0:
        wanted[...] = linear.add_any(wanted[...], ct)
    return GradRef()
