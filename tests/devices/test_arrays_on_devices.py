"""Arrays and programs on the device of a plugin: results beside NumPy's, placement and errors as JAX's."""

from __future__ import annotations

import gc
import os
import pickle
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.runtime.held_memory import native_bytes
from weft import lax, runtime
from weft.compiler.storage import disk
from weft.dispatch import devices
from weft.dispatch.programs import device_programs
from weft.runtime import _native

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@weft.jit
def program(x: Any, y: Any) -> tuple[Any, dict[str, Any]]:
    return x * 2 + y, {"sum": x.sum(), "first": x[0]}


def put(value: Any, device: Any) -> Any:
    return weft.device_put(value, device)


def test_a_program_with_several_results(device: Any) -> None:
    for _ in range(3):  # the first call compiles, the others are answered natively
        doubled, rest = program(put(X, device), np.float32(1))
        np.testing.assert_array_equal(doubled, X * 2 + 1)
        assert float(rest["sum"]) == 15 and rest["first"].tolist() == [0, 1, 2]
        for result in (doubled, *rest.values()):
            assert result.devices() == {device} and result.committed and result.device is device
            assert result.sharding == weft.sharding.SingleDeviceSharding(device) and result.platform() == "first"
    assert program.cache_info().hits >= 2
    scalar, _ = program(put(X, device), 3)
    np.testing.assert_array_equal(scalar, X * 2 + 3)
    on_cpu, _ = program(X, 1)
    assert on_cpu.devices() == {weft.devices("cpu")[0]} and not on_cpu.committed


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
     "float64", "complex64", "complex128", "float8_e5m2", "float8_e4m3fn", "int4", "uint4"],
)  # fmt: skip
def test_bytes_to_a_device_and_back(dtype: str, device: Any) -> None:
    with weft.enable_x64(True):
        values = np.arange(6).astype(weft.dtypes.as_dtype(dtype)).reshape(2, 3) % 2 if dtype == "bool" else None
        values = np.arange(6).reshape(2, 3).astype(weft.dtypes.as_dtype(dtype)) if values is None else values
        for given in (values, values.T, values[:0], values[0, 0]):
            there = put(wnp.asarray(given), device)
            assert there.devices() == {device} and there.dtype == given.dtype and there.shape == np.shape(given)
            np.testing.assert_array_equal(np.asarray(there), given)


def test_array_on_a_device(device: Any) -> None:
    x = put(X, device)
    assert repr(x) == repr(wnp.array(X)) and float(x[1, 2]) == 5 and x.tolist() == X.tolist()
    assert memoryview(x).tolist() == X.tolist() and x.nbytes == 24 and x.is_fully_addressable
    x.copy_to_host_async()
    weft.block_until_ready(weft.copy_to_host_async((x, x)))
    assert x.is_ready() and np.asarray(x) is not None and np.array_equal(pickle.loads(pickle.dumps(x)), X)
    again = put(X, device) + 0
    assert again.devices() == {device} and any(y is x for y in weft.live_arrays("first"))
    assert not any(y is x for y in weft.live_arrays("cpu"))
    assert x.to_device(weft.devices("cpu")[0]).devices() == {weft.devices("cpu")[0]}
    assert pickle.loads(pickle.dumps(device)) is device
    x.delete()
    assert x.is_deleted() and not again.is_deleted() and float(again[0, 1]) == 1
    for use in (np.asarray, lambda x: x + 1, lambda x: x.block_until_ready(), lambda x: program(x, 1)):
        with pytest.raises(RuntimeError, match="deleted"):
            use(x)


def test_large_arrays_are_copied_without_the_lock(device: Any) -> None:
    large = np.arange(1 << 18, dtype=np.float32)
    there = put(large, device)
    np.testing.assert_array_equal(there, large)
    np.testing.assert_array_equal(put(put(wnp.asarray(large), device), weft.devices("cpu")[0]), large)


