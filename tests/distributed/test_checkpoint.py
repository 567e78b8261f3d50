"""Checkpoints: every kind of leaf and container, steps, saves in the background, damaged and foreign files."""

from __future__ import annotations

import collections
import functools
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import checkpoint, random
from weft.checkpoints import CheckpointError, leaves, saving, stores
from weft.dispatch.calls.struct import ShapeDtypeStruct
from weft.tree_util import register_pytree_node_class

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("tensorstore", reason="checkpoints are kept by tensorstore, which is an extra")


class Pair(NamedTuple):
    left: Any
    right: Any


@register_pytree_node_class
class Layer:
    def __init__(self, weight: Any, width: int) -> None:
        self.weight, self.width = weight, width

    def tree_flatten(self) -> Any:
        return (self.weight,), self.width

    @classmethod
    def tree_unflatten(cls, width: int, children: Any) -> Layer:
        return cls(*children, width)


ARRAYS: dict[str, Any] = {
    "f32": lambda: jnp.array([[1.5, -0.0, np.nan], [np.inf, -np.inf, 1e-45]]),
    "bf16": lambda: jnp.arange(7, dtype=jnp.bfloat16),
    "f16": lambda: jnp.ones((2, 1, 2), jnp.float16),
    "f8_e4m3fn": lambda: jnp.arange(5).astype("float8_e4m3fn"),
    "f8_e4m3": lambda: jnp.arange(5).astype("float8_e4m3"),
    "f8_e5m2": lambda: jnp.ones((), "float8_e5m2"),
    "i4": lambda: jnp.arange(-3, 4).astype("int4"),
    "u4": lambda: jnp.arange(7).astype("uint4"),
    "c64": lambda: jnp.array([1 + 2j, complex(np.nan, -np.inf)]),
    "bool": lambda: jnp.array([True, False]),
    "u8": lambda: jnp.arange(3, dtype=jnp.uint8),
    "zero-dimensional": lambda: jnp.float32(3),
    "weak": lambda: jnp.asarray(2.0),
    "no elements": lambda: jnp.zeros((3, 0, 2), jnp.int16),
    "all zero": lambda: jnp.zeros((4, 4)),
    "key": lambda: random.key(7),
    "keys": lambda: random.split(random.key(7, impl="rbg"), (2, 3)),
    "no keys": lambda: random.split(random.key(7), 0),
    "raw key": lambda: random.PRNGKey(3),
    "numpy": lambda: np.arange(6.0)[::-2],
    "numpy, other byte order": lambda: np.arange(3, dtype=">i4"),
    "numpy scalar": lambda: np.float64(0.1),
    "numpy bfloat16": lambda: np.ones(3, ml_dtypes.bfloat16),
    "float0": lambda: np.zeros(3, weft.float0),
}
PYTHON: list[Any] = [0, -(10**30), True, 0.1, float("inf"), float("-inf"), -0.0, 1 - 2j, "text ö\n", b"\x00\xff", ""]


def bits(x: Any) -> tuple[Any, ...]:
    if isinstance(x, weft.Array) and jnp.issubdtype(x.dtype, weft.dtypes.prng_key):
        return str(x.dtype), x.shape, np.asarray(random.key_data(x)).tobytes()
    kind = "array" if isinstance(x, weft.Array) else type(x)
    return (
        kind,
        np.dtype(x.dtype).newbyteorder("="),
        x.shape,
        np.asarray(x, np.dtype(x.dtype).newbyteorder("=")).tobytes(),
    )


def test_every_kind_of_leaf_comes_back(tmp_path: Path) -> None:
    tree = {name: make() for name, make in ARRAYS.items()}
    checkpoint.save(tmp_path, tree)
    again = checkpoint.restore(tmp_path)
    assert list(again) == sorted(tree)
    for name, value in tree.items():
        assert bits(again[name]) == bits(value), name
        assert getattr(again[name], "weak_type", None) == getattr(value, "weak_type", None), name
    again["numpy"][0] = 5  # it is the user's own
    described = checkpoint.shapes(tmp_path)
    assert described["bf16"] == ShapeDtypeStruct((7,), jnp.bfloat16)
    assert described["keys"].dtype == tree["keys"].dtype
    with_template = checkpoint.restore(tmp_path, tree)
    for name, value in tree.items():
        assert bits(with_template[name]) == bits(value), name


