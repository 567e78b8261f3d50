"""cond, switch and platform_dependent: one of several functions, chosen at run time; only that one runs.

    c:f32[3] = cond[branches=({...false...}, {...true...})] index x

Operands: the int32 index, the values captured by any branch, the common operands of the branches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from weft import config, dtypes, runtime
from weft.control import bodies, carry
from weft.control.bodies import Body
from weft.core import avals as avals_module
from weft.core import kinds
from weft.core.effects import join
from weft.core.primitive import Primitive
from weft.core.programs import printer
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxprs_in_params, subjaxprs
from weft.core.ref_types import ProgramPrimitive
from weft.core.tracing.tracer import Tracer
from weft.dispatch.calls import flat_functions, function_names, signature
from weft.operations.pointwise import convert, logic

R = TypeVar("R")


def _mapped(params: dict[str, Any], function: Callable[[Any], Any]) -> dict[str, Any]:
    return {**params, "branches": tuple([function(branch) for branch in params["branches"]])}


cond_p = ProgramPrimitive(
    "cond",
    kinds.Branch(branches=lambda params: params["branches"], mapped=_mapped),
    multiple_results=True,
    memoize=False,
)


def _type_cond(index: Any, *avals: Any, branches: tuple[ClosedJaxpr, ...], **params: Any) -> Any:
    if index.shape != () or index.dtype != np.int32:
        raise TypeError(f"[cond] the index must be i32[], got {index.str_short()}")
    for number, branch in enumerate(branches):
        expected = branch.in_avals
        if len(expected) != len(avals) or not all(map(bodies.same_type, avals, expected)):
            listed = [", ".join(aval.str_short() for aval in side) for side in (expected, avals)]
            raise TypeError(f"[cond] branch {number} takes ({listed[0]}), got ({listed[1]})")
    outs = list(branches[0].out_avals)
    for number, branch in enumerate(branches[1:], 1):
        if len(branch.out_avals) != len(outs) or not all(map(bodies.same_type, outs, branch.out_avals)):
            raise TypeError(f"[cond] branches 0 and {number} give results of different types")
    return outs, join(*(branch.effects for branch in branches))


cond_p.def_effectful_abstract_eval(_type_cond)


def _lifted(args: tuple[Any, ...], params: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not any(branch.consts for branch in params["branches"]):
        return args, params
    made = [bodies.without_constants(branch) for branch in params["branches"]]
    programs, captured = bodies.with_common_captures([Body(program, tuple(held), None) for program, held in made])
    return (args[0], *captured, *args[1:]), {**params, "branches": tuple(programs)}


cond_p.lift = _lifted


def _print_cond(eqn: Any, context: Any, settings: Any) -> Any:
    names = sorted(name for name, value in eqn.params.items() if value is not None)
    return printer.eqn_document(eqn, names, eqn.params, context, settings)


cond_p.print_rule = _print_cond


def cond(
    pred: Any,
    true_fun: Callable[..., R],
    false_fun: Callable[..., R],
    *operands: Any,
    operand: Any = ...,
    **kwargs: Any,
) -> R:
    """``true_fun(*operands)`` if ``pred`` holds, otherwise ``false_fun(*operands)``; only that function runs.

    ``pred`` is a scalar (a number counts as true unless it is zero). Both functions are traced; their results have one
    structure and the same shapes and dtypes, otherwise TypeError names the leaf that differs.

    >>> lax.cond(jnp.array(3) > 2, lambda x: x + 1, lambda x: x - 1, 10)
    Array(11, dtype=int32, weak_type=True)
    """
    if kwargs:
        raise TypeError(f"cond() got an unexpected keyword argument {next(iter(kwargs))!r}")
    if operand is not ...:
        if operands:
            raise TypeError("if `operand` keyword is passed then no positional operands can be passed.")
        operands = (operand,)
    if not (callable(true_fun) and callable(false_fun)):
        if len(operands) == 2 and callable(false_fun) and callable(operands[1]):
            return _cond_with_operands(pred, true_fun, false_fun, *operands)
        raise TypeError("lax.cond: true_fun and false_fun arguments should be callable.")
    index = _predicate(pred)
    if config.read("disable_jit") and not isinstance(index, Tracer):
        return (true_fun if index else false_fun)(*operands)
    shown = ("true_fun", true_fun), ("false_fun", false_fun)
    return _branch(index, (false_fun, true_fun), operands, shown)


def _cond_with_operands(pred: Any, true_operand: Any, true_fun: Any, false_operand: Any, false_fun: Any) -> Any:
    """The form ``cond(pred, true_operand, true_fun, false_operand, false_fun)``."""

    def on_true(first: Any, _: Any) -> Any:
        return true_fun(first)

    def on_false(_: Any, second: Any) -> Any:
        return false_fun(second)

    return cond(pred, on_true, on_false, true_operand, false_operand)


def _predicate(pred: Any) -> Any:
    """A condition as an int32 index: 1 if it holds."""
    if pred is None:
        raise TypeError("cond predicate is None; it must be a scalar")
    if isinstance(pred, list | tuple | dict | str):
        raise TypeError(f"Pred must be a scalar, got {pred} of type {type(pred)}")
    aval = bodies.aval_of(pred)
    if aval.shape:
        raise TypeError(f"Pred must be a scalar, got {pred} of shape {aval.shape}.")
    if aval.dtype.kind not in "biuf" and aval.dtype.kind != "V":
        raise TypeError(f"Pred type must be either boolean or number, got {aval.dtype.name}.")
    if isinstance(pred, (bool, int, float, np.bool_, np.number)):
        return np.int32(bool(pred))
    if aval.dtype.kind != "b":
        pred = logic.ne(pred, aval.dtype.type(0))
    return convert.convert(pred, np.dtype(np.int32), False)


def switch(index: Any, branches: Sequence[Callable[..., R]], *operands: Any, operand: Any = ...) -> R:
    """``branches[index](*operands)``; the index is clamped into range, and only that branch runs.

    ``index`` is an integer scalar. All branches are traced; their results have one structure and the same types.

    >>> lax.switch(1, [jnp.sin, jnp.negative, jnp.cos], 2.0)
    Array(-2., dtype=float32, weak_type=True)
    """
    branches = tuple(branches)
    if not all(map(callable, branches)):
        raise TypeError("lax.switch: branches argument should be a sequence of callables.")
    if operand is not ...:
        if operands:
            raise TypeError("if `operand` keyword is passed then no positional operands can be passed.")
        operands = (operand,)
    if isinstance(index, list | tuple | dict | str) or index is None:
        raise TypeError(f"Index type must be an integer, got {index}.")
    aval = bodies.aval_of(index)
    if aval.shape:
        raise TypeError(f"Branch index must be scalar, got {index} of shape {aval.shape}.")
    if not dtypes.issubdtype(aval.dtype, np.integer):
        raise TypeError(f"Index type must be an integer, got {index} as {aval.dtype.name}")
    if not branches:
        raise ValueError("Empty branch sequence")
    if len(branches) == 1:
        return branches[0](*operands)
    index = convert.convert(index, np.dtype(np.int32), False)
    index = logic.clamp(np.int32(0), index, np.int32(len(branches) - 1))
    if config.read("disable_jit") and not isinstance(index, Tracer):
        return branches[int(index)](*operands)
    shown = [(f"branch {number}", branch) for number, branch in enumerate(branches)]
    return _branch(index, branches, operands, shown, "switch")


def _branch(
    index: Any, functions: Sequence[Callable[..., Any]], operands: tuple[Any, ...],
    shown: Sequence[tuple[str, Any]], caller: str = "cond", **params: Any,
) -> Any:  # fmt: skip
    """One equation for functions on the same operands; ``shown`` names the functions, in the order of error texts."""
    values, in_tree = runtime.tree_flatten(operands)
    avals = [bodies.aval_of(value) for value in values]
    bodies.check_refs(functions, in_tree, values, "cond")
    traced = [bodies.trace_body(function, in_tree, avals, "cond") for function in functions]
    bodies.check_refs(functions, in_tree, values, "cond", traced)
    by_function = {id(function): body for function, body in zip(functions, traced, strict=True)}
    ordered = [(name, function, by_function[id(function)]) for name, function in shown]
    first = ordered[0]
    for other in ordered[1:]:
        _check_structure(caller, first, other)
        _check_types(caller, first, other)
    in_order = [body for _, _, body in ordered]
    programs, captured = bodies.with_common_captures(in_order)
    by_body = {id(body): program for body, program in zip(in_order, programs, strict=True)}
    programs = _agreeing([by_body[id(body)] for body in traced])
    return flat_functions.rebuilt(traced[0].out_tree, _bind(index, [*captured, *values], programs, params))


def _bind(index: Any, operands: list[Any], programs: list[ClosedJaxpr], params: dict[str, Any]) -> list[Any]:
    """Record the equation, leaving out results that are the same operand in every branch."""
    columns = zip(*(_operand_results(program) for program in programs), strict=True)
    passed = [column[0] if len(set(column)) == 1 else None for column in columns]
    known = [number is not None for number in passed]
    if any(known):
        pruned = {id(program): ClosedJaxpr(bodies.pruned(program.jaxpr, known)) for program in programs}
        programs = [pruned[id(program)] for program in programs]
    made = iter(cond_p.bind(index, *operands, branches=tuple(programs), **params))
    return [next(made) if number is None else operands[number] for number in passed]


def _operand_results(closed: ClosedJaxpr) -> list[int | None]:
    """For each result the operand that it equals, or None."""
    indices: dict[Any, int] = {v: index for index, v in enumerate(closed.jaxpr.invars)}
    return [None if isinstance(out, Literal) else indices.get(out) for out in closed.jaxpr.outvars]


def _agreeing(programs: Sequence[ClosedJaxpr]) -> list[ClosedJaxpr]:
    """The programs, all with the weak types of the first one's results (for cond, those of the false branch)."""
    first = programs[0].out_avals
    typed = {id(program): bodies.converted_outputs(program, first) for program in programs}
    return [typed[id(program)] for program in programs]


