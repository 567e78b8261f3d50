"""Questions about dtypes: promotion, casting, limits, kinds.

The answers are those of ``weft.dtypes``; here they have NumPy's names and accept arrays where NumPy's do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import dtypes
from weft.numpy import promotion

finfo = dtypes.finfo
iinfo = dtypes.iinfo
promote_types = dtypes.promote_types
isdtype = dtypes.isdtype


def result_type(*args: Any) -> Any:
    """The dtype that an operation on these arrays, scalars and dtypes has.

    >>> result_type(1, 2.0).name
    'float32'
    """
    return dtypes.result_type(*args)


def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    """Whether values of one dtype can be converted to another under a casting rule.

    >>> can_cast("int8", "int32")
    True
    """
    return dtypes.can_cast(from_, to, casting)


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Whether a dtype is of a kind (such as ``floating``) or is another dtype.

    >>> issubdtype("float32", np.floating)
    True
    """
    return dtypes.issubdtype(arg1, arg2)


def iscomplexobj(x: Any) -> bool:
    """Whether ``x`` has a complex dtype.

    >>> iscomplexobj(1j)
    True
    """
    if x is None:
        return False
    if not promotion.is_arraylike(x):
        return bool(np.iscomplexobj(x))
    return bool(dtypes.issubdtype(promotion.dtype_of(x), np.complexfloating))


def isrealobj(x: Any) -> bool:
    """Whether ``x`` has a dtype that is not complex.

    >>> isrealobj(1.0)
    True
    """
    return not iscomplexobj(x)
