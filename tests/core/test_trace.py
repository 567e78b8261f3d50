"""Recording: constants, literals, nesting, state after errors, threads, leaks, cost."""

from __future__ import annotations

import enum
import gc
import threading
import time
import weakref

import numpy as np
import pytest

from tests.core.programs import F32, I32, add_p, aval, neg_p, pair_p, record
from weft import config, core, errors, runtime
from weft.core import kinds
from weft.core.tracing import source_info


def test_records_equations_in_order():
    def f(x, y):
        a = neg_p.bind(x)
        b, c = pair_p.bind(add_p.bind(a, y), k=(1, 2))
        return [c, x, 3, b]

    assert str(record(f, aval(3), aval(3))) == (
        "{ lambda ; a:f32[3] b:f32[3]. let\n"
        "    c:f32[3] = neg a\n"
        "    d:f32[3] = add c b\n"
        "    e:f32[3] f:f32[3] = pair[k=(1, 2)] d\n"
        "  in (f, a, 3:i32[], e) }"
    )


def test_scalars_become_literals_and_arrays_constants():
    captured = np.arange(3, dtype=np.float64)
    closed = record(
        lambda x: [add_p.bind(x, np.float64(2)), add_p.bind(x, captured), add_p.bind(captured, 1.5)], aval(3)
    )
    assert [v.aval for v in closed.jaxpr.constvars] == [aval(3)]
    assert closed.consts[0] is captured
    literals = [eqn.invars[1] for eqn in closed.eqns if isinstance(eqn.invars[1], core.Literal)]
    assert [literal.aval for literal in literals] == [aval(), aval(weak_type=True)]


def test_one_constvar_for_one_array():
    captured = np.ones(3, np.float32)
    closed = record(lambda x: add_p.bind(add_p.bind(x, captured), captured), aval(3))
    assert len(closed.consts) == 1


def test_values_of_an_enclosing_trace_are_constants():
    def outer(x):
        inner = record(lambda y: add_p.bind(y, x), aval(3))
        assert inner.consts == [x] or inner.consts[0] is x
        return x

    record(outer, aval(3))


def test_the_trace_before_is_current_after_an_error():
    def f(x):
        raise ValueError("from the user")

    def outer(x):
        with pytest.raises(ValueError, match="from the user"):
            record(f, aval(3))
        return neg_p.bind(x)

    assert len(record(outer, aval(3)).eqns) == 1
    assert not core.is_tracing()


def test_recursion_limit_restores_the_state():
    def f(x):
        return f(neg_p.bind(x))

    with pytest.raises(RecursionError):
        record(f, aval(3))
    assert not core.is_tracing()
    assert len(record(lambda x: neg_p.bind(x), aval(3)).eqns) == 1


def test_threads_trace_at_once():
    results = {}
    barrier = threading.Barrier(4)

    def work(index):
        def f(x):
            for _ in range(200):
                x = neg_p.bind(x) if index % 2 else add_p.bind(x, x)
            return x

        barrier.wait()
        results[index] = record(f, aval(index + 1))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, closed in results.items():
        assert len(closed.eqns) == 200
        assert {eqn.primitive.name for eqn in closed.eqns} == {"neg" if index % 2 else "add"}
        assert closed.out_avals == [aval(index + 1)]


def test_results_must_be_arrays():
    with pytest.raises(TypeError, match=r"function f at .*test_trace.py:\d+ traced for jit returned .* <class 'str'>"):

        def f(x):
            return ["a"]

        record(f, aval(3))


def test_operands_must_be_arrays():
    with pytest.raises(
        TypeError, match="problematic value is of type <class 'str'> and was passed to add at position 1"
    ):
        record(lambda x: add_p.bind(x, "a"), aval(3))
    with pytest.raises(OverflowError, match="1099511627776 too large to convert to int32"):
        record(lambda x: add_p.bind(x, 2**40), aval(3, dtype=I32))


def leak(into):
    def f(x):
        into.append(neg_p.bind(x))
        return x

    record(f, aval(3))
    return into[0]


def test_an_escaped_tracer_names_the_line_that_made_it():
    tracer = leak([])
    line = leak.__code__.co_firstlineno + 2
    with pytest.raises(errors.UnexpectedTracerError, match=rf"created on line .*test_trace.py:{line}:\d+ \(leak.<lo"):
        neg_p.bind(tracer)
    with pytest.raises(errors.UnexpectedTracerError, match="function being traced when the value leaked was f at"):
        record(lambda x: add_p.bind(x, tracer), aval(3))
    assert repr(tracer) == "JitTracer(float32[3])"


def test_leaks_are_found_where_they_happen():
    with config.context("check_tracer_leaks", True):
        with pytest.raises(
            Exception, match=r"Leaked trace(.|\n)*JitTracer\(float32\[3\]\)(.|\n)*is referred to by <list"
        ):
            leak([])
        record(lambda x: neg_p.bind(neg_p.bind(x)), aval(3))


