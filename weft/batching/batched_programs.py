"""Batching rules of primitives with jaxprs as parameters: calls, custom derivatives, loops and branches.

A batched program takes and returns whole values. A part of a loop's state is mapped if any iteration makes it so. If
the condition of a loop differs between elements, the loop runs until all are done, and elements that are done keep
their state. If a branch index differs between elements, every branch runs, and results are selected.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._base import lazy
from weft.autodiff import checkpoint, custom_jvp, custom_vjp
from weft.batching.batch_trace import batch_jaxpr, map_flat, with_dim, without_dim
from weft.control import bodies, scan, while_loop
from weft.control import branches as branches_module
from weft.core import avals as avals_module
from weft.core import axis_names
from weft.core.axis_names import Axis
from weft.core.effects import keeps
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr, DebugInfo
from weft.core.tangents import Zero, tangent_aval
from weft.core.tracing import trace as tracing
from weft.dispatch.calls import call_primitive, composites
from weft.effects import callbacks
from weft.operations import effects, linear, reductions
from weft.operations.data_movement import shape
from weft.operations.mapped import Dim, all_in_front, at, in_front, repeated
from weft.operations.pointwise import logic


def _call(
    axis: Axis, values: list[Any], dims: list[Dim], *, jaxpr: ClosedJaxpr, donated_invars: Any, **params: Any
) -> Any:
    program, out_dims = batch_jaxpr(jaxpr, axis, tuple(dims))
    program, captured = call_primitive.close_over(program)
    outs = call_primitive.jit_p.bind(
        *captured, *values, jaxpr=program, donated_invars=(False,) * len(captured) + tuple(donated_invars), **params
    )
    return outs, list(out_dims)


def _composite(axis: Axis, values: list[Any], dims: list[Dim], *, jaxpr: ClosedJaxpr, **params: Any) -> Any:
    program, out_dims = batch_jaxpr(jaxpr, axis, tuple(dims))
    return eval_jaxpr(program.jaxpr, program.consts, *values), list(out_dims)


def _checkpoint(axis: Axis, values: list[Any], dims: list[Dim], *, jaxpr: ClosedJaxpr, **params: Any) -> Any:
    program, out_dims = batch_jaxpr(jaxpr, axis, tuple(dims))
    return checkpoint.bind(program, values, params), list(out_dims)


# -- custom derivatives -----------------------------------------------------------------------------------------------


class MappedRule(custom_jvp.JvpRule):
    """The rule of a custom_jvp function, mapped over its operands."""

    __slots__ = ("axis", "dims", "rule")

    def __init__(self, rule: custom_jvp.JvpRule, axis: Axis, dims: tuple[Dim, ...]) -> None:
        super().__init__(rule.name, rule.function, rule.nondiff, rule.in_tree, rule.symbolic_zeros)
        self.rule = rule
        self.axis = axis
        self.dims = dims

    def _key(self) -> tuple[Any, ...]:
        return (*super()._key(), self.axis, self.dims)

    def __hash__(self) -> int:
        return hash((self.function, self.axis, self.dims))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MappedRule) and self._key() == other._key()

    def push(self, primals: Sequence[Any], tangents: Sequence[Any], out_avals: Any = None) -> tuple[Any, Any, Any]:
        count = len(primals)
        live = [type(t) is not Zero for t in tangents]
        tree: Any = None
        zeros: list[bool] = []

        def one(*values: Any) -> list[Any]:
            nonlocal tree
            given = iter(values[count:])
            own = [
                next(given) if has else Zero(tangent_aval(avals_module.get_aval(x)))
                for has, x in zip(live, values[:count], strict=True)
            ]
            outs, out_tangents, tree = self.rule.push(values[:count], own)
            zeros[:] = [type(t) is Zero for t in out_tangents]
            return [*outs, *[linear.instantiate(t) for t in out_tangents]]

        moving = [t for t, has in zip(tangents, live, strict=True) if has]
        moving_dims = [dim for dim, has in zip(self.dims, live, strict=True) if has]
        outs, dims = map_flat(one, self.axis, [*primals, *moving], [*self.dims, *moving_dims])
        whole = [in_front(self.axis.size, out, dim) for out, dim in zip(outs, dims, strict=True)]
        half = len(whole) // 2
        slopes = zip(whole[half:], zeros, strict=True)
        return whole[:half], [Zero(avals_module.get_aval(t)) if zero else t for t, zero in slopes], tree


def _custom_jvp(
    axis: Axis, values: list[Any], dims: list[Dim], *, call_jaxpr: ClosedJaxpr, jvp: custom_jvp.JvpRule, **params: Any
) -> Any:
    program, _ = batch_jaxpr(call_jaxpr, axis, tuple(dims), (True,) * len(call_jaxpr.out_avals))
    program, captured = call_primitive.close_over(program)
    given = len(values) - jvp.in_tree.num_leaves
    rule = MappedRule(jvp, axis, tuple(dims[given:]))
    outs = custom_jvp.custom_jvp_call_p.bind(*captured, *values, call_jaxpr=program, jvp=rule, **params)
    return outs, [0] * len(outs)


class MappedVjpRule(custom_vjp.VjpRule):
    """The rules of a custom_vjp function, mapped over its operands.

    Results are mapped along dimension 0, so that each element's rule sees its own cotangent. If no operand is mapped,
    ``out_dims`` says so of the results; their cotangent is the sum of those of all elements, which each rule sees.
    """

    __slots__ = ("axis", "dims", "out_dims", "rule")

    def __init__(
        self, rule: custom_vjp.VjpRule, axis: Axis, dims: tuple[Dim, ...], out_dims: tuple[Dim, ...] | None = None
    ) -> None:
        super().__init__(rule.name, rule.fwd, rule.bwd, rule.fixed, rule.in_tree, rule.symbolic_zeros)
        self.rule = rule
        self.axis = axis
        self.dims, self.out_dims = dims, out_dims

    def forward(self, primals: Sequence[Any], perturbed: Sequence[bool]) -> tuple[list[Any], Any, list[Any], Any]:
        trees: Any = None
        count = 0

        def one(*values: Any) -> list[Any]:
            nonlocal trees, count
            outs, out_tree, residuals, res_tree = self.rule.forward(values, perturbed)
            trees, count = (out_tree, res_tree), len(outs)
            return [*outs, *residuals]

        made, dims = map_flat(one, self.axis, primals, self.dims)
        wanted = self.out_dims or (0,) * count
        outs = [self._result(*row) for row in zip(made[:count], dims[:count], wanted, strict=True)]
        return outs, trees[0], made[count:], (trees[1], dims[count:])

    def _result(self, out: Any, dim: Dim, wanted: Dim) -> Any:
        if wanted is not None:
            return in_front(self.axis.size, out, dim)
        return out if dim is None else shape.index_in_dim(out, 0, dim, keepdims=False)  # the same for all elements

    def pull(self, res_tree: Any, out_tree: Any, residuals: Any, cts: Any, in_avals: Any) -> list[Any]:
        tree, res_dims = res_tree
        out_dims = self.out_dims or (0,) * len(cts)
        live = [(ct, dim) for ct, dim in zip(cts, out_dims, strict=True) if type(ct) is not Zero]
        elements = [without_dim(aval, dim) for aval, dim in zip(in_avals, self.dims, strict=True)]
        count = len(residuals)
        zeros: list[bool] = []

        def one(*values: Any) -> list[Any]:
            given = iter(values[count:])
            own = [
                Zero(without_dim(ct.aval, dim)) if type(ct) is Zero else next(given)
                for ct, dim in zip(cts, out_dims, strict=True)
            ]
            back = self.rule.pull(tree, out_tree, values[:count], own, elements)
            zeros[:] = [type(ct) is Zero for ct in back]
            return [ct for ct in back if type(ct) is not Zero]

        held = custom_vjp.held_refs(tree)
        run = functools.partial(lazy.discharge.map_again, map_flat, held=held) if held else map_flat
        values, dims = [*residuals, *[ct for ct, _ in live]], [*res_dims, *[dim for _, dim in live]]
        made, dims = run(one, self.axis, values, dims)
        found = iter(zip(made, dims, strict=True))
        return [
            Zero(tangent_aval(aval)) if zero else self._collected(*next(found), dim)
            for zero, aval, dim in zip(zeros, in_avals, self.dims, strict=True)
        ]

    def constant_results(self, live: Sequence[bool], count: int) -> Sequence[int]:
        return self.rule.constant_results(live, count)

    def _collected(self, ct: Any, dim: Dim, wanted: Dim) -> Any:
        """The cotangent of an operand, from those of the elements; their sum if the operand is not mapped."""
        if wanted is None:
            if dim is None and self.out_dims is not None and None in self.out_dims:
                return ct  # already of all elements
            return reductions.reduce_sum(in_front(self.axis.size, ct, dim), (0,))
        return repeated(self.axis.size, ct, wanted) if dim is None else at(ct, dim, wanted)


def _custom_vjp(
    axis: Axis, values: list[Any], dims: list[Dim], *, call_jaxpr: ClosedJaxpr, rule: custom_vjp.VjpRule, **params: Any
) -> Any:
    is_mapped = any(dim is not None for dim in dims)
    program, out_dims = batch_jaxpr(call_jaxpr, axis, tuple(dims), (is_mapped,) * len(call_jaxpr.out_avals))
    program, captured = call_primitive.close_over(program)
    mapped = MappedVjpRule(rule, axis, tuple(dims[len(values) - rule.in_tree.num_leaves :]), out_dims)
    outs = custom_vjp.custom_vjp_call_p.bind(*captured, *values, call_jaxpr=program, rule=mapped, **params)
    return outs, list(out_dims)


def _custom_lin(
    axis: Axis, values: list[Any], dims: list[Dim], *, rule: custom_vjp.VjpRule, num_res: int, in_zeros: Any,
    in_avals: Any, out_avals: Any, res_tree: Any, **params: Any,
) -> Any:  # fmt: skip
    """Batch the linear equation of a custom_vjp function."""
    moving = iter(dims[num_res:])
    in_dims = tuple([None if zero else next(moving) for zero in in_zeros])
    outs = custom_vjp.custom_lin_p.bind(
        *values,
        rule=MappedVjpRule(rule, axis, in_dims),
        num_res=num_res,
        in_zeros=in_zeros,
        in_avals=[with_dim(aval, axis.size, dim) for aval, dim in zip(in_avals, in_dims, strict=True)],
        out_avals=[with_dim(aval, axis.size, 0) for aval in out_avals],
        res_tree=(res_tree, dims[:num_res]),
        **params,
    )
    return outs, [0] * len(outs)


# -- loops ------------------------------------------------------------------------------------------------------------


def _front(size: int, values: Sequence[Any], dims: Sequence[Dim], mapped: Sequence[bool]) -> list[Any]:
    """Values with their mapped dimension first; values that must be mapped and are not are broadcast."""
    return [
        in_front(size, value, dim) if dim is not None or must else value
        for value, dim, must in zip(values, dims, mapped, strict=True)
    ]


def _flags(mapped: Sequence[bool]) -> tuple[Dim, ...]:
    return tuple([0 if flag else None for flag in mapped])


def _scan(
    axis: Axis,
    values: list[Any],
    dims: list[Dim],
    *,
    jaxpr: ClosedJaxpr,
    num_consts: int,
    num_carry: int,
    **params: Any,
) -> Any:
    mapped = [dim is not None for dim in dims]
    first, last = num_consts, num_consts + num_carry
    n_ys = len(jaxpr.out_avals) - num_carry
    while True:
        wanted = (*mapped[first:last], *(False,) * n_ys)
        program, out_dims = batch_jaxpr(jaxpr, axis, _flags(mapped), wanted)
        grown = [flag or dim is not None for flag, dim in zip(mapped[first:last], out_dims, strict=False)]
        if grown == mapped[first:last]:
            break
        mapped[first:last] = grown
    program, captured = bodies.without_constants(program)
    before = _front(axis.size, values[:last], dims[:last], mapped[:last])
    inputs = [x if dim is None else at(x, dim, 1) for x, dim in zip(values[last:], dims[last:], strict=True)]
    outs = scan.scan_p.bind(
        *captured, *before, *inputs, jaxpr=program,
        num_consts=num_consts + len(captured), num_carry=num_carry, **params,
    )  # fmt: skip
    return outs, [*out_dims[:num_carry], *[None if dim is None else 1 for dim in out_dims[num_carry:]]]


def _while(
    axis: Axis, values: list[Any], dims: list[Dim], *, cond_jaxpr: ClosedJaxpr, body_jaxpr: ClosedJaxpr,
    cond_nconsts: int, body_nconsts: int,
) -> Any:  # fmt: skip
    mapped = [dim is not None for dim in dims]
    tested, first = mapped[:cond_nconsts], cond_nconsts + body_nconsts
    again = ends_by_element(cond_jaxpr)  # mapped once more: its body keeps what is done, and each element has a test
    if again:
        cond_jaxpr = _each_goes_on(cond_jaxpr)
    while True:
        state = mapped[first:]
        test, (differs,) = batch_jaxpr(cond_jaxpr, axis, _flags([*tested, *state]), (False,))
        if differs is not None:
            state = [True] * len(state)
            test, _ = batch_jaxpr(cond_jaxpr, axis, _flags([*tested, *state]), (True,))
        body, out_dims = batch_jaxpr(body_jaxpr, axis, _flags([*mapped[cond_nconsts:first], *state]), tuple(state))
        grown = [flag or dim is not None for flag, dim in zip(state, out_dims, strict=True)]
        if grown == mapped[first:]:
            break
        mapped[first:] = grown
    whole = _front(axis.size, values, dims, mapped)
    n_body = body_nconsts
    if differs is not None:
        if callbacks.is_io(cond_jaxpr.effects | body_jaxpr.effects):
            raise NotImplementedError("Unordered IO effects not supported in while_loop with batched predicate")
        _check_exchanges([cond_jaxpr.effects, body_jaxpr.effects], axis, "a loop that some end before others")
        if not again:
            body = _keeping_done(test, body, cond_nconsts, body_nconsts)
            whole[cond_nconsts:cond_nconsts] = whole[:cond_nconsts]
            n_body += cond_nconsts
    if again or differs is not None:
        test = _any_goes_on(test)
    test, in_test = bodies.without_constants(test)
    body, in_body = bodies.without_constants(body)
    outs = while_loop.while_p.bind(
        *in_test, *whole[:cond_nconsts], *in_body, *whole[cond_nconsts:], cond_jaxpr=test, body_jaxpr=body,
        cond_nconsts=cond_nconsts + len(in_test), body_nconsts=n_body + len(in_body),
    )  # fmt: skip
    return outs, list(_flags(mapped[first:]))


def _any_goes_on(test: ClosedJaxpr) -> ClosedJaxpr:
    """The condition of a loop whose elements end at different times: whether any of them continues."""

    def flat(*args: Any) -> list[Any]:
        (goes_on,) = eval_jaxpr(test.jaxpr, test.consts, *args)
        return [reductions.reduce_or_p.bind(goes_on, axes=tuple(range(goes_on.ndim)))]

    return tracing.trace_to_jaxpr(flat, test.in_avals, _BY_ELEMENT)[0]


def _each_goes_on(test: ClosedJaxpr) -> ClosedJaxpr:
    """The condition of each element, from one that ``_any_goes_on`` made."""
    jaxpr = test.jaxpr
    *before, any_of = jaxpr.eqns
    assert any_of.outvars == jaxpr.outvars, "the condition of a mapped loop ends with its reduction"
    return ClosedJaxpr(type(jaxpr)(jaxpr.constvars, jaxpr.invars, any_of.invars, before), test.consts)


_BY_ELEMENT = DebugInfo("while_cond of a mapped loop", "any")


def ends_by_element(test: ClosedJaxpr) -> bool:
    """Whether a condition was made by ``_any_goes_on``."""
    return test.jaxpr.debug_info is _BY_ELEMENT


def _keeping_done(test: ClosedJaxpr, body: ClosedJaxpr, n_tested: int, n_captured: int) -> ClosedJaxpr:
    """The body on (captures of the condition, captures of the body, state), which does not change finished elements."""

    def flat(*args: Any) -> list[Any]:
        tested, captured, state = args[:n_tested], args[n_tested : n_tested + n_captured], args[n_tested + n_captured :]
        (goes_on,) = eval_jaxpr(test.jaxpr, test.consts, *tested, *state)
        new = eval_jaxpr(body.jaxpr, body.consts, *captured, *state)
        return [_select(goes_on, before, after) for before, after in zip(state, new, strict=True)]

    return tracing.trace_to_jaxpr(flat, [*test.in_avals[:n_tested], *body.in_avals])[0]


def _select(which: Any, on_false: Any, on_true: Any) -> Any:
    """Select elements along the mapped dimension, dimension 0."""
    out, _ = logic.select_n_p.batch(0, [which, on_false, on_true], [0, 0, 0])
    return out


# -- branches ---------------------------------------------------------------------------------------------------------


def _branch(axis: Axis, values: list[Any], dims: list[Dim], *, branches: tuple[ClosedJaxpr, ...], **params: Any) -> Any:
    index, *operands = values
    mapped = tuple(dims[1:])
    if "branches_platforms" in params and dims[0] is not None:  # one platform for all elements
        index, dims = branches_module.platform_index_p.bind(platforms=params["branches_platforms"]), [None, *mapped]
    if dims[0] is None:
        found = [batch_jaxpr(branch, axis, mapped, (False,) * len(branch.out_avals))[1] for branch in branches]
        wanted = tuple([any(dim is not None for dim in column) for column in zip(*found, strict=True)])
        programs = [batch_jaxpr(branch, axis, mapped, wanted)[0] for branch in branches]
        outs = _bind_branches(index, operands, programs, params)
        return outs, list(_flags(wanted))
    if any(callbacks.is_io(branch.effects) for branch in branches):
        raise NotImplementedError("IO effect not supported in vmap-of-cond.")
    _check_exchanges([branch.effects for branch in branches], axis, "a branch that some take, and others do not")
    size = axis.size
    index = in_front(size, index, dims[0])
    if any(keeps(branch.effects) for branch in branches):  # every branch would run its effects, for every element
        operands, mapped = all_in_front(size, operands, mapped), (0,) * len(operands)
    operands = [x if dim is None else in_front(size, x, dim) for x, dim in zip(operands, mapped, strict=True)]
    mapped = _flags([dim is not None for dim in mapped])
    columns = []
    for number, branch in enumerate(branches):
        taken = logic.eq(index, np.asarray(number, np.int32))
        own = [x if dim is None else _kept_apart(taken, x) for x, dim in zip(operands, mapped, strict=True)]
        outs, out_dims = map_flat(
            lambda *args, branch=branch: eval_jaxpr(branch.jaxpr, branch.consts, *args), axis, own, mapped
        )
        columns.append([in_front(size, out, dim) for out, dim in zip(outs, out_dims, strict=True)])
    chosen = [logic.select_n_p.batch(0, [index, *cases], [0] * (len(cases) + 1))[0] for cases in zip(*columns)]
    return chosen, [0] * len(chosen)


def _kept_apart(taken: Any, operand: Any) -> Any:
    """The operand; elements that take another branch get no derivative, which could be NaN times 0."""
    if not isinstance(avals_module.get_aval(operand).dtype, np.dtype):  # a key
        return operand
    return _select(taken, effects.stop_gradient(operand), operand)


def _bind_branches(index: Any, operands: list[Any], programs: Sequence[ClosedJaxpr], params: Any) -> Any:
    made = [bodies.Body(*_hoisted(program), None) for program in programs]
    common, captured = bodies.with_common_captures(made)
    return branches_module.cond_p.bind(index, *captured, *operands, branches=tuple(common), **params)


def _check_exchanges(found: Sequence[Any], axis: Axis, where: str) -> None:
    """NotImplementedError for what has to be run by all elements of an axis."""
    if any(axis_names.EXCHANGE in effects for effects in found):
        raise NotImplementedError(
            f"a remote copy or signal in {where}, along the axis {axis.name!r}: every device has to start it. Start it "
            "outside, and let those that have nothing to send, send to themselves"
        )


def _hoisted(program: ClosedJaxpr) -> tuple[ClosedJaxpr, tuple[Any, ...]]:
    closed, captured = bodies.without_constants(program)
    return closed, tuple(captured)


_RULES: dict[Any, Callable[..., Any]] = {
    call_primitive.jit_p: _call,
    composites.composite_p: _composite,
    checkpoint.checkpoint_p: _checkpoint,
    custom_jvp.custom_jvp_call_p: _custom_jvp,
    custom_vjp.custom_vjp_call_p: _custom_vjp,
    custom_vjp.custom_lin_p: _custom_lin,
    scan.scan_p: _scan,
    while_loop.while_p: _while,
    branches_module.cond_p: _branch,
}
for _primitive, _rule in _RULES.items():
    _primitive.batch_axis = _rule
