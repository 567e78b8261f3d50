"""The elementwise kind: declares and types operations on single elements.

``elementwise(...)`` takes all facts about an operation and returns its primitive. Operands have one dtype (unless
``typing`` says otherwise) and one shape. A 0-d operand, or an extent of 1 where others have more, is broadcast by the
kind, never by the rule of an operation:

    add f32[2,3] f32[]    -> f32[2,3]
    add f32[2,1] f32[1,3] -> f32[2,3]
    add f32[2,3] f32[3]   -> TypeError (ranks differ)

Scalar expressions never see half precisions: unless the operation works on bits (``native_half``), bfloat16 and
float16 operands are widened to float32 and the result is rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import core, dtypes, runtime
from weft.core import kinds
from weft.core.primitive import MISSING
from weft.core.tangents import Along

BOOL = frozenset({"bool"})
SIGNED = frozenset({"signed integer"})
UNSIGNED = frozenset({"unsigned integer"})
INTEGER = SIGNED | UNSIGNED
FLOAT = frozenset({"float"})
COMPLEX = frozenset({"complex"})
NUMBER = INTEGER | FLOAT | COMPLEX
REAL = INTEGER | FLOAT
EXTENDED = frozenset({"key"})
ANY = BOOL | NUMBER
ANYTHING = ANY | EXTENDED

Accepts = frozenset[str]
Partials = tuple[Callable[..., Any] | Along | None, ...]

NARROW_ITEMSIZE = 2  # floats of at most this many bytes are computed in float32

_categories: dict[Any, str] = {}


def category(dtype: Any) -> str:
    """The word for a dtype in typing rules and errors: 'float', 'signed integer', ..."""
    found = _categories.get(dtype)
    if found is None:
        found = _categories[dtype] = _find_category(dtype)
    return found


def _find_category(dtype: Any) -> str:
    if not isinstance(dtype, np.dtype):
        return "key"
    words = {
        "bool": np.bool_,
        "signed integer": np.signedinteger,
        "unsigned integer": np.unsignedinteger,
        "float": np.floating,
        "complex": np.complexfloating,
    }
    for word, parent in words.items():
        if dtypes.issubdtype(dtype, parent):
            return word
    return "other"


# The words of errors for the categories, in their order there, and a dtype of each as an example.
_NAMED = {
    "integer": ({"signed integer", "unsigned integer"}, "int32"),
    "signedinteger": ({"signed integer"}, "int32"),
    "unsignedinteger": ({"unsigned integer"}, "uint32"),
    "floating": ({"float"}, "float32"),
    "complexfloating": ({"complex"}, "complex64"),
    "bool": ({"bool"}, "bool"),
}


def check_dtype(name: str, operand: int, aval: Any, accepts: Accepts, alone: bool = False) -> None:
    """Raise TypeError unless the operand's dtype is of an accepted category; ``alone``: it is the only one."""
    if aval.dtype == dtypes.float0:
        raise TypeError(dtypes.FLOAT0_OPERAND.format(name=name))
    if category(aval.dtype) not in accepts:
        words: list[str] = []
        left = set(accepts)
        for word, (kinds, _) in _NAMED.items():
            if kinds <= left:
                words.append(word)
                left -= kinds
        at = "" if alone else f" at position {operand}"
        is_number = category(aval.dtype) in ANY
        cure = f" Convert it first, e.g. by lax.convert_element_type(x, {_NAMED[words[0]][1]!r})." if is_number else ""
        raise TypeError(
            f"{name} does not accept dtype {aval.dtype}{at}. Accepted dtypes{at} are subtypes of {', '.join(words)}."
            f"{cure} The operand is {aval.str_short()}."
        )


def check_same_dtype(name: str, avals: Sequence[Any]) -> None:
    """Raise TypeError unless all operands have one dtype: lax functions never promote."""
    dtype = avals[0].dtype
    if any(aval.dtype != dtype for aval in avals):
        listed = ", ".join(aval.str_short() for aval in avals)
        raise TypeError(
            f"[{name}] operands have different dtypes: {listed}. lax.{name} requires arguments to have the same "
            f"dtypes and never promotes; convert one with lax.convert_element_type, or use weft.numpy, which promotes."
        )


def broadcast_shape(name: str, avals: Sequence[Any]) -> tuple[int, ...]:
    """The common shape of operands that are 0-d or of one rank, extents equal or 1."""
    shapes = [aval.shape for aval in avals if aval.shape]
    if not shapes:
        return ()
    first = shapes[0]
    if shapes.count(first) == len(shapes):
        return first
    out = list(first)
    for shape in shapes:
        if len(shape) != len(first):
            listed = ", ".join(aval.str_short() for aval in avals)
            raise TypeError(
                f"{name}: arrays must have the same number of dimensions, got {listed}. lax broadcasts only scalars "
                f"and extents of 1; add dimensions with lax.expand_dims, or use weft.numpy, which broadcasts."
            )
        for axis, extent in enumerate(shape):
            if extent != 1 and extent != out[axis]:
                if out[axis] != 1:
                    listed = ", ".join(str(aval.shape) for aval in avals)
                    operands = ", ".join(aval.str_short() for aval in avals)
                    raise TypeError(
                        f"{name} got incompatible shapes for broadcasting: {listed}. The operands {operands} differ "
                        f"along axis {axis}."
                    )
                out[axis] = extent
    return tuple(out)