def test_eager_operations_and_transformations(device: Any) -> None:
    x, y = put(X, device), put(X + 1, device)
    for result, expected in (
        (x + y, X + X + 1), (2 * x, 2 * X), (x.T, X.T), (lax.neg(x), -X), (wnp.concatenate([x, y]), np.r_[X, X + 1]),
        (x[1], X[1]), (wnp.where(x > 2, x, 0), np.where(X > 2, X, 0)), (x.sum(axis=0), X.sum(axis=0)),
        (weft.grad(lambda v: (v * v).sum())(x), 2 * X), (weft.vmap(wnp.dot)(x, x), (X * X).sum(axis=1)),
    ):  # fmt: skip
        assert result.devices() == {device} and result.committed
        np.testing.assert_array_equal(result, expected)
    before = runtime.committed_place([x])
    assert before == device.number * 2 + 1 and runtime.committed_place([X, 1.0]) == 0


def test_committed_and_uncommitted_arrays(device: Any, other: Any) -> None:
    cpu = weft.devices("cpu")[0]
    x, z, u = put(X, device), put(X, other), wnp.asarray(X)
    assert (u.committed, put(u, cpu).committed, (put(u, cpu) + 1).committed, (u + 1).committed) == (0, 1, 1, 0)
    assert put(u, cpu)[0].committed and put(u, cpu).T.committed and x[0].devices() == {device} and x[0].committed
    assert (x + u).devices() == {device} and (z + u).devices() == {other} and (put(u, cpu) + u).devices() == {cpu}
    for pair in ((x, z), (x, put(u, cpu)), (put(u, cpu), z)):
        for function, name in ((weft.jit(lambda a, b: a - b), "<lambda>"), (wnp.add, "add"), (lax.add, "add")):
            with pytest.raises(ValueError, match=rf"incompatible devices .* of {name} with shape float32\[2,3\]"):
                function(*pair)
    assert put(x, other).devices() == {other} and float(put(x, other).sum()) == 15
    captured = weft.jit(lambda v: v + x)(u)  # what a function captures decides nothing
    assert captured.devices() == {cpu} and not captured.committed
    np.testing.assert_array_equal(weft.jit(lambda v: v + u)(x), X + X)


def test_default_device_and_platforms(device: Any) -> None:
    cpu, before = weft.devices("cpu")[0], wnp.asarray(X)
    for setting in (weft.default_device(device), weft.default_device("first")):
        with setting:
            x = wnp.zeros(3)
            assert x.devices() == wnp.array([1.0]).devices() == put(X, None).devices() == {device}
            assert not x.committed and (x + 1).devices() == {device} and weft.default_backend() == "cpu"
            assert (put(X, cpu) + 1).devices() == put(X, cpu)[0].devices() == {cpu}
            assert before[0].devices() == {device}  # uncommitted
            draws = weft.random.uniform(weft.random.key(1), (3,))
    assert (x + 1).devices() == {cpu} and (lax.neg(x)).devices() == {cpu}  # uncommitted: where the default is
    np.testing.assert_array_equal(draws, weft.random.uniform(weft.random.key(1), (3,)))
    weft.config.update("jax_platforms", "first,cpu")
    try:
        assert weft.default_backend() == "first" and weft.devices()[0] is device
        assert wnp.zeros(3).devices() == {device}
    finally:
        weft.config.update("jax_platforms", None)
    with pytest.raises(RuntimeError, match="Unknown backend nowhere"):
        weft.config.update("platforms", "first,nowhere")


def test_jit_on_a_device(device: Any) -> None:
    cpu = weft.devices("cpu")[0]
    for function in (weft.jit(lambda x: x + 1, device=device), weft.jit(lambda x: x + 1, backend="first")):
        result = function(X)
        assert result.devices() == {device} and result.committed
    assert weft.jit(lambda x: x + 1, device=cpu)(put(X, device)).devices() == {cpu}
    lowered = weft.jit(lambda x: x * 3, device=device).lower(put(X, device))
    np.testing.assert_array_equal(lowered.compile()(X), X * 3)
    with pytest.raises(RuntimeError, match="Unknown backend nowhere"):
        weft.jit(lambda x: x, backend="nowhere")


