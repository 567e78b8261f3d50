"""What ``__array_namespace_info__`` says, beside JAX's; names and keywords of the array API standard 2024.12."""

from __future__ import annotations

import inspect

import jax
import jax.numpy
import numpy as np
import pytest

import weft
import weft.numpy as jnp

KINDS = [
    None, "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric",
    ("bool", "integral"), (),
]  # fmt: skip

# Functions of the standard with arguments by keyword alone, and some that NumPy spelt otherwise before.
KEYWORDS = {
    "sum": "axis dtype keepdims", "prod": "axis dtype keepdims", "max": "axis keepdims", "min": "axis keepdims",
    "mean": "axis keepdims", "std": "axis correction keepdims", "var": "axis correction keepdims",
    "all": "axis keepdims", "any": "axis keepdims", "argmax": "axis keepdims", "argmin": "axis keepdims",
    "argsort": "axis descending stable",
    "sort": "axis descending stable", "cumulative_sum": "axis dtype include_initial",
    "cumulative_prod": "axis dtype include_initial", "concat": "axis", "stack": "axis", "unstack": "axis",
    "expand_dims": "axis", "squeeze": "axis", "flip": "axis", "roll": "axis", "permute_dims": "axes", "take": "axis",
    "take_along_axis": "axis", "vecdot": "axis", "tensordot": "axes", "reshape": "copy", "astype": "copy device",
    "asarray": "dtype device copy", "arange": "dtype device", "linspace": "dtype device endpoint",
    "eye": "k dtype device",
    "zeros": "dtype device", "ones_like": "dtype device", "full": "dtype device", "from_dlpack": "device copy",
    "searchsorted": "side sorter", "count_nonzero": "axis keepdims", "diff": "axis n prepend append", "clip": "",
    "tril": "k", "meshgrid": "indexing", "repeat": "axis", "unique_all": "", "unique_counts": "", "unique_inverse": "",
    "unique_values": "", "matrix_transpose": "", "bitwise_left_shift": "", "bitwise_invert": "", "acos": "", "pow": "",
    "copysign": "", "hypot": "", "nextafter": "", "reciprocal": "", "signbit": "", "isdtype": "", "result_type": "",
    "linalg.cholesky": "upper", "linalg.cross": "axis", "linalg.vector_norm": "axis keepdims ord",
    "linalg.matrix_norm": "keepdims ord", "linalg.matrix_rank": "rtol", "linalg.pinv": "rtol", "linalg.svdvals": "",
    "linalg.outer": "", "linalg.trace": "offset dtype", "linalg.diagonal": "offset", "fft.fft": "n axis norm",
    "fft.fftn": "s axes norm", "fft.hfft": "n axis norm", "fft.fftfreq": "d dtype device", "fft.fftshift": "axes",
}  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("wide", [False, True])
def test_dtypes_and_devices_are_jaxs(wide: bool) -> None:
    with weft.enable_x64(wide), jax.enable_x64(wide):
        ours, theirs = jnp.__array_namespace_info__(), jax.numpy.__array_namespace_info__()
        for kind in KINDS:
            assert ours.dtypes(kind=kind) == theirs.dtypes(kind=kind)
        assert ours.default_dtypes() == theirs.default_dtypes()
    assert ours.capabilities() == theirs.capabilities() and ours.default_device() is theirs.default_device() is None
    assert ours.devices() == [None, *weft.devices()]
    assert jnp.__array_api_version__ == jax.numpy.__array_api_version__


def test_unknown_kinds_and_devices() -> None:
    info = jnp.__array_namespace_info__()
    with pytest.raises(ValueError, match=r"unknown kind of dtypes 'floats'.*real floating"):
        info.dtypes(kind="floats")
    with pytest.raises(ValueError, match="unknown device 'tpu'"):
        info.default_dtypes(device="tpu")
    assert info.dtypes(device=weft.devices()[0], kind="bool") == {"bool": np.dtype(bool)}


@pytest.mark.parametrize("name", KEYWORDS)
def test_keywords_of_the_standard(name: str) -> None:
    home, _, last = name.rpartition(".")
    function = getattr(getattr(jnp, home) if home else jnp, last)
    assert set(KEYWORDS[name].split()) <= set(inspect.signature(function).parameters)


def test_arrays_name_their_namespace() -> None:
    x = jnp.ones(3)
    assert x.__array_namespace__() is x.__array_namespace__(api_version="2024.12") is jnp