def test_numbers_and_texts_of_python(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, [*PYTHON, float("nan")])
    *again, nan = checkpoint.restore(tmp_path)
    assert again == PYTHON
    assert [type(x) for x in again] == [type(x) for x in PYTHON]
    assert str(again[6]) == "-0.0"
    assert nan != nan


@pytest.mark.parametrize("tree", [None, (), [], {}, 3, {"a": None, "b": [(), {}]}, {1: 2, 3: (4, [5])}])
def test_containers_without_arrays(tree: Any, tmp_path: Path) -> None:
    checkpoint.save(tmp_path, tree)
    again = checkpoint.restore(tmp_path)
    assert again == tree
    assert type(again) is type(tree)


def test_containers_of_the_users_come_from_a_template(tmp_path: Path) -> None:
    tree = {"pair": Pair(jnp.arange(2.0), None), "layer": Layer(jnp.ones(3), 3), "o": collections.OrderedDict(b=1, a=2)}
    checkpoint.save(tmp_path, tree)
    with pytest.raises(ValueError, match=r"has a Layer at \['layer'\].*give restore\(path, like="):
        checkpoint.restore(tmp_path)
    again = checkpoint.restore(tmp_path, like=weft.eval_shape(lambda: {**tree, "o": tree["o"]}))
    assert type(again["pair"]) is Pair
    assert again["pair"].left.tolist() == [0, 1]
    assert again["layer"].weight.tolist() == [1, 1, 1]
    assert list(checkpoint.restore(tmp_path, tree)["o"].items()) == [("b", 1), ("a", 2)]


def test_templates_that_differ_name_the_leaf(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, {"a": jnp.ones((2, 3)), "b": [jnp.arange(3), 1], "c": 2.5, "k": random.key(0)})
    good: dict[str, Any] = {"a": jnp.ones((2, 3)), "b": [jnp.arange(3), 0], "c": 1.0, "k": random.key(1)}
    assert checkpoint.restore(tmp_path, good)["c"] == 2.5
    for change, message in (
        ({"a": jnp.ones((3, 2))}, r"leaf \['a'\] is float32\[2,3\] in the checkpoint, and float32\[3,2\] in like"),
        ({"a": jnp.ones((2, 3), int)}, r"leaf \['a'\] is float32\[2,3\] in the checkpoint, and int32\[2,3\]"),
        ({"a": 1.0}, r"leaf \['a'\] is float32\[2,3\] in the checkpoint, and float in like"),
        ({"b": [jnp.arange(3)]}, r"trees differ at \['b'\]: the checkpoint has \[1\] beside, like has nothing"),
        ({"b": (jnp.arange(3), 0)}, r"trees differ at \['b'\]: the checkpoint has a list .*, like has a tuple"),
        ({"b": None}, r"differ at \['b'\]: the checkpoint has a list with 2 children, like has None"),
        ({"d": 1}, r"differ at the tree itself: the checkpoint has nothing beside, like has \['d'\] beside"),
        ({"c": 1}, r"leaf \['c'\] is a float in the checkpoint, and int in like"),
        ({"c": jnp.arange(2.0)}, r"leaf \['c'\] is a float in the checkpoint, and float32\[2\] in like"),
        ({"k": jnp.zeros(2, jnp.uint32)}, r"leaf \['k'\] is threefry2x32\[\] in the checkpoint, and uint32\[2\]"),
        ({"k": random.key(0, impl="rbg")}, r"leaf \['k'\] is threefry2x32\[\] in the checkpoint, and rbg\[\]"),
    ):
        with pytest.raises(ValueError, match=message):
            checkpoint.restore(tmp_path, {**good, **change})
    with pytest.raises(ValueError, match=r"has \['k'\] beside.*partial=True"):
        checkpoint.restore(tmp_path, {name: good[name] for name in "abc"})
    assert checkpoint.restore(tmp_path, {"b": good["b"]}, partial=True)["b"][1] == 1
    with pytest.raises(ValueError, match="shardings is no prefix"):
        checkpoint.restore(tmp_path, shardings={"a": None})
    with pytest.raises(ValueError, match=r"shardings are weft\.sharding.Sharding or devices, got 'x'"):
        checkpoint.restore(tmp_path, shardings="x")