def test_device_put_inside_of_programs(device: Any) -> None:
    cpu = weft.devices("cpu")[0]

    def there(v: Any, target: Any = device) -> Any:
        return lax.cond(v[0, 0] > 5, lambda u: u, lambda u: weft.device_put(u, target) * 2, v)

    for function in (weft.jit(lambda v: put(v, device) + 1), weft.jit(there), there):
        with pytest.raises(NotImplementedError, match=r"runs on cpu:0, .* names first:0: .*outside of jit"):
            function(wnp.asarray(X))
    with pytest.raises(NotImplementedError, match=r"runs on first:0, .* names cpu:0"):
        weft.jit(lambda v: there(v, weft.sharding.SingleDeviceSharding(cpu)))(put(X, device))
    np.testing.assert_array_equal(weft.jit(there)(put(X, device)), X * 2)
    assert weft.jit(there, device=device)(X).devices() == {device}
    assert weft.jit(lambda v: there(v, cpu))(X).devices() == {cpu}
    value, slope = weft.value_and_grad(lambda v: (put(v, device) ** 2).sum())(wnp.asarray(X))  # operation by operation
    assert value.devices() == {device} and float(value) == 55
    np.testing.assert_array_equal(slope, 2 * X)
    assert weft.vmap(lambda v: put(v, device))(X).devices() == {device}


def test_donation(device: Any) -> None:
    step = weft.jit(lambda x, y: (x + y, y), donate_argnums=0)
    for _ in range(3):
        x, y = put(X, device), put(X, device)
        result, _ = step(x, y)
        assert x.is_deleted() and not y.is_deleted()
        np.testing.assert_array_equal(result, X + X)
    x = put(X, device)
    with pytest.raises(RuntimeError, match="donated in the same call"):
        step(x, x)
    assert not x.is_deleted()


def test_keys_and_checks(device: Any) -> None:
    key = put(weft.random.key(7), device)
    assert key.devices() == {device} and "overlaying" in repr(key)
    np.testing.assert_array_equal(weft.random.bits(key, (4,)), weft.random.bits(weft.random.key(7), (4,)))
    with weft.debug_nans(True), pytest.raises(FloatingPointError):
        weft.jit(lambda x: wnp.log(x))(put(-X - 1, device))


def test_what_a_device_cannot_run(device: Any) -> None:
    def writes(ref: Any, x: Any) -> Any:
        ref[...] = x
        return x + 1

    with pytest.raises(NotImplementedError, match="writes takes mutable array references"):
        weft.jit(writes)(weft.new_ref(X), put(X, device))


CREATED: dict[str, Any] = {
    "zeros": lambda **k: wnp.zeros(3, **k), "ones": lambda **k: wnp.ones(3, **k),
    "empty": lambda **k: wnp.empty(3, **k), "full": lambda **k: wnp.full(3, 2.0, **k),
    "arange": lambda **k: wnp.arange(3, **k),
    "linspace": lambda **k: wnp.linspace(0, 1, 3, **k), "eye": lambda **k: wnp.eye(3, **k),
    "array": lambda **k: wnp.array(X, **k), "asarray": lambda **k: wnp.asarray([1.0], **k),
    "fftfreq": lambda **k: wnp.fft.fftfreq(4, **k), "zeros_like": lambda **k: wnp.zeros_like(X, **k),
    "ones_like": lambda **k: wnp.ones_like(X, **k), "empty_like": lambda **k: wnp.empty_like(X, **k),
    "full_like": lambda **k: wnp.full_like(X, 2, **k), "astype": lambda **k: wnp.ones(3).astype(int, **k),
}  # fmt: skip


@pytest.mark.parametrize("name", CREATED)
def test_new_arrays_on_a_device(name: str, device: Any) -> None:
    """As JAX: what ``device`` names is where the result is, committed; the values are those of the CPU."""
    made, expected = CREATED[name](device=device), CREATED[name]()
    assert made.devices() == {device} and made.committed and made.aval == expected.aval
    assert expected.devices() == set(weft.devices("cpu")) and not expected.committed
    np.testing.assert_array_equal(made, expected)
    there = CREATED[name](device=weft.sharding.SingleDeviceSharding(device))
    assert there.devices() == {device} and there.committed


