"""Dead code inside of the programs that equations carry: in loops, branches, calls and functions with their own rules.

``dce_jaxpr`` goes through a program from its last equation to its first. A rule of ``dce_rules`` says which operands an
equation needs if only some of its results are used, and gives an equation without the others::

    a b = scan[jaxpr={ lambda ; i c x. let ... in (i + 1, c + x, i)}] i c xs    ->    only ``b`` used: a scan of ``i``
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import runtime
from weft.autodiff.checkpoint import checkpoint_p
from weft.autodiff.custom_jvp import JvpRule, custom_jvp_call_p
from weft.autodiff.custom_vjp import VjpRule, custom_vjp_call_p
from weft.control.branches import cond_p
from weft.control.scan import scan_p
from weft.core import effects
from weft.core.avals import get_aval
from weft.core.programs import rewrite
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, joined_effects
from weft.core.tangents import Zero, tangent_aval
from weft.dispatch.calls.call_primitive import jit_p

DCERule = Callable[[list[bool], JaxprEqn], tuple[list[bool], JaxprEqn | None]]
dce_rules: dict[Any, DCERule] = {}  # primitive -> rule(used results, equation) -> (used operands, new equation or None)


def dce_jaxpr(
    jaxpr: Jaxpr, used_outputs: bool | Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[bool]]:
    """(the program of the used results without dead equations, which inputs it takes); ``instantiate`` keeps inputs."""
    used = [used_outputs] * len(jaxpr.outvars) if isinstance(used_outputs, bool) else list(used_outputs)
    kept = [instantiate] * len(jaxpr.invars) if isinstance(instantiate, bool) else list(instantiate)
    outvars = [atom for atom, keep in zip(jaxpr.outvars, used, strict=True) if keep]
    live: set[Var] = {atom for atom in outvars if not isinstance(atom, Literal)}
    eqns: list[JaxprEqn] = []
    for eqn in reversed(jaxpr.eqns):
        results = [v in live for v in eqn.outvars]
        if not any(results) and not effects.keeps(eqn.effects):
            continue
        used_operands, new = dce_rules.get(eqn.primitive, _whole)(results, eqn)
        if new is not None:
            eqns.append(rewrite.with_drops(new, live))
        live.update(
            atom for atom, has in zip(eqn.invars, used_operands, strict=True) if has and not isinstance(atom, Literal)
        )
    eqns.reverse()
    used_inputs = [v in live or keep for v, keep in zip(jaxpr.invars, kept, strict=True)]
    invars = [v for v, has in zip(jaxpr.invars, used_inputs, strict=True) if has]
    info = jaxpr.debug_info
    if info is not None and info.arg_names is not None and len(info.arg_names) == len(used_inputs):
        info = info._replace(arg_names=[n for n, has in zip(info.arg_names, used_inputs, strict=True) if has])
    if info is not None and not all(used):
        info = info._replace(result_paths=None)
    made = Jaxpr(jaxpr.constvars, invars, outvars, eqns, joined_effects(eqns), info)
    return made, used_inputs


def _marked(values: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    return [value for value, flag in zip(values, flags, strict=True) if flag]


def _whole(used: list[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
    """The rule of most primitives: all operands."""
    return [True] * len(eqn.invars), eqn


def _shortened(
    eqn: JaxprEqn, operands: list[bool], results: list[bool], params: dict[str, Any], programs: Sequence[Any]
) -> JaxprEqn:
    return eqn.replace(
        invars=_marked(eqn.invars, operands), outvars=_marked(eqn.outvars, results), params=params,
        effects=effects.join(*[program.effects for program in programs]),
    )  # fmt: skip


# -- calls ------------------------------------------------------------------------------------------------------------


def rule_of_call(name: str) -> DCERule:
    """The rule of a call whose parameter ``name`` is the program: dead code inside it goes too."""

    def rule(used: list[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
        """Which operands a call needs if of its results only the ``used`` ones do, and that call; None for none."""
        if not any(used) and not effects.keeps(eqn.effects):
            return [False] * len(eqn.invars), None
        held = eqn.params[name]
        jaxpr, used_operands = dce_jaxpr(held.jaxpr if isinstance(held, ClosedJaxpr) else held, used)
        params = {**eqn.params, name: ClosedJaxpr(jaxpr, held.consts) if isinstance(held, ClosedJaxpr) else jaxpr}
        for flags in ("donated_invars", "prevent_cse"):  # a flag for each operand
            if isinstance(params.get(flags), tuple) and params[flags]:
                params[flags] = tuple(_marked(params[flags], used_operands))
        return used_operands, _shortened(eqn, used_operands, used, params, [jaxpr])

    return rule


dce_rules[jit_p], dce_rules[checkpoint_p] = rule_of_call("jaxpr"), rule_of_call("jaxpr")


class _JvpOfSome(JvpRule):
    """The rule of a custom_jvp function whose results are dropped, except for the ``used`` ones."""

    __slots__ = ("rule", "used")

    def __init__(self, rule: JvpRule, used: tuple[bool, ...]) -> None:
        super().__init__(rule.name, rule.function, rule.nondiff, rule.in_tree, rule.symbolic_zeros)
        self.rule, self.used = rule, used

    def _key(self) -> tuple[Any, ...]:
        return self.rule, self.used

    __hash__ = JvpRule.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _JvpOfSome) and self._key() == other._key()

    def push(self, primals: Sequence[Any], tangents: Sequence[Any], out_avals: Any = None) -> tuple[Any, Any, Any]:
        outs, out_tangents, _ = self.rule.push(primals, tangents)
        some = _marked(outs, self.used)
        return some, _marked(out_tangents, self.used), runtime.tree_flatten(some)[1]


class _VjpOfSome(VjpRule):
    """The rules of a custom_vjp function that keeps only its ``used`` results; the others' cotangents are 0."""

    __slots__ = ("rule", "used")

    def __init__(self, rule: VjpRule, used: tuple[bool, ...]) -> None:
        super().__init__(rule.name, rule.fwd, rule.bwd, rule.fixed, rule.in_tree, rule.symbolic_zeros)
        self.rule, self.used = rule, used

    def forward(self, primals: Sequence[Any], perturbed: Sequence[bool]) -> tuple[list[Any], Any, list[Any], Any]:
        outs, out_tree, residuals, res_tree = self.rule.forward(primals, perturbed)
        return _marked(outs, self.used), (out_tree, [tangent_aval(get_aval(x)) for x in outs]), residuals, res_tree

    def pull(self, res_tree: Any, out_tree: Any, residuals: Any, cts: Any, in_avals: Any) -> list[Any]:
        whole, types = out_tree
        given = iter(cts)
        every = [next(given) if has else Zero(aval) for has, aval in zip(self.used, types, strict=True)]
        return self.rule.pull(res_tree, whole, residuals, every, in_avals)


