"""Arrays of keys become arrays of their words: types, and operations that move elements."""

from __future__ import annotations

import weft
from weft import lax
from weft.compiler.passes import lower_prng_keys

KEYS = weft.random.split(weft.random.key(3), 4)


def lowered(function, *args):
    return lower_prng_keys.lower_prng_keys(weft.make_jaxpr(function)(*args)).jaxpr


def test_types_get_a_dimension_of_words() -> None:
    made = lowered(lambda k: lax.slice(k, (1,), (3,)), KEYS)
    assert [v.aval.str_short() for v in (*made.invars, *made.outvars)] == ["u32[4,2]", "u32[2,2]"]
    (eqn,) = made.eqns
    assert eqn.primitive.name == "slice" and eqn.params["limit_indices"] == (3, 2)


def test_operations_on_keys_are_expanded() -> None:
    names = [eqn.primitive.name for eqn in lowered(lambda k: weft.random.bits(k), KEYS[0]).eqns]
    assert "random_bits" not in names and not lower_prng_keys.has_keys(lowered(weft.random.bits, KEYS[0]))


def test_programs_without_keys_stay() -> None:
    closed = weft.make_jaxpr(lambda x: x + 1)(2.0)
    assert lower_prng_keys.lower_prng_keys(closed) is closed