def test_new_arrays_like_one_on_a_device(device: Any) -> None:
    """As JAX: where the other is, if it is committed there and has no weak type; else where new arrays are."""
    committed = put(X, device)
    with weft.default_device(device):
        loose = wnp.asarray(X)
    cpu = weft.devices("cpu")[0]
    for like in (wnp.zeros_like, wnp.ones_like, wnp.empty_like, lambda x, **k: wnp.full_like(x, 2, **k)):
        assert like(committed).devices() == {device} and like(committed).committed
        assert like(committed, shape=(2,), dtype=int).devices() == {device}
        assert like(loose).devices() == {cpu} == like(put(2.0, device)).devices()
        assert like(committed, device=cpu).devices() == {cpu} and like(committed, device=cpu).committed


def test_memory_stays_steady(device: Any) -> None:
    x = put(X, device)
    program(x, 1)  # a sanitizer keeps what is freed; it is here for the calls

    def repeat(calls: int, arrays: int) -> int:
        for _ in range(calls):
            program(x, 1)
        held = [put(np.full(1000, i, np.float32), device) for i in range(arrays)]
        assert float(held[-1][0]) == arrays - 1
        del held
        gc.collect()
        return native_bytes()

    before = repeat(2000, 1000)
    grown = repeat(10_000, 1000) - before
    assert grown < 1 << 18 or _native.sanitizer  # 10,000 more calls with results of 24 bytes and up