def _functions_listed(first: Any, other: Any) -> str:
    return "\n".join(f"{name} is {function_names.source_of(function)}" for name, function, _ in (first, other))


def _check_structure(caller: str, first: tuple[str, Any, Body], other: tuple[str, Any, Body]) -> None:
    before, after = first[2].out_tree, other[2].out_tree
    if before == after:
        return
    lines = []
    for found in carry.differences(before, after):
        at = f" at path {found.path}" if found.path else ""
        lines.append(
            f"{first[0]} output{at} is a {found.before} but {other[0]} output{at} is a {found.after}, so {found.why}."
        )
    raise TypeError(
        f"{caller} branch outputs must have the same pytree structure, but they differ:\n\n"
        f"{_functions_listed(first, other)}\n\n{carry.listed(lines)}\n\n"
        f"Revise {first[0]} and/or {other[0]} so that they have the same pytree structure."
    )


def _check_types(caller: str, first: tuple[str, Any, Body], other: tuple[str, Any, Body]) -> None:
    pairs = list(zip(first[2].out_avals, other[2].out_avals, strict=True))
    if all(bodies.same_type(before, after) for before, after in pairs):
        return
    paths = signature.tree_paths(first[2].out_tree)
    lines = []
    for path, (before, after) in zip(paths, pairs, strict=True):
        if bodies.same_type(before, after):
            continue
        at = f" at path {path}" if path else ""
        lines.append(
            f"The output of {first[0]}{at} has type {_long(before)} but the corresponding output of {other[0]} has "
            f"type {_long(after)}, so {carry.difference(before, after)}."
        )
    raise TypeError(
        f"{caller} branches must have equal output types but they differ.\n\n{_functions_listed(first, other)}\n\n"
        f"{carry.listed(lines)}\n\nRevise {first[0]} and/or {other[0]} so that all output types match."
    )


