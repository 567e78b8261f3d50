"""The arguments of a jitted function: which are static or donated, their names and their types.

In: the user's ``static_argnums/argnames`` and ``donate_argnums/argnames``, later the arguments of a call. Out:
``Roles`` (numbers and names, each inferred from the other), the split of a call into traced and static arguments,
the avals of its leaves, and the path of every leaf (``x['a'][1]``) for error texts and explanations.
"""

from __future__ import annotations

import inspect
import operator
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from weft import config, dtypes, runtime, tree_util
from weft._base.record import NamedTuple
from weft.core import avals
from weft.core.ref_types import is_ref
from weft.core.tracing import trace
from weft.dispatch.calls import struct

Static = tuple[int | str, Any]  # position or keyword, value


class Roles(NamedTuple):
    """Which arguments are static and which donated; numbers may be negative only for ``*args`` functions."""

    static_argnums: tuple[int, ...] = ()
    static_argnames: tuple[str, ...] = ()
    donate_argnums: tuple[int, ...] = ()
    donate_argnames: tuple[str, ...] = ()

    @property
    def donates(self) -> bool:
        return bool(self.donate_argnums or self.donate_argnames)


NO_ROLES = Roles()


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """The signature, or None for callables that have none (some builtins)."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


class _Parameters(NamedTuple):
    """The names of a function's parameters."""

    positional: tuple[str, ...]  # positional-only ones first
    by_name: tuple[str, ...]
    variable: str | None  # of *args
    rest: str | None  # of **kwargs


def _parameters(function: Callable[..., Any]) -> _Parameters | None:
    """None for callables that have no signature.

    For a plain function they come from its code, which is faster: importing weft jits a hundred functions.
    """
    if type(function) is not FunctionType or hasattr(function, "__wrapped__") or hasattr(function, "__signature__"):
        found = signature_of(function)
        return None if found is None else _of_signature(found)
    code = function.__code__
    names, count, variable, rest = code.co_varnames, code.co_argcount, None, None
    end = count + code.co_kwonlyargcount
    if code.co_flags & inspect.CO_VARARGS:
        variable = names[end]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        rest = names[end + (variable is not None)]
    return _Parameters(names[:count], names[code.co_posonlyargcount : end], variable, rest)


