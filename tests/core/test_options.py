"""Every option does what it says, or refuses the value: nothing is ignored in silence."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import config, lax, random, runtime

ROW, TABLE = wnp.ones(3), wnp.ones((2, 3))
MISMATCHES = {
    "add": lambda: wnp.add(ROW, TABLE),
    "operator": lambda: ROW + TABLE,
    "numpy": lambda: np.ones(3) + TABLE,
    "equal": lambda: TABLE == ROW,
    "jitted": lambda: weft.jit(lambda a, b: a * b)(ROW, TABLE),
    "logaddexp": lambda: wnp.logaddexp(TABLE, ROW),
    "power": lambda: wnp.power(TABLE, ROW),
}


@pytest.mark.parametrize("name", MISMATCHES)
def test_rank_promotion(name: str) -> None:
    weft.clear_caches()
    MISMATCHES[name]()
    with config.context("numpy_rank_promotion", "raise"), pytest.raises(ValueError, match="numpy_rank_promotion"):
        MISMATCHES[name]()
    weft.clear_caches()
    with config.context("numpy_rank_promotion", "warn"), pytest.warns(UserWarning, match="rank promotion") as caught:
        MISMATCHES[name]()
    assert caught[0].filename == __file__


def test_rank_promotion_leaves_scalars_and_explicit_broadcasts_alone() -> None:
    with config.context("numpy_rank_promotion", "raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in (TABLE + 1, TABLE * wnp.ones(()), wnp.where(TABLE > 0, ROW, 0.0), TABLE @ ROW, wnp.var(TABLE, 0)):
            assert value.dtype == np.float32
        wnp.broadcast_to(ROW, (2, 3))


@pytest.mark.parametrize(
    ("word", "printed"),
    [
        ("highest", "(Precision.HIGHEST, Precision.HIGHEST)"),
        ("tensorfloat32", "(Precision.HIGH, Precision.HIGH)"),
        ("default", "(Precision.DEFAULT, Precision.DEFAULT)"),
        ("F32_F32_F32", "F32_F32_F32"),
    ],
)
def test_matmul_precision(word: str, printed: str) -> None:
    def product(x):
        return x @ x

    x = wnp.ones((3, 3))
    assert "precision" not in str(weft.make_jaxpr(product)(x))
    with weft.default_matmul_precision(word):
        assert f"precision={printed}\n" in str(weft.make_jaxpr(product)(x))
        assert weft.jit(product)(x)[0, 0] == 3.0
    assert "precision" not in str(weft.make_jaxpr(product)(x))


def test_seed_offset() -> None:
    expected = random.key_data(random.key(12)).tolist()
    with config.context("random_seed_offset", 5):
        for seed in (7, wnp.int32(7), np.int64(7)):
            assert random.key_data(random.key(seed)).tolist() == expected
        assert weft.jit(random.PRNGKey)(7).tolist() == expected
        assert "add a 5:i32[]" in str(weft.make_jaxpr(random.PRNGKey)(7))
    with config.context("random_seed_offset", -3):
        assert random.PRNGKey(wnp.uint32(1)).tolist() == [0, 2**32 - 2]
    assert random.PRNGKey(7).tolist() == [0, 7]


def test_custom_prng() -> None:
    assert random.PRNGKey(0).dtype == np.uint32
    with weft.enable_custom_prng(True):
        assert random.PRNGKey(0).dtype == random.key(0).dtype


def test_high_dynamic_range_gumbel() -> None:
    key = random.key(3)
    with config.context("high_dynamic_range_gumbel", True):
        high = random.gumbel(key, (4,)).tolist()
    assert high == random.gumbel(key, (4,), mode="high").tolist()
    assert random.gumbel(key, (4,)).tolist() == random.gumbel(key, (4,), mode="low").tolist() != high


def test_default_device() -> None:
    for device in (weft.devices()[0], "cpu", None):
        with weft.default_device(device):
            assert wnp.ones(2).devices() == {weft.devices()[0]}
    with pytest.raises(RuntimeError, match="Unknown backend: 'tpu' requested"):
        weft.default_device("tpu")
    with pytest.raises(ValueError, match="default_device"):
        weft.default_device(3)


def test_num_threads() -> None:
    before = runtime.Pool.get_threads()
    try:
        config.update("num_threads", 1)
        assert runtime.Pool.get_threads() == 1
    finally:
        config.update("num_threads", 0)
    assert runtime.Pool.get_threads() == before
    with pytest.raises(ValueError, match="between 0 and 256"):
        config.update("num_threads", -1)
    with pytest.raises(ValueError, match="holds for the process"):
        config.context("num_threads", 1)


def test_threads() -> None:
    before = runtime.Pool.get_threads()
    with weft.threads(2):
        assert runtime.Pool.get_threads() == 2
        with pytest.raises(ZeroDivisionError), weft.threads(1):
            assert runtime.Pool.get_threads() == 1
            raise ZeroDivisionError
        assert runtime.Pool.get_threads() == 2
    assert runtime.Pool.get_threads() == before
    for wrong in (0, -1, 257):
        with pytest.raises(ValueError, match="between 1 and 256"):
            weft.threads(wrong)
    for kind in (True, 1.0, "2"):
        with pytest.raises(TypeError, match="is an int"):
            weft.threads(kind)  # type: ignore[arg-type]


def test_bits_do_not_depend_on_threads() -> None:
    @weft.jit
    def program(x: Any, y: Any) -> Any:
        return wnp.sum(wnp.sin(x) * x), wnp.sum(x, axis=0), wnp.exp(x) @ y

    x, y = random.normal(random.key(0), (700, 900)), random.normal(random.key(1), (900, 300))
    found = []
    for n in (1, 2):
        with weft.threads(n):
            found.append([np.asarray(each).tobytes() for each in program(x, y)])
    assert found[0] == found[1]


def test_every_option_is_read_somewhere() -> None:
    """An option is read outside of config.py, or only its default is accepted, or config.py itself acts on it."""
    root = pathlib.Path(weft.__file__).parent
    text = "".join(
        path.read_text() for path in root.rglob("*.py") if path.name not in ("config.py", "unbuilt_names.py")
    )
    own = {"enable_x64", "num_threads", "default_device"}
    own |= {"transfer_guard_device_to_host", "transfer_guard_device_to_device"}  # there are no such transfers
    for name in config.OPTIONS:
        single = name in config._PARTLY_BUILT and len(config._PARTLY_BUILT[name][0]) == 1
        assert name in own or single or f'"{name}"' in text, name


def test_64_bit_dtypes_asked_for_by_name_may_be_errors() -> None:
    with weft.explicit_x64_dtypes("error"):
        for f in (
            lambda: wnp.zeros(3, "float64"), lambda: wnp.ones(3).astype("int64"), lambda: lax.iota("int64", 3),
            lambda: wnp.ones(3).sum(dtype="float64"), lambda: weft.jit(lambda: wnp.zeros(3, "complex128"))(),
        ):  # fmt: skip
            with pytest.raises(ValueError, match=r"Explicitly requested dtype .* is not available"):
                f()
        assert wnp.zeros(3, float).dtype == np.float32  # Python's types are not by name, NumPy's arrays neither
        assert wnp.asarray(np.ones(3)).dtype == np.float32
        with weft.enable_x64(True):
            assert wnp.zeros(3, "float64").dtype == np.float64
    with pytest.warns(UserWarning, match="Explicitly requested dtype float64"):
        assert wnp.zeros(3, "float64").dtype == np.float32


def test_what_a_token_stands_for_is_set_again() -> None:
    context = weft.make_user_context("none")
    with context("inner"), config.context("numpy_rank_promotion", "raise"), weft.enable_x64(True):
        token = config.token()
    with config.restored(token):
        assert context.value == "inner" and config.x64_enabled() and config.token() == token
        assert config.read("numpy_rank_promotion") == "raise"
    assert context.value == "none" and not config.x64_enabled() and config.token() != token


def test_forms_of_a_program_from_disk_are_compiled_under_the_options_it_was_found_with(tmp_path: pathlib.Path) -> None:
    source = """