def _long(aval: Any) -> str:
    return avals_module.long_text(aval.strip_weak_type())


# -- platforms --------------------------------------------------------------------------------------------------------

Platforms = tuple[tuple[str, ...] | None, ...]  # for each branch its platforms; None: every other platform


PLATFORM = "cpu"  # the platform that weft's own compiler makes programs for
OWN = ("weft",)  # stands for that compiler, where another branch is as right and better for others


def platform_branch(platforms: Platforms, platform: str | None = None) -> int:
    """The branch for a platform; None: for weft's own compiler."""
    if platform is None:
        if OWN in platforms:
            return platforms.index(OWN)
        platform = PLATFORM
    for branch, names in enumerate(platforms):
        if names is not None and platform in names:
            return branch
    if None in platforms:
        return platforms.index(None)
    raise NotImplementedError(
        f"[platform_dependent] no implementation for {platform} among {platforms}, and no default"
    )


platform_index_p = Primitive("platform_index", kinds.Resolve(lambda platforms: np.int32(platform_branch(platforms))))
platform_index_p.def_abstract_eval(lambda platforms: runtime.ShapedArray((), np.int32))
platform_index_p.jvp, platform_index_p.transpose = None, None


def for_platform(closed: ClosedJaxpr, platform: str) -> ClosedJaxpr:
    """The program in which weft's own compiler takes the branches for another platform than the CPU."""
    made = _for_platform(closed.jaxpr, platform)
    return closed if made is closed.jaxpr else ClosedJaxpr(made, closed.consts)