def elementwise_typing(
    name: str, accepts: Sequence[Accepts], result: Callable[..., np.dtype] | None
) -> Callable[..., Any]:
    """The abstract evaluation shared by all elementwise operations on operands of one dtype."""

    accepted_dtypes: set[Any] = set()  # dtypes known to be accepted for all operands

    def typing(*avals: Any, **params: Any) -> Any:
        dtype, weak, same = avals[0].dtype, True, True
        for aval in avals:
            weak = weak and aval.weak_type
            same = same and aval.dtype is dtype
        if dtype not in accepted_dtypes or len(avals) != len(accepts):
            for i, (aval, accepted) in enumerate(zip(avals, accepts, strict=True)):
                check_dtype(name, i, aval, accepted, len(avals) == 1)
            if all(category(dtype) in accepted for accepted in accepts):
                accepted_dtypes.add(dtype)
        if not same:
            check_same_dtype(name, avals)
        shape = avals[0].shape if len(avals) == 1 else broadcast_shape(name, avals)
        if result is not None:
            dtype = result(*[aval.dtype for aval in avals], **params)
        return runtime.ShapedArray(shape, dtype, weak)

    return typing


def bool_result(*_: np.dtype, **params: Any) -> np.dtype:
    return np.dtype(np.bool_)


def widened(dtype: np.dtype) -> np.dtype:
    """The dtype that a scalar expression computes in."""
    narrow = dtype.itemsize <= NARROW_ITEMSIZE and category(dtype) == "float"
    return np.dtype(np.float32) if narrow else dtype


def widen_scalar(scalar: Callable[..., Any]) -> Callable[..., Any]:
    """Run a scalar expression on half precisions in float32 and round its result once."""

    def on_wide(emit: Any, *values: Any, **params: Any) -> Any:
        narrow = next((v.dtype for v in values if widened(v.dtype) != v.dtype), None)
        if narrow is None:
            return scalar(emit, *values, **params)
        wide = [emit.convert(v, widened(v.dtype)) if widened(v.dtype) != v.dtype else v for v in values]
        out = scalar(emit, *wide, **params)
        return emit.convert(out, narrow) if out.dtype == np.float32 else out

    return on_wide


def widen_reference(reference: Callable[..., Any]) -> Callable[..., Any]:
    """``widen_scalar`` for the NumPy oracle. Floating-point warnings are silenced: NaN and inf are valid results."""

    def on_wide(*arrays: Any, **params: Any) -> Any:
        arrays = tuple(np.asarray(a) for a in arrays)
        narrow = next((a.dtype for a in arrays if widened(a.dtype) != a.dtype), None)
        with np.errstate(all="ignore"):
            if narrow is None:
                return np.asarray(reference(*arrays, **params))
            out = np.asarray(reference(*(a.astype(widened(a.dtype)) for a in arrays), **params))
            return out.astype(narrow) if out.dtype == np.float32 else out

    return on_wide


def elementwise(
    name: str,
    *accepts: Accepts,
    scalar: Callable[..., Any],
    reference: Callable[..., Any],
    partials: Partials | None = None,
    linear: slice | None = None,
    jvp: Any = MISSING,
    transpose: Callable[..., Any] | None = None,
    result: Callable[..., np.dtype] | None = None,
    typing: Callable[..., Any] | None = None,
    native_half: bool = False,
    hide: tuple[str, ...] = (),
    **facts: Any,
) -> core.Primitive:
    """Declare an elementwise operation; one ``accepts`` per operand.

    ``scalar(emit, *values, **params)`` is the expression, ``reference(*arrays, **params)`` the NumPy oracle.
    The derivative is stated once (see ``core.primitive``): ``partials[i](out, *operands, **params)`` is d out / d
    operand i, None for zero; ``linear`` names operands in which the operation is linear; ``jvp`` is a rule, or None if
    there is no derivative. ``transpose`` is for linear operations. None of these need to handle 0-d operands, which the
    kind does. ``result`` maps operand dtypes to the output's. ``hide`` names parameters that are not printed while they
    are None. ``facts`` are other fields of the kind: ``cost``, ``identity`` and those that follow it there.
    """
    kind = kinds.Elementwise(
        scalar=scalar if native_half else widen_scalar(scalar),
        reference=reference if native_half else widen_reference(reference),
        **facts,
    )
    primitive = core.Primitive(name, kind=kind)
    primitive.def_abstract_eval(typing or elementwise_typing(name, accepts, result))
    primitive.partials, primitive.linear, primitive.jvp = partials, linear, jvp
    primitive.transpose = transpose
    if hide:
        primitive.print_params = hide_none(hide)
    return primitive


def lowest(dtype: np.dtype) -> Any:
    """The identity of max."""
    if dtype.kind == "c":
        return dtype.type(complex(-np.inf, -np.inf))
    if dtype.kind == "b":
        return False
    return -np.inf if category(dtype) in FLOAT else dtypes.iinfo(dtype).min


def highest(dtype: np.dtype) -> Any:
    """The identity of min."""
    if dtype.kind == "c":
        return dtype.type(complex(np.inf, np.inf))
    if dtype.kind == "b":
        return True
    return np.inf if category(dtype) in FLOAT else dtypes.iinfo(dtype).max


def all_ones(dtype: np.dtype) -> Any:
    """The identity of and."""
    if dtype.kind == "b":
        return True
    return -1 if dtypes.issubdtype(dtype, np.signedinteger) else dtypes.iinfo(dtype).max


def hide_none(names: tuple[str, ...]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A printing rule: leave out the named parameters while they are None."""

    def print_params(params: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in params.items() if k not in names or v is not None}

    return print_params


def constant(model: Any, value: Any) -> Any:
    """A 0-d operand of the model's dtype, as weakly typed as the model is."""
    aval = core.get_aval(model)
    if aval.weak_type:
        kind = aval.dtype.kind
        scalar = complex(value) if kind == "c" else float(value) if kind == "f" else value
        if core.get_aval(scalar).dtype == aval.dtype:
            return scalar
    return np.asarray(value, aval.dtype)
