"""linear_util, api_util, partial_eval and ad on functions of flat values, as haiku, numpyro and flax use them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import weft
from tests.extend.libraries import WEFT, same_with_both
from weft.extend import linear_util as lu


def _info(jax: Any, f: Any, *args: Any) -> Any:
    return jax.api_util.debug_info("test", f, args, {})


def test_transformations_in_both_forms() -> None:
    def program(jax: Any) -> Any:
        lu = jax.extend.linear_util

        @lu.transformation
        def scaled(factor: float, *args: Any) -> Any:
            outs = yield [factor * x for x in args], {}
            yield [out + 1 for out in outs]

        @lu.transformation_with_aux
        def counted(*args: Any) -> Any:
            outs = yield args, {}
            yield outs, len(outs)

        @lu.transformation2
        def twice(f: Any, *args: Any) -> Any:
            return [2 * out for out in f(*args)]

        @lu.transformation_with_aux2
        def noted(f: Any, store: Any, note: str, *args: Any) -> Any:
            store.store(note)
            return f(*args)

        def base(*xs: Any, power: int = 1) -> Any:
            return [sum(xs) ** power, xs[0]]

        f = lu.wrap_init(base, {"power": 2}, debug_info=_info(jax, base, 1, 2))
        g, aux = counted(scaled(f, 3.0))
        h, note = noted(twice(f), "seen")
        calls: list[int] = []

        @lu.cache
        def remembered(fun: Any, x: Any) -> Any:
            calls.append(1)
            return fun.call_wrapped(x)

        results = [g.call_wrapped(1.0, 2.0), aux(), h.call_wrapped(1.0, 2.0), note(), f.__name__]
        with pytest.raises(lu.StoreException):
            g.call_wrapped(1.0, 2.0)
        same = lu.wrap_init(base, {"power": 2}, debug_info=_info(jax, base, 1, 2))
        results += [f == same, hash(f) == hash(same), f == twice(f), twice(f) == twice(same)]
        results += [remembered(f, 1.0), remembered(same, 1.0), remembered(f, 2.0), len(calls)]
        (_, one), (other, two) = counted(f), counted(f)
        other.call_wrapped(1.0)
        results += [list(lu.merge_linear_aux(one, two)), list(lu.merge_linear_aux(two, one))]
        return results

    same_with_both(program)


def test_contexts_in_a_transformation_end_when_the_function_raises() -> None:
    """Otherwise the trace that a library sets for the call stays current."""
    log: list[str] = []

    @lu.transformation
    def within(*args: Any) -> Any:
        try:
            out = yield args, {}
            yield out
        finally:
            log.append("ended")

    def fails(x: Any) -> Any:
        raise KeyError(x)

    try:
        within(lu.wrap_init(fails)).call_wrapped(1)
    except KeyError as error:
        assert log == ["ended"], error


def test_functions_of_trees_as_functions_of_leaves() -> None:
    def program(jax: Any) -> Any:
        api_util, lu, tree = jax.api_util, jax.extend.linear_util, jax.tree_util

        def f(x: Any, y: Any, *rest: Any, scale: float = 1.0, **more: Any) -> Any:
            return {"sum": x + y["a"] * scale, "rest": rest}

        leaves, in_tree = tree.tree_flatten(((1.0, {"a": 2.0}, 5.0), {"scale": 3.0}))
        flat, out_tree = api_util.flatten_fun(lu.wrap_init(f, debug_info=_info(jax, f)), in_tree)
        plain, plain_tree = tree.tree_flatten((1.0, {"a": 2.0}))
        nokw, nokw_tree = api_util.flatten_fun_nokwargs(lu.wrap_init(f, debug_info=_info(jax, f)), plain_tree)
        made = [flat.call_wrapped(*leaves), str(out_tree()), nokw.call_wrapped(*plain), str(nokw_tree())]
        part, moving = api_util.argnums_partial(lu.wrap_init(f, debug_info=_info(jax, f)), (1,), (1.0, {"a": 4.0}))
        made += [part.call_wrapped(*moving), list(moving), api_util.safe_map(lambda a, b: a + b, [1, 2], [3, 4])]
        prefix = tree.tree_structure((1, {"a": 2, "b": 3}))
        made += [api_util.flatten_axes("in_axes", prefix, axes) for axes in (None, (0, None), (1, {"a": None, "b": 2}))]
        with pytest.raises(ValueError, match="in_axes specification must be a tree prefix"):
            api_util.flatten_axes("in_axes", prefix, (0,))
        donated = tree.tree_structure(((1, (2, 3)), {"y": 1, "z": 2}))
        made += [
            list(api_util.donation_vector((0,), ("y",), donated)),
            list(api_util.rebase_donate_argnums((3, 4), (0, 1))),
        ]
        with pytest.raises(ValueError, match="cannot intersect"):
            api_util.rebase_donate_argnums((1,), (1,))
        with pytest.raises(ValueError, match="non-hashable"):
            api_util.argnums_partial(lu.wrap_init(f, debug_info=_info(jax, f)), 0, (1.0, [2.0]))
        infos = [
            api_util.debug_info("jit", f, (1, {"a": 2}, 3), {"scale": 1, "z": (1, 2)}),
            api_util.debug_info("jit", f, (1, {"a": 2}, 3), {}, static_argnums=(1,)),
            api_util.debug_info("vmap", functools.partial(f, 1), ({"a": 2},), {}),
        ]
        made += [[info.traced_for, info.func_name, list(info.arg_names)] for info in infos]
        return made

    same_with_both(program)


def test_what_is_known_is_computed_and_the_rest_recorded() -> None:
    """flax's lazy initialisation: results that do not depend on unknown arguments are values."""

    def program(jax: Any) -> Any:
        core, pe, lu, jnp = jax.core, jax.interpreters.partial_eval, jax.extend.linear_util, jax.numpy

        def split(f: Any, *args: Any) -> Any:
            pvals = [
                pe.PartialVal.unknown(core.ShapedArray(x.shape, x.dtype))
                if isinstance(x, jax.ShapeDtypeStruct)
                else pe.PartialVal.known(x)
                for x in args
            ]
            jaxpr, outs, consts = pe.trace_to_jaxpr_nounits(lu.wrap_init(f, debug_info=_info(jax, f, *args)), pvals)
            unknown = [jnp.arange(3.0) for x in args if isinstance(x, jax.ShapeDtypeStruct)]
            rest = core.eval_jaxpr(jaxpr, consts, *unknown)
            return [[out.is_known(), out.get_known(), list(out.get_aval().shape)] for out in outs], rest

        x, y = jnp.array([1.0, 2.0, 3.0]), jax.ShapeDtypeStruct((3,), np.dtype("float32"))
        made = [
            split(lambda x, y: [jnp.sin(x) * y, jnp.cos(x), y.sum(), 2.0], x, y),
            split(lambda x, y: jax.jit(lambda a, b: [a * 2, b + a])(x, y), x, y),
            split(lambda y: [jnp.ones(2), jax.nn.relu(y)], y),
        ]
        jaxpr, types, consts = pe.trace_to_jaxpr_dynamic(
            lu.wrap_init(lambda a: [a * 2.0], debug_info=_info(jax, split, x)),
            [core.ShapedArray((3,), np.dtype("float32"))],
        )
        made += [core.eval_jaxpr(jaxpr, consts, x), [list(t.shape) for t in types]]
        program = jax.make_jaxpr(lambda a, b: jax.jit(lambda a, b: (jnp.cos(a), jnp.sin(b)))(a, b))(1.0, 2.0)
        for used in ([True, False], [False, True], [False, False]):
            pruned, inputs = pe.dce_jaxpr(program.jaxpr, used)
            made.append([str(pruned), list(inputs)])
        pruned, inputs = pe.dce_jaxpr(program.jaxpr, [True, False], instantiate=True)
        return [*made, len(pruned.invars), list(inputs)]

    same_with_both(program)


