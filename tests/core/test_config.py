"""Options: names, values, overlays per thread, tokens, environment."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import threading

import pytest

import weft.config as config


def test_names_with_and_without_prefix():
    assert config.read("jax_enable_x64") is config.read("enable_x64") is False
    assert config.enable_x64 is config.jax_enable_x64 is False
    try:
        config.update("jax_enable_x64", True)
        assert config.x64_enabled() is True
        config.enable_x64 = False
        assert config.x64_enabled() is False
    finally:
        config.update("enable_x64", False)


def test_unknown_option():
    with pytest.raises(AttributeError, match="Unrecognized config option: enable_x65"):
        config.update("enable_x65", True)
    with pytest.raises(AttributeError, match="Unrecognized config option: jax_foo"):
        config.jax_foo


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("enable_x64", "perhaps", ValueError),
        ("enable_x64", 3, ValueError),
        ("numpy_rank_promotion", "abc", ValueError),
        ("default_matmul_precision", "foo", ValueError),
        ("random_seed_offset", "1", TypeError),
        ("platforms", "tpu", RuntimeError),
    ],
)
def test_illegal_values(name, value, error):
    before = config.read(name)
    with pytest.raises(error, match=name):
        config.update(name, value)
    assert config.read(name) == before


def test_context_is_restored_after_errors_and_nests():
    assert not config.x64_enabled()
    with pytest.raises(KeyError), config.CONTEXTS["enable_x64"](True):
        with config.CONTEXTS["enable_x64"](False):
            assert not config.x64_enabled()
        assert config.x64_enabled()
        raise KeyError
    assert not config.x64_enabled()


def test_context_as_decorator():
    @config.CONTEXTS["enable_x64"](True)
    def inside():
        return config.x64_enabled()

    assert inside() is True
    assert config.x64_enabled() is False


def test_contexts_with_a_default():
    with config.CONTEXTS["disable_jit"]():
        assert config.disable_jit is True
    with config.CONTEXTS["checking_leaks"]():
        assert config.check_tracer_leaks is True
    with config.CONTEXTS["enable_x64"]():
        assert config.x64_enabled() is True
    with pytest.raises(TypeError, match="default_matmul_precision"):
        config.CONTEXTS["default_matmul_precision"]()


def test_context_belongs_to_its_thread():
    seen = []
    with config.CONTEXTS["enable_x64"](True):
        thread = threading.Thread(target=lambda: seen.append(config.x64_enabled()))
        thread.start()
        thread.join()
    assert seen == [False]


def test_token_identifies_the_values():
    plain = config.token()
    with config.CONTEXTS["enable_x64"](True):
        wide = config.token()
        with config.CONTEXTS["numpy_rank_promotion"]("raise"):
            assert config.token() not in (plain, wide)
        assert config.token() == wide
    assert config.token() == plain != wide
    with config.CONTEXTS["log_compiles"](True):
        assert config.token() == plain


def test_options_of_weft_are_few():
    own = list(config.OPTIONS)[list(config.OPTIONS).index("fast") :]
    assert len(own) <= 15


def test_options_without_meaning_are_remembered():
    try:
        config.update("jax_use_shardy_partitioner", False)
        assert config.read("use_shardy_partitioner") is False
    finally:
        config.update("jax_use_shardy_partitioner", True)


def test_environment():
    code = "from weft import config; print(config.x64_enabled(), config.traceback_filtering, config.num_threads)"
    environment = {"WEFT_ENABLE_X64": "1", "WEFT_TRACEBACK_FILTERING": "off", "WEFT_NUM_THREADS": "2"}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "off", "2"]


@pytest.mark.parametrize("value", ["abc", "-3", "0", "257"])
def test_illegal_number_of_threads_in_the_environment(value: str):
    environment = {"WEFT_NUM_THREADS": value}
    found = subprocess.run(
        [sys.executable, "-c", "import weft"], env=environment, capture_output=True, text=True, check=False
    )
    assert re.search(f"ValueError: WEFT_NUM_THREADS .*'{value}'", found.stderr)


def test_every_option_is_documented():
    text = (pathlib.Path(__file__).parents[2] / "docs" / "OPTIONS.md").read_text()
    for name in (*config.OPTIONS, *config.INERT, *config.ABSENT):
        assert f"`{name}`" in text, name


def test_every_environment_variable_is_documented():
    """Those that are read by name; WEFT_GUARD_BUFFERS and WEFT_OPERATOR_SLOTS are names of the C++ preprocessor."""
    root = pathlib.Path(__file__).parents[2]
    text = (root / "docs" / "OPTIONS.md").read_text()
    sources = [file for kind in ("*.py", "*.cpp") for file in (root / "weft").rglob(kind)]
    pattern = r"(?:environ(?:\.get\(|\[)|getenv\()\"(WEFT_[A-Z_]+)\""
    read = {name for file in sources for name in re.findall(pattern, file.read_text())}
    assert {"WEFT_CRASH_DIR", "WEFT_MEMORY_LIMIT", "WEFT_TARGET", "WEFT_SYNC"} <= read
    for name in read:
        assert f"`{name}`" in text or f"`{name.removeprefix('WEFT_').lower()}`" in text, name