def test_scalars_become_what_the_template_has(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, [1, 2.5, jnp.int32(3), np.float64(0.1), jnp.ones(2)])
    like: list[Any] = [jnp.int32(0), ShapeDtypeStruct((), "float32"), 0, 0.0, np.zeros(2, np.float32)]
    again = checkpoint.restore(tmp_path, like)
    assert [type(x) for x in again] == [type(jnp.ones(1)), type(jnp.ones(1)), int, float, np.ndarray]
    assert [float(np.sum(x)) for x in again] == [1, 2.5, 3, 0.1, 2]
    with pytest.raises(ValueError, match=r"leaf \[2\] is int32\[\] in the checkpoint, and float in like"):
        checkpoint.restore(tmp_path, [*like[:2], 0.0, *like[3:]])


def test_64_bits_are_not_lost(tmp_path: Path) -> None:
    with weft.enable_x64(True):
        checkpoint.save(tmp_path, {"x": jnp.arange(3.0) + 1e-9})
        assert checkpoint.restore(tmp_path)["x"][1] == 1 + 1e-9
    with pytest.raises(ValueError, match=r"leaf \['x'\] is float64\[3\] .*enable_x64"):
        checkpoint.restore(tmp_path)
    assert checkpoint.restore(tmp_path, {"x": np.zeros(3)})["x"][1] == 1 + 1e-9


def test_what_cannot_be_saved_is_named(tmp_path: Path) -> None:
    deleted = jnp.ones(3)
    deleted.delete()
    for leaf, error, message in (
        (object(), TypeError, r"\['x'\]\[0\] is a builtins.object; a checkpoint holds"),
        (np.array(["a"]), TypeError, r"\['x'\]\[0\] is a NumPy array of <U1"),
        (np.array([None]), TypeError, "NumPy array of object"),
        (np.ma.array([1.0, 2.0], mask=[0, 1]), TypeError, "is a masked array, whose mask would be lost"),
        (np.datetime64("2020-01-01"), TypeError, "NumPy array of datetime64"),
        (ShapeDtypeStruct((2,), int), TypeError, "is a ShapeDtypeStruct, which has no values"),
        (weft.new_ref(jnp.ones(2)), TypeError, "is a mutable reference: save what it holds"),
        (deleted, RuntimeError, "has been deleted or donated"),
    ):
        with pytest.raises(error, match=message):
            checkpoint.save(tmp_path / "new", {"x": [leaf]})
    with pytest.raises(TypeError, match="is traced: save outside of jit"):
        weft.jit(lambda x: checkpoint.save(tmp_path / "new", x))(1.0)
    assert not (tmp_path / "new").exists()


