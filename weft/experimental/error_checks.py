"""The checks of ``checkify``: an interpreter of programs that carries an Error from one operation to the next.

    b = div a c   ->   failed = reduce_or (c == 0); error' = updated(error, failed, code 3); b = div a c

An operation that carries programs takes an Error and gives one: calls have one more operand and result for each array
of the Error, loops have it in their state, and branches all have the kinds of errors that any of them can make. A
program in which nothing can fail is not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import core, dtypes, lax, runtime
from weft import numpy as jnp
from weft.autodiff import checkpoint, custom_jvp, custom_vjp
from weft.batching import batch_trace, batched_programs, shards
from weft.control import bodies, branches, grid_cells, grid_loop, scan, while_loop
from weft.core import kinds, primitive
from weft.core.avals import get_aval
from weft.core.primitive import Primitive
from weft.core.programs import rewrite
from weft.core.programs.eval import eval_jaxpr, last_uses
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, Literal, jaxprs_in_params
from weft.core.sharding.partition_specs import PartitionSpec
from weft.core.tangents import Zero
from weft.core.tracing import source_info
from weft.core.tracing import trace as tracing
from weft.dispatch.calls import call_primitive
from weft.experimental import nan_operations
from weft.experimental.functional_errors import (
    NO_ERROR,
    DivisionByZeroError,
    Error,
    ErrorEffect,
    FailedCheckError,
    JaxException,
    NaNError,
    OOBError,
    asserted,
    on_throw,
    one_of_batch,
)

Enabled = frozenset[type[JaxException]]
Rule = Callable[..., tuple[Error, Any]]
rules: dict[Primitive, Rule] = {}  # primitive -> rule(primitive, error, enabled, values, params) -> (error, out)
_may_make: dict[Primitive, frozenset[type[JaxException]]] = {}


class JaxRuntimeError(ValueError):
    """A check failed; the message says which, ``__cause__`` is the error."""


# -- the operation ----------------------------------------------------------------------------------------------------


def _run_check(*values: Any, err_tree: Any, debug: bool) -> tuple[()]:
    if debug:
        return ()
    error = runtime.tree_unflatten(err_tree, list(values)).get_exception()
    if error is not None:
        raised = JaxRuntimeError(str(error))
        line = source_info.summarize(error.traceback_info)
        if error.traceback_info is not None:
            raised.add_note(f"The check is at {line}.")
        raise raised from error
    return ()


def _admit_check(params: dict[str, Any]) -> bool:
    """Checks for debugging are left out of compiled programs, others may not be in them."""
    if params["debug"]:
        return False
    raise ValueError(
        "Cannot abstractly evaluate a checkify.check which was not functionalized. This probably means you tried to "
        "stage (jit/scan/pmap/...) a `check` without functionalizing it through `checkify.checkify`."
    )


check_p = Primitive("check", kinds.Effect(_run_check, admit=_admit_check), multiple_results=True)


def _type_check(*avals: Any, err_tree: Any, debug: bool) -> tuple[list[Any], Any]:
    return [], frozenset(runtime.tree_unflatten(err_tree, list(avals)).entries)


def _batch_check(size: int, values: list[Any], dims: list[batch_trace.Dim], *, err_tree: Any, debug: bool) -> Any:
    whole = batch_trace.all_in_front(size, values, dims)
    bind_check(runtime.tree_unflatten(err_tree, whole), debug)
    return [], []


check_p.def_effectful_abstract_eval(_type_check)
check_p.print_params = lambda params: {"debug": params["debug"]}
check_p.jvp = lambda primals, tangents, **params: (check_p.bind(*primals, **params), [])
check_p.transpose = lambda cts, *operands, **params: [None] * len(operands)
check_p.batch = _batch_check


def bind_check(error: Error, debug: bool = False) -> None:
    """Raise the error if there is one; while tracing, an operation that ``checkify`` makes a value of."""
    if any(np.ndim(entry.pred) for entry in error.entries.values()):
        error = one_of_batch(error)
    leaves, tree = runtime.tree_flatten(error)
    check_p.bind(*leaves, err_tree=tree, debug=debug)


on_throw(bind_check)


def _discharge(_: Any, error: Error, enabled: Enabled, values: list[Any], params: dict[str, Any]) -> Any:
    new: Error = runtime.tree_unflatten(params["err_tree"], values)
    for kind, entry in new.entries.items():
        if kind.error_type in enabled:
            error = error.updated(kind, *entry)
    return error.reporting(new.reports), []


# -- operations -------------------------------------------------------------------------------------------------------


def _plain(p: Primitive, values: Sequence[Any], params: dict[str, Any]) -> Any:
    return p.bind(*values, **params)


def _without_nan(p: Primitive, error: Error, enabled: Enabled, out: Any) -> Error:
    """One more check: that no result holds a NaN."""
    if NaNError not in enabled:
        return error
    outs = [x for x in (out if p.multiple_results else [out]) if _is_inexact(x)]
    if not outs:
        return error
    failed = jnp.any(jnp.isnan(outs[0]))
    for x in outs[1:]:
        failed = lax.bitwise_or(failed, jnp.any(jnp.isnan(x)))
    return asserted(error, failed, NaNError, (p.name,))


def _is_inexact(x: Any) -> bool:
    dtype = get_aval(x).dtype
    return not dtypes.is_extended(dtype) and dtypes.issubdtype(dtype, np.inexact)


def _number(p: Primitive, error: Error, enabled: Enabled, values: list[Any], params: dict[str, Any]) -> Any:
    out = _plain(p, values, params)
    return _without_nan(p, error, enabled, out), out


def _division(p: Primitive, error: Error, enabled: Enabled, values: list[Any], params: dict[str, Any]) -> Any:
    if DivisionByZeroError in enabled:
        error = asserted(error, jnp.any(jnp.equal(values[1], 0)), DivisionByZeroError)
    return _number(p, error, enabled, values, params)


def _in_bounds(
    p: Primitive, error: Error, operand: Any, indices: Any, axes: Sequence[int], most: Sequence[int]
) -> Error:
    """One more check: that every index vector (along the last dimension) is at least 0 and at most ``most``."""
    extents = get_aval(operand).shape
    indices = jnp.asarray(indices)
    shape = indices.shape
    if 0 in shape:
        return error
    largest = np.minimum(np.asarray(most, np.int64), np.iinfo(indices.dtype).max).astype(indices.dtype)
    largest = largest.reshape((1,) * (len(shape) - 1) + largest.shape)
    outside = lax.bitwise_or(jnp.less(indices, 0), jnp.greater(indices, jnp.asarray(largest)))
    position = jnp.argmax(jnp.ravel(outside))
    component = lax.rem(position, np.asarray(len(axes), position.dtype))
    axis = jnp.asarray(np.asarray(axes, np.int32))[component]
    extent = jnp.asarray(np.asarray([extents[a] for a in axes], np.int32))[component]
    payload = jnp.stack([jnp.ravel(indices)[position].astype("int32"), axis, extent])
    return asserted(error, jnp.any(outside), OOBError, (p.name, extents), payload)


def _starts(p: Primitive, error: Error, operand: Any, starts: Sequence[Any], sizes: Sequence[int]) -> Error:
    extents = get_aval(operand).shape
    if not extents:
        return error
    most = [extent - size for extent, size in zip(extents, sizes, strict=True)]
    return _in_bounds(p, error, operand, jnp.stack([jnp.asarray(s) for s in starts]), range(len(extents)), most)


def _dynamic_slice(p: Primitive, error: Error, enabled: Enabled, values: list[Any], params: dict[str, Any]) -> Any:
    if OOBError in enabled:
        error = _starts(p, error, values[0], values[1:], params["slice_sizes"])
    return error, _plain(p, values, params)


def _dynamic_update(p: Primitive, error: Error, enabled: Enabled, values: list[Any], params: dict[str, Any]) -> Any:
    if OOBError in enabled:
        error = _starts(p, error, values[0], values[2:], get_aval(values[1]).shape)
    return error, _plain(p, values, params)


def _gather(p: Primitive, error: Error, enabled: Enabled, values: list[Any], params: dict[str, Any]) -> Any:
    if OOBError in enabled:
        extents = get_aval(values[0]).shape
        axes = params["dimension_numbers"].start_index_map
        most = [extents[a] - params["slice_sizes"][a] for a in axes]
        error = _in_bounds(p, error, values[0], values[1], axes, most)
    return error, _plain(p, values, params)


def _scatter(p: Primitive, error: Error, enabled: Enabled, values: list[Any], params: dict[str, Any]) -> Any:
    out = _plain(p, values, params)
    if OOBError not in enabled:
        return error, out
    operand, indices, updates = values
    numbers = params["dimension_numbers"]
    thin = {*numbers.inserted_window_dims, *getattr(numbers, "operand_batching_dims", ())}
    windows = iter([get_aval(updates).shape[d] for d in numbers.update_window_dims])
    extents = get_aval(operand).shape
    sizes = [1 if d in thin else next(windows) for d in range(len(extents))]
    axes = numbers.scatter_dims_to_operand_dims
    error = _in_bounds(p, error, operand, indices, axes, [extents[a] - sizes[a] for a in axes])
    return _without_nan(p, error, enabled, out), out


# -- programs ---------------------------------------------------------------------------------------------------------


def run(
    jaxpr: Jaxpr, consts: Sequence[Any], enabled: Enabled, error: Error, args: Sequence[Any]
) -> tuple[Error, list[Any]]:
    """(what went wrong, the results) of a program, operation by operation."""
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))

    def read(atom: Any) -> Any:
        return _literal(atom) if isinstance(atom, Literal) else env[atom]

    for eqn, released in zip(jaxpr.eqns, last_uses(jaxpr), strict=True):
        values = [read(atom) for atom in eqn.invars]
        rule = rules.get(eqn.primitive)
        with source_info.replayed(eqn.source):
            if rule is not None and _makes(eqn, enabled):
                error, out = rule(eqn.primitive, error, enabled, values, eqn.params)
            else:
                out = eqn.primitive.bind(*values, **eqn.params)
        env.update(zip(eqn.outvars, out if eqn.primitive.multiple_results else (out,), strict=True))
        for v in released:
            del env[v]
    return error, [read(atom) for atom in jaxpr.outvars]


def _literal(atom: Literal) -> Any:
    """A literal in its own dtype, weakly typed where it is."""
    return atom.val if atom.aval.weak_type else core.wide(np.asarray(atom.val).astype(atom.aval.dtype)[()])


def _can_fail(program: Jaxpr | ClosedJaxpr, enabled: Enabled) -> bool:
    """Whether a check is among the operations of a program, at any depth."""
    jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    key: Any = ("checkify_can_fail", enabled)
    return jaxpr.memoize(key, lambda j: any(_makes(eqn, enabled) for eqn in j.eqns))


def _makes(eqn: Any, enabled: Enabled) -> bool:
    made = _may_make.get(eqn.primitive)
    if made is not None and not made.isdisjoint(enabled):
        return True
    return any(_can_fail(inner, enabled) for inner in jaxprs_in_params(eqn.params))


class Checked:
    """A program that takes and gives an Error: ``closed`` on (arrays of the error, arguments)."""

    __slots__ = ("closed", "n_in", "tree")

    def __init__(self, closed: ClosedJaxpr, n_in: int, tree: Any) -> None:
        self.closed, self.n_in, self.tree = closed, n_in, tree

    @property
    def kinds(self) -> frozenset[ErrorEffect]:
        return self.split(self.closed.out_avals)[0].kinds()

    @property
    def n_out(self) -> int:
        """How many arrays the Error that it gives has."""
        return runtime.tree_flatten(self.split(self.closed.out_avals)[0])[1].num_leaves

    def split(self, outs: Sequence[Any]) -> tuple[Error, list[Any]]:
        error, results = runtime.tree_unflatten(self.tree, list(outs))
        return error, list(results)


def checked(closed: ClosedJaxpr, enabled: Enabled, error: Error) -> Checked:
    """A program with an Error passing through it; remembered on the program."""
    leaves, tree = runtime.tree_flatten(error)
    avals = tuple([get_aval(leaf).strip_weak_type() for leaf in leaves])
    key: Any = ("checkify", enabled, tree, avals, tuple([id(const) for const in closed.consts]))
    return closed.jaxpr.memoize(key, lambda _: (_checked(closed, enabled, tree, avals), closed.consts))[0]


def _checked(closed: ClosedJaxpr, enabled: Enabled, tree: Any, avals: Sequence[Any]) -> Checked:
    out_tree: Any = None
    n = len(avals)

    def flat(*values: Any) -> list[Any]:
        nonlocal out_tree
        error = runtime.tree_unflatten(tree, list(values[:n]))
        outs, out_tree = runtime.tree_flatten(run(closed.jaxpr, closed.consts, enabled, error, values[n:]))
        return outs

    made, _ = tracing.trace_to_jaxpr(flat, [*avals, *closed.in_avals], closed.jaxpr.debug_info, of_program=True)
    return Checked(made, n, out_tree)


def _steady(programs: Sequence[ClosedJaxpr], enabled: Enabled, error: Error) -> tuple[Error, list[Checked]]:
    """The error with the kinds that any of the programs makes, and the programs that take it and give its like."""
    while True:
        made = [checked(program, enabled, error) for program in programs]
        found = frozenset().union(*[program.kinds for program in made])
        if found <= error.kinds():
            return error, made
        error = error.with_kinds(found)


def _merged(error: Error, made: Sequence[Checked]) -> Error:
    """With the reports of every program."""
    for program in made:
        error = error.reporting(program.split(program.closed.out_avals)[0].reports)
    return error


def _leaves(error: Error) -> list[Any]:
    return runtime.tree_flatten(error)[0]


def _permuted(closed: ClosedJaxpr, order: Sequence[int]) -> ClosedJaxpr:
    jaxpr = closed.jaxpr
    return ClosedJaxpr(jaxpr.replace(invars=[jaxpr.invars[k] for k in order], debug_info=None), closed.consts)


def _called(p: Primitive, error: Error, enabled: Enabled, values: list[Any], params: dict[str, Any]) -> Any:
    """A call: of ``jit`` or ``checkpoint``."""
    made = checked(params["jaxpr"], enabled, error)
    program, captured = call_primitive.close_over(made.closed)
    operands = [*captured, *_leaves(error), *values]
    changed = {**params, "jaxpr": program}
    if "donated_invars" in params:
        kept = len(operands) - len(values)
        changed["donated_invars"] = (False,) * kept + tuple(params["donated_invars"])
    return made.split(p.bind(*operands, **changed))


def _sharded(p: Primitive, error: Error, enabled: Enabled, values: list[Any], params: dict[str, Any]) -> Any:
    """Each shard has an Error of its own; theirs lie side by side, and the call's is one of them."""
    out_specs, manual = params["out_specs"], shards.in_mesh_order(params["mesh"], params["newly_manual_axes"])
    with shards.inside(params):
        made = checked(ClosedJaxpr(params["jaxpr"]), enabled, NO_ERROR)
        closed = made.closed

        def with_rows(*given: Any) -> list[Any]:
            outs = eval_jaxpr(closed.jaxpr, closed.consts, *given)
            return [*[lax.reshape(x, (1, *np.shape(x))) for x in outs[: made.n_out]], *outs[made.n_out :]]

        program, _ = tracing.trace_to_jaxpr(with_rows, closed.in_avals, closed.jaxpr.debug_info, of_program=True)
    specs = (*(PartitionSpec(manual),) * made.n_out, *out_specs)
    others = {name: value for name, value in params.items() if name != "jaxpr"}
    found, results = made.split(shards.bind(program, values, {**others, "out_specs": specs}))
    found = one_of_batch(found)
    for kind, entry in found.entries.items():
        error = error.updated(kind, *entry)
    return error.reporting(found.reports), results


