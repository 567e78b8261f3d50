"""Interpreters of programs that are written for JAX read weft's programs unchanged, and give the same results."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.extend.libraries import JAX, WEFT, same_with_both


def test_a_custom_inverse() -> None:
    """Equations are walked from the result back to the argument; calls of jitted functions are entered."""

    def program(jax: Any) -> Any:
        core, primitives, jnp = jax.extend.core, jax.extend.core.primitives, jax.numpy
        inverses = {
            primitives.exp_p: lambda y, **_: jnp.log(y),
            primitives.tanh_p: lambda y, **_: jnp.arctanh(y),
            primitives.neg_p: lambda y, **_: -y,
        }
        of_first = {primitives.add_p: jnp.subtract, primitives.mul_p: jnp.divide, primitives.sub_p: jnp.add}

        def inverse(jaxpr: Any, consts: Any, *results: Any) -> list[Any]:
            values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
            values.update(zip(jaxpr.outvars, results, strict=True))
            for eqn in jaxpr.eqns[::-1]:
                outs = [values[v] for v in eqn.outvars]
                if eqn.primitive is primitives.jit_p:
                    closed = eqn.params["jaxpr"]
                    values.update(zip(eqn.invars, inverse(closed.jaxpr, closed.consts, *outs), strict=True))
                elif eqn.primitive in of_first:
                    x, other = eqn.invars
                    known = other.val if isinstance(other, core.Literal) else values[other]
                    values[x] = of_first[eqn.primitive](outs[0], known)
                else:
                    (x,) = eqn.invars
                    values[x] = inverses[eqn.primitive](*outs, **eqn.params)
            return [values[v] for v in jaxpr.invars]

        def f(x: Any) -> Any:
            return jax.jit(lambda v: jnp.exp(jnp.tanh(v * 2.0)))(x + 0.25) - 1.0

        closed = jax.make_jaxpr(f)(jnp.float32(0.0))
        x = jnp.float32(0.125)
        run = jax.jit(lambda y: inverse(closed.jaxpr, closed.literals, y)[0])
        return [run(f(x)), jax.grad(run)(f(x)), jax.vmap(run)(f(jnp.linspace(0.0, 0.5, 3)))]

    back, _, many = same_with_both(program)
    np.testing.assert_allclose(back, 0.125, rtol=1e-6)
    np.testing.assert_allclose(many, [0.0, 0.25, 0.5], atol=1e-6)


def test_an_evaluator_as_jax_writes_its_own() -> None:
    """Contexts, name scopes and parameters of bind are those that JAX's evaluators use; calls are bound anew."""

    def program(jax: Any) -> Any:
        core, util, names = jax.extend.core, jax.extend.source_info_util, []

        def evaluate(jaxpr: Any, consts: Any, *args: Any) -> list[Any]:
            env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
            for eqn in jaxpr.eqns:
                params = eqn.primitive.get_bind_params(eqn.params)
                stack = util.current_name_stack() + eqn.source_info.name_stack
                names.append(str(stack))
                values = [v.val if isinstance(v, core.Literal) else env[v] for v in eqn.invars]
                with util.user_context(eqn.source_info.traceback, name_stack=stack), eqn.ctx.manager:
                    out = eqn.primitive.bind(*values, **params)
                env.update(zip(eqn.outvars, out if eqn.primitive.multiple_results else [out], strict=True))
            return [v.val if isinstance(v, core.Literal) else env[v] for v in jaxpr.outvars]

        @jax.custom_jvp
        def tripled(x: Any) -> Any:
            return 3.0 * x

        tripled.defjvp(lambda p, t: (tripled(*p), t[0] * 30.0))

        def f(x: Any) -> Any:
            with jax.named_scope("outer"), jax.named_scope("inner"):
                y = tripled(jax.lax.sin(x))
            y = jax.jit(lambda v: jax.lax.cos(v))(y)
            return jax.lax.cond(y > 0, jax.lax.exp, jax.lax.log, y) + jax.lax.fori_loop(0, 3, lambda i, s: s * x, 1.0)

        closed = jax.make_jaxpr(f)(0.5)

        def run(x: Any) -> Any:
            return evaluate(closed.jaxpr, closed.consts, x)[0]

        made = [run(0.3), f(0.3), jax.jit(run)(0.3), jax.jacfwd(run)(0.3), jax.jacfwd(f)(0.3)]
        return [made, [name for name in names if name][:2]]

    found = same_with_both(program)
    np.testing.assert_allclose(found[0][3], found[0][4], rtol=1e-6)


