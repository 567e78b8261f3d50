"""The driver for tests behaves as the real one: order, errors, graphs, several devices, memory hidden from the host."""

from __future__ import annotations

import ctypes
import subprocess
import textwrap

import numpy as np
import pytest

from tests.gpu import driver, native_build
from tests.gpu.cuda_calls import Driver, DriverError
from tests.gpu.llvm_ptx import elementwise, ptx

pytestmark = pytest.mark.skipif(
    native_build.compiler() is None, reason="there is no C++ compiler to build the driver with"
)

ADD_ONE = "  %r = fadd float %x0, 1.0\n"
START = "from tests.gpu.test_driver import *\n"


def add_one() -> str:
    return ptx(elementwise("float", ["float"], ADD_ONE))


def opened(device: int = 0) -> Driver:
    return Driver(str(driver.path()), device)


def test_a_kernel_runs_in_stream_order_between_copies() -> None:
    on = opened()
    x = np.arange(1000, dtype=np.float32)
    image = on.link(add_one())
    assert image.startswith(b"\x7fELF")
    function = on.function(image, "k")
    a, b = on.put(x), on.allocate(x.nbytes)
    for _ in range(3):
        assert on.launch(function, 4, 256, a, b, x.size) == 0
        assert on.launch(function, 4, 256, b, a, x.size) == 0
    np.testing.assert_array_equal(on.fetch(a, x.shape, x.dtype), x + 6)


def crashed(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode in (-11, 139)


def test_the_host_cannot_read_device_memory() -> None:
    done = driver.run(START + "on = opened(); a = on.put(np.zeros(9, np.float32)); ctypes.string_at(a.value, 4)")
    assert crashed(done), done.stderr


def test_an_access_out_of_bounds_ends_the_context() -> None:
    program = """
    on = opened()
    function = on.function(on.link(add_one()), "k")
    a, b = on.put(np.zeros(100, np.float32)), on.allocate(400)
    print(on.launch(function, 1, 256, a, b, 101), on.code("cuStreamSynchronize", on.stream))
    print(on.code("cuCtxSynchronize"))
    print(on.code("cuMemAlloc_v2", ctypes.byref(a), ctypes.c_size_t(4)))
    """
    done = driver.run(START + textwrap.dedent(program))
    assert done.stdout.split() == ["0", "700", "700", "700"], done.stderr
    assert "out of bounds: 4 bytes" in done.stderr and "thread (100, 0, 0)" in done.stderr


def test_faults_are_injected() -> None:
    program = """
    on = opened()
    try: on.put(np.zeros(3)); on.put(np.zeros(3))
    except DriverError as error: print(error)
    function = on.function(on.link(add_one()), "k")
    a = on.put(np.zeros(8, np.float32)); b = on.put(np.zeros(8, np.float32))
    print([(on.launch(function, 1, 32, a, b, 8), on.code("cuStreamSynchronize", on.stream)) for _ in range(3)])
    """
    done = driver.run(START + textwrap.dedent(program), fail_allocation=2, fail_launch=2)
    assert "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2)" in done.stdout, done.stderr
    assert "[(0, 0), (0, 719), (719, 719)]" in done.stdout


def test_a_graph_is_replayed_with_other_pointers() -> None:
    on = opened()
    x = np.arange(64, dtype=np.float32)
    function = on.function(add_one().encode(), "k")
    a, b, c = on.put(x), on.put(x), on.put(x)
    on.call("cuStreamBeginCapture_v2", on.stream, 2)
    assert on.launch(function, 1, 64, a, b, 64) == 0
    assert on.launch(function, 1, 64, b, a, 64) == 0
    graph = ctypes.c_void_p()
    on.call("cuStreamEndCapture", on.stream, ctypes.byref(graph))
    count = ctypes.c_size_t()
    on.call("cuGraphGetNodes", graph, None, ctypes.byref(count))
    assert count.value == 2
    nodes = (ctypes.c_void_p * 2)()
    on.call("cuGraphGetNodes", graph, nodes, ctypes.byref(count))
    made = on.handle("cuGraphInstantiateWithFlags", graph, ctypes.c_ulonglong(0))
    for _ in range(2):
        on.call("cuGraphLaunch", made, on.stream)
    np.testing.assert_array_equal(on.fetch(a, 64, np.float32), x + 4)

    class Node(ctypes.Structure):
        _fields_ = [("function", ctypes.c_void_p), ("extents", ctypes.c_uint * 7), ("params", ctypes.c_void_p)]
        _fields_ += [(name, ctypes.c_void_p) for name in ("extra", "kernel", "context")]

    params = on.parameters([b, c, 64])
    node = Node(function, (ctypes.c_uint * 7)(1, 1, 1, 64, 1, 1, 0), ctypes.addressof(params))
    on.call("cuGraphExecKernelNodeSetParams_v2", made, ctypes.c_void_p(nodes[1]), ctypes.byref(node))
    on.call("cuGraphLaunch", made, on.stream)
    np.testing.assert_array_equal(on.fetch(a, 64, np.float32), x + 4)
    np.testing.assert_array_equal(on.fetch(c, 64, np.float32), x + 6)


def test_two_devices_reach_each_other_only_as_peers() -> None:
    program = """
    first, second = opened(0), opened(1)
    x = np.arange(8, dtype=np.float32)
    theirs = second.put(x)
    second.call("cuStreamSynchronize", second.stream)
    first.call("cuCtxSetCurrent", first.context)
    function, mine = first.function(add_one().encode(), "k"), first.allocate(32)
    if ENABLE:
        first.call("cuCtxEnablePeerAccess", second.context, 0)
    print(first.launch(function, 1, 32, theirs, mine, 8), first.code("cuStreamSynchronize", first.stream))
    """
    for enable, codes in ((1, ["0", "0"]), (0, ["0", "700"])):
        done = driver.run(START + f"ENABLE = {enable}\n" + textwrap.dedent(program), devices=2)
        assert done.stdout.split() == codes, done.stderr


def test_a_text_newer_than_the_driver_or_the_device_is_refused() -> None:
    program = """
    on = opened()
    for cpu in ("sm_80", "sm_90", "sm_100"):
        text = ptx(elementwise("float", ["float"], ADD_ONE), cpu)
        try: on.link(text); print("ok")
        except DriverError as error: print(error.code)
    """
    done = driver.run(START + textwrap.dedent(program), capability="9.0", version=12080)
    assert done.stdout.split() == ["ok", "ok", "209"], done.stderr
    done = driver.run(START + textwrap.dedent(program), capability="10.0", version=11040)
    assert done.stdout.split() == ["ok", "222", "222"], done.stderr


def test_a_forked_child_may_not_use_the_driver() -> None:
    program = """
    import os
    on = opened()
    child = os.fork()
    if child == 0:
        os._exit(on.code("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(4)))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert driver.run(
        "import warnings; warnings.simplefilter('ignore')\n" + START + textwrap.dedent(program)
    ).stdout.split() == ["3"]


def test_unknown_handles_are_refused() -> None:
    on = opened()
    with pytest.raises(DriverError, match="INVALID_HANDLE"):
        on.call("cuStreamSynchronize", ctypes.c_void_p(0x1234))
    on.call("cuStreamDestroy_v2", on.stream)
    assert on.code("cuStreamSynchronize", on.stream) == 400