def test_nothing_is_kept_after_tracing():
    references = []

    def f(x):
        y = neg_p.bind(x)
        references.extend([weakref.ref(x), weakref.ref(y), weakref.ref(x._trace)])
        return y

    gc.disable()
    try:
        record(f, aval(3))
        assert [reference() for reference in references] == [None] * 3
    finally:
        gc.enable()


def test_folding_and_forwarding():
    convert = core.Primitive("test_convert", kinds.Identity())
    try:
        convert.def_abstract_eval(lambda x, dtype: x.update(dtype=dtype, weak_type=False))
        convert.def_fold(lambda values, params: np.asarray(values[0]).astype(params["dtype"]))
        convert.def_forward(
            lambda avals, params: 0 if avals[0].dtype == params["dtype"] and not avals[0].weak_type else None
        )
        closed = record(
            lambda x: [convert.bind(3, dtype=F32), convert.bind(x, dtype=F32), convert.bind(x, dtype=I32)], aval(3)
        )
    finally:
        del core.primitive.registry["test_convert"]
    assert str(closed) == (
        "{ lambda ; a:f32[3]. let\n    b:i32[3] = test_convert[dtype=int32] a\n  in (3.0:f32[], a, b) }"
    )


def test_source_lines():
    def f(x):
        return neg_p.bind(x)

    frame = record(f, aval(3)).eqns[0].source_info.frame
    assert frame.file_name == __file__
    assert frame.line == f.__code__.co_firstlineno + 1
    assert frame.function_name.endswith("f")


def test_name_scopes():
    def f(x):
        with source_info.name_scope("outer"), source_info.name_scope("inner"):
            y = neg_p.bind(x)
        return neg_p.bind(y)

    assert [eqn.source_info.name_stack for eqn in record(f, aval(3)).eqns] == [("outer", "inner"), ()]


def test_weak_and_strong_evaluations_are_not_mixed_up():
    closed = record(lambda x: [add_p.bind(2.0, x), add_p.bind(np.float32(2), x)], aval())
    assert [a.weak_type for a in closed.out_avals] == [True, False]


def test_abstract_evaluation_runs_once_per_types_and_parameters():
    calls = []
    counted = core.Primitive("test_counted", kinds.Identity())
    del core.primitive.registry["test_counted"]

    def rule(x, k):
        calls.append((x, k))
        return x

    counted.def_abstract_eval(rule)

    def f(x):
        for _ in range(5):
            x = counted.bind(counted.bind(x, k=1), k=(2, 3))
        return x

    record(f, aval(3))
    assert len(calls) == 2
    record(lambda x: counted.bind(x, k=[1]), aval(3))  # unhashable: evaluated when traced, and when checked
    assert len(calls) == 4


def test_cost_is_linear():
    """A tracing whose cost per equation grew with the program would be ten times dearer here."""

    def seconds_per_equation(n):
        def f(x):
            for _ in range(n):
                x = add_p.bind(x, x)
            return x

        start = time.process_time()
        record(f, aval(3))
        return (time.process_time() - start) / n

    seconds_per_equation(1000)
    small = min(seconds_per_equation(2000) for _ in range(3))
    large = seconds_per_equation(60_000)
    assert large < 6 * small


def test_the_native_dispatcher_knows_that_a_trace_is_current():
    def f(x):
        assert core.is_tracing()
        with core.eval_context():
            assert not core.is_tracing()
        assert core.is_tracing()
        return x

    record(f, aval(3))
    assert hasattr(runtime, "set_tracing")


def test_traced_values_are_recorded_inside_an_eval_context():
    def outer(x):
        def inner(y):
            with core.eval_context():
                return add_p.bind(add_p.bind(x, 1.0), y)

        closed = record(inner, aval(3))
        assert [eqn.primitive.name for eqn in closed.eqns] == ["add"]
        with core.eval_context():
            return neg_p.bind(x)

    assert [eqn.primitive.name for eqn in record(outer, aval(3)).eqns] == ["add", "neg"]


def test_a_traced_value_of_another_thread_is_refused():
    caught = []

    def f(x):
        def work():
            try:
                neg_p.bind(x)
            except errors.UnexpectedTracerError as error:
                caught.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return x

    record(f, aval(3))
    assert len(caught) == 1


class Size(enum.IntEnum):
    SMALL = 2


def test_subclasses_of_scalars_are_literals():
    class Metres(float):
        pass

    closed = record(lambda x: [add_p.bind(x, Metres(1.5)), Size.SMALL], aval(3))
    assert str(closed) == "{ lambda ; a:f32[3]. let b:f32[3] = add a 1.5:f32[] in (b, 2:i32[]) }"