def _branched(p: Primitive, error: Error, enabled: Enabled, values: list[Any], params: dict[str, Any]) -> Any:
    error, made = _steady(params["branches"], enabled, error)
    hoisted = [bodies.without_constants(program.closed) for program in made]
    programs, captured = bodies.with_common_captures([bodies.Body(c, tuple(x), None) for c, x in hoisted])
    outs = p.bind(values[0], *captured, *_leaves(error), *values[1:], **{**params, "branches": tuple(programs)})
    error, results = made[0].split(outs)
    return _merged(error, made), results


def _scanned(p: Primitive, error: Error, enabled: Enabled, values: list[Any], params: dict[str, Any]) -> Any:
    n_consts, n_carry = params["num_consts"], params["num_carry"]
    error, (made,) = _steady([params["jaxpr"]], enabled, error)
    n = made.n_in
    consts = range(n, n + n_consts)
    order = [*consts, *range(n), *range(n + n_consts, n + len(values))]
    program, captured = bodies.without_constants(_permuted(made.closed, order))
    outs = p.bind(
        *captured, *values[:n_consts], *_leaves(error), *values[n_consts:],
        **{**params, "jaxpr": program, "num_consts": n_consts + len(captured), "num_carry": n_carry + n},
    )  # fmt: skip
    return made.split(outs)


