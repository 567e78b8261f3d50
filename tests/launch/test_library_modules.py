"""The smaller modules that libraries import: extents without a value, monitoring, hijax declarations, the backend."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import export as jax_export

import weft
import weft.numpy as jnp
from weft import errors, export, monitoring
from weft.experimental import hijax
from weft.extend import backend
from weft.interpreters import batching


@pytest.mark.oracle
def test_shapes_with_unknown_extents_are_those_of_jax() -> None:
    def shapes(module, exported):
        numpy = module.numpy
        b, n = exported.symbolic_shape("b, n", constraints=["n >= 2"])
        x = module.ShapeDtypeStruct((b, 3), np.float32)
        y = module.ShapeDtypeStruct((3, n), np.int32)

        def f(x, y, z):
            joined = numpy.concatenate([x, x, z])
            return joined, x @ y, x.sum(), x.reshape(-1), numpy.pad(y, ((0, 0), (1, 2))), {"z": z[None]}

        outs = module.eval_shape(f, x, y, np.zeros((4, 3), np.float32))
        return [(tuple(map(str, out.shape)), out.dtype) for out in module.tree.leaves(outs)]

    assert shapes(weft, export) == shapes(jax, jax_export)


def test_sums_of_unknown_extents() -> None:
    b, n, two = export.symbolic_shape("b, 2*n + 4, 2")
    assert (str(b + n - b), n // 2 * 2 == n, 3 - b + b, str(-b + 1), two) == ("2*n + 4", True, 3, "- b + 1", 2)
    assert export.is_symbolic_dim(b) and not export.is_symbolic_dim(2) and b != n and hash(b) == hash(b + 0)
    assert export.symbolic_shape("_, ..., c", like=(1, 2, 3, 4))[:3] == (1, 2, 3)
    assert (str(b * n), str(n // 3)) == ("2*b*n + 4*b", "floordiv(2*n + 4, 3)")
    with pytest.raises(errors.InconclusiveDimensionOperation):
        int(b)
    struct = weft.ShapeDtypeStruct((b,), np.float32)
    assert str(weft.eval_shape(lambda x: jnp.outer(x, x).ravel(), struct).shape) == "(b^2,)"
    with pytest.raises(ValueError, match="like="):
        export.symbolic_shape("_")


def test_listeners_hear_what_is_recorded_until_they_are_forgotten() -> None:
    heard: list[object] = []

    def listen(*args, **details):
        heard.append((*args, details))

    monitoring.register_event_listener(listen)
    monitoring.register_event_duration_secs_listener(listen)
    monitoring.register_event_time_span_listener(listen)
    monitoring.register_scalar_listener(listen)
    monitoring.record_event("a", n=1)
    monitoring.record_event_duration_secs("b", 0.5)
    monitoring.record_event_time_span("c", 1.0, 2.0)
    monitoring.record_scalar("d", 3.0)
    assert heard == [("a", {"n": 1}), ("b", 0.5, {}), ("c", 1.0, 2.0, {}), ("d", 3.0, {})]
    monitoring.unregister_event_listener(listen)
    monitoring.unregister_event_duration_listener(listen)
    monitoring.record_event("a")
    monitoring.record_event_duration_secs("b", 0.5)
    monitoring.clear_event_listeners()
    monitoring.record_scalar("d", 3.0)
    assert len(heard) == 4
    with pytest.raises(ValueError):
        monitoring.unregister_scalar_listener(listen)


def test_hijax_types_can_be_declared_and_not_be_used() -> None:
    class Box(hijax.MutableHiType):
        look = hijax.aval_method(lambda self: self)
        size = hijax.aval_property(fget=lambda self: 1)

    class Make(hijax.HiPrimitive):
        multiple_results = True

    hijax.register_hitype(Box, lambda box: box)
    hijax.control_flow_allowed_effects.add_type(Box)
    for use in (lambda: Make("make_box").bind(1.0), lambda: hijax.AvalQDD(Box, None), lambda: hijax.cur_qdd(1)):
        with pytest.raises(NotImplementedError, match="hijax types and primitives can be declared"):
            use()


def test_types_with_rules_of_their_own_for_vmap_are_refused() -> None:
    class Rows(list):
        pass

    batching.register_vmappable(Rows, int, int, None, None, None)
    with pytest.raises(NotImplementedError, match="Rows is registered"):
        weft.vmap(lambda rows: rows)(Rows())
    batching.unregister_vmappable(Rows)
    assert weft.vmap(jnp.sin)(np.zeros(2)).tolist() == [0.0, 0.0]


def test_the_backend_is_the_cpu() -> None:
    client = backend.get_backend()
    assert backend.backends()["cpu"] is client and client.platform == "cpu" and client.devices() == weft.devices()
    assert backend.get_default_device() is weft.devices()[0]
    with pytest.raises(RuntimeError, match="rocm"):  # other tests make GPUs of NVIDIA's
        backend.get_backend("rocm")


def test_a_constant_seed_beside_constant_results() -> None:
    # the constants of the program are Python numbers there, and its results keep the types that they have
    key, zero, small = weft.jit(lambda: (weft.random.key(jnp.asarray(0)), jnp.asarray(0), np.int8(3)))()
    assert weft.random.key_data(key).tolist() == np.asarray(jax.random.key_data(jax.random.key(0))).tolist()
    assert (zero.dtype, zero.weak_type, small.dtype, small.weak_type) == (np.int32, True, np.int8, False)


def test_none_has_the_extents_that_numpy_gives_it() -> None:
    for function in (jnp.shape, jnp.ndim, jnp.size):
        with pytest.warns(DeprecationWarning, match="requires ndarray or scalar arguments"):
            assert function(None) == getattr(np, function.__name__)(None)


def test_functions_that_read_at_run_time_are_mapped_over_no_elements() -> None:
    x, i = np.zeros((0, 4), np.float32), np.zeros((0,), np.int32)

    def reads(module, x, i):
        pair = module.numpy.stack([i, i])
        window = module.lax.dynamic_slice(x, (i,), (2,))
        return window, x[i], module.numpy.take(x, pair), module.grad(lambda x: x[i] * 2)(x)

    for mine, theirs in zip(
        weft.vmap(lambda x, i: reads(weft, x, i))(x, i), jax.vmap(lambda x, i: reads(jax, x, i))(x, i), strict=True
    ):
        assert mine.shape == theirs.shape