def test_dead_code_inside_of_loops_branches_and_custom_rules() -> None:
    """What an unused result alone needs goes: state and rows of a scan, operands of branches, results of rules."""

    def program(jax: Any) -> list[Any]:
        core, lax, jnp, pe = jax.extend.core, jax.lax, jax.numpy, jax.interpreters.partial_eval
        made: list[Any] = []

        def loop(a: Any, b: Any, c: Any, xs: Any) -> Any:
            def step(s: Any, x: Any) -> Any:
                return (s[0] + x * a, s[1] * b, s[2] + s[1]), (s[0], x * c)

            return lax.scan(step, (a, b, c), xs)

        def branch(which: Any, a: Any, b: Any, c: Any) -> Any:
            return lax.cond(which, lambda a, b, c: (a * b, c), lambda a, b, c: (a, b + c), a, b, c)

        @jax.custom_jvp
        def forward(x: Any, y: Any) -> Any:
            return x * 2.0, y * 3.0

        forward.defjvp(lambda primals, tangents: (forward(*primals), (tangents[0] * 7.0, tangents[1] * 5.0)))

        @jax.custom_vjp
        def reverse(x: Any, y: Any) -> Any:
            return x * 2.0, y * 3.0

        reverse.defvjp(lambda x, y: (reverse(x, y), x), lambda x, ct: (ct[0] * x, ct[1] * 5.0))
        again = jax.checkpoint(lambda a, b: (a * 2.0, b * 3.0))
        rows = jnp.arange(3.0)
        for function, args, which in (
            (loop, (1.0, 2.0, 3.0, rows), ([1, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1], [0, 1, 0, 1, 0])),
            (branch, (True, 1.0, 2.0, 3.0), ([1, 0], [0, 1])),
            (forward, (3.0, 2.0), ([1, 0], [0, 1])),
            (reverse, (3.0, 2.0), ([1, 0], [0, 1])),
            (again, (1.0, 2.0), ([1, 0], [0, 1])),
        ):
            closed = jax.make_jaxpr(function)(*args)
            for used in which:
                pruned, inputs = pe.dce_jaxpr(closed.jaxpr, [bool(flag) for flag in used])
                left = [x for x, has in zip(args, inputs, strict=True) if has]
                run = core.jaxpr_as_fun(core.ClosedJaxpr(pruned, closed.consts))
                made += [str(pruned), list(inputs), run(*left), jax.jit(run)(*left)]
                if function is not branch and not used[-1]:
                    moving = lambda *left, run=run: jax.numpy.sum(run(*left)[0])
                    made += [jax.grad(moving)(*left), jax.vmap(jax.grad(moving))(*[jnp.stack([x, x]) for x in left])]
        return made

    same_with_both(program)


