"""Finding and loading plugins: where they are looked for, and what a bad one is refused for."""

from __future__ import annotations

import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import weft
from weft import runtime
from weft._base import cli
from weft.dispatch.devices import plugins
from weft.dispatch.programs import device_programs

# Each makes a library whose GetPjrtApi gives this table: struct_size, extensions, version, entries.
_SOURCES = {
    "old": "static struct { long size; void* x; long vsize; void* y; int major, minor; void* f[90]; } api = "
           "{ 40 + 90 * 8, 0, 24, 0, 0, 3 }; void* GetPjrtApi(void) { return &api; }",
    "major": "static struct { long size; void* x; long vsize; void* y; int major, minor; void* f[90]; } api = "
             "{ 40 + 90 * 8, 0, 24, 0, 1, 90 }; void* GetPjrtApi(void) { return &api; }",
    "short": "static struct { long size; void* x; long vsize; void* y; int major, minor; void* f[4]; } api = "
             "{ 40 + 4 * 8, 0, 24, 0, 0, 81 }; void* GetPjrtApi(void) { return &api; }",
    "none": "void* GetPjrtApi(void) { return 0; }",
    "size": "static long api[8] = { 3 }; void* GetPjrtApi(void) { return api; }",
    "crash": "#include <stdlib.h>\nvoid* GetPjrtApi(void) { abort(); }",
    "symbol": "int another(void) { return 1; }",
}  # fmt: skip
_REASONS = {
    "old": "has version 0.3, and weft speaks 0.40 and later", "major": "has version 1.90",
    "short": "lacks PJRT_Error_Destroy", "none": "no table", "size": "says that it has 3 bytes",
    "crash": "crashes with signal 6", "symbol": "no function GetPjrtApi",
}  # fmt: skip