def _while(p: Primitive, error: Error, enabled: Enabled, values: list[Any], params: dict[str, Any]) -> Any:
    """The condition is checked before the loop, and by the body on the state that it makes."""
    test, body = params["cond_jaxpr"], params["body_jaxpr"]
    n_test, n_body = params["cond_nconsts"], params["body_nconsts"]
    if batched_programs.ends_by_element(test):
        raise ValueError(
            "Checkify does not support batched while-loops (checkify-of-vmap-of-while). \nHint: if possible, move the "
            "vmap to the outer level to get vmap-of-checkify-of-while."
        )
    tested, captured, state = values[:n_test], values[n_test : n_test + n_body], values[n_test + n_body :]
    error, _ = run(test.jaxpr, test.consts, enabled, error, [*tested, *state])
    both = body.jaxpr.memoize(
        ("checkify_both", id(test.jaxpr)), lambda _: (_body_and_test(body, test, n_test), body.consts, test)
    )[0]
    error, (made,) = _steady([both], enabled, error)
    n = made.n_in
    order = [*range(n, n + n_test + n_body), *range(n), *range(n + n_test + n_body, n + len(values))]
    program, in_body = bodies.without_constants(_permuted(made.closed, order))
    program = ClosedJaxpr(program.jaxpr.replace(outvars=program.jaxpr.outvars[:-1], debug_info=None))
    test, in_test = bodies.without_constants(_unchecked(test, enabled, error, n_test))
    outs = p.bind(
        *in_test, *tested, *in_body, *tested, *captured, *_leaves(error), *state, cond_jaxpr=test, body_jaxpr=program,
        cond_nconsts=len(in_test) + n_test, body_nconsts=len(in_body) + n_test + n_body,
    )  # fmt: skip
    found, results = made.split([*outs, np.False_])
    return found, results[:-1]