def test_bad_paths_and_numbers(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, error in ((3, TypeError), ("", TypeError), ("gs://bucket/x", NotImplementedError), (b"x", TypeError)):
        with pytest.raises(error, match=r"\[save\]"):
            checkpoint.save(path, 1)
        with pytest.raises(error, match=r"\[restore\]"):
            checkpoint.restore(path)
    with pytest.raises(NotADirectoryError, match="is a file"):
        checkpoint.save(tmp_path / "file", 1)
    for wrong in (-1, 1.5, "1", True):
        with pytest.raises(ValueError, match="step is an integer"):
            checkpoint.save(tmp_path, 1, step=wrong)
    for wrong in (0, -1, True):
        with pytest.raises(ValueError, match="keep is an integer of at least 1"):
            checkpoint.save(tmp_path, 1, step=1, keep=wrong)
    with pytest.raises(ValueError, match="give step= as well"):
        checkpoint.save(tmp_path, 1, keep=1)


def arrays_folders(folder: Path) -> int:
    return sum(name.startswith("weft-arrays-") for name in os.listdir(folder))


def test_steps_are_kept_and_removed(tmp_path: Path) -> None:
    assert checkpoint.steps(tmp_path) == []
    assert checkpoint.latest_step(tmp_path) is None
    for step in (1, 5, 3, 100_000_000):
        checkpoint.save(tmp_path, jnp.full(2, step), step=step)
    assert checkpoint.steps(tmp_path) == [1, 3, 5, 100_000_000]
    assert checkpoint.restore(tmp_path).tolist() == [100_000_000] * 2
    assert checkpoint.restore(tmp_path, step=3).tolist() == [3, 3]
    with pytest.raises(FileNotFoundError, match=r"has no step 4; it has \[1, 3, 5, 100000000\]"):
        checkpoint.restore(tmp_path, step=4)
    with pytest.raises(FileExistsError, match="has step 3 already; overwrite=True"):
        checkpoint.save(tmp_path, 1, step=3)
    assert checkpoint.restore(tmp_path, step=3).tolist() == [3, 3]
    checkpoint.save(tmp_path, jnp.full(2, 33), step=3, overwrite=True)
    assert checkpoint.restore(tmp_path, step=3).tolist() == [33, 33]
    assert arrays_folders(tmp_path) == 4
    checkpoint.save(tmp_path, jnp.full(2, 2), step=2, keep=2)  # what was just saved stays, whatever its number
    assert checkpoint.steps(tmp_path) == [2, 100_000_000]
    assert arrays_folders(tmp_path) == 2
    with pytest.raises(ValueError, match="has numbered steps, the last 100000000: give step="):
        checkpoint.save(tmp_path, 1)


def test_a_checkpoint_without_steps_is_replaced(tmp_path: Path) -> None:
    for value in (1, 2):
        checkpoint.save(tmp_path / "a" / "b", jnp.full(3, value))
        assert checkpoint.restore(tmp_path / "a" / "b").tolist() == [value] * 3
    assert arrays_folders(tmp_path / "a" / "b") == 1
    assert checkpoint.steps(tmp_path / "a" / "b") == []
    with pytest.raises(ValueError, match="has a checkpoint without steps: leave step out"):
        checkpoint.save(tmp_path / "a" / "b", 1, step=1)
    with pytest.raises(FileNotFoundError, match="has no step 4; its one checkpoint was saved without a step"):
        checkpoint.restore(tmp_path / "a" / "b", step=4)


def test_files_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "weft-arrays-mine").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / f"weft-arrays-{'0' * 16}").mkdir()  # what a killed save left
    checkpoint.save(tmp_path, jnp.ones(3))
    assert {"weft-arrays-mine", "notes.txt"} <= set(os.listdir(tmp_path))
    assert arrays_folders(tmp_path) == 2


# -- in the background ------------------------------------------------------------------------------------------------


def test_a_save_in_the_background_has_the_values_of_its_call(tmp_path: Path, monkeypatch: Any) -> None:
    go, write = threading.Event(), stores.write
    monkeypatch.setattr(stores, "write", lambda *given: (go.wait(30), write(*given)))
    x, y = jnp.arange(50_000.0), np.zeros(4)
    made = checkpoint.save(tmp_path, {"x": x, "y": y}, step=1, background=True)
    assert not made.done()
    with pytest.raises(TimeoutError, match="it goes on"):
        made.wait(timeout=0.01)
    weft.jit(lambda x: x * 2 + 1, donate_argnums=0)(x).block_until_ready()
    y[:] = 9
    go.set()
    made.wait()
    assert made.done()
    assert repr(made) == f"Save({str(tmp_path)!r}, step=1, done)"
    again = checkpoint.restore(tmp_path)
    assert np.array_equal(again["x"], np.arange(50_000.0, dtype=np.float32))
    assert again["y"].tolist() == [0] * 4