@pytest.mark.parametrize("kind", _SOURCES)
def test_bad_plugins_are_refused_and_the_process_goes_on(kind: str, tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler to make a bad plugin with")
    source, library = tmp_path / f"{kind}.c", tmp_path / f"{kind}.so"
    source.write_text(_SOURCES[kind])
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    with pytest.raises(RuntimeError, match=_REASONS[kind]):
        weft.pjrt.load(library, f"bad_{kind}", probe=kind == "crash")
    assert _REASONS[kind] in weft.pjrt.refused()[f"bad_{kind}"]


def test_files_that_are_no_library(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.so"
    garbage.write_bytes(b"not an ELF file")
    with pytest.raises(RuntimeError, match=r"garbage\.so is no usable plugin"):
        weft.pjrt.load(garbage, probe=False)
    with pytest.raises(RuntimeError, match="no such file"):
        weft.pjrt.load(tmp_path / "nowhere.so")
    with pytest.raises(RuntimeError, match="no function GetPjrtApi"):
        runtime.pjrt_open(str(sys.modules["weft.runtime._native"].__file__))
    with pytest.raises(TypeError, match="options of a plugin"):
        weft.pjrt.load(garbage, "typed", options={"a": [1]})


def test_where_plugins_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package, file in (
        ("jax_plugins/xla_cuda12", "xla_cuda_plugin.so"),
        ("jax_plugins/own", "pjrt_own.so"),
        ("jax_plugins/empty", "other.so"),
        ("libtpu", "libtpu.so"),
        ("named_plugin", "lib_pjrt.so"),
        ("named-1.0.dist-info", "METADATA"),
    ):
        folder = tmp_path / package
        folder.mkdir(parents=True)
        (folder / file).write_bytes(b"nothing" if package.endswith("empty") else b"..GetPjrtApi..")
    (tmp_path / "libtpu" / "__init__.py").write_text("raise RuntimeError('plugins are not imported')")
    (tmp_path / "named_plugin" / "__init__.py").write_text("raise RuntimeError('plugins are not imported')")
    (tmp_path / "named-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: named\nVersion: 1.0\n")
    (tmp_path / "named-1.0.dist-info" / "entry_points.txt").write_text("[jax_plugins]\nspecial = named_plugin\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(plugins.ENVIRONMENT, "mine:/a/mine.so, yours:/b/yours.so")
    found = {entry.name: entry for entry in weft.pjrt.discover()}
    assert (found["mine"].path, found["yours"].path) == ("/a/mine.so", "/b/yours.so")
    assert found["xla_cuda"].path.endswith("xla_cuda12/xla_cuda_plugin.so") and found["own"].source == "jax_plugins.own"
    assert found["tpu"].source == "libtpu" and "empty" not in found
    assert found["special"].source == "entry point special"
    for name in ("cuda", "gpu", "tpu"):  # found, and no libraries
        with pytest.raises(RuntimeError, match="no usable plugin"):
            weft.devices(name)
    monkeypatch.setenv(plugins.ENVIRONMENT, "nonsense")
    with pytest.raises(RuntimeError, match="name:path"):
        weft.pjrt.discover()


def test_command_line_and_names(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugins.ENVIRONMENT, "broken:/nowhere/broken.so")
    assert cli.main(["devices"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("cpu:0  kind=cpu")
    (broken,) = [line for line in lines if line.startswith("broken")]
    assert "/nowhere/broken.so" in broken and "refused" in broken and "no such file" in broken


def test_loaded_plugins(backend: Any, libraries: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert weft.pjrt.load(libraries[0], "first") is backend and backend.api_version[0] == 0
    assert backend.plugin.attributes["stablehlo_minimum_version"][0] == 0
    with pytest.raises(ValueError, match="'first' is taken"):
        weft.pjrt.load("/another.so", "first")
    with pytest.raises(ValueError, match="'cpu' is taken"):
        weft.pjrt.load(libraries[0], "cpu")
    device = weft.devices("first")[0]
    assert (device.platform, str(device), device.process_index, device.client) == ("first", "first:0", 0, backend)
    stats = device.memory_stats()
    assert stats is None or stats["bytes_in_use"] >= 0
    assert weft.device_count("first") == len(weft.local_devices(backend="first")) and weft.default_backend() == "cpu"
    assert cli.main(["devices"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("first  ")]
    assert str(libraries[0]) in line and "PJRT C API 0." in line and "devices" in line


class _Client:
    """The client of a plugin that is not here."""

    devices = ((0, 3, 0, 0, "NVIDIA H100", "CudaDevice(id=3)"),)
    process_index = 0

    def __init__(self, platform: str) -> None:
        self.platform, self.platform_version = platform, f"{platform} 12090"


@pytest.mark.parametrize(("platform", "word"), [("cuda", "gpu"), ("rocm", "gpu"), ("tpu", "tpu")])
def test_platforms_have_the_words_of_jax(platform: str, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As jax.devices()[0] on such a machine: .platform, str(), .client.platform and .client.platform_version."""
    backend = plugins.Client("mine", types.SimpleNamespace(path="mine.so"), _Client(platform))
    monkeypatch.setitem(plugins._loaded, "mine", backend)
    (device,) = backend.devices()
    assert (device.platform, str(device), repr(device)) == (word, f"{platform}:3", "CudaDevice(id=3)")
    assert backend.platform == word and backend.platform_version == f"PJRT C API\n{platform} 12090"
    for name in ("mine", platform, word):
        assert weft.devices(name) == [device] and weft.device_count(name) == 1
    others = {"cuda": "rocm", "rocm": "cuda", "tpu": "gpu"}
    with pytest.raises(RuntimeError, match=f"Unknown backend: '{others[platform]}'"):
        weft.devices(others[platform])
    with weft.config.context("platforms", f"{platform},cpu"):
        assert weft.default_backend() == word and weft.devices() == [device]
    assert weft.default_backend() == "cpu"
    assert device_programs.lowering_platform(device) == platform


def test_errors_have_the_plugins_text(backend: Any, device: Any) -> None:
    with pytest.raises(weft.errors.JaxRuntimeError, match="garbage"):
        backend.native.compile(b"garbage", b"", device.number)
    with pytest.raises(ValueError, match="no device 999"):
        backend.native.compile(b"", b"", 999)
    with pytest.raises(weft.errors.JaxRuntimeError):
        backend.native.deserialize(b"garbage", b"", device.number)
