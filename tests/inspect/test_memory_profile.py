"""device_memory_profile writes what pprof reads: decoded here by the rules of protocol buffers, beside JAX's own."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import weft
import weft.numpy as jnp


def varint(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
            yield tag >> 3, value
        else:
            assert tag & 7 == 2, "neither an integer nor bytes"
            size, at = varint(data, at)
            yield tag >> 3, data[at : at + size]
            at += size


def integers(found: dict[int, list[Any]], field: int) -> list[int]:
    """A repeated integer field, packed or not."""
    values = []
    for value in found.get(field, []):
        at = 0
        if isinstance(value, int):
            values.append(value)
        while isinstance(value, bytes) and at < len(value):
            one, at = varint(value, at)
            values.append(one)
    return values


def grouped(data: bytes) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for field, value in fields(data):
        found.setdefault(field, []).append(value)
    return found


def decoded(profile: bytes) -> tuple[list[tuple[str, str]], list[dict[str, Any]]]:
    """(type and unit of the values, the samples: stack of names, values, labels)."""
    whole = grouped(gzip.decompress(profile))
    strings = [text.decode() for text in whole[6]]
    assert strings[0] == ""
    kinds = [(strings[g[1][0]], strings[g[2][0]]) for g in map(grouped, whole[1])]
    functions = {g[1][0]: strings[g[2][0]] for g in map(grouped, whole.get(5, []))}
    locations = {}
    for location in map(grouped, whole.get(4, [])):
        locations[location[1][0]] = [functions[grouped(line)[1][0]] for line in location[4]]
    samples = []
    for sample in map(grouped, whole.get(2, [])):
        labels = {strings[g[1][0]]: strings[g[2][0]] for g in map(grouped, sample.get(3, [])) if 2 in g}
        stack = [name for location in integers(sample, 1) for name in locations[location]]
        samples.append({"stack": stack, "values": integers(sample, 2), **labels})
    return kinds, samples


def test_samples_are_types_with_number_and_bytes(tmp_path: Path) -> None:
    kept = [jnp.ones((123, 7)), jnp.zeros((123, 7)), weft.random.split(weft.random.key(0), 5), jnp.zeros((0, 3))]
    weft.profiler.save_device_memory_profile(tmp_path / "memory.prof")
    kinds, samples = decoded((tmp_path / "memory.prof").read_bytes())
    assert kinds == [("allocations", "count"), ("space", "bytes")]
    found = {sample["stack"][0]: sample for sample in samples}
    matrix = found["f32[123,7]"]
    assert matrix["values"][0] >= 2 and matrix["values"][1] == matrix["values"][0] * kept[0].nbytes
    assert matrix["kind"] == "buffer" and matrix["device"] == matrix["stack"][1] == str(kept[0].device)
    assert found[kept[2].aval.str_short()]["values"][1] >= kept[2].nbytes > 0
    assert found["f32[0,3]"]["values"][1] == 0


def test_jax_writes_the_same_types() -> None:
    jax = pytest.importorskip("jax", reason="the oracle, in the test extra")
    kept = jax.numpy.ones((31, 3))
    kinds, samples = decoded(jax.profiler.device_memory_profile())
    assert kinds == decoded(weft.profiler.device_memory_profile())[0]
    assert any(sample.get("kind") == "buffer" and kept.nbytes in sample["values"] for sample in samples)


def test_a_backend_that_is_not_there() -> None:
    assert weft.profiler.device_memory_profile("cpu")
    with pytest.raises(RuntimeError, match="rocm"):  # other tests make GPUs of NVIDIA's
        weft.profiler.device_memory_profile("rocm")
