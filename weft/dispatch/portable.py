"""The identity of a jitted call as plain values that mean the same in every process: the key of its program on disk.

In: an ``Identity``, whose key contains code objects, Arrays, library functions and builtins by id. Out: a tuple of
plain values, with code and Arrays by content, and library functions by module and name. ``Refusal`` is raised for
anything without such a form (members of enums, arguments in containers other than the plain ones). Line numbers of code
are left out, since no machine code depends on them.
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
from weft._base import lazy
from weft.dispatch import identity, struct
from weft.dispatch.identity import Identity, Refusal

Named = dict[int, Any]  # by id: code objects, and (position among the captured, Array)
_MARSHAL = 2  # the last version of the format in which equal values have equal bytes; later ones depend on refcounts


def text(value: Any) -> bytes:
    """Plain values as bytes. Refusal for others, and for values nested as deep as Python's stack."""
    try:
        return marshal.dumps(value, _MARSHAL)
    except ValueError as error:
        raise Refusal("it is nested too deep, or holds values of which there is no portable form") from error


def function(who: Identity) -> Any:
    """The function and its static values. Memoised if there are no Arrays among them, since those may be deleted."""
    if who.words is not None:
        return who.words
    named: Named = {id(code): code for code in who.codes if isinstance(code, CodeType)}
    named |= {number: (index, array) for index, (number, array) in enumerate(who.arrays.items())}
    key, values = who.key
    words = _node(key, named), tuple([_node(value, named) for value in values])
    if not who.arrays:
        who.words = words
    return words


def tree(treedef: Any) -> bytes:
    """A structure of plain containers as bytes: the containers with 0 for every leaf. See ``read_tree``."""
    written = text(treedef.unflatten([0] * treedef.num_leaves))
    if read_tree(written) != treedef:  # it has nodes or keys that are not plain values
        raise Refusal("an argument or a result is a container whose structure has no form in plain values")
    return written


def read_tree(written: bytes) -> Any:
    return runtime.tree_structure(marshal.loads(written))


@functools.lru_cache(maxsize=256)
def dtype_name(dtype: Any) -> str:
    """The name of a dtype that ``dtypes.as_dtype`` can read; extended dtypes have their own."""
    if not dtypes.is_extended(dtype) and (dtype.name == "void" or dtypes.as_dtype(dtype.name) != dtype):
        raise Refusal(f"the dtype {dtype} has no name of its own")
    return dtype.name


def aval(value: Any) -> tuple[Any, ...]:
    return value.shape, dtype_name(value.dtype), value.weak_type


# -- keys of identity -------------------------------------------------------------------------------------------------


def _node(key: Any, named: Named) -> Any:
    """The portable form of a key made by ``identity``, whose first item says what kind of key it is."""
    head = key[0]
    if head in named:
        return _function(key, named)
    rule = _RULES.get(head)
    if rule is not None:
        return rule(key, named)
    if isinstance(head, type) and issubclass(head, (np.dtype, dtypes.ExtendedDType)):
        return "dtype", dtype_name(key[1])
    if isinstance(head, type) and type(key[1]) is int and key[1] in _builtins():
        return "builtin", _builtins()[key[1]]
    raise Refusal(f"it reads a value of type {head}")


def _nodes(keys: Any, named: Named) -> tuple[Any, ...]:
    return tuple([_node(key, named) for key in keys])


def _function(key: Any, named: Named) -> Any:
    """(code, name, what it reads), then the defaults if it has any."""
    found = ("function", _code(named[key[0]]), key[1], _nodes(key[2], named))
    if len(key) == 3:
        return found
    return (*found, _node(key[3], named), tuple([(name, _node(value, named)) for name, value in key[4]]))


def _code(code: CodeType) -> tuple[Any, ...]:
    constants = [_code(value) if isinstance(value, CodeType) else value for value in code.co_consts]
    return (
        code.co_name, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_code,
        tuple(constants), code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_exceptiontable,
    )  # fmt: skip


def _closure(key: Any, named: Named) -> Any:
    _, number, name, values = key
    return "closure", _code(named[number]), name, _nodes(values, named)


def _array(key: Any, named: Named) -> Any:
    """A captured Array by its content, since tracing may have read it."""
    index, array = named[key[1]]
    if dtypes.is_extended(array.dtype) or array.is_deleted():
        raise Refusal("it reads an array of keys or one that is deleted")
    if runtime.array_is_part(array):
        raise Refusal("it reads an array of which this process has a part")
    return "array", index, aval(array.aval), lazy.hashlib.blake2b(np.asarray(array).tobytes(), digest_size=32).digest()


def _plain(key: Any, named: Named) -> Any:
    kind, value = key
    return kind.__name__, value


def _library(key: Any, named: Named) -> Any:
    """A function or type of a library, as (module, name)."""
    value = identity.known_library(key[1])
    name = getattr(value, "__name__", "")
    for module in identity.homes(value):
        if getattr(sys.modules.get(module), "__dict__", {}).get(name) is value:
            return "library", module, name
    raise Refusal(f"{value!r} is not found under its name in a module")


def _builtin(key: Any, named: Named) -> Any:
    return ("builtin", _builtins()[key[1]]) if key[1] in _builtins() else _library(key, named)


@functools.cache
def _builtins() -> dict[int, str]:
    """Builtins and functions of math by id, under their names in C."""
    found = [(math, name, value) for name, value in vars(math).items() if isinstance(value, BuiltinFunctionType)]
    found += [(builtins, name, value) for name, value in vars(builtins).items() if id(value) in identity.PURE_BUILTINS]
    return {
        id(value): f"{module.__name__}.{name}"
        for module, name, value in found
        if getattr(value, "__name__", name) == name and getattr(value, "__module__", module.__name__) == module.__name__
    }


def _jitted(key: Any, named: Named) -> Any:
    roles, *options = key[1]
    return "jit", tuple(roles), tuple(options), _node(key[2], named)


def _struct(key: Any, named: Named) -> Any:
    _, shape, dtype, weak_type = key
    return "struct", shape, dtype_name(dtype), weak_type


_RULES: dict[Any, Callable[[Any, Named], Any]] = {
    **dict.fromkeys((type(None), bool, int, str, bytes, float, complex), _plain),
    tuple: lambda key, named: ("tuple", _nodes(key[1], named)),
    frozenset: lambda key, named: ("frozenset", tuple(sorted([text(_node(item, named)) for item in key[1]]))),
    functools.partial: lambda key, named: (
        "partial", _node(key[1], named), _nodes(key[2], named),
        tuple([(name, _node(value, named)) for name, value in key[3]]),
    ),
    runtime.PyTreeDef: lambda key, named: ("treedef", tree(key[1])),
    struct.ShapeDtypeStruct: _struct,
    "array": _array,
    "closure": _closure,
    "jit": _jitted,
    "library": _library,
    "builtin": _builtin,
    "seen": lambda key, named: tuple(key),
}  # fmt: skip