def test_programs_divided_by_what_is_known() -> None:
    closed = weft.make_jaxpr(lambda a, b: (weft.numpy.cos(a), weft.numpy.sin(a) * b))(1.0, 2.0)
    known, rest, unknown, residuals = WEFT.interpreters.partial_eval.partial_eval_jaxpr_nounits(
        closed, [False, True], False
    )
    assert (unknown, [aval.shape for aval in residuals]) == ([False, True], [()])
    cosine, *kept = WEFT.core.jaxpr_as_fun(known)(0.5)
    (product,) = WEFT.core.jaxpr_as_fun(rest)(*kept, 3.0)
    np.testing.assert_allclose([cosine, product], [np.cos(0.5), np.sin(0.5) * 3], rtol=1e-6)
    jaxpr = WEFT.interpreters.partial_eval.convert_constvars_jaxpr(rest.jaxpr)
    assert len(WEFT.interpreters.partial_eval.convert_invars_to_constvars(jaxpr, 1).constvars) == 1


def test_calls_as_primitives() -> None:
    """``call`` holds a program; it is differentiated, mapped and compiled as what it calls."""

    def program(jax: Any) -> Any:
        lu, call_p = jax.extend.linear_util, jax.extend.core.primitives.call_p

        def f(x: Any) -> Any:
            return call_p.bind(x, subfuns=(lu.wrap_init(lambda y: [y * y * x], debug_info=_info(jax, f, 1.0)),))[0]

        x = jax.numpy.array([1.0, 2.0])
        closed = jax.make_jaxpr(f)(2.0)
        (eqn,) = closed.eqns
        again = eqn.primitive.bind(3.0, *[4.0] * (len(eqn.invars) - 1), **eqn.primitive.get_bind_params(eqn.params))
        return [
            f(3.0), jax.jit(f)(3.0), jax.grad(f)(3.0), jax.jit(jax.vmap(jax.grad(f)))(x),
            eqn.primitive is call_p, len(again), str(eqn.primitive),
        ]  # fmt: skip

    same_with_both(program)


