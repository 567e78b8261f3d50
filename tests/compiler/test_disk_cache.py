"""The kernel cache on disk: found by a second process, shared by many, unharmed by kills, damage and refusals."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import compiler, core, lax, runtime
from weft._base import cli, private_files, target
from weft.compiler.storage import disk, nest_key
from weft.compiler.storage.version import compiler_version
from weft.core import kinds
from weft.core.caches.store import KERNELS

X = np.linspace(-2.0, 2.0, 60, dtype=np.float32).reshape(5, 12)
KEY, VERSION = bytes(range(32)), bytes(16)

# prints [results' bytes in hexadecimal, kernels built, kernels loaded, is llvmlite loaded, texts of the last program]
PROGRAM = """
import json, sys
import numpy as np
import weft, weft.numpy as wnp
from weft import compiler, nn
X = np.linspace(-2.0, 2.0, 60, dtype=np.float32).reshape(5, 12)
functions = [weft.jit(nn.softmax), weft.jit(lambda x: wnp.sum(wnp.exp(x) * 3, axis=0)), weft.jit(wnp.argmax)]
results = [np.asarray(f(X)).tobytes().hex() for f in functions]
results.append(np.asarray(wnp.asarray(X) + 1).tobytes().hex())
stats = compiler.stats()
answer = [results, stats["kernels_built"], stats["kernels_loaded"], "llvmlite" in sys.modules]
info = functions[0].cache_info()
answer.append([info.kernels_built, info.kernels_loaded])
if len(sys.argv) > 1:
    answer.append([functions[0].lower(X).compile().as_text(form)[:4000] for form in ("llvm", "asm")])
print(json.dumps(answer))
"""


def environment(folder: Path | str, **more: str) -> dict[str, str]:
    return {**os.environ, "WEFT_CACHE": "on", "WEFT_CACHE_DIR": str(folder), **more}


def start(folder: Path | str, *arguments: str, program: str = PROGRAM, **more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(folder, **more)
    )


def finish(process: subprocess.Popen[str]) -> Any:
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert "Traceback" not in err, err
    return json.loads(out)


def run(folder: Path | str, *arguments: str, program: str = PROGRAM, **more: str) -> Any:
    return finish(start(folder, *arguments, program=program, **more))


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.kernel"))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty cache folder which this process uses too."""
    path = tmp_path / "cache"
    before = {name: weft.config.read(name) for name in ("cache", "cache_dir", "cache_disk_bytes")}
    weft.config.update("cache_dir", str(path))
    weft.config.update("cache", True)
    try:
        yield path
    finally:
        for name, value in before.items():
            weft.config.update(name, value)


def fresh(function: Any, *args: Any) -> tuple[np.ndarray, int, int]:
    """A function's result as if the process had just started, and how many kernels were built and loaded."""
    weft.clear_caches()
    before = compiler.stats()
    result = np.asarray(weft.jit(lambda *xs: function(*xs))(*args))
    after = compiler.stats()
    return result, *(after[name] - before[name] for name in ("kernels_built", "kernels_loaded"))


def function(x: Any) -> Any:
    return wnp.tanh(x) * 0.75


EXPECTED = None


def expected() -> np.ndarray:
    global EXPECTED
    if EXPECTED is None:
        with weft.config.context("cache", False):
            EXPECTED = fresh(function, X)[0]
    return EXPECTED


def check(built: int, loaded: int) -> None:
    """The function gives its result with so many kernels built and loaded."""
    result, was_built, was_loaded = fresh(function, X)
    np.testing.assert_array_equal(result, expected())
    assert (was_built, was_loaded) == (built, loaded)


# what it is for


def test_a_second_process_runs_no_llvm(tmp_path: Path) -> None:
    results, built, loaded, has_llvm, info = run(tmp_path)
    assert built == len(files(tmp_path)) >= 4 and loaded == 0 and has_llvm and info[1] == 0
    again, none, reloaded, has_llvm, info = run(tmp_path)
    assert (none, reloaded) == (0, built)
    assert not has_llvm
    assert again == results
    assert info[0] == 0 and info[1] >= 1


def test_texts_of_loaded_kernels_are_made_on_demand(tmp_path: Path) -> None:
    texts = run(tmp_path, "texts")[-1]
    loaded = run(tmp_path, "texts")
    assert loaded[1] == 0 and loaded[3] is False
    assert loaded[-1] == texts
    assert "define void @k" in texts[0] and ".text" in texts[1]


