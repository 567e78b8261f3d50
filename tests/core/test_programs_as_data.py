"""Jaxprs as data: checker, evaluation, rewriting, dead code, fingerprints, printing."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from tests.core.programs import I32, add_p, aval, neg_p, pair_p, print_p, record
from weft import core, errors
from weft.core.caches import fingerprint
from weft.core.programs import check, document, printer, rewrite
from weft.core.programs import eval as eval_module
from weft.core.programs import jaxpr as jaxpr_module
from weft.dispatch.calls import call_primitive


def program():
    return record(lambda x, y: [add_p.bind(neg_p.bind(x), y)], aval(3), aval(3))


# -- checker ----------------------------------------------------------------------------------------------------------


def test_well_formed_programs_pass():
    check.check_jaxpr(program())


def broken(change):
    jaxpr = program().jaxpr
    eqns = list(jaxpr.eqns)
    change(jaxpr, eqns)
    with pytest.raises(errors.JaxprTypeError) as caught:
        check.check_jaxpr(jaxpr.replace(eqns=eqns))
    return str(caught.value)


def test_scoping():
    assert "read before it is bound" in broken(lambda jaxpr, eqns: eqns.reverse())


def test_single_assignment():
    def change(jaxpr, eqns):
        eqns[1] = eqns[1].replace(outvars=eqns[0].outvars)

    assert "bound twice" in broken(change)


def test_types():
    def change(jaxpr, eqns):
        wrong = core.Var(aval(4))
        eqns[0] = eqns[0].replace(outvars=[wrong])

    text = broken(change)
    assert "result is float32[3], its variable float32[4]" in text
    assert "a:f32[4] = neg b" in text and __file__ in text


def test_operands():
    def change(jaxpr, eqns):
        eqns[0] = eqns[0].replace(invars=[jaxpr.invars[0], jaxpr.invars[0], core.Var(aval(2))])

    assert "read before it is bound" in broken(change)


def test_effects():
    closed = record(lambda x: (print_p.bind(x), x)[1], aval(3))
    assert len(closed.effects) == 1
    with pytest.raises(errors.JaxprTypeError, match="effects"):
        check.check_jaxpr(closed.jaxpr.replace(effects=core.no_effects))


# -- evaluation -------------------------------------------------------------------------------------------------------


def test_evaluation_under_a_trace_inlines():
    inner = program()
    outer = record(lambda x: eval_module.eval_jaxpr(inner.jaxpr, inner.consts, x, 2.0), aval(3))
    assert str(outer) == "{ lambda ; a:f32[3]. let b:f32[3] = neg a; c:f32[3] = add b 2.0:f32[] in (c,) }"
    assert [str(e.source_info) for e in outer.eqns] == [str(e.source_info) for e in inner.eqns]
    again = record(lambda x, y: eval_module.jaxpr_as_fun(inner)(x, y), aval(3), aval(3))
    assert str(again) == str(inner)


def test_evaluation_checks_the_number_of_arguments():
    with pytest.raises(TypeError, match="takes 2 values, got 1"):
        eval_module.eval_jaxpr(program().jaxpr, [], 1.0)


# -- calls ------------------------------------------------------------------------------------------------------------


def test_calls_close_over_values_of_the_enclosing_trace():
    constant = np.ones(3, np.float32)

    def outer(x):
        inner = record(lambda y: add_p.bind(add_p.bind(y, x), constant), aval(3))
        return call_primitive.call(inner, [x], name="inner")

    assert str(record(outer, aval(3))) == (
        "{ lambda a:f32[3]; b:f32[3]. let\n"
        "    c:f32[3] = jit[\n"
        "      name=inner\n"
        "      jaxpr={ lambda ; b:f32[3] a:f32[3] d:f32[3]. let\n"
        "          e:f32[3] = add d b\n"
        "          c:f32[3] = add e a\n"
        "        in (c,) }\n"
        "    ] b a b\n"
        "  in (c,) }"
    )


def test_inlined_calls():
    inner = program()
    closed = record(lambda x: call_primitive.call(inner, [x, x], name="f", inline=True), aval(3))
    assert [eqn.primitive.name for eqn in closed.eqns] == ["neg", "add"]


def test_named_scope_wants_a_string():
    with pytest.raises(TypeError, match="must be a string"):
        call_primitive.named_scope(3)


# -- passes -----------------------------------------------------------------------------------------------------------


def test_rewriting():
    closed = record(lambda x: neg_p.bind(neg_p.bind(add_p.bind(x, 1.0))), aval(3))
    made_by = {}

    def no_double_negation(builder, eqn, operands):
        if eqn.primitive is neg_p and operands[0] in made_by:
            return [made_by[operands[0]]]
        if eqn.primitive is neg_p:
            out = builder.bind(neg_p, operands[0])
            made_by[out[0]] = operands[0]
            return out
        return None

    shorter, used = rewrite.dce(rewrite.rewrite(closed.jaxpr, no_double_negation))
    check.check_jaxpr(shorter)
    assert str(shorter) == "{ lambda ; a:f32[3]. let b:f32[3] = add a 1.0:f32[] in (b,) }"
    assert used == [True]
    assert shorter.eqns[0].source == closed.eqns[0].source
    assert len(closed.eqns) == 3


def test_dead_code():
    def f(x, y, z):
        neg_p.bind(y)
        print_p.bind(z)
        return [pair_p.bind(x)[0], y]

    jaxpr, used = rewrite.dce(record(f, aval(3), aval(3), aval(3)).jaxpr, [True, False])
    assert used == [True, False, True]
    assert str(jaxpr) == (
        "{ lambda ; a:f32[3] b:f32[3] c:f32[3]. let\n    show c\n    d:f32[3] _:f32[3] = pair a\n  in (d,) }"
    )
    check.check_jaxpr(jaxpr)


def test_unused_results_are_named_so():
    closed = record(lambda x: (neg_p.bind(x), x)[1], aval(3))
    assert str(closed) == "{ lambda ; a:f32[3]. let b:f32[3] = neg a in (a,) }"
    shown = jaxpr_module.name_unused_outputs(closed.jaxpr)
    assert str(shown) == "{ lambda ; a:f32[3]. let _:f32[3] = neg a in (a,) }"
    check.check_jaxpr(shown)


# -- fingerprints -----------------------------------------------------------------------------------------------------


def digest(fun, *avals, **settings):
    return fingerprint.fingerprint(record(fun, *avals), **settings)


def test_equal_programs_have_equal_fingerprints():
    assert digest(lambda x: neg_p.bind(x), aval(3)) == digest(lambda y: neg_p.bind(y), aval(3))
    first, second = np.zeros(3, np.float32), np.ones(3, np.float32)
    assert digest(lambda x: add_p.bind(x, first), aval(3)) == digest(lambda x: add_p.bind(x, second), aval(3))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: neg_p.bind(x), lambda x: add_p.bind(x, x)),
        (lambda x: add_p.bind(x, 1.0), lambda x: add_p.bind(x, 2.0)),
        (lambda x: add_p.bind(x, 0.0), lambda x: add_p.bind(x, -0.0)),
        (lambda x: add_p.bind(x, 1.0), lambda x: add_p.bind(x, np.float32(1))),
        (lambda x: pair_p.bind(x, k=1), lambda x: pair_p.bind(x, k=1.0)),
        (lambda x: pair_p.bind(x, k=(1, 2)), lambda x: pair_p.bind(x, k=[1, 2])),
        (lambda x: pair_p.bind(x, k=True), lambda x: pair_p.bind(x, k=1)),
        (lambda x: pair_p.bind(x, k=print), lambda x: pair_p.bind(x, k=len)),
        (lambda x: pair_p.bind(x, k=np.ones(2)), lambda x: pair_p.bind(x, k=np.zeros(2))),
        (lambda x: [x, neg_p.bind(x)], lambda x: [neg_p.bind(x), x]),
        (lambda x: neg_p.bind(x), lambda x: (neg_p.bind(x), neg_p.bind(x))[1]),
    ],
)
def test_different_programs_have_different_fingerprints(one, other):
    assert digest(one, aval(3)) != digest(other, aval(3))


def test_types_count():
    def f(x):
        return neg_p.bind(x)

    digests = [digest(f, a) for a in (aval(3), aval(4), aval(3, dtype=I32), aval(3, weak_type=True))]
    assert len(set(digests)) == 4
    strong = [digest(f, a, weak_types=False) for a in (aval(3), aval(3, weak_type=True))]
    assert strong[0] == strong[1]


def test_inner_programs_count_by_content():
    def caller(inner, name="f"):
        return lambda x: call_primitive.call(record(inner, aval(3)), [x], name=name)

    same = {digest(caller(lambda x: neg_p.bind(x), name), aval(3)) for name in ("f", "g")}
    other = digest(caller(lambda x: add_p.bind(x, x)), aval(3))
    assert len(same) == 1 and other not in same


def test_parameters_without_a_canonical_form_count_by_identity():
    def function():
        return 1

    same = [digest(lambda x: pair_p.bind(x, k=function), aval(3)) for _ in range(2)]
    assert same[0] == same[1]


# -- documents --------------------------------------------------------------------------------------------------------


def test_layout():
    words = document.group(document.join(document.SOFT_BREAK, ["word"] * 5))
    assert document.layout(words, 80) == "word word word word word"
    # Whether a soft break fits is decided by the break alone, so a word may pass the margin.
    assert document.layout(words, 11) == "word word word\nword word"
    listed = document.bracketed("(", ["one", "two"], ")")
    assert document.layout(listed, 10) == "(one two)"
    assert document.layout(listed, 8) == "(\n  one\n  two\n)"


def test_names_of_variables():
    assert [printer.letters(n) for n in (0, 25, 26, 675, 676)] == ["a", "z", "ba", "zz", "baa"]


def test_printing_deeply_shared_programs_is_linear():
    closed = record(lambda x: neg_p.bind(x), aval(3))
    for level in range(40):
        previous = closed
        closed = record(
            lambda x, held=previous, name=f"f{level}": call_primitive.call(
                held, call_primitive.call(held, [x], name=name), name=name
            ),
            aval(3),
        )
    text = str(closed)
    assert text.count("let f") == 40


def test_constants_of_inner_programs_count_by_identity():
    def caller(constant):
        return lambda x: call_primitive.call(record(lambda y: add_p.bind(y, constant), aval(3)), [x], name="f")

    first, second = np.zeros(3, np.float32), np.zeros(3, np.float32)
    assert digest(caller(first), aval(3)) == digest(caller(first), aval(3))
    assert digest(caller(first), aval(3)) != digest(caller(second), aval(3))
    n_known = len(fingerprint._SERIALS)
    del first, second
    gc.collect()
    assert len(fingerprint._SERIALS) < n_known