def _unchecked(test: ClosedJaxpr, enabled: Enabled, error: Error, n_test: int) -> ClosedJaxpr:
    """A condition on (what it captured, arrays of an error, state) without its checks."""
    made = checked(test, enabled, error)
    n = made.n_in
    order = [*range(n, n + n_test), *range(n), *range(n + n_test, len(made.closed.in_avals))]
    closed = _permuted(made.closed, order)
    only = closed.jaxpr.replace(outvars=closed.jaxpr.outvars[-1:], debug_info=None)
    return ClosedJaxpr(rewrite.dce(only)[0], closed.consts)


def _body_and_test(body: ClosedJaxpr, test: ClosedJaxpr, n_test: int) -> ClosedJaxpr:
    """(what the condition captured, what the body captured, state) -> the new state, and whether the loop goes on."""

    def flat(*values: Any) -> list[Any]:
        state = eval_jaxpr(body.jaxpr, body.consts, *values[n_test:])
        return [*state, *eval_jaxpr(test.jaxpr, test.consts, *values[:n_test], *state)]

    return tracing.trace_to_jaxpr(flat, [*test.in_avals[:n_test], *body.in_avals])[0]


# -- functions with derivatives of their own --------------------------------------------------------------------------


def _by_loops(p: Primitive, error: Error, enabled: Enabled, values: list[Any], params: dict[str, Any]) -> Any:
    """A program run on the cells of a grid: they are checked as the loop that they are."""
    loops = grid_cells.in_order
    closed, _ = tracing.trace_to_jaxpr(lambda *given: loops(*given, **params), list(map(get_aval, values)))
    return run(closed.jaxpr, closed.consts, enabled, error, values)


