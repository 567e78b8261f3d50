"""Every option of JAX is known here: it works, is accepted without effect, or says that weft lacks what it sets."""

from __future__ import annotations

import jax
import pytest

import weft
from weft import config


def test_every_option_is_known():
    names = {name.removeprefix("jax_") for name in jax.config.values}
    assert names <= {*config.OPTIONS, *config.INERT, *config.ABSENT}


def test_defaults_are_those_of_jax():
    differing = {"default_prng_impl", "numpy_dtype_promotion"}  # enum members there, strings here
    for name, value in jax.config.values.items():
        short = name.removeprefix("jax_")
        if short in config.OPTIONS and short not in differing:
            assert config.OPTIONS[short].default == value, name


@pytest.mark.parametrize("name", ["num_cpu_devices", "jax_cuda_visible_devices"])
def test_options_of_absent_parts(name):
    with pytest.raises(NotImplementedError, match=name):
        config.update(name, 3)


def test_every_context_manager_exists():
    for name in config.CONTEXTS:
        if hasattr(jax, name):
            assert hasattr(weft, name), name