def test_it_is_on_by_default_and_can_be_switched_off(tmp_path: Path) -> None:
    env = {k: v for k, v in environment(tmp_path).items() if not k.startswith("WEFT_CACHE")}
    source = "import weft; weft.jit(lambda x: x - 7)(1.0); print(weft.compiler.stats()['kernels_loaded'])"
    source = source.replace("import weft;", "import weft, weft.compiler;")

    def count(**more: str) -> int:
        command = [sys.executable, "-c", source]
        return int(subprocess.run(command, env={**env, **more}, capture_output=True, text=True, check=True).stdout)

    assert count(XDG_CACHE_HOME=str(tmp_path), WEFT_CACHE="off") == 0
    assert not list(tmp_path.iterdir())
    assert count(XDG_CACHE_HOME=str(tmp_path)) == 0
    assert len(files(tmp_path / "weft")) == 1
    assert count(XDG_CACHE_HOME=str(tmp_path)) == 1
    assert count(XDG_CACHE_HOME=str(tmp_path), WEFT_CACHE="0") == 0


def test_the_option_switches_it_off(folder: Path) -> None:
    check(1, 0)
    check(0, 1)
    with weft.config.context("cache", False):
        check(1, 0)
    for name, off in (("cache_disk_bytes", 0), ("enable_compilation_cache", False), ("compilation_cache_max_size", 0)):
        with weft.config.context(f"jax_{name}" if "compilation" in name else name, off):
            check(1, 0)
    check(0, 1)