def test_custom_jvp_calls_are_bound_with_functions_of_leaves() -> None:
    """quax binds JAX's primitive anew; of function and rule only the one that is needed is called."""

    def program(jax: Any) -> Any:
        lu, p = jax.extend.linear_util, jax.custom_derivatives.custom_jvp_call_p
        called: list[str] = []

        def f(x: Any) -> Any:
            info = _info(jax, f, x)

            def value(y: Any) -> Any:
                called.append("value")
                return [jax.lax.sin(y)]

            def pushed(y: Any, t: Any) -> Any:
                called.append("rule")
                return [jax.lax.sin(y), t * 7.0]

            funs = (lu.wrap_init(value, debug_info=info), lu.wrap_init(pushed, debug_info=info))
            return p.bind(x, subfuns=funs, symbolic_zeros=False)[0]

        made = [f(1.0), list(called), jax.grad(f)(1.0), list(called), jax.jit(f)(1.0), jax.jit(jax.grad(f))(1.0)]
        closed = jax.make_jaxpr(f)(1.0)
        bound = p.bind(2.0, **p.get_bind_params(closed.eqns[0].params))
        return [*made, bound, jax.vmap(jax.grad(f))(jax.numpy.ones(2))]

    same_with_both(program)


def test_differentiation_of_flat_functions() -> None:
    ad = WEFT.interpreters.ad
    fun = lu.wrap_init(lambda x, y: [x * y, weft.numpy.sin(x), 3.0])
    outs, tangents = ad.jvp(fun).call_wrapped((2.0, 5.0), (1.0, 0.0))
    np.testing.assert_allclose([*outs, *tangents], [10.0, np.sin(2.0), 3.0, 5.0, np.cos(2.0), 0.0], rtol=1e-6)
    _, kept = ad.jvp(fun, instantiate=False).call_wrapped((2.0, 5.0), (1.0, ad.Zero.from_primal_value(5.0)))
    assert type(kept[2]) is ad.Zero
    outs, zeros, jaxpr, consts = ad.linearize(fun, 2.0, 5.0)
    assert zeros == [False, False, True]
    back = ad.backward_pass(jaxpr, False, consts, [ad.UndefinedPrimal(v.aval) for v in jaxpr.invars], [1.0, 10.0])
    np.testing.assert_allclose(back, [5.0 + 10 * np.cos(2.0), 2.0], rtol=1e-6)


def test_name_scopes() -> None:
    def program(jax: Any) -> Any:
        util = jax.extend.source_info_util

        def f(x: Any) -> Any:
            with jax.named_scope("a"), jax.named_scope("b"):
                return jax.lax.sin(x)

        with util.extend_name_stack("outer"):
            inside = str(util.current_name_stack())
            with util.reset_name_stack():
                empty = str(util.current_name_stack())
        stack = util.new_name_stack("n").extend("m").transform("jvp").extend("k")
        made = [str(eqn.source_info.name_stack) for eqn in jax.make_jaxpr(f)(1.0).eqns]
        return [made, inside, empty, str(stack), str(util.current_name_stack()), util.summarize(util.new_source_info())]

    same_with_both(program)


def test_files_of_a_library_are_no_positions() -> None:
    exec_globals: dict[str, Any] = {"lax": weft.lax}
    exec(compile("def library(x):\n    return lax.sin(x)\n", "/nowhere/excluded_library.py", "exec"), exec_globals)
    WEFT.extend.source_info_util.register_exclusion("/nowhere/excluded")
    closed = weft.make_jaxpr(lambda x: exec_globals["library"](x))(1.0)
    assert closed.eqns[0].source_info.frame.file_name == __file__