def test_a_cost_counter() -> None:
    """Floating-point operations of a program, by shapes and parameters, through calls, loops and branches."""

    def program(jax: Any) -> Any:
        core, primitives, lax = jax.extend.core, jax.extend.core.primitives, jax.lax

        def cost(jaxpr: Any) -> dict[str, int]:
            total: dict[str, int] = {}

            def add(name: str, amount: int) -> None:
                total[name] = total.get(name, 0) + amount

            for eqn in jaxpr.eqns:
                inner = [cost(sub) for sub in core.jaxprs_in_params(eqn.params)]
                if eqn.primitive is primitives.dot_general_p:
                    ((contracted, _), _) = eqn.params["dimension_numbers"]
                    depth = int(np.prod([eqn.invars[0].aval.shape[d] for d in contracted]))
                    add("dot", 2 * depth * eqn.outvars[0].aval.size)
                elif eqn.primitive.name == "scan":
                    for name, amount in inner[0].items():
                        add(name, amount * eqn.params["length"])
                elif eqn.primitive.name == "cond":
                    for name in {name for branch in inner for name in branch}:
                        add(name, max(branch.get(name, 0) for branch in inner))
                elif inner:
                    for part in inner:
                        for name, amount in part.items():
                            add(name, amount)
                elif all(isinstance(v, core.Var) and v.aval.dtype == np.float32 for v in eqn.outvars):
                    add(str(eqn.primitive), sum(v.aval.size for v in eqn.outvars))
            return total

        def f(w: Any, x: Any) -> Any:
            def step(c: Any, _: Any) -> Any:
                return jax.jit(lambda c: lax.tanh(lax.dot(w, c)))(c), None

            y, _ = lax.scan(step, x, None, length=5)
            return lax.cond(y.shape[0] > 2, lambda v: lax.sin(lax.exp(v)), lambda v: lax.neg(v), y)

        w, x = jax.ShapeDtypeStruct((4, 4), np.dtype("float32")), jax.ShapeDtypeStruct((4,), np.dtype("float32"))
        return cost(jax.make_jaxpr(f)(w, x).jaxpr)

    found = same_with_both(program)
    assert found["dot"] == 5 * 2 * 4 * 4


def test_a_quantiser_that_swaps_equations() -> None:
    """Products get operands rounded to multiples of 1/8: a new program is built, checked, run and differentiated."""

    def program(jax: Any) -> Any:
        core, lax = jax.extend.core, jax.lax
        quantised = {lax.mul_p, lax.dot_general_p}

        def rounded(x: Any) -> Any:
            return lax.div(lax.round(lax.mul(x, lax.full_like(x, 8.0))), lax.full_like(x, 8.0))

        def rounding_equations(atom: Any, new_var: Any, like: Any) -> tuple[list[Any], Any]:
            """The equations of ``rounded`` on a variable, renamed."""
            closed = jax.make_jaxpr(rounded)(jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype))
            names = dict(zip(closed.jaxpr.invars, [atom], strict=True))
            eqns = []
            for eqn in closed.jaxpr.eqns:
                names.update({v: new_var(v.aval) for v in eqn.outvars})
                invars = [v if isinstance(v, core.Literal) else names[v] for v in eqn.invars]
                outvars = [names[v] for v in eqn.outvars]
                eqns.append(eqn.replace(invars=invars, outvars=outvars, source_info=like.source_info))
            return eqns, names[closed.jaxpr.outvars[0]]

        def quantise(closed: Any) -> Any:
            new_var, eqns = core.gensym(), []
            for eqn in closed.jaxpr.eqns:
                if eqn.primitive in quantised:
                    operands = []
                    for atom in eqn.invars:
                        if isinstance(atom, core.Literal):
                            operands.append(atom)
                            continue
                        made, out = rounding_equations(atom, new_var, eqn)
                        eqns += made
                        operands.append(out)
                    eqn = core.new_jaxpr_eqn(
                        operands, eqn.outvars, eqn.primitive, dict(eqn.params), eqn.effects, eqn.source_info, eqn.ctx
                    )
                elif eqn.primitive is core.primitives.jit_p:
                    eqn = eqn.replace(params={**eqn.params, "jaxpr": quantise(eqn.params["jaxpr"])})
                eqns.append(eqn)
            jaxpr = closed.jaxpr.replace(eqns=eqns)
            core.check_jaxpr(jaxpr)
            return core.ClosedJaxpr(jaxpr, closed.consts)

        w = jax.numpy.array([[0.3, -0.7], [0.55, 0.2]])

        def f(x: Any) -> Any:
            return jax.jit(lambda v: lax.dot(w, v) * v)(lax.sin(x))

        x = jax.numpy.array([0.4, 1.1])
        swapped = quantise(jax.make_jaxpr(f)(x))
        run = core.jaxpr_as_fun(swapped)
        evaluated = jax.core.eval_jaxpr(swapped.jaxpr, swapped.consts, x)
        return [run(x), evaluated, jax.jit(run)(x), jax.jacfwd(lambda x: run(x)[0])(x), len(swapped.eqns)]

    found = same_with_both(program)
    assert not np.allclose(found[0][0], np.asarray([0.3, -0.7]) @ np.sin([0.4, 1.1]) * np.sin(0.4))


def test_attributes_of_programs_have_jaxs_spelling() -> None:
    """What libraries read from programs: everything public on JAX's objects is there on weft's, or is on this list."""
    lacking = {
        "ClosedJaxpr": {"final_aval_qdds", "in_aval_qdds"}, "Jaxpr": {"final_aval_qdds", "in_aval_qdds"},
        "Var": {"final_qdd", "initial_qdd", "pretty_print"}, "JaxprEqn": set(), "Literal": {"pretty_print"},
        "Primitive": {"def_effectful_abstract_eval2", "is_effectful", "to_lojax"}, "DebugInfo": None,
        "SourceInfo": set(),
    }  # fmt: skip

    def objects(lib: Any) -> dict[str, Any]:
        closed = lib.make_jaxpr(lambda x: lib.lax.mul(x, 2.0))(1.0)
        (eqn,) = closed.eqns
        return {
            "ClosedJaxpr": closed, "Jaxpr": closed.jaxpr, "JaxprEqn": eqn, "Var": eqn.outvars[0],
            "Literal": eqn.invars[1], "Primitive": eqn.primitive, "SourceInfo": eqn.source_info,
        }  # fmt: skip

    found, expected = objects(WEFT), objects(JAX)
    for name, value in expected.items():
        public = {attribute for attribute in dir(value) if not attribute.startswith("_")}
        missing = {attribute for attribute in public if not hasattr(found[name], attribute)}
        assert missing == lacking[name], name
