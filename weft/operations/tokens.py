"""Tokens: create_token and after_all. A token has no value that can be read; weft orders steps by itself.

To compiled code a token is an array of one bool.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from weft import core, dtypes, runtime
from weft.core import kinds
from weft.operations.pointwise import logic
from weft.runtime import Array

__all__ = ["after_all", "after_all_p", "create_token", "create_token_p"]


class TokenDType(dtypes.ExtendedDType):
    """The dtype of tokens; there is one."""

    name = "token"
    physical_dtype = np.dtype(np.bool_)
    physical_shape = (1,)
    itemsize = 1

    def __reduce__(self) -> str:
        return "TOKEN"


TOKEN: Any = TokenDType()


def _words(*tokens: Any) -> Any:
    """The words of a new token, or of one that is made from others (their values mean nothing)."""
    return functools.reduce(logic.bitwise_or, tokens) if tokens else np.zeros((1,), np.bool_)


def _made(*operands: Any) -> Any:
    return runtime.ShapedArray((), TOKEN)


def _merged(*tokens: Any) -> Any:
    if any(token.dtype is not TOKEN for token in tokens):
        listed = ", ".join(token.str_short() for token in tokens)
        raise TypeError(f"Arguments to after_all must be tokens, as lax.create_token makes them, got {listed}")
    return runtime.ShapedArray((), TOKEN)


def _primitive(name: str, typing: Any) -> core.Primitive:
    primitive = core.Primitive(name, kind=kinds.Resolve(_words), memoize=False)
    primitive.def_abstract_eval(typing)
    primitive.jvp = primitive.transpose = None
    primitive.batch = lambda size, values, dims, **params: (primitive.bind(*values), None)  # they have no elements
    return primitive


create_token_p = _primitive("create_token", _made)
after_all_p = _primitive("after_all", _merged)


def create_token(_: Any = None) -> Array:
    """A token that depends on nothing. The argument is ignored.

    >>> print(weft.make_jaxpr(lambda: lax.after_all(lax.create_token()))())
    { lambda ; . let a:Tok = create_token ; b:Tok = after_all a in (b,) }
    """
    return create_token_p.bind()


def after_all(*operands: Any) -> Array:
    """A token that is ready when all of ``operands`` are. TypeError for what is no token.

    >>> lax.after_all(lax.create_token(), lax.create_token()).dtype
    token
    """
    return after_all_p.bind(*operands)