def test_jax_s_folder_is_taken_where_weft_s_names_none(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with weft.config.context("jax_compilation_cache_dir", other):
        check(1, 0)
        assert len(files(folder)) == 1 and not other.exists()
        weft.config.update("cache_dir", "")
        check(1, 0)
        assert len(files(other)) == 1
        check(0, 1)
    with pytest.raises(TypeError, match="compilation_cache_dir is None or a path, got 3"):
        weft.config.update("jax_compilation_cache_dir", 3)


def test_platform_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert disk.default_folder() == ("/home/somebody/.cache/weft", "/home/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere/cache")
    assert disk.default_folder() == ("/elsewhere/cache/weft", "/elsewhere")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert disk.default_folder() == ("/home/somebody/Library/Caches/weft", "/home/somebody")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert disk.default_folder() == (os.path.join("/local", "weft", "Cache"), "/local")


# the key


def nests_of(f: Any, *args: Any) -> list[Any]:
    weft.clear_caches()
    with weft.config.context("cache", False):
        weft.jit(lambda *xs: f(*xs))(*args)
    return [key.what for key in KERNELS.entries]


def test_every_kind_that_becomes_code_has_a_name() -> None:
    nameless = [
        p.name
        for p in core.registry.values()
        if isinstance(p.kind, nest_key._KINDS)
        and p.kind.reference.__module__.startswith("weft.")
        and nest_key._home_of_kind(p.kind) is None
    ]
    assert nameless == []


def test_different_code_has_different_keys() -> None:
    programs: list[tuple[Any, Any]] = [
        (lambda x: x + 1, X),
        (lambda x: x - 1, X),
        (lambda x: x + 1, X.astype(np.int32)),
        (lambda x: x + 1, X.astype(np.float16)),
        (lambda x: lax.integer_pow(x, 3), X),
        (lambda x: lax.integer_pow(x, 5), X),
        (lambda x: x[:, ::2] + 1, X),
        (lambda x: x.sum(0), X),
        (lambda x: x.sum(1), X),
        (lambda x: x.sum(), X),
        (lambda x: x.max(1), X),
        (lambda x: wnp.cumsum(x, 1), X),
        (lambda x: wnp.cumprod(x, 1), X),
        (lambda x: x + x.sum(1, keepdims=True), X),
    ]
    names: dict[bytes, Any] = {}
    for f, x in programs:
        for nest in nests_of(f, x):
            name = nest_key.key(nest, target.host())
            assert name is not None
            assert names.setdefault(name, nest) == nest
    assert len(names) >= 13
    nest = nests_of(lambda x: x + 1, X)[0]
    other = next(t for t in target.TARGETS.values() if t.name != target.host().name)
    assert nest_key.key(nest, other) != nest_key.key(nest, target.host())


def test_equal_nests_have_equal_keys_whatever_the_sizes() -> None:
    one, two = nests_of(lambda x: wnp.exp(x) * 3, X), nests_of(lambda y: wnp.exp(y) * 5.5, np.ones((31, 9), np.float32))
    assert [nest_key.key(n, target.host()) for n in one] == [nest_key.key(n, target.host()) for n in two]


def test_values_that_compare_equal_are_not_written_alike() -> None:
    values = [0, False, 0.0, -0.0, 0j, np.float32(0), np.float64(0), np.int32(0), "0", b"0", None, (0,), [0], ((0,),)]
    values += [np.dtype("f4"), np.dtype("i4"), np.float32, np.int32, float("nan"), {"a": 0}, frozenset([0])]
    values += [np.zeros(1), np.zeros((1, 1))]
    texts = [nest_key._write(value) for value in values]
    assert len(set(texts)) == len(texts)


def test_keys_are_cheap() -> None:
    nests = nests_of(lambda x: (x - x.mean(1, keepdims=True)) * lax.rsqrt(x.var(1, keepdims=True) + 1e-5), X)
    nest_key.key(nests[0], target.host())
    spent = []
    for _ in range(30):
        begin = time.perf_counter()
        nest_key.key(nests[0], target.host())
        spent.append(time.perf_counter() - begin)
    assert min(spent) < 1e-3  # measured: 0.06 ms


def test_operations_of_the_user_are_never_kept(folder: Path) -> None:
    mine = core.Primitive("mine", kind=kinds.Elementwise(scalar=lambda emit, x: emit.mul(x, x), reference=np.square))
    mine.def_abstract_eval(lambda x: x)
    try:
        for _ in range(2):
            result, built, loaded = fresh(mine.bind, X)
            assert (built, loaded) == (1, 0)
            np.testing.assert_array_equal(result, X * X)
        impostor = kinds.Elementwise(scalar=lambda emit, x: emit.mul(x, x), reference=np.square)
        for nest in nests_of(mine.bind, X):
            assert nest_key.key(nest, target.host()) is None
        assert nest_key._home_of_kind(impostor) is None
    finally:
        del core.registry["mine"]
    assert not files(folder)


def test_the_computation_of_a_general_reduction_is_never_kept(folder: Path) -> None:
    for _ in range(2):
        fresh(lambda x: lax.reduce(x, np.float32(0), lambda a, b: a * 0.5 + b, (1,)), X)
    for path in files(folder):
        path.unlink()
    found = nests_of(lambda x: lax.reduce(x, np.float32(0), lambda a, b: a * 0.5 + b, (1,)), X)
    assert any(nest_key.key(nest, target.host()) is None for nest in found)


def test_sources_edited_after_the_start_switch_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiler_version() is not None
    monkeypatch.setattr(core, "LOADED_NS", 0)
    assert compiler_version.__wrapped__() is None


def test_the_version_covers_every_source() -> None:
    package = Path(weft.__file__).parent
    counted = {name: (nbytes, changed_ns) for name, nbytes, changed_ns in runtime.source_stamps(str(package))}
    statuses = {path.relative_to(package).as_posix(): path.stat() for path in package.rglob("*.py")}
    assert counted == {name: (status.st_size, status.st_mtime_ns) for name, status in statuses.items()}
    with pytest.raises(OSError, match="nowhere"):
        runtime.source_stamps(str(package / "nowhere"))


# entries


def test_an_entry_holds_what_was_stored() -> None:
    content = disk.pack(VERSION, KEY, "k", b"object")
    assert disk.unpack(content, KEY, VERSION) == ("k", b"object")
    with pytest.raises(disk.DamagedError, match="another key"):
        disk.unpack(content, bytes(32), VERSION)
    with pytest.raises(disk.DamagedError, match="another key"):
        disk.unpack(content, KEY, b"v" * 16)


def test_every_truncation_and_every_flipped_bit_is_noticed() -> None:
    content = disk.pack(VERSION, KEY, "k", os.urandom(300))
    for length in range(len(content)):
        with pytest.raises(disk.DamagedError):
            disk.unpack(content[:length], KEY, VERSION)
    with pytest.raises(disk.DamagedError):
        disk.unpack(content + b"\0", KEY, VERSION)
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(disk.DamagedError):
            disk.unpack(bytes(damaged), KEY, VERSION)


def test_damaged_files_are_misses_and_are_replaced(folder: Path) -> None:
    check(1, 0)
    (path,) = files(folder)
    content = path.read_bytes()
    damages = [content[:length] for length in (0, 1, 8, 50, disk.HEADER.size, len(content) - 1)]
    damages += [b"something else", b"\x7fELF" + bytes(500), content + b"x", content.replace(b"ELF", b"FLE")]
    chance = random.Random(0)
    for _ in range(12):
        flipped = bytearray(content)
        flipped[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        damages.append(bytes(flipped))
    for damaged in damages:
        path.write_bytes(damaged)
        check(1, 0)
        assert path.read_bytes() == content
        check(0, 1)


def test_whole_entries_that_are_not_of_this_key_or_not_code(folder: Path) -> None:
    check(1, 0)
    (path,) = files(folder)
    key, version = bytes.fromhex(path.stem), compiler_version()
    assert version is not None
    other = disk.pack(version, bytes(32), "k", b"for another key")
    no_object = disk.pack(version, key, "k", b"not an object at all")
    no_symbol = disk.pack(version, key, "missing", disk.unpack(path.read_bytes(), key).bytes)
    older = disk.pack(bytes(16), key, "k", disk.unpack(path.read_bytes(), key).bytes)
    for content in (other, no_object, no_symbol, older):
        path.write_bytes(content)
        check(1, 0)
        check(0, 1)


def test_a_file_that_others_may_write_is_not_run(folder: Path) -> None:
    check(1, 0)
    (path,) = files(folder)
    path.chmod(0o666)
    check(1, 0)
    check(0, 1)
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
        check(1, 0)
        check(0, 1)


def test_things_that_are_no_files(folder: Path) -> None:
    check(1, 0)
    (path,) = files(folder)
    path.unlink()
    path.mkdir()
    check(1, 0)
    path.rmdir()
    path.symlink_to("/etc/passwd")
    disk._opened.cache_clear()
    check(1, 0)
    assert not path.is_symlink()
    check(0, 1)
    path.unlink()
    os.mkfifo(path)
    check(1, 0)
    check(0, 1)


def test_the_ledger_is_a_plain_file_of_ones_own(folder: Path, tmp_path: Path) -> None:
    """What another program put instead of it is removed: nothing is written through it, and nobody waits for it."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    cache = disk.DiskCache(str(folder), 1 << 20, VERSION)
    assert cache.store(KEY, "k", b"code")
    ledger = folder / disk.LEDGER
    for put in (ledger.symlink_to, ledger.hardlink_to, lambda _: os.mkfifo(ledger)):
        for write in (lambda: cache._count(5000), cache.evict):
            ledger.unlink()
            put(victim)
            write()
            status = ledger.lstat()
            assert stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size in (1, 5)
    assert victim.read_text() == "precious"
    name = cache.path(KEY)
    os.unlink(name)
    os.mkfifo(name)
    assert cache.summary().kernels == 1  # does not wait for somebody to write


# folders


def test_a_folder_that_others_may_write_to_is_refused(folder: Path) -> None:
    check(1, 0)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    held = set(folder.iterdir())
    cache = disk.current()
    assert cache is not None
    ways = [(lambda: folder.chmod(0o777), "mode 0777"), (lambda: folder.chmod(0o770), "mode 0770")]
    if os.geteuid() == 0:
        ways.append((lambda: os.chown(folder, 12345, -1), "user with number 12345"))
    for change, why in ways:
        folder.chmod(0o700)
        change()
        private_files._warned.clear()
        with pytest.warns(RuntimeWarning, match=f"(?s){folder}.*{why}.*chmod 700.*WEFT_CACHE_DIR"):
            check(1, 0)
        check(1, 0)  # one warning for a folder
        assert not disk.DiskCache(str(folder), 1 << 20, VERSION).store(KEY, "k", b"code")
        assert set(folder.iterdir()) == held


def quiet(caplog: pytest.LogCaptureFixture, built: int = 1) -> list[str]:
    """Two calls that build; what was logged below warnings, nothing above."""
    disk._opened.cache_clear()
    with caplog.at_level(logging.DEBUG, "weft.compiler"):
        caplog.clear()
        check(built, 0)
        check(built, 0)
    assert all(record.levelno == logging.DEBUG for record in caplog.records)
    return [record.getMessage() for record in caplog.records if "nothing more is kept" in record.getMessage()]


def test_a_file_in_place_of_the_folder(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.write_text("a file")
    assert len(quiet(caplog)) == 1
    assert folder.read_text() == "a file"


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT])
def test_a_folder_that_refuses(
    folder: Path, code: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir()

    def refuse(path: str) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(disk, "_create", refuse)
    assert len(quiet(caplog)) == 1
    assert not list(folder.iterdir())


def test_a_full_disk(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every write to /dev/full fails as on a full disk."""
    folder.mkdir()
    create = disk._create

    def full(path: str) -> int:
        os.close(create(path))
        return os.open("/dev/full", os.O_WRONLY)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "_create", full)
        assert len(quiet(caplog)) == 1
    assert not list(folder.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_serves_what_it_has(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    check(1, 0)
    folder.chmod(0o500)
    try:
        check(0, 1)
    finally:
        folder.chmod(0o700)


def test_a_read_only_file_system(tmp_path: Path) -> None:
    """/proc takes no folders, even from root; an unreachable folder costs nothing but the cache."""
    for path in ("/proc/weft-cache", "/dev/null/cache", str(tmp_path / ("x" * 300))):
        assert run(path)[1] >= 4


def test_no_home(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    source = "import weft; weft.jit(lambda x: x - 7)(1.0)"
    env = {k: v for k, v in environment("").items() if k not in ("WEFT_CACHE_DIR", "XDG_CACHE_HOME")}
    for home in (str(missing), "", "relative"):
        command = [sys.executable, "-c", source]
        done = subprocess.run(
            command, env={**env, "HOME": home}, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 and done.stderr == ""
    assert not missing.exists() and not list(tmp_path.iterdir())


def test_a_folder_removed_meanwhile_is_made_again(folder: Path) -> None:
    check(1, 0)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    check(1, 0)
    check(0, 1)


# many processes


def test_eight_processes_at_once(tmp_path: Path) -> None:
    answers = [finish(p) for p in [start(tmp_path) for _ in range(8)]]
    assert all(answer[0] == answers[0][0] for answer in answers)
    assert not list(tmp_path.glob(".*.tmp"))
    assert run(tmp_path)[1:4] == [0, answers[0][1] + answers[0][2], False]


STORING = """
import os, sys
from weft.compiler.storage import disk
cache = disk.DiskCache(sys.argv[1], 1 << 40, bytes(16))
print(flush=True)
while True:
    for i in range(8):
        cache.store(bytes([i]) * 32, "k", bytes([i]) * 1_000_000)
"""


def test_kills_in_the_middle_of_writing(tmp_path: Path) -> None:
    cache = disk.DiskCache(str(tmp_path), 1 << 40, VERSION)
    kills, chance = 0, random.Random(1)
    while kills < 12:
        process = start(tmp_path, str(tmp_path), program=STORING)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chance.uniform(0.0, 0.02))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1
        for path in files(tmp_path):  # what has its name is whole
            i = bytes.fromhex(path.stem)[0]
            assert cache.load(bytes.fromhex(path.stem)) == ("k", bytes([i]) * 1_000_000)
    assert cache.verify().removed == [] and len(files(tmp_path)) >= 1
    for path in tmp_path.glob(".*.tmp"):  # what a kill left goes when it is old
        os.utime(path, (0, 0))
    cache.evict()
    assert not list(tmp_path.glob(".*.tmp"))


def test_readers_writers_and_eviction_at_once(tmp_path: Path) -> None:
    bound = 200_000
    failures: list[str] = []

    def work(seed: int) -> None:
        cache, chance = disk.DiskCache(str(tmp_path), bound, VERSION), random.Random(seed)
        for _ in range(150):
            i = chance.randrange(40)
            found = cache.load(bytes([i]) * 32)
            if found is None:
                if not cache.store(bytes([i]) * 32, "k", bytes([i]) * 10_000):
                    failures.append("refused")
            elif found != ("k", bytes([i]) * 10_000):
                failures.append(f"wrong bytes for {i}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert disk.DiskCache(str(tmp_path), bound, VERSION).summary().nbytes <= bound


# the bound


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    cache = disk.DiskCache(str(tmp_path), 160_000, VERSION)
    keys = [bytes([i]) * 32 for i in range(30)]
    for age, key in enumerate(keys[:12]):
        assert cache.store(key, "k", bytes(10_000))
        os.utime(cache.path(key), (1000 + age, 1000 + age))
    assert cache.load(keys[0]) is not None  # used now
    for key in keys[12:18]:
        assert cache.store(key, "k", bytes(10_000))
        assert cache.summary().nbytes <= cache.bound
    assert cache.load(keys[0]) is not None
    assert cache.load(keys[1]) is None
    assert all(cache.load(key) is not None for key in keys[12:18])


@pytest.mark.parametrize("n_bytes", [100, 3_000, 40_000])
def test_the_folder_keeps_to_its_bound(tmp_path: Path, n_bytes: int) -> None:
    bound = 128_000
    for i in range(200):  # each as a process of its own would
        cache = disk.DiskCache(str(tmp_path), bound, VERSION)
        assert cache.store(i.to_bytes(32, "big"), "k", bytes(n_bytes))
        assert sum(path.stat().st_size for path in files(tmp_path)) <= bound
    assert cache.summary().kernels >= min(200, bound // 2 // (n_bytes + 200))


def test_older_files_are_counted_when_the_ledger_is_lost(tmp_path: Path) -> None:
    large = disk.DiskCache(str(tmp_path), 1 << 30, VERSION)
    for i in range(20):
        large.store(bytes([i]) * 32, "k", bytes(10_000))
    (tmp_path / disk.LEDGER).unlink()
    small = disk.DiskCache(str(tmp_path), 50_000, VERSION)
    small.store(bytes([99]) * 32, "k", bytes(10_000))
    assert small.summary().nbytes <= 50_000


# the command


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(1, 0)
    fresh(lambda x: wnp.sinh(x), X)
    assert cli.main(["cache", "info"]) == 0
    out = capsys.readouterr().out
    assert str(folder) in out and "kernels  2\n" in out and "; 0 entries made" in out
    assert cli.main(["cache", "verify"]) == 0
    assert "2 kernels and programs are whole" in capsys.readouterr().out
    path = files(folder)[0]
    path.write_bytes(path.read_bytes()[:-3])
    assert cli.main(["cache", "verify"]) == 1
    assert path.name in capsys.readouterr().out
    assert not path.exists()
    (folder / "notes.txt").write_text("not ours")
    assert cli.main(["cache", "clear"]) == 0
    assert "1 kernels and programs removed" in capsys.readouterr().out
    assert [p.name for p in folder.iterdir()] == ["notes.txt"]
    with weft.config.context("cache", False):
        assert cli.main(["cache", "info"]) == 0
        assert "off" in capsys.readouterr().out


def test_an_interrupt_while_writing_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()

    def interrupted(source: str, destination: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fresh(function, X)
    assert not list(folder.iterdir())
    with contextlib.suppress(FileNotFoundError):
        check(1, 0)
    check(0, 1)


def test_files_of_others_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    names = ["written", ".notes.tmp", "notes.tmp", "a.kernel", "f" * 63 + ".kernel", "f" * 64 + ".kernel.bak"]
    for name in names:
        (tmp_path / name).write_bytes(b"mine")
        os.utime(tmp_path / name, (0, 0))
    cache = disk.DiskCache(str(tmp_path), 4000, bytes(16))
    for i in range(8):
        assert cache.store(bytes([i]) * 32, "k", bytes(1000))
    assert cache.verify().removed == []
    assert 0 < cache.summary().kernels < 8  # eviction has run
    cache.clear()
    assert sorted(os.listdir(tmp_path)) == sorted(names)
    assert all((tmp_path / name).read_bytes() == b"mine" for name in names)


def test_what_cannot_be_removed_is_not_counted_as_removed(tmp_path: Path) -> None:
    (tmp_path / ("b" * 64 + ".kernel")).mkdir()
    cache = disk.DiskCache(str(tmp_path), 1 << 20, bytes(16))
    (entry,) = cache.verify().removed
    assert entry.endswith("it cannot be removed")
    assert cache.clear() == 0