def _custom_call(used: list[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
    """The call of a function with rules of its own keeps all operands, since its rules may read them, and loses
    results."""
    closed: ClosedJaxpr = eqn.params["call_jaxpr"]
    jaxpr, operands = dce_jaxpr(closed.jaxpr, used, True)
    params = {**eqn.params, "call_jaxpr": ClosedJaxpr(jaxpr, closed.consts)}
    if not all(used):
        if eqn.primitive is custom_jvp_call_p:
            params["jvp"] = _JvpOfSome(params["jvp"], tuple(used))
        else:
            params["rule"] = _VjpOfSome(params["rule"], tuple(used))
    return operands, _shortened(eqn, operands, used, params, [jaxpr])


dce_rules[custom_jvp_call_p] = dce_rules[custom_vjp_call_p] = _custom_call


# -- loops and branches -----------------------------------------------------------------------------------------------


def _scan(used: list[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
    """A part of the state is needed if its result is used, or if a step needs it for something that is needed."""
    closed: ClosedJaxpr = eqn.params["jaxpr"]
    first, n_carry = eqn.params["num_consts"], eqn.params["num_carry"]
    last, n_rows = first + n_carry, len(eqn.invars) - first - n_carry
    results = list(used)
    while True:
        keep = [*[False] * first, *results[:n_carry], *[False] * n_rows]
        jaxpr, operands = dce_jaxpr(closed.jaxpr, results, keep)
        if operands[first:last] == results[:n_carry]:
            break
        results[:n_carry] = operands[first:last]
    params = {
        **eqn.params,
        "jaxpr": ClosedJaxpr(jaxpr, closed.consts), "num_consts": sum(operands[:first]),
        "num_carry": sum(operands[first:last]),
    }  # fmt: skip
    return operands, _shortened(eqn, operands, results, params, [jaxpr])


def _cond(used: list[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
    branches: Sequence[ClosedJaxpr] = eqn.params["branches"]
    needs = [any(column) for column in zip(*[dce_jaxpr(b.jaxpr, used)[1] for b in branches], strict=True)]
    made = [dce_jaxpr(branch.jaxpr, used, needs)[0] for branch in branches]
    programs = [ClosedJaxpr(jaxpr, branch.consts) for jaxpr, branch in zip(made, branches, strict=True)]
    params = {**eqn.params, "branches": tuple(programs)}
    return [True, *needs], _shortened(eqn, [True, *needs], used, params, made)


dce_rules[scan_p], dce_rules[cond_p] = _scan, _cond
