"""debug_key_reuse: which programs use a random key twice, as JAX 0.10.2 decides for each of them."""

from __future__ import annotations

from typing import Any

import pytest

import weft
import weft.numpy as jnp
from weft import lax, random
from weft.errors import KeyReuseError
from weft.experimental import key_reuse

N, U, split = random.normal, random.uniform, random.split

# (the program, on a key; whether jit of it raises; whether it raises without jit)
ONE_KEY: dict[str, tuple[Any, bool, bool]] = {
    "two draws": (lambda k: N(k) + U(k), True, True),
    "two splits": (lambda k: (split(k), split(k)), True, True),
    "draw of a split key": (lambda k: (split(k), N(k)), True, True),
    "fold_in": (lambda k: (N(k), random.fold_in(k, 1), random.fold_in(k, 2)), False, False),
    "words": (lambda k: (N(k), random.key_data(k), k == k), False, False),
    "clone": (lambda k: (N(k), N(random.clone(k))), False, False),
    "reshape": (lambda k: (N(k), N(k.reshape(1)[0])), True, True),
    "identity": (lambda k: (N(weft.jit(lambda k: k)(k)), N(k)), True, False),
    "one branch": (lambda k: (lax.cond(True, N, lambda k: 0.0, k), N(k)), True, True),
    "two branches": (lambda k: lax.cond(True, N, U, k), False, False),
    "branches give the key": (lambda k: (N(lax.cond(True, lambda k: k, lambda k: k, k)), N(k)), True, True),
    "checkpoint": (lambda k: (weft.checkpoint(lambda k: N(k))(k), N(k)), True, True),
    "captured by a scan": (lambda k: lax.scan(lambda c, _: (c, N(k)), 0, length=2), True, True),
    "carried by a scan": (lambda k: lax.scan(lambda c, _: (c, N(c)), k, length=2)[1], True, True),
    "folded in a loop": (lambda k: lax.fori_loop(0, 3, lambda i, c: c + N(random.fold_in(k, i)), 0.0), False, False),
    "split in a scan": (lambda k: lax.scan(lambda c, _: (split(c)[0], U(split(random.clone(c))[1])), k, length=2)[1],
                        False, False),
    "a while loop": (lambda k: lax.while_loop(lambda c: c < 0, lambda c: N(k), -1.0), True, True),
    "a condition": (lambda k: lax.while_loop(lambda c: N(c) < 0, lambda c: split(c)[0], k), True, True),
    "vmap": (lambda k: weft.vmap(lambda x: x + N(k))(jnp.arange(3.0)), False, False),
    "distributions": (lambda k: [f(key) for f, key in zip((lambda k: random.gamma(k, 2.0),
        lambda k: random.poisson(k, 3.0), lambda k: random.binomial(k, 3, 0.5), lambda k: random.permutation(k, 4)),
        split(k, 4), strict=True)], False, False),
}  # fmt: skip
THREE_KEYS: dict[str, tuple[Any, bool, bool]] = {
    "all of them": (lambda k: [N(x) for x in k], False, False),
    "one twice": (lambda k: (N(k[1]), N(k[1])), True, True),
    "parts": (lambda k: (weft.vmap(N)(k[:2]), N(k[2])), False, False),
    "parts that overlap": (lambda k: (weft.vmap(N)(k[:2]), N(k[1])), True, True),
    "fancy": (lambda k: (k[jnp.array([0, 1])], N(k[0])), False, False),
    "inputs of a scan": (lambda k: lax.scan(lambda c, x: (c, N(x)), 0, k)[1], False, False),
    "inputs and more": (lambda k: (lax.scan(lambda c, x: (c, N(x)), 0, k)[1], N(k[0])), True, True),
    "joined twice": (lambda k: (jnp.concatenate([k, k]),), True, True),
}


@pytest.mark.parametrize("name", [*ONE_KEY, *THREE_KEYS])
def test_which_programs_raise(name: str) -> None:
    function, traced, eager = {**ONE_KEY, **THREE_KEYS}[name]
    with weft.debug_key_reuse(True):
        make = (lambda: random.key(0)) if name in ONE_KEY else (lambda: split(random.key(0), 3))
        for run, raises in ((weft.jit(function), traced), (function, eager)):
            if raises:
                with pytest.raises(KeyReuseError):
                    run(make())
            else:
                run(make())
    weft.make_jaxpr(function)(make())  # without the option nothing is tracked


def test_keys_remember_what_calls_have_used() -> None:
    draw = weft.jit(lambda k: N(k))
    key = random.key(3)
    draw(key)
    draw(key)  # not tracked yet
    with weft.debug_key_reuse(True):
        draw(key)
        with pytest.raises(KeyReuseError, match="Previously-consumed key passed to jit-compiled function at index 0"):
            draw(key)
        with pytest.raises(KeyReuseError, match="key passed to random_split at index 0"):
            split(key)
        with pytest.raises(KeyReuseError):
            weft.grad(lambda x: x * N(key))(1.0)
        with pytest.raises(KeyReuseError, match="In jit, argument 0 is already consumed"):
            weft.eval_shape(lambda k: N(k) + N(k), key)
        captured = weft.jit(lambda x: x * N(other))
        other = random.key(4)
        captured(1.0)
        with pytest.raises(KeyReuseError, match="at index 1"):
            captured(1.0)
    draw(key)
    assert key_reuse.KeyReuseError is KeyReuseError