def test_errors_in_the_background_are_raised_where_one_asks(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    checkpoint.save(tmp_path, jnp.ones(3), step=1)

    def full(*given: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(stores, "write", full)
        made = checkpoint.save(tmp_path, jnp.ones(4), step=2, background=True)
        for _ in range(2):
            with pytest.raises(OSError, match="no space left"):
                made.wait()
        checkpoint.save(tmp_path, jnp.ones(4), step=3, background=True)
        with pytest.raises(OSError, match="no space left"):  # nobody has asked about the last one
            checkpoint.save(tmp_path, jnp.ones(4), step=4)
        left = checkpoint.save(tmp_path, jnp.ones(4), step=5, background=True)
        saving._report_at_exit()
        assert "in the background failed: OSError: no space left" in capsys.readouterr().err
        with pytest.raises(OSError, match="no space"):
            left.wait()
    assert checkpoint.steps(tmp_path) == [1]
    assert arrays_folders(tmp_path) == 1
    checkpoint.save(tmp_path, jnp.ones(4), step=6)
    assert checkpoint.steps(tmp_path) == [1, 6]


def test_two_programs_do_not_save_to_one_folder(tmp_path: Path, monkeypatch: Any) -> None:
    go, write = threading.Event(), stores.write
    monkeypatch.setattr(stores, "write", lambda *given: (go.wait(60), write(*given)))
    made = checkpoint.save(tmp_path, jnp.ones(3), background=True)
    code = f"import weft; weft.checkpoint.save({str(tmp_path)!r}, 1)"
    done = in_a_process("-c", code)
    assert "CheckpointError: [save] another process is saving to" in done.stderr
    go.set()
    made.wait()
    assert checkpoint.restore(tmp_path).tolist() == [1, 1, 1]


def in_a_process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT), "WEFT_CHECK": "0"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_program_that_ends_finishes_its_save_and_prints_its_errors(tmp_path: Path) -> None:
    code = f"import weft; weft.checkpoint.save({str(tmp_path / 'a')!r}, weft.numpy.ones(3), background=True)\n"
    code += "from weft.checkpoints import stores\ndef full(*_): raise OSError('no space')\nstores.write = full\n"
    code = code.replace("background=True)\n", "background=True).wait\n", 1)
    code += f"weft.checkpoint.save({str(tmp_path / 'b')!r}, weft.numpy.ones(3), background=True)"
    done = in_a_process("-c", code)
    assert f"[save] the save to {tmp_path / 'b'} in the background failed: OSError: no space" in done.stderr
    assert not checkpoint.steps(tmp_path / "b")


# -- damaged and foreign files ----------------------------------------------------------------------------------------


@functools.lru_cache
def big() -> Any:
    return jnp.arange(1_100 * 3_000, dtype=jnp.float32).reshape(1_100, 3_000)  # more than one piece


def saved(folder: Path) -> Path:
    """A checkpoint of two arrays; the folder of its arrays."""
    checkpoint.save(folder, {"a": {"w": big()}, "b": jnp.arange(1000)})
    return next(folder.glob("weft-arrays-*"))


def damage(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 4
    file.write_bytes(content)


def test_damaged_arrays_name_file_and_leaf(tmp_path: Path) -> None:
    arrays = saved(tmp_path)
    like = {"a": {"w": big()}}
    file = arrays / "00001.b" / "c.0"
    kept = file.read_bytes()
    for harm in (
        lambda: damage(file, 17),
        lambda: file.write_bytes(kept[:100]),
        lambda: file.write_bytes(b""),
        file.unlink,
    ):
        harm()
        with pytest.raises(
            CheckpointError, match=rf"leaf \['b'\] cannot be read: {re.escape(str(file.parent))} is damaged"
        ):
            checkpoint.restore(tmp_path)
        assert np.array_equal(checkpoint.restore(tmp_path, like, partial=True)["a"]["w"], big())
        file.write_bytes(kept)
    damage(arrays / "00000.a.w" / "c.0.0", 9_000_000)  # in the second piece
    with pytest.raises(CheckpointError, match=r"leaf \['a'\]\['w'\] cannot be read"):
        checkpoint.restore(tmp_path)
    for content in ("", "{}", '{"zarr_format": 2}'):
        (arrays / "00001.b" / "zarr.json").write_text(content)
        with pytest.raises(CheckpointError, match=r"leaf \['b'\]"):
            checkpoint.restore(tmp_path)


def test_an_array_that_was_exchanged_is_noticed(tmp_path: Path) -> None:
    arrays = saved(tmp_path)
    file = arrays / "00001.b" / "zarr.json"
    file.write_text(file.read_text().replace("1000", "999"))
    with pytest.raises(CheckpointError, match=r"leaf \['b'\]"):
        checkpoint.restore(tmp_path)


def test_damaged_and_foreign_manifests(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        checkpoint.restore(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"is no checkpoint of weft: it has no checkpoint.json"):
        checkpoint.restore(tmp_path)
    file = tmp_path / "checkpoint.json"
    for content, message in (
        (b"", "is not the manifest"),
        (b"\xff\xfe\x00", "is no text"),
        (b"[1, 2]\n", "is not the manifest"),
        (b'{"format": "orbax"}', "is not the manifest"),
    ):
        file.write_bytes(content)
        with pytest.raises(CheckpointError, match=message):
            checkpoint.restore(tmp_path)
    checkpoint.save(tmp_path, jnp.ones(3))
    text = file.read_text()
    file.write_text(text.replace('"version": 1', '"version": 2'))
    with pytest.raises(CheckpointError, match="has version 2 of the format"):
        checkpoint.restore(tmp_path)
    file.write_text(text.replace("float32", "float16"))
    with pytest.raises(CheckpointError, match="is damaged: its content is not what was written"):
        checkpoint.restore(tmp_path)
    file.write_text(text[:-20])
    with pytest.raises(CheckpointError, match="is damaged"):
        checkpoint.restore(tmp_path)
    checkpoint.save(tmp_path, jnp.ones(4))  # nothing is removed where a manifest cannot be read; this one is replaced
    assert checkpoint.restore(tmp_path).shape == (4,)


# -- how arrays lie ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "chunk"),
    [
        ((7,), (7,)), ((4_000_000,), (4_000_000,)), ((50_257, 768), (50_257, 768)), ((8, 3_000_001), (8, 3_000_001)),
        ((2, 40_000_000), (1, 20_000_000)), ((6_000_011 * 2,), (6_000_011,)), ((3, 1 << 20, 6), (3, 1 << 19, 2)),
    ],
)  # fmt: skip
def test_pieces_divide_chunks(shape: tuple[int, ...], chunk: tuple[int, ...]) -> None:
    outer, piece = leaves.pieces(shape, chunk, 4)
    for full, whole, given, part in zip(shape, outer, chunk, piece, strict=True):
        assert whole % part == 0
        assert whole == given or (given == full and given < whole < given + part)
    count = np.prod(outer) // np.prod(piece)
    assert count <= 2 * np.prod(chunk) * 4 / leaves.PIECE_BYTES + 1
    prime = chunk == (6_000_011,)
    assert prime or np.prod(piece) * 4 <= leaves.PIECE_BYTES * 1.05


def test_on_eight_virtual_devices() -> None:
    done = in_a_process(str(Path(__file__).with_name("checkpoint_meshes.py")), WEFT_NUM_CPU_DEVICES="8")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 4


def test_killed_saves_leave_a_whole_checkpoint() -> None:
    done = in_a_process(str(Path(__file__).with_name("checkpoint_kills.py")), "--kills", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("4 kills"), done.stdout


def test_without_tensorstore_the_extra_is_named(tmp_path: Path) -> None:
    code = "import sys; sys.modules['tensorstore'] = None\nimport weft\n"
    for call in (f"save({str(tmp_path / 'x')!r}, 1)", f"restore({str(tmp_path / 'x')!r})"):
        done = in_a_process("-c", f"{code}weft.checkpoint.{call}")
        assert "pip install 'weft[checkpoint]'" in done.stderr, done.stderr
    assert not (tmp_path / "x").exists()


def test_weft_checkpoint_is_still_jaxs_function() -> None:
    assert weft.checkpoint is weft.remat
    assert weft.grad(weft.checkpoint(lambda x: jnp.sin(x)))(0.0) == 1
