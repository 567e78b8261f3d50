"""Programs of lax operations, printed as JAX prints them: layout, names, literals, constants, inner jaxprs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracle.differential import Case, assert_same_jaxpr, case

CASES: list[Case] = []


@case("~f32[]", cases=CASES)
def two_equations_on_one_line(J, x):
    return J.lax.cos(J.lax.sin(x))


@case("f32[3]", cases=CASES)
def three_equations(J, x):
    return J.lax.exp(J.lax.neg(J.lax.sin(x)))


@case("f32[3]", cases=CASES)
def unused_equation(J, x):
    J.lax.sin(x)
    return x


@case("f32[3]", cases=CASES)
def unused_result(J, x):
    return J.lax.optimization_barrier((x, x))[0]


@case("f32[3]", cases=CASES)
def results_of_every_kind(J, x):
    return x, 3, 2.5, True, np.float32(1 / 3), np.int8(3), np.arange(2), np.array([[1.0]]), 1e10, -0.0, 1j


@case(cases=CASES)
def no_arguments(J):
    return 3


@case("f32[3]", cases=CASES)
def no_results(J, x):
    return None


@case(*["f32[3]"] * 40, cases=CASES)
def forty_arguments(J, *xs):
    total = xs[0]
    for x in xs:
        total = J.lax.add(total, x)
    return total


@case(*["f32[3]"] * 30, cases=CASES)
def thirty_operands(J, *xs):
    return J.lax.concatenate(xs, 0)


@case(*["f32[3]"] * 30, cases=CASES)
def thirty_operands_of_a_call(J, *xs):
    return J.jit(lambda *ys: J.lax.concatenate(ys, 0))(*xs)


@case(*["f32[3]"] * 25, cases=CASES)
def many_results(J, *xs):
    return [J.lax.neg(x) for x in xs]


@case("f32[3]", cases=CASES)
def literal_operands(J, x):
    return J.lax.add(x, np.float32(0.1)), J.lax.mul(0.1, x), J.lax.sub(x, np.array(2.0))


@case("f32[3]", cases=CASES)
def captured_array(J, x):
    constant = np.arange(3, dtype=np.float32)
    return J.lax.add(x, constant), J.lax.mul(constant, x)


@case("f32[3]", "f32[3]", cases=CASES)
def captured_arrays_in_order_of_use(J, x, y):
    first, second = np.ones(3, np.float32), np.zeros((3,), np.int32)
    return second, J.lax.add(y, first), first


@case("f32[3]", cases=CASES)
def call(J, x):
    return J.jit(J.lax.sin)(x)


@case("f32[3]", cases=CASES)
def call_twice_with_the_same_values(J, x):
    return J.jit(lambda y, z: J.lax.add(y, z))(x, x)


@case("~f32[]", cases=CASES)
def call_gives_its_arguments(J, x):
    return J.jit(lambda y, z: (z, y, 1.0, y, 3))(x, J.lax.mul(x, x))


@case("~f32[]", cases=CASES)
def call_gives_one_value_twice(J, x):
    return J.jit(lambda y, z: (J.lax.add(y, z),) * 2)(x, J.lax.mul(x, x))


@case("f32[3]", cases=CASES)
def shared_call(J, x):
    @J.jit
    def inner(a, b):
        return J.lax.add(a, b), J.lax.mul(a, b)

    return inner(x, x), inner(J.lax.neg(x), x)


@case("f32[3]", cases=CASES)
def shared_lambda(J, x):
    square = J.jit(lambda y: J.lax.mul(y, y))
    return square(x), square(square(x))


@case("f32[3]", cases=CASES)
def shared_calls_nested(J, x):
    @J.jit
    def inner(a, b):
        return J.lax.add(a, b), J.lax.mul(a, b)

    @J.jit
    def outer(a):
        return J.lax.add(inner(a, a)[0], inner(J.lax.neg(a), a)[0])

    return outer(x), outer(inner(x, x)[1])


@case("f32[3]", "i32[2]", cases=CASES)
def shared_calls_of_one_name(J, x, n):
    square = J.jit(lambda y: J.lax.mul(y, y))
    return square(x), square(x), square(n), square(n)


@case("f32[3]", cases=CASES)
def closed_over_traced_value(J, x):
    constant = np.arange(3, dtype=np.float32)
    return J.jit(lambda y: J.lax.add(J.lax.mul(x, y), constant))(x)


@case("f32[3]", cases=CASES)
def closed_over_constant(J, x):
    constant = np.arange(3, dtype=np.float32)
    inner = J.jit(lambda y: J.lax.add(y, constant))
    return inner(x), J.lax.add(x, constant)


@case("f32[3]", cases=CASES)
def calls_in_calls_over_traced_values(J, x):
    @J.jit
    def outer(y):
        return inner(y)

    @J.jit
    def inner(y):
        return J.lax.mul(x, y)

    return outer(x)


@case("f32[3]", cases=CASES)
def unused_results_of_calls(J, x):
    @J.jit
    def both(y):
        return J.lax.sin(y), J.lax.cos(y)

    both(x)
    return both(J.lax.neg(x))[0]


@case("f32[3]", cases=CASES)
def unused_result_of_one_call(J, x):
    return J.jit(lambda y: (J.lax.sin(y), J.lax.cos(y)))(x)[0]


@case("f32[3]", cases=CASES)
def inlined_call(J, x):
    return J.jit(lambda y: J.lax.sin(y), inline=True)(x)


@case("f32[3]", cases=CASES)
def kept_and_donated(J, x):
    return J.jit(lambda y, z: J.lax.sin(y), keep_unused=True, donate_argnums=(0,))(J.lax.neg(x), x)


@case("f32[4]", cases=CASES)
def parameters(J, x):
    matrix = J.lax.reshape(x, (2, 2))
    return J.lax.transpose(matrix, (1, 0)), J.lax.slice(x, (0,), (2,)), J.lax.pad(x, np.float32(0), ((1, 1, 0),))


@case("f32[3]", cases=CASES)
def folded_conversions(J, x):
    convert = J.lax.convert_element_type
    return convert(3, np.float32), convert(np.float32(3.5), np.int32), convert(convert(True, np.int32), np.int8)


@case("f32[3]", cases=CASES)
def conversion_to_the_same_type(J, x):
    return J.lax.convert_element_type(x, np.float32)


@case("~i32[]", cases=CASES)
def named(J, x):
    with J.named_scope("scope"):
        return J.named_call(lambda y: J.lax.neg(y), name="negate")(x)


@case("~f32[]", "~i32[]", x64=True, cases=CASES)
def sixty_four_bits(J, x, n):
    return J.lax.add(x, 0.1), J.lax.add(n, 1), np.arange(3)


@case("bf16[2]", "f16[2]", "c64[2]", "u8[2]", "bool[2]", cases=CASES)
def types(J, b, h, c, u, p):
    return J.lax.neg(b), J.lax.neg(h), J.lax.neg(c), J.lax.add(u, u), J.lax.bitwise_not(p)


@case("bf16[]", "f16[]", "c64[]", cases=CASES)
def literals_of_types(J, b, h, c):
    third = 1 / 3
    return J.lax.add(b, b.dtype.type(third)), J.lax.add(h, np.float16(third)), J.lax.add(c, np.complex64(1 + 2j))


@case("f32[]", cases=CASES)
def odd_literals(J, x):
    values = [float("inf"), float("nan"), -0.0, 1e-20, 123456789.0, 16777217.0, 1e30]
    return [J.lax.add(x, np.float32(value)) for value in values] + [J.lax.add(x, value) for value in values]


@case("f32[3]", cases=CASES)
def doubled_calls(J, x):
    def double(fun, name):
        def twice(y):
            return fun(fun(y))

        twice.__name__ = name
        return J.jit(twice)

    return double(double(double(J.jit(lambda y: J.lax.sin(y)), "two"), "four"), "eight")(x)


@case("f32[3]", "i32[]", cases=CASES)
def nested_calls(J, x, n):
    @J.jit
    def outer(y, m):
        @J.jit
        def middle(z):
            return J.jit(lambda w: J.lax.add(w, y))(J.lax.neg(z)), J.lax.add(m, 1)

        return middle(y), J.lax.mul(y, y)

    return outer(x, n), outer(J.lax.neg(x), 3)[1]


@case("f32[3]", cases=CASES)
def long_inner_program(J, x):
    @J.jit
    def chain(y):
        for _ in range(12):
            y = J.lax.sin(y)
        return y

    return chain(x)


@case("f32[3]", cases=CASES)
def pytrees_in_and_out(J, x):
    @J.jit
    def inner(tree):
        return {"b": tree["a"][0], "a": (tree["a"][1], None)}

    return inner({"a": (x, J.lax.neg(x))})


@case("f32[3]", cases=CASES)
def evaluated_while_tracing(J, x):
    with J.ensure_compile_time_eval():
        y = J.lax.add(np.ones(3, np.float32), np.ones(3, np.float32))
    return J.lax.add(x, y)


@case("f32[2,3]", "f32[3,4]", cases=CASES)
def contraction(J, x, y):
    return J.lax.dot_general(x, y, (((1,), (0,)), ((), ()))), J.lax.dot(x, y, precision="highest")


@case("f32[3]", cases=CASES)
def reductions(J, x):
    lax = J.lax
    return (
        lax.reduce_max(x, (0,)),
        lax.argmax(x, 0, np.int32),
        lax.cumsum(x),
        lax.clamp(np.float32(0), x, np.float32(1)),
    )


@case(cases=CASES)
def no_operands(J):
    return J.lax.iota(np.int32, 3), J.lax.full((2,), 1.5)


@case("f32[1,200,3]", *["f32[10,20]"] * 9, cases=CASES)
def wide_types(J, x, *ys):
    return J.jit(lambda *zs: [J.lax.neg(z) for z in zs])(x, *ys)


@pytest.mark.parametrize("one", CASES, ids=repr)
def test_same_jaxpr(one: Case) -> None:
    assert_same_jaxpr(one)