class _CheckedJvp(custom_jvp.JvpRule):
    """The rule of a custom_jvp function in a checked program; it passes the Error on unchanged."""

    __slots__ = ("n_in", "rule")

    def __init__(self, rule: custom_jvp.JvpRule, n_in: int) -> None:
        in_tree = _flat_tree(n_in + rule.in_tree.num_leaves)
        super().__init__(rule.name, rule.function, rule.nondiff, in_tree, rule.symbolic_zeros)
        self.rule, self.n_in = rule, n_in

    def _key(self) -> tuple[Any, ...]:
        return (*super()._key(), self.rule, self.n_in)

    def __hash__(self) -> int:
        return hash((self.function, self.n_in))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _CheckedJvp) and self._key() == other._key()

    def push(self, primals: Sequence[Any], tangents: Sequence[Any], out_avals: Any = None) -> tuple[Any, Any, Any]:
        return _passed(self.rule, self.n_in, primals, tangents)


class _CheckedVjp(custom_vjp.VjpRule):
    """The rules of a custom_vjp function in a checked program; they pass the Error on unchanged."""

    __slots__ = ("n_in", "rule")

    def __init__(self, rule: custom_vjp.VjpRule, n_in: int) -> None:
        in_tree = _flat_tree(n_in + rule.in_tree.num_leaves)
        super().__init__(rule.name, rule.fwd, rule.bwd, rule.fixed, in_tree, rule.symbolic_zeros)
        self.rule, self.n_in = rule, n_in

    def push(self, primals: Sequence[Any], tangents: Sequence[Any], out_avals: Any = None) -> tuple[Any, Any, Any]:
        return _passed(self.rule, self.n_in, primals, tangents)