@pytest.mark.filterwarnings(
    "ignore::RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)  # JAX's, of fork
def test_a_forked_child_refuses(device: Any) -> None:
    x, started = put(X, device), put(X, device) + 1
    started.copy_to_host_async()
    compiled = weft.jit(lambda v: v + 1).lower(x).compile()
    uses = (
        lambda: x + 1, lambda: np.asarray(started), lambda: started.is_ready(), lambda: device.client.native.platform,
        lambda: compiled.parts()[1].program.native.serialize(),
    )  # fmt: skip
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        for number, use in enumerate(uses):
            try:
                use()
            except Exception as error:
                if isinstance(error, RuntimeError) and "forked child" in str(error):
                    continue
            os._exit(number + 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_captured_arrays_of_eager_programs(device: Any, other: Any) -> None:
    """A compound operation that captures arrays, outside of jit: equal programs, other arrays."""
    for scale in (2.0, 3.0):
        held = wnp.asarray(np.full(3, scale, np.float32))
        there = put(held, other)
        inner = weft.jit(lambda v, held=held: v * held)
        for target in (device, weft.devices("cpu")[0]):
            x = put(X, target)
            np.testing.assert_array_equal(weft.grad(lambda v, inner=inner: inner(v).sum())(x), np.full_like(X, scale))
            looped = lax.fori_loop(0, 2, lambda _, v, held=held: v * held, x)
            np.testing.assert_array_equal(looped, X * scale * scale)
            assert looped.devices() == {target}
            np.testing.assert_array_equal(weft.jit(lambda v, there=there: v * there)(x), X * scale)
            folded, _ = lax.scan(lambda c, row, held=held: (c + row * held, None), put(X[0] * 0, target), x)
            np.testing.assert_array_equal(folded, X.sum(axis=0) * scale)


@pytest.fixture
def cache_folder(tmp_path: Path) -> Iterator[Path]:
    """A cache on disk of its own."""
    before = {name: weft.config.read(name) for name in ("cache", "cache_dir")}
    weft.config.update("cache_dir", str(tmp_path))
    weft.config.update("cache", True)
    yield tmp_path
    for name, value in before.items():
        weft.config.update(name, value)


def test_compiled_programs_are_kept_on_disk(device: Any, cache_folder: Path) -> None:
    text = weft.jit(lambda x: x * 5 - 2).lower(X).as_text("stablehlo").encode()
    first = device_programs.compiled_by_plugin(text, device)
    (entry,) = cache_folder.glob("*.program")
    again = device_programs.compiled_by_plugin(text, device)
    x = wnp.asarray(X)
    for program in (first, again):
        (result,) = runtime.device_executable(program, (x.aval,), (x.aval,), "kept").run([x])
        np.testing.assert_array_equal(result, X * 5 - 2)
    store, key, content = disk.current(), bytes.fromhex(entry.stem), entry.read_bytes()
    assert store is not None
    store.store(key, "plugin", disk.unpack(content, key).bytes[:40], disk.PROGRAM)
    device_programs.compiled_by_plugin(text, device)  # what the plugin cannot load is compiled again
    assert len(entry.read_bytes()) > len(content) // 2


def test_a_signal_ends_a_copy_to_the_host(device: Any) -> None:
    """The memory of the copy stays until the plugin has written it: no later array of its size is overwritten."""

    class Rung(Exception):
        """What the handler raises."""

    def ring(*_: Any) -> None:
        raise Rung

    slow = weft.jit(lambda x: lax.fori_loop(0, 40, lambda _, v: v @ x, x))
    x = put(np.full((512, 512), 1 / 512, np.float32), device)
    slow(x).block_until_ready()
    before = signal.signal(signal.SIGALRM, ring)
    try:
        for wait in (np.asarray, lambda y: y.block_until_ready()):
            y = slow(x)
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            with pytest.raises(Rung):
                wait(y)
            held = [wnp.zeros((512, 512)).block_until_ready() for _ in range(3)]
            np.testing.assert_allclose(y, np.full((512, 512), 1 / 512), rtol=1e-3)  # a copy of its own
            assert not any(np.asarray(z).any() for z in held)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_results_of_float0(device: Any) -> None:
    x = put(wnp.int32(3), device)
    direct = weft.grad(lambda i: i * 1.0, allow_int=True)
    twice = weft.jit(lambda i: (direct(i), i + 1))
    compiled = twice.lower(x).compile()
    for found in (weft.jit(direct)(x), twice(x)[0], twice(x)[0], compiled(x)[0]):
        assert isinstance(found, np.ndarray) and found.dtype == weft.dtypes.float0 and found.shape == ()
    assert int(compiled(x)[1]) == int(twice(x)[1]) == 4


def test_largest_and_smallest_of_nan_are_nan(device: Any) -> None:
    x, y = np.float32([0, np.nan, 1, 2]), np.float32([np.nan, 0, 3, np.nan])
    largest, smallest = weft.jit(lambda x, y: (lax.max(x, y), lax.min(x, y)), device=device)(x, y)
    np.testing.assert_array_equal(largest, [np.nan, np.nan, 3, np.nan])
    np.testing.assert_array_equal(smallest, [np.nan, np.nan, 1, np.nan])


def test_a_constant_is_not_put_elsewhere_within_a_program(device: Any) -> None:
    ones, cpu = np.ones(3, np.float32), weft.devices("cpu")[0]
    for value in (ones, wnp.asarray(ones), 1.0):
        program = weft.jit(lambda x, value=value: x + weft.device_put(value, device))
        with pytest.raises(NotImplementedError, match="a compiled program runs on one device"):
            program(ones)
        found = program(put(ones, device))
        assert found.devices() == {device} and found.tolist() == [2, 2, 2]
    with pytest.raises(NotImplementedError, match="a compiled program runs on one device"):
        weft.jit(lambda: weft.device_put(ones, device) + 1)()
    assert weft.jit(lambda x: x + weft.device_put(ones, cpu))(ones).tolist() == [2, 2, 2]
    assert weft.vmap(lambda x: x + weft.device_put(1.0, cpu))(ones).tolist() == [2, 2, 2]


def test_both_backends_move_and_compile(device: Any) -> None:
    """What ``devices.Backend`` promises, of the CPU and of a plugin's device."""
    here = wnp.asarray(X)
    there = put(X, device)
    closed = weft.make_jaxpr(lambda x: x * 2)(X)
    for place, backend, own in ((0, devices.OWN, here), (there.place, device.backend, there)):
        assert devices.backend_at(place) is backend
        for array in (here, there):
            placed = backend.place(array)
            assert placed.place >> 1 == own.place >> 1
            assert backend.fetch(placed).place >> 1 == 0
            np.testing.assert_array_equal(backend.fetch(placed), X)
        (result,) = backend.compile(closed, name="twice").run([own])
        assert result.place >> 1 == own.place >> 1
        np.testing.assert_array_equal(result, X * 2)
    assert devices.OWN.key != device.backend.key and devices.OWN.lend(here, 0) is None
    assert devices.backend_at((there.place, there.place)) is devices.backend_at(-1) is devices.OWN