import sys, weft, numpy as np
with weft.enable_x64(True):
    made = weft.jit(lambda x: x * 2 + 1).lower(np.float64(1)).compile()
print("f64" in made.as_text("loops"), made.as_text("loops").count("f32"))
"""
    for _ in range(2):
        environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path), "WEFT_CHECK": "0"}
        made = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True)
        assert made.stdout == "True 0\n", made.stderr


def test_functions_are_traced_anew_under_another_value_of_a_user_s_context() -> None:
    context, other = weft.make_user_context("none"), weft.make_user_context()
    traced: list[Any] = []

    @weft.jit
    def f(x: Any) -> Any:
        traced.append(context.value)
        return x * 2

    f(1.0)
    for value in (1, 2, 1, 2):
        with context(value):
            assert context.value == value and context.get_global() == "none"
            f(1.0)
    f(1.0)
    assert traced == ["none", 1, 2]
    with other("x"), context(1):
        f(1.0)
    assert traced[3:] == [1] and other.value is None
    context.set_global(1)
    with context("inner"):
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.append(context.value))
        thread.start()
        thread.join()
        assert seen == [1] and context.value == "inner"
    f(1.0)
    assert traced[3:] == [1] and context.value == 1
    with pytest.raises(TypeError, match="unhashable"):
        context([1])
    assert "user context 0" not in config.values


NOT_BUILT: list[tuple[str, Any]] = [
    ("default_prng_impl", "philox2x32"), ("threefry_partitionable", False),
    ("default_matmul_precision", "F64_F64_F64"), ("default_matmul_precision", "TF32_TF32_F32_X3"),
    ("legacy_prng_key", "error"),
    ("check_static_indices", True), ("thread_guard", True), ("array_garbage_collection_guard", "fatal"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), NOT_BUILT)
def test_values_that_are_not_built(name: str, value: Any) -> None:
    before = config.read(name)
    with pytest.raises(NotImplementedError, match=name):
        config.update(name, value)
    with pytest.raises(NotImplementedError, match=name):
        config.context(name, value)
    config.update(name, before)
    assert config.read(name) == before


def test_unknown_generator() -> None:
    with pytest.raises(ValueError, match="default_prng_impl"):
        config.update("default_prng_impl", "dice")
