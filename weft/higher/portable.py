"""What a jitted call is, in words that mean the same in every process: the text that names its program on disk.

In: an ``Identity``, whose key names code objects, library functions and builtins by id. Out: a tuple of plain values in
which code counts by its content and a library's function by its module and name; ``Refusal`` for what has no such
form (weft Arrays, members of enums, types of argument that plain containers do not name). Where code stands in its
file is left out: nothing that is compiled depends on it.
"""

from __future__ import annotations

import builtins
import functools
import marshal
import math
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType
from typing import Any

import numpy as np

from weft import dtypes, runtime
from weft.higher import identity, struct
from weft.higher.identity import Identity, Refusal

_MARSHAL = 2  # the last version of the format that writes equal values as equal bytes, whoever else refers to them


def text(value: Any) -> bytes:
    """Plain values as bytes. Refusal for others, and for values nested as deep as Python's stack."""
    try:
        return marshal.dumps(value, _MARSHAL)
    except ValueError as error:
        raise Refusal("it is nested too deep, or holds values of which there is no portable form") from error


def function(who: Identity) -> Any:
    """The function and its static values."""
    codes = {id(code): code for code in who.codes if isinstance(code, CodeType)}
    key, values = who.key
    return _node(key, codes), tuple([_node(value, codes) for value in values])


def tree(treedef: Any) -> bytes:
    """A structure of plain containers, as the containers with a 0 for every leaf. See ``read_tree``."""
    written = text(treedef.unflatten([0] * treedef.num_leaves))
    if read_tree(written) != treedef:  # its nodes or keys are no plain values
        raise Refusal("an argument or a result is a container whose structure plain values do not tell")
    return written


def read_tree(written: bytes) -> Any:
    return runtime.tree_structure(marshal.loads(written))


def dtype_name(dtype: Any) -> str:
    """The name of a dtype that ``dtypes.as_dtype`` reads back; extended dtypes have theirs."""
    if not dtypes.is_extended(dtype) and (dtype.name == "void" or dtypes.as_dtype(dtype.name) != dtype):
        raise Refusal(f"the dtype {dtype} has no name of its own")
    return dtype.name


def aval(value: Any) -> tuple[Any, ...]:
    return value.shape, dtype_name(value.dtype), value.weak_type


# -- keys of identity -------------------------------------------------------------------------------------------------


def _node(key: Any, codes: dict[int, CodeType]) -> Any:
    """One key that ``identity`` made: its first item says what it is the key of."""
    head = key[0]
    if head in codes:
        return _function(key, codes)
    rule = _RULES.get(head)
    if rule is not None:
        return rule(key, codes)
    if isinstance(head, type) and issubclass(head, (np.dtype, dtypes.ExtendedDType)):
        return "dtype", dtype_name(key[1])
    if isinstance(head, type) and type(key[1]) is int and key[1] in _builtins():
        return "builtin", _builtins()[key[1]]
    raise Refusal(f"it reads {'a weft Array' if head == 'array' else f'a value of type {head}'}")


def _nodes(keys: Any, codes: dict[int, CodeType]) -> tuple[Any, ...]:
    return tuple([_node(key, codes) for key in keys])


def _function(key: Any, codes: dict[int, CodeType]) -> Any:
    """(code, name, what it reads), then the defaults if it has any."""
    found = ("function", _code(codes[key[0]]), key[1], _nodes(key[2], codes))
    if len(key) == 3:
        return found
    return (*found, _node(key[3], codes), tuple([(name, _node(value, codes)) for name, value in key[4]]))


def _code(code: CodeType) -> tuple[Any, ...]:
    constants = [_code(value) if isinstance(value, CodeType) else value for value in code.co_consts]
    return (
        code.co_name, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_code,
        tuple(constants), code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_exceptiontable,
    )  # fmt: skip


def _plain(key: Any, codes: dict[int, CodeType]) -> Any:
    kind, value = key
    return kind.__name__, value


def _library(key: Any, codes: dict[int, CodeType]) -> Any:
    """A function or type of a library: where it stands under its own name."""
    value = identity.library_value(key[1])
    name = getattr(value, "__name__", "")
    for module in identity.homes(value):
        if getattr(sys.modules.get(module), "__dict__", {}).get(name) is value:
            return "library", module, name
    raise Refusal(f"{value!r} does not stand under its name in a module")


def _builtin(key: Any, codes: dict[int, CodeType]) -> Any:
    return ("builtin", _builtins()[key[1]]) if key[1] in _builtins() else _library(key, codes)


@functools.cache
def _builtins() -> dict[int, str]:
    """Builtins and functions of math by id, under the names that they were given in C."""
    found = [(math, name, value) for name, value in vars(math).items() if isinstance(value, BuiltinFunctionType)]
    found += [(builtins, name, value) for name, value in vars(builtins).items() if id(value) in identity.PURE_BUILTINS]
    return {
        id(value): f"{module.__name__}.{name}"
        for module, name, value in found
        if getattr(value, "__name__", name) == name and getattr(value, "__module__", module.__name__) == module.__name__
    }


def _jitted(key: Any, codes: dict[int, CodeType]) -> Any:
    roles, *options = key[1]
    return "jit", tuple(roles), tuple(options), _node(key[2], codes)


def _struct(key: Any, codes: dict[int, CodeType]) -> Any:
    _, shape, dtype, weak_type = key
    return "struct", shape, dtype_name(dtype), weak_type


_RULES: dict[Any, Callable[[Any, dict[int, CodeType]], Any]] = {
    **dict.fromkeys((type(None), bool, int, str, bytes, float, complex), _plain),
    tuple: lambda key, codes: ("tuple", _nodes(key[1], codes)),
    frozenset: lambda key, codes: ("frozenset", tuple(sorted([text(_node(item, codes)) for item in key[1]]))),
    functools.partial: lambda key, codes: (
        "partial", _node(key[1], codes), _nodes(key[2], codes),
        tuple([(name, _node(value, codes)) for name, value in key[3]]),
    ),
    runtime.PyTreeDef: lambda key, codes: ("treedef", tree(key[1])),
    struct.ShapeDtypeStruct: _struct,
    "jit": _jitted,
    "library": _library,
    "builtin": _builtin,
    "seen": lambda key, codes: tuple(key),
}  # fmt: skip