def _of_signature(found: inspect.Signature) -> _Parameters:
    parameters, kinds = found.parameters.values(), inspect.Parameter
    positional = (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    by_name = (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
    return _Parameters(
        tuple([p.name for p in parameters if p.kind in positional]),
        tuple([p.name for p in parameters if p.kind in by_name]),
        next((p.name for p in parameters if p.kind is kinds.VAR_POSITIONAL), None),
        next((p.name for p in parameters if p.kind is kinds.VAR_KEYWORD), None),
    )


def _numbers(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    if hasattr(value, "__index__"):
        return (operator.index(value),)
    return tuple(operator.index(item) for item in value)


def _names(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    names = (value,) if isinstance(value, str) else tuple(value)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"[jit] argument names are strings, got {name!r} of {type(name)}")
    return names


def resolve_roles(
    function: Callable[..., Any], static_argnums: Any, static_argnames: Any, donate_argnums: Any, donate_argnames: Any
) -> Roles:
    """Check the four options against the signature of ``function`` and complete each from the others."""
    if static_argnums is None and static_argnames is None and donate_argnums is None and donate_argnames is None:
        return NO_ROLES
    parameters = _parameters(function)
    static = _resolve(parameters, static_argnums, static_argnames, "static")
    donate = _resolve(parameters, donate_argnums, donate_argnames, "donate")
    shared_names = set(static[1]) & set(donate[1])
    if shared_names:
        raise ValueError(
            "static_argnames and donate_argnames cannot intersect. "
            f"Argument names {shared_names} appear in both static_argnames and donate_argnames"
        )
    shared_numbers = set(static[0]) & set(donate[0])
    if shared_numbers:
        raise ValueError(f"[jit] the arguments {sorted(shared_numbers)} are both in static_argnums and donate_argnums")
    return Roles(*static, *donate)


def _resolve(
    parameters: _Parameters | None, argnums: Any, argnames: Any, role: str
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    if argnums is None and argnames is None:
        return (), ()
    numbers, names = _numbers(argnums), _names(argnames)
    if parameters is None:
        return numbers, names
    _check_numbers(parameters, numbers, f"{role}_argnums")
    _check_names(parameters, names, f"{role}_argnames")
    positional = parameters.positional
    if parameters.variable is None:
        numbers = tuple([number % len(positional) if number < 0 else number for number in numbers])
    if argnums is None:
        numbers = tuple([i for i, name in enumerate(positional) if name in names])
    elif argnames is None:
        named = [positional[i] for i in numbers if 0 <= i < len(positional)]
        names = tuple([name for name in named if name in parameters.by_name])
    return tuple(sorted(set(numbers))), tuple(dict.fromkeys(names))


def _check_numbers(parameters: _Parameters, numbers: tuple[int, ...], option: str) -> None:
    if parameters.variable is not None:
        return
    count = len(parameters.positional)
    if any(not -count <= number < count for number in numbers):
        raise ValueError(f"Jitted function has {option}={numbers}, but only accepts {count} positional arguments.")


def _check_names(parameters: _Parameters, names: tuple[str, ...], option: str) -> None:
    if parameters.rest is not None:
        return
    unknown = set(names).difference(parameters.by_name)
    if not unknown:
        return
    positional_only = unknown.intersection(parameters.positional)
    reason = "They are positional-only; use their numbers." if positional_only else "Function does not take these args."
    raise ValueError(f"Jitted function has invalid argnames {unknown} in {option}. {reason}")


# -- one call ---------------------------------------------------------------------------------------------------------


class Call(NamedTuple):
    """The arguments of a call: traced ones in order, static ones with their positions."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    statics: tuple[Static, ...]
    # number of positional arguments, static ones included; it replaces tuple.count, which is not used
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]


def split_call(roles: Roles, args: tuple[Any, ...], kwargs: dict[str, Any], hashed: bool = True) -> Call:
    """Take the static arguments out. Static values must be hashable, unless they are not ``hashed``."""
    if roles is NO_ROLES or not (roles.static_argnums or roles.static_argnames):
        return tuple.__new__(Call, (args, kwargs, (), len(args)))  # a third of the time
    count = len(args)
    indices = {number + count if number < 0 else number for number in roles.static_argnums}
    statics: list[Static] = [(index, args[index]) for index in sorted(indices) if 0 <= index < count]
    statics += [(name, kwargs[name]) for name in sorted(roles.static_argnames) if name in kwargs]
    for _, value in statics if hashed else ():
        _check_hashable(value)
    traced = tuple(arg for index, arg in enumerate(args) if index not in indices)
    named = {name: value for name, value in kwargs.items() if name not in roles.static_argnames}
    return Call(traced, named, tuple(statics), count)


def _check_hashable(value: Any) -> None:
    try:
        hash(value)
    except TypeError as error:
        raise ValueError(
            "Non-hashable static arguments are not supported. An error occurred while trying to hash an object of "
            f"type {type(value)}, {value}. The error was:\nTypeError: {error}\n"
            "Static arguments are part of the cache key: pass a tuple instead of a list, or trace the argument."
        ) from error


def join_call(
    call_statics: tuple[Static, ...], count: int, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The inverse of ``split_call``: the arguments as the user's function takes them."""
    if not call_statics:
        return list(args), kwargs
    by_index = {argument: value for argument, value in call_statics if isinstance(argument, int)}
    traced = iter(args)
    joined = [by_index[index] if index in by_index else next(traced) for index in range(count)]
    named = {argument: value for argument, value in call_statics if isinstance(argument, str)}
    return joined, {**kwargs, **named}


def static_key(statics: tuple[Static, ...]) -> tuple[Any, ...]:
    """The part of a cache key for static arguments: position, type and value of each."""
    return tuple([(argument, type(value), value) for argument, value in statics]) if statics else ()


# -- types of the leaves ----------------------------------------------------------------------------------------------

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def leaf_avals(function: Any, call: Call, leaves: Sequence[Any], accept_structs: bool) -> tuple[Any, ...]:
    """The aval of every leaf; a leaf that is not an array raises an error with its path."""
    found: list[Any] = []
    for index, leaf in enumerate(leaves):
        kind = type(leaf)
        if kind is runtime.Array:
            found.append(leaf.aval)
        elif kind is int:
            if not _INT32_MIN <= leaf <= _INT32_MAX:
                _check_int(function, call, index, leaf)
            found.append(avals.scalar_aval(int))
        elif accept_structs and avals.find_rule(leaf) is None and (aval := struct.described(leaf)) is not None:
            found.append(aval)
        else:
            found.append(_other_aval(function, call, index, leaf))
    return tuple(found)


def _other_aval(function: Any, call: Call, index: int, leaf: Any) -> Any:
    if isinstance(leaf, struct.ShapeDtypeStruct):
        raise TypeError(
            f"Argument '{leaf_path(function, call, index)}' of shape {leaf.dtype}{list(leaf.shape)} of type "
            f"{type(leaf)} is not a valid JAX type: a struct has no values, pass it to .trace, .lower or eval_shape"
        )
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "OSUMmV" and not _is_extra_dtype(leaf.dtype):
        raise _not_an_array(function, call, index, leaf)
    if avals.find_rule(leaf) is None:
        raise _not_an_array(function, call, index, leaf)
    try:
        return trace.get_aval(leaf)
    except TypeError as error:
        raise _not_an_array(function, call, index, leaf) from error


def _is_extra_dtype(dtype: np.dtype) -> bool:
    return dtype.kind == "V" and (dtype.type.__module__ == "ml_dtypes" or dtype == dtypes.float0)


def _not_an_array(function: Any, call: Call, index: int, leaf: Any) -> Exception:
    convertible = avals.not_an_array(leaf)
    if convertible is not None:
        return convertible
    path = leaf_path(function, call, index)
    contents = f" of dtype {leaf.dtype}" if isinstance(leaf, np.ndarray) else ""
    return TypeError(
        f"Error interpreting argument to {function} as an abstract array. The problematic value is of type "
        f"{type(leaf)}{contents} and was passed to the function at path {path}.\n"
        "This typically means that a jit-wrapped function was called with a non-array argument, and this argument "
        "was not marked as static using the static_argnums or static_argnames parameters of weft.jit."
    )


def _check_int(function: Any, call: Call, index: int, value: int) -> None:
    """Raise for an int outside the default integer's range; ``value`` is outside int32's."""
    wide = config.x64_enabled()
    if not (wide and _INT64_MIN <= value <= _INT64_MAX):
        path = leaf_path(function, call, index)
        raise OverflowError(
            "An overflow was encountered while parsing an argument to a jitted computation, whose argument path is "
            f"{path}. Got <class 'int'> with value {value}, which does not fit {'int64' if wide else 'int32'}"
        )


def to_array(leaf: Any, aval: Any) -> Any:
    """A leaf as the Array of type ``aval`` that compiled code reads."""
    if type(leaf) is runtime.Array:
        return leaf
    if is_ref(leaf):
        raise TypeError(f"expected an array, got a mutable array reference of type {aval}: read it, as in ref[...]")
    if type(leaf) in avals.structs:
        raise TypeError(
            f"{leaf} of type {type(leaf)} is not a valid JAX type: it describes an array and has no values. A function "
            "that returns or closes over one can be given to eval_shape and make_jaxpr only"
        )
    value = np.asarray(leaf)
    return runtime.array_from_numpy(
        value if value.dtype == aval.dtype else runtime.convert_numpy(value, aval.dtype), aval
    )


# -- names ------------------------------------------------------------------------------------------------------------


def weakly(function: Any) -> Callable[[], Any]:
    """A getter for the function, or None once it is gone: cached programs ask for its name later."""
    try:
        return weakref.ref(function)
    except TypeError:
        return lambda: function


def leaf_paths(function: Any, call: Call) -> list[str]:
    """The path of every leaf in the user's own names: ``x['a'][1]``, ``args[1]``, ``kw['zz']``."""
    args, kwargs = join_call(call.statics, call.count, call.args, call.kwargs)
    static = {argument for argument, _ in call.statics}
    paths: list[str] = []
    traced = [index for index in range(call.count) if index not in static]
    names = argument_names(function, len(args), kwargs)
    for index in traced:
        paths += _paths_below(names[index], args[index])
    for name in sorted(call.kwargs):
        paths += _paths_below(names[name], call.kwargs[name])
    return paths


def _paths_below(name: str, value: Any) -> list[str]:
    return [name + tree_util.keystr(path) for path, _ in tree_util.tree_flatten_with_path(value)[0]]


def tree_paths(treedef: Any) -> list[str]:
    """The path of every leaf of a structure, such as ``['a'][0]``."""
    return _paths_below("", runtime.tree_unflatten(treedef, list(range(treedef.num_leaves))))


def argument_names(function: Any, count: int, kwargs: Iterable[str]) -> dict[int | str, str]:
    """The user's name of each positional and keyword argument of a call."""
    names: dict[int | str, str] = {}
    positional, declared, variable, rest = _parameters(function) or _Parameters((), (), None, None)
    for index in range(count):
        known = index < len(positional)
        names[index] = positional[index] if known else f"{variable or 'args'}[{index - len(positional)}]"
    for name in kwargs:
        names[name] = name if name in declared or rest is None else f"{rest}['{name}']"
    return names


def default_text(function: Any, name: str) -> str:
    """The default of a parameter as text with a space before it; empty if it has none."""
    signature = signature_of(function)
    parameter = signature.parameters.get(name) if signature is not None else None
    has_default = parameter is not None and parameter.default is not inspect.Parameter.empty
    return f" {parameter.default!r}" if parameter is not None and has_default else ""


def leaf_path(function: Any, call: Call, index: int) -> str:
    """The path of one leaf; a number if the tree cannot be flattened again."""
    paths = leaf_paths(function, call)
    return paths[index] if index < len(paths) else f"<leaf {index}>"
