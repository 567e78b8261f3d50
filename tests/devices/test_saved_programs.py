"""Compiled programs in files: what comes back runs without tracing or LLVM; what is wrong with a file is said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._base import target
from weft.experimental.serialize_executable import deserialize_and_load, serialize
from weft.extend.random import define_prng_impl

X = np.arange(12, dtype=np.float32).reshape(3, 4)
CAPTURED = wnp.asarray(np.arange(4, dtype=np.float32))
LARGE = wnp.asarray(np.arange(400_000, dtype=np.float32))


def layered(x: Any, options: dict[str, Any]) -> dict[str, Any]:
    """A kernel, a product, a loop, a branch, a sort and a captured array."""
    y = lax.fori_loop(0, 3, lambda i, v: v * 0.5 + CAPTURED, x @ options["w"])
    return {"y": y, "sorted": wnp.sort(y, axis=0), "chosen": lax.cond(y[0, 0] > 0, wnp.sin, wnp.cos, y[0])}


def compiled(function: Any, *args: Any, **options: Any) -> Any:
    return weft.jit(function, **options).lower(*args).compile()


CHILD = """
import sys
import numpy as np, weft
f = weft.load(sys.argv[1])
x = np.load(sys.argv[2])
out = f(x, {"w": np.eye(4, dtype=np.float32)})
np.savez(sys.argv[3], **{name: np.asarray(value) for name, value in out.items()})
assert not {"llvmlite.binding", "weft.compiler.pipeline", "weft.stablehlo"} & set(sys.modules), "a compiler was loaded"
"""


def test_another_process_runs_it_without_a_compiler(tmp_path: Path) -> None:
    weights = {"w": np.eye(4, dtype=np.float32)}
    made = compiled(layered, X, weights)
    made.save(tmp_path / "f.weft")
    np.save(tmp_path / "x.npy", X)
    words = [sys.executable, "-c", CHILD, "f.weft", "x.npy", "out.npz"]
    environment = {"PYTHONPATH": str(Path(weft.__file__).parents[1]), "PATH": ""}
    subprocess.run(words, cwd=tmp_path, check=True, env=environment)
    expected = made(X, weights)
    with np.load(tmp_path / "out.npz") as found:
        assert sorted(found) == sorted(expected)
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value)
    here = weft.load(tmp_path / "f.weft")
    assert here.in_tree == made.in_tree and here.out_tree == made.out_tree and here.fun_name == "layered"
    with pytest.raises(TypeError, match="types differ"):
        here(X[:2], weights)
    with pytest.raises(TypeError, match="does not match the input pytree"):
        here(X)
    with pytest.raises(NotImplementedError, match="machine code only"):
        here.as_text()
    with pytest.raises(NotImplementedError, match="came from a file"):
        here.save(tmp_path / "again.weft")


def test_arguments_of_all_kinds(tmp_path: Path) -> None:
    key = weft.random.key(3)
    draw = compiled(lambda key, n: weft.random.normal(key, (3,)) + n, key, 1.0)
    draw.save(tmp_path / "draw.weft")
    np.testing.assert_array_equal(weft.load(tmp_path / "draw.weft")(key, 1.0), draw(key, 1.0))
    donates = compiled(lambda x: x + LARGE[:3], wnp.ones(3), donate_argnums=0)
    donates.save(tmp_path / "donates.weft")
    x = wnp.ones(3)
    np.testing.assert_array_equal(weft.load(tmp_path / "donates.weft")(x), [1, 2, 3])
    assert x.is_deleted()


def test_bytes_of_a_program() -> None:
    class Pair:
        """A container that only this process knows."""

        def __init__(self, a: Any, b: Any) -> None:
            self.a, self.b = a, b

    weft.tree_util.register_pytree_node(Pair, lambda p: ((p.a, p.b), None), lambda _, children: Pair(*children))
    made = compiled(lambda p: Pair(p.b, p.a * 2), Pair(X, X[0]))
    content, in_tree, out_tree = serialize(made)
    result = deserialize_and_load(content, in_tree, out_tree, backend="cpu")(Pair(X, X[0]))
    np.testing.assert_array_equal(result.b, X * 2)
    with pytest.raises(NotImplementedError, match="containers of your own"):
        made.save("/nowhere/pair.weft")
    with pytest.raises(ValueError, match="containers of your own"):
        deserialize_and_load(content, None, None)
    with pytest.raises(TypeError, match="serialize"):
        serialize(weft.jit(lambda x: x))  # pyright: ignore[reportArgumentType] - refused


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    def prints(x: Any) -> Any:
        weft.debug.print("{}", x)
        return x

    with pytest.raises(NotImplementedError, match="it calls Python"):
        compiled(prints, X).save(tmp_path / "f.weft")
    impl = define_prng_impl(
        key_shape=(1,), seed=lambda seed: wnp.asarray(seed, "uint32")[None],
        split=lambda key, shape: key + wnp.arange(np.prod(shape), dtype="uint32").reshape(*shape, 1),
        random_bits=lambda key, width, shape: wnp.full(shape, key[0], f"uint{width}"),
        fold_in=lambda key, data: key ^ data, tag="count",
    )  # fmt: skip
    counting = compiled(lambda key: weft.random.bits(key), weft.random.key(5, impl=impl))
    with pytest.raises(NotImplementedError, match=r"a generator of your own.*key_data.*\(key<count>\)"):
        counting.save(tmp_path / "f.weft")
    assert not list(tmp_path.iterdir())


def test_a_committed_program(tmp_path: Path) -> None:
    x = weft.device_put(X, weft.devices("cpu")[0])
    made = compiled(lambda x: x + 1, x)
    made.save(tmp_path / "f.weft")
    found = weft.load(tmp_path / "f.weft")
    assert found(X).committed and made(X).committed
    assert found.parts()[1].place == made.parts()[1].place == 1


def test_permissions_and_links(tmp_path: Path) -> None:
    made = compiled(lambda x: x + 1, X)
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "f.weft", tmp_path / "link.weft"
    link.symlink_to(target)
    before = os.umask(0o027)
    try:
        for _ in range(2):  # a link to no file yet, then to an older one
            made.save(link)
            assert link.is_symlink() and target.stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)
    np.testing.assert_array_equal(weft.load(link)(X), X + 1)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["f.weft", "link.weft", "there"]


def test_other_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f.weft"
    compiled(lambda x: x + 1, X).save(path)
    content = path.read_bytes()
    np.testing.assert_array_equal(weft.load(path)(X), X + 1)

    def refused(changed: bytes, reason: str) -> None:
        path.write_bytes(changed)
        with pytest.raises(ValueError, match=reason) as found:
            weft.load(path)
        assert str(path) in str(found.value)

    refused(b"", "is no program that weft saved")
    refused(b"\x7fELF" + content, "is no program that weft saved")
    refused(content.replace(b"program 1\n", b"program 0\n", 1), "another format")
    refused(content[:60], "truncated")
    for end in (len(content) - 1, len(content) // 2):
        refused(content[:end], "truncated")
    generator = np.random.default_rng(0)
    start = content.index(b"\n", content.index(b"\n") + 1) + 1
    for position in (start, len(content) - 1, *generator.integers(start, len(content), 30)):
        changed = bytearray(content)
        changed[position] ^= 1 << int(generator.integers(8))
        refused(bytes(changed), "damaged")
    version = f"weft={weft.__version__} ".encode()
    refused(content.replace(version, b"weft=0.0.1 ", 1), rf"saved for weft 0.0.1 \(here {weft.__version__}\)")
    path.write_bytes(content)
    host = target.host()
    monkeypatch.setattr(target, "host", lambda: host.replace(name="another", features="+other things"))
    with pytest.raises(ValueError, match=r"saved for processor .*here another"):
        weft.load(path)


def test_a_program_of_a_plugin(tmp_path: Path, device: Any) -> None:
    made = compiled(lambda x: x * 2 + CAPTURED, X, device=device)
    made.save(tmp_path / "f.weft")
    result = weft.load(tmp_path / "f.weft")(X)
    np.testing.assert_array_equal(result, X * 2 + np.arange(4))
    assert result.devices() == {device}
    with pytest.raises(ValueError, match="compiled for"):
        deserialize_and_load(*serialize(made), backend="cpu")


def test_a_program_of_a_second_device(tmp_path: Path, other: Any) -> None:
    made = compiled(lambda x: x * 2 + CAPTURED, X, device=other)
    made.save(tmp_path / "f.weft")
    result = weft.load(tmp_path / "f.weft")(X)
    np.testing.assert_array_equal(result, X * 2 + np.arange(4))
    assert result.devices() == {other}