def _flat_tree(count: int) -> Any:
    return runtime.tree_flatten([0] * count)[1]


def _passed(rule: Any, n: int, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any, Any]:
    outs, out_tangents, _ = rule.push(primals[n:], tangents[n:])
    errors = list(primals[:n])
    results = [*errors, *outs]
    return results, [*[Zero.from_primal_value(x) for x in errors], *out_tangents], _flat_tree(len(results))


def _custom(word: str, make: Callable[[Any, int], Any]) -> Rule:
    def rule(p: Primitive, error: Error, enabled: Enabled, values: list[Any], params: dict[str, Any]) -> Any:
        error, (made,) = _steady([params["call_jaxpr"]], enabled, error)
        n, n_captured = made.n_in, len(values) - params[word].in_tree.num_leaves
        order = [*range(n, n + n_captured), *range(n), *range(n + n_captured, n + len(values))]
        program, captured = call_primitive.close_over(_permuted(made.closed, order))
        outs = p.bind(
            *captured, *values[:n_captured], *_leaves(error), *values[n_captured:],
            **{**params, "call_jaxpr": program, word: make(params[word], n)},
        )  # fmt: skip
        return made.split(outs)

    return rule


# -- the table --------------------------------------------------------------------------------------------------------

_SCATTERS = ("scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max", "scatter-sub")


def _fill() -> None:
    known = primitive.registry
    for name in nan_operations.NAMES.split():
        if name in known:
            rules[known[name]], _may_make[known[name]] = _number, frozenset({NaNError})
    rules[lax.div_p], _may_make[lax.div_p] = _division, frozenset({NaNError, DivisionByZeroError})
    bounded: dict[str, Rule] = {"dynamic_slice": _dynamic_slice, "dynamic_update_slice": _dynamic_update}
    bounded.update({"gather": _gather, **dict.fromkeys(_SCATTERS, _scatter)})
    for name, rule in bounded.items():
        if name in known:
            rules[known[name]], _may_make[known[name]] = rule, frozenset({OOBError})
    rules[check_p], _may_make[check_p] = _discharge, frozenset({FailedCheckError, *_may_make[lax.div_p], OOBError})
    rules[call_primitive.jit_p] = rules[checkpoint.checkpoint_p] = _called
    rules[branches.cond_p], rules[scan.scan_p], rules[while_loop.while_p] = _branched, _scanned, _while
    rules[grid_loop.grid_loop_p] = _by_loops
    rules[shards.shard_map_p] = _sharded
    rules[custom_jvp.custom_jvp_call_p] = _custom("jvp", _CheckedJvp)
    rules[custom_vjp.custom_vjp_call_p] = _custom("rule", _CheckedVjp)


_fill()


def functionalized(closed: ClosedJaxpr, enabled: Enabled) -> tuple[Error, list[Any]]:
    """(what went wrong, the results) of a program without arguments."""
    return run(closed.jaxpr, closed.consts, enabled, NO_ERROR, [])