def _for_platform(jaxpr: Jaxpr, platform: str) -> Jaxpr:
    return jaxpr.memoize(f"for {platform}", functools.partial(_with_platform, platform=platform)) or jaxpr


def _with_platform(jaxpr: Jaxpr, platform: str) -> Jaxpr | None:
    """The program with the platform's name where the CPU's was; None if it asks for no platform."""

    def equation(eqn: JaxprEqn) -> JaxprEqn:
        if eqn.primitive is platform_index_p:
            renamed = tuple([_renamed(names, platform) for names in eqn.params["platforms"]])
            return eqn.replace(params={"platforms": renamed})
        if not jaxprs_in_params(eqn.params):
            return eqn
        return eqn.replace(params={name: _inside(value, platform) for name, value in eqn.params.items()})

    asks = any(eqn.primitive is platform_index_p for eqn in jaxpr.eqns)
    if not asks and all(_for_platform(inner, platform) is inner for inner in subjaxprs(jaxpr)):
        return None
    return jaxpr.replace(eqns=[equation(eqn) for eqn in jaxpr.eqns])


def _inside(value: Any, platform: str) -> Any:
    """A parameter of an equation, with the programs in it."""
    if isinstance(value, ClosedJaxpr):
        return for_platform(value, platform)
    if isinstance(value, Jaxpr):
        return _for_platform(value, platform)
    holds = type(value) in (tuple, list) and any(isinstance(item, ClosedJaxpr | Jaxpr) for item in value)
    return type(value)([_inside(item, platform) for item in value]) if holds else value


def _renamed(names: tuple[str, ...] | None, platform: str) -> tuple[str, ...] | None:
    if names is None or names == OWN:
        return names
    return (PLATFORM,) if platform in names else tuple([name for name in names if name != PLATFORM])


def platform_dependent(
    *args: Any, default: Callable[..., Any] | None = None, **per_platform: Callable[..., Any]
) -> Any:
    """The function for the platform that the program is compiled for: ``cpu`` here, or ``default``.

    While tracing, all functions are traced, and their results have one structure and the same types; the compiler keeps
    one of them. NotImplementedError if none is for the platform and there is no default.

    >>> lax.platform_dependent(1.0, cpu=lambda x: x + 1, default=lambda x: x)
    Array(2., dtype=float32, weak_type=True)
    """
    functions: list[Callable[..., Any]] = []
    names: list[list[str]] = []
    for name, function in per_platform.items():
        if not callable(function):
            raise TypeError(f"lax.platform_dependent: the '{name}' branch must be a callable.")
        if name == "gpu":
            raise ValueError("Use 'cuda' or 'rocm' for lax.platform_dependent.")
        if function in functions:
            names[functions.index(function)].append(name)
        else:
            functions.append(function)
            names.append([name])
    platforms: Platforms = tuple([tuple(some) for some in names])
    if default is not None:
        if not callable(default):
            raise TypeError("lax.platform_dependent: the 'default' branch must be a callable.")
        functions.append(default)
        platforms = (*platforms, None)
    return _by_platform(platforms, functions, args)


def _by_platform(platforms: Platforms, functions: Sequence[Callable[..., Any]], args: tuple[Any, ...]) -> Any:
    index = platform_index_p.bind(platforms=platforms)
    if not isinstance(index, Tracer):
        return flat_functions.finished_tree(functions[int(index)](*args))
    shown = [(f"branch {number}", function) for number, function in enumerate(functions)]
    return _branch(index, functions, args, shown, "platform_dependent", branches_platforms=platforms)


def own_or_elsewhere(own: Callable[..., Any], elsewhere: Callable[..., Any], *args: Any) -> Any:
    """One of two forms of the same function: for weft's own compiler, and for the compilers that read StableHLO."""
    return _by_platform((OWN, None), [own, elsewhere], args)
