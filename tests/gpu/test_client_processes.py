"""What the native client does where something fails, with several GPUs, and at the end: in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import driver, native_build, product_library

pytestmark = pytest.mark.skipif(
    native_build.compiler() is None, reason="there is no C++ compiler to build the driver with"
)
HEAD = """
import gc, os, signal, sys, threading, time
import numpy as np
import weft, weft.numpy as jnp
from weft import runtime
from tests.gpu.client_programs import PTX, SPIN, launching
"""


def run(program: str, head: str = HEAD, **settings: object) -> str:
    """What a program prints, on a driver with these settings; its GPU is the default device."""
    environment = {**driver.environment(**settings), "WEFT_CACHE": "off"}
    environment.pop("JAX_PLATFORMS", None)
    done = subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(program)],
        env=environment, capture_output=True, text=True, timeout=120, cwd=driver.ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_gpu_is_the_default_where_one_is_usable() -> None:
    program = """
        x = jnp.arange(4.0)
        print(weft.devices(), weft.default_backend(), x.device, (x + 1).device, weft.devices("cpu"))
        print(weft.random.normal(weft.random.key(0), (2,)).device, weft.device_put(1.0).device)
    """
    assert run(program).split("\n")[:2] == [
        "[CudaDevice(id=0)] gpu cuda:0 cuda:0 [CpuDevice(id=0)]",
        "cuda:0 cuda:0",
    ]


@pytest.mark.parametrize(
    ("variables", "platform"),
    [({"WEFT_PLATFORMS": "cpu"}, "cpu"), ({"JAX_PLATFORMS": "cpu"}, "cpu"), ({"WEFT_PLATFORMS": "cuda"}, "gpu"),
     ({"WEFT_PLATFORMS": "gpu,cpu"}, "gpu"), ({"JAX_PLATFORMS": "cuda,cpu"}, "gpu"), ({"JAX_PLATFORMS": "tpu"}, "cpu")],
)  # fmt: skip
def test_the_platform_is_chosen(variables: dict[str, str], platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = "; ".join(f"os.environ[{name!r}] = {value!r}" for name, value in variables.items())
    program = """
        x = jnp.ones(3) + 1
        print(weft.default_backend(), x.platform(), "libcuda" in open("/proc/self/maps").read())
    """
    assert run(program, f"import os; {chosen}\n{HEAD}").split()[:3] == [platform, platform, str(platform == "gpu")]


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"init": 100}, "not start: CUDA_ERROR_NO_DEVICE (100)"), ({"version": 10020}, "CUDA 11.0 or later is needed"),
     ({"capability": "7.5"}, "its compute capability is 7.5"), ({"devices": 0}, "CUDA_ERROR_NO_DEVICE")],
)  # fmt: skip
def test_why_a_gpu_is_not_used(settings: dict[str, Any], words: str) -> None:
    program = """
        print((jnp.ones(3) + 1).device, weft.default_backend())
        try: weft.devices("cuda")
        except RuntimeError as error: print(error)
        from weft._base.cli import main
        main(["devices"])
    """
    said = run(program, **settings)
    assert said.startswith("cpu:0 cpu\nUnknown backend: 'cuda' requested") and "Platforms present are: cpu" in said
    assert said.count(words) == 3  # the error, the list, and the warning that the CPU is used
    assert "not used: " in said and "computations run on the CPU" in said


def test_without_a_driver_nothing_is_said() -> None:
    environment = {
        name: text for name, text in os.environ.items() if name not in ("JAX_PLATFORMS", "WEFT_CUDA_LIBRARY")
    }
    program = "import weft; print(weft.default_backend(), (weft.numpy.ones(2) + 1).device, weft.devices())"
    environment["LD_LIBRARY_PATH"] = ""
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    if "gpu" not in done.stdout:  # a machine with a GPU has another default
        assert (done.stdout, done.stderr) == ("cpu cpu:0 [CpuDevice(id=0)]\n", "")


def test_the_list_of_devices() -> None:
    said = run("from weft._base.cli import main; main(['devices'])", devices=2, memory=512)
    lines = [line for line in said.split("\n") if line.startswith("cuda:")]
    assert len(lines) == 2 and "0.5 GiB, compute capability 9.0" in lines[0] and "driver for CUDA 12.8" in lines[1]


def test_two_devices() -> None:
    program = """
        first, second = weft.devices("cuda")
        x = np.arange(3000, dtype=np.float32)
        a = weft.device_put(x, first)
        for _ in range(20):
            b = weft.device_put(a + 1, second)
            a = weft.device_put(b * 2, first)
            x = (x + 1) * 2 % 1000
            a = a % 1000
        assert np.array_equal(np.asarray(a), x) and a.device is first and (b + 1).device is second
        try: a + b
        except ValueError as error: print("incompatible devices" in str(error))
        print(weft.jit(lambda v: v.sum(), device=second)(np.ones(5, np.float32)).device, weft.device_count())
        print(launching(second).run((weft.device_put(np.zeros(1000, np.float32), second),))[0].device)
    """
    for peer in (1, 0):
        assert run(program, devices=2, peer=peer).split()[:4] == ["True", "cuda:1", "2", "cuda:1"]


@pytest.mark.parametrize("pitch", [1, 512])
def test_rows_that_the_driver_does_not_copy(pitch: int) -> None:
    """It may refuse distances that are not those of its own allocations; the host copies then."""
    program = """
        from weft import lax
        a, b = np.arange(35000.0, dtype=np.float32).reshape(5, 7, 1000), np.ones((5, 3, 60), np.float32)
        wanted = a.copy()
        wanted[:, 2:5, 30:90] = 1
        found = weft.jit(lambda a, b: lax.dynamic_update_slice(a, b, (0, 2, 30)))(a, b)
        print(np.array_equal(np.asarray(found), wanted))
    """
    assert run(program, pitch=pitch).split() == ["True"]


def test_memory_is_given_back_under_pressure() -> None:
    program = """
        d = weft.devices()[0]
        for mib in (40, 50, 30, 60, 20, 60):  # together more than there is
            x = weft.device_put(np.ones(mib << 18, np.float32), d)
            assert float((x + 1)[-1]) == 2.0
            del x
        try: jnp.zeros(1 << 27) + 1
        except MemoryError as error: print(type(error).__name__, error)
        print(float(jnp.ones(1000).sum()), d.memory_stats()["pool_bytes"] <= 128 << 20)
        kept = [weft.device_put(np.ones(10 << 18, np.float32), d) for _ in range(9)]
        try: weft.device_put(np.ones(60 << 18, np.float32), d)
        except MemoryError as error: print(error)
        del kept[2:]
        print(weft.device_put(np.ones(60 << 18, np.float32), d).shape, sum(float(k.sum()) for k in kept))
    """
    said = run(program, memory=128).split("\n")
    assert (
        said[0].startswith("OutOfMemoryError RESOURCE_EXHAUSTED: Out of memory")
        and "512.0 MiB (536870912 bytes) requested on cuda:0" in said[0]
    )
    assert said[1] == "1000.0 True"
    assert "60.0 MiB (62914560 bytes) requested" in said[2] and "hold" in said[2] and "donate_argnums" in said[2]
    assert said[3] == "(15728640,) 5242880.0"


def test_an_allocation_that_fails_is_tried_again_or_raises() -> None:
    program = """
        d = weft.devices()[0]
        x = weft.device_put(np.ones(3 << 20, np.float32), d)
        del x  # may be given back
        for n in (5 << 20, 6 << 20, 7 << 20):
            print(float((weft.device_put(np.ones(n, np.float32), d))[0]))
    """
    for n in (2, 3):
        assert run(program, fail_allocation=n).split() == ["1.0", "1.0", "1.0"]


def test_a_kernel_that_fails_stops_its_device() -> None:
    program = """
        first, second = weft.devices()
        x = weft.device_put(np.zeros(1000, np.float32), first)
        weft.jit(lambda a: a * 2)(x).block_until_ready()
        bad = launching(first, steps=2_000_000, blocks=8000, name="reads_too_far").run((x,))[0]
        for attempt in (bad.block_until_ready, lambda: np.asarray(bad), lambda: x + 1, lambda: np.asarray(x),
                        lambda: weft.device_put(np.ones(3), first), lambda: launching(first).run((x,))):
            try: attempt(); print("nothing")
            except weft.errors.JaxRuntimeError as error: print(error)
        print(float(weft.device_put(np.float32(1), second) + 1), bad.is_ready())
        print((weft.device_put(np.float32(1), weft.devices("cpu")[0]) + 1).device)
    """
    said = [
        line for line in run(program, devices=2).split("\n") if line.startswith(("INTERNAL", "nothing", "2.0", "cpu"))
    ]
    assert len(said) == 8 and said[6:] == ["2.0 True", "cpu:0"]
    assert all("CUDA_ERROR_" in line and "in reads_too_far" in line for line in said[:6])
    assert "has stopped: " in said[0] and "a new process can use it" in said[0]
    assert all("has stopped before: " in line for line in said[1:6])


def test_a_launch_that_fails_names_its_program() -> None:
    program = """
        x = weft.device_put(np.zeros(1000, np.float32))  # no kernel of the compiler's: launches are counted
        print(np.asarray(launching(weft.devices()[0]).run((x,))[0])[0])
        try: launching(weft.devices()[0], name="second").run((x,))[0].block_until_ready()
        except weft.errors.JaxRuntimeError as error: print(error)
    """
    said = run(program, fail_launch=2)
    error = next(line for line in said.split("\n") if line.startswith("INTERNAL"))
    assert said.startswith("1.0\n") and "CUDA_ERROR_LAUNCH_FAILED (719)" in error and "second" in error


def test_a_forked_child_uses_no_gpu_of_its_parent() -> None:
    program = """
        x = jnp.ones(3) + 1
        child = os.fork()
        if child == 0:
            for attempt in (lambda: x + 1, lambda: np.asarray(x), lambda: jnp.ones(2), x.block_until_ready):
                try: attempt(); print("nothing", flush=True)
                except RuntimeError as error: print("forked child" in str(error), flush=True)
            del x
            gc.collect()
            sys.exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), np.asarray(x + 1))
    """
    words = run(program).split()
    assert words.count("True") >= 3 and "7" in words and words[-3:] == ["[3.", "3.", "3.]"]


@pytest.mark.parametrize(
    "wait", ["r.block_until_ready()", "np.asarray(r)", "float(r[3])", "weft.device_put(r, weft.devices('cpu')[0])"]
)
def test_ctrl_c_while_waiting(wait: str) -> None:
    program = f"""
        x = jnp.zeros(1000)
        spin = launching(weft.devices()[0], entries=("spin", ""), image=SPIN, steps=10**12, blocks=1)
        r = spin.run((x,))[0]
        sent = []
        def interrupt():
            time.sleep(0.4)
            sent.append(time.perf_counter())
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        try: {wait}; print("nothing")
        except KeyboardInterrupt: print("interrupted", time.perf_counter() - sent[0] < 0.2)
        sys.stdout.flush()
        os._exit(0)  # the kernel never ends
    """
    assert run(program).split() == ["interrupted", "True"]


def test_other_threads_run_while_one_waits() -> None:
    program = """
        x = jnp.zeros(1000)
        r = launching(weft.devices()[0], entries=("spin", ""), image=SPIN, steps=10**12, blocks=1).run((x,))[0]
        thread = threading.Thread(target=r.block_until_ready, daemon=True)
        thread.start()
        begin, turns = time.perf_counter(), 0
        while time.perf_counter() - begin < 0.3: turns += 1
        print(turns > 1000, thread.is_alive(), r.is_ready(), flush=True)
        os._exit(0)
    """
    assert run(program).split() == ["True", "True", "False"]


@pytest.mark.parametrize("end", ["pass", "sys.exit(0)", "gc.collect(); del x, y", "raise SystemExit(0)"])
def test_an_exit_with_work_under_way_is_clean(end: str) -> None:
    program = f"""
        x = jnp.ones(300_000)
        for _ in range(20): x = x + 1
        y = launching(weft.devices()[0], steps=1000).run((jnp.zeros(1000),))[0]
        y.copy_to_host_async()
        print("ends", flush=True)
        {end}
    """
    assert run(program) == "ends\n"


def test_threads_use_one_gpu_at_once() -> None:
    program = """
        d = weft.devices()[0]
        f = weft.jit(lambda x: jnp.sin(x).sum() + x[0])
        expected = [float(f(weft.device_put(np.full(5000, i, np.float32), d))) for i in range(4)]
        wrong = []
        def work(i):
            for _ in range(30):
                x = weft.device_put(np.full(5000, i, np.float32), d)
                y = launching(d).run((x[:1000],))[0]
                if float(f(x)) != expected[i] or not (np.asarray(y) == i + 1).all(): wrong.append(i)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        [t.start() for t in threads]; [t.join() for t in threads]
        print(wrong)
    """
    assert run(program).split("\n")[0] == "[]"


# -- machine code on disk ---------------------------------------------------------------------------------------------

COUNTED = """
from tests.gpu.driver import calls
x = weft.device_put(np.arange(12, dtype=np.float32).reshape(3, 4))
found = weft.jit(lambda x: jnp.sin(x).sum(1) @ jnp.cumsum(x, 0))(x)
print(np.asarray(found).tobytes().hex())
counts = calls()
print(counts.get("cuLinkComplete", 0), counts.get("assembled at a load", 0), counts["cuModuleLoadDataEx"])
"""


def counted(folder: Path, **settings: object) -> tuple[str, int, int, int]:
    """(the bits of a program's result; how often the driver made machine code of PTX, at a load; modules loaded)."""
    head = f"import os; os.environ.update(WEFT_CACHE='1', WEFT_CACHE_DIR={str(folder)!r})\n"
    bits, made, late, loaded = run(COUNTED, head + HEAD, **settings).split()
    return bits, int(made), int(late), int(loaded)


def test_another_process_loads_machine_code_from_disk(tmp_path: Path) -> None:
    bits, made, late, loaded = counted(tmp_path)
    files = sorted(tmp_path.glob("*.kernel"))
    assert made == loaded == len(files) > 2 and late == 0
    assert counted(tmp_path) == (bits, 0, 0, loaded)
    files[0].write_bytes(files[0].read_bytes()[:-9])
    files[1].write_bytes(b"\x7fELF no machine code")
    assert counted(tmp_path) == (bits, 2, 0, loaded)  # made again
    assert counted(tmp_path, version=12060) == (bits, made, 0, loaded)
    assert counted(tmp_path, capability="9.1") == (bits, made, 0, loaded)
    assert len(list(tmp_path.glob("*.kernel"))) == 3 * made


# -- where an error comes from ----------------------------------------------------------------------------------------

FAILING = """
x = weft.device_put(np.arange(12, dtype=np.float32).reshape(3, 4))
@weft.jit
def f(x):
    y = jnp.cumsum(x, 0) @ jnp.ones((4, 2))  # one line
    z = jnp.sort(jnp.sin(x), 1)  # another line
    return (jnp.cos(z).sum(0) * 2, y)
try: weft.tree.map(np.asarray, f(x))
except weft.errors.JaxRuntimeError as error: print(error)
"""


def test_an_error_names_lines_of_the_program() -> None:
    sole = """
        x = weft.device_put(np.ones(3, np.float32))
        f = weft.jit(lambda x: jnp.sin(x) + 1)
        f(x).block_until_ready(), f(weft.device_put(np.ones(5, np.float32))).block_until_ready()
        try: f(weft.device_put(np.ones(7, np.float32))).block_until_ready()  # of another size
        except weft.errors.JaxRuntimeError as error: print(error)
    """
    said = run(sole, fail_launch=3)
    line = HEAD.count("\n") + 3
    assert f"in <lambda> at <string>:{line}:" in said and "CUDA_LAUNCH_BLOCKING" not in said


def test_which_of_several_lines_it_was() -> None:
    said = run(FAILING, fail_launch=1)
    assert f" at <string>:{HEAD.count(chr(10)) + 5}:" in said
    assert " or <string>:" in said and "(CUDA_LAUNCH_BLOCKING=1 tells which)" in said
    exact = run(FAILING, "import os; os.environ['CUDA_LAUNCH_BLOCKING'] = '1'\n" + HEAD, fail_launch=1)
    assert "in the kernel at <string>:" in exact and "tells which" not in exact


# -- memory and several GPUs ------------------------------------------------------------------------------------------


def test_a_share_of_the_memory_is_a_limit() -> None:
    program = """
        d = weft.devices()[0]
        print(d.memory_stats()["bytes_limit"] >> 20)
        kept = []
        try:
            for _ in range(20): kept.append(weft.device_put(np.ones(10 << 18, np.float32), d))
        except MemoryError as error: print(len(kept), error)
    """
    share = "import os; os.environ['XLA_PYTHON_CLIENT_MEM_FRACTION'] = {!r}\n"
    whole = run(program, memory=128).split("\n")
    assert int(whole[0]) <= 128 and whole[1].startswith("12 ")
    half = run(program, share.format(".5") + HEAD, memory=128).split("\n")
    assert half[0] == "64" and half[1].startswith("6 ") and "XLA_PYTHON_CLIENT_MEM_FRACTION allows 64.0 MiB" in half[1]
    wrong = """
        try: weft.devices("cuda")
        except ValueError as error: print(error)
    """
    assert "got '1.5'" in run(wrong, share.format("1.5") + HEAD)


def test_what_two_devices_hold_and_run() -> None:
    """Memory is each one's own, a program runs where its operands are, and new arrays are the default device's."""
    program = """
        first, second = weft.devices()
        before = [d.memory_stats()["bytes_in_use"] for d in (first, second)]
        b = weft.device_put(np.arange(1 << 18, dtype=np.float32), second)
        print([d.memory_stats()["bytes_in_use"] - n for d, n in zip((first, second), before)])
        f = weft.jit(lambda x: jnp.cumsum(jnp.sort(x)[::-1])[:5])
        small = np.random.default_rng(0).standard_normal(500).astype(np.float32)
        here, there = f(weft.device_put(small, first)), f(weft.device_put(small, second))
        print(here.device, there.device, np.array_equal(np.asarray(here), np.asarray(there)))
        with weft.default_device(second):
            c = jnp.arange(5)
            print(c.device, (c + 1).device, weft.jit(lambda x: x * 2)(np.ones(3)).device, c.committed)
        print((c + weft.device_put(np.ones(5, np.float32), first)).device)  # to what is committed
        compiled = f.lower(weft.device_put(small, second)).compile()
        try: compiled(weft.device_put(small, first))
        except ValueError as error: print("cuda" in str(error) or "CudaDevice(id=0)" in str(error))
        moved = weft.device_put(b, first, donate=True)
        print(moved.device, b.is_deleted(), second.memory_stats()["bytes_in_use"] < before[1] + (1 << 20))
    """
    assert run(program, devices=2).splitlines() == [
        "[0, 1048576]", "cuda:0 cuda:1 True", "cuda:1 cuda:1 cuda:1 False", "cuda:0", "True", "cuda:0 True True",
    ]  # fmt: skip


def test_threads_and_devices_multiply_by_one_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each device has a handle of its own, and threads that share one keep their biases apart; a child has neither."""
    program = """
        rng = np.random.default_rng(0)
        a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((9, 20), (20, 6)))
        f, wrong = weft.jit(lambda a, b, c: a @ b + c), []
        def work(device, number):
            c = np.full(6, number, np.float32)
            there = [weft.device_put(x, device) for x in (a, b, c)]
            for _ in range(20):
                y = f(*there)
                if y.device != device or not np.array_equal(np.asarray(y), a @ b + c): wrong.append((device, number))
        threads = [threading.Thread(target=work, args=(weft.devices()[k % 2], k)) for k in range(6)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        lines = product_library.calls()
        print(wrong, sum("epilogue 4" in line for line in lines if line.startswith("multiply")))
        x = [weft.device_put(y) for y in (a, b, b[0])]
        if os.fork() == 0:
            try: f(*x)
            except Exception as error: os._exit("fork" in str(error))
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
    """
    monkeypatch.setenv("WEFT_CUBLASLT_LIBRARY", str(product_library.path()))
    monkeypatch.setenv("WEFT_PRODUCT_LIBRARY", "on")
    head = HEAD + "from tests.gpu import product_library\n"
    assert run(program, head, devices=2).splitlines() == ["[] 120", "1"]
