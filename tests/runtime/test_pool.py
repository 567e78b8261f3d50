"""The pool: the number of threads never changes a result, and neither fork, exit nor many callers hang it."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from tests.runtime import machine_code
from weft import runtime

array = machine_code.array


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    before = runtime.Pool.get_threads()
    yield
    runtime.Pool.set_threads(before)


def run_big(size: int = 300_000) -> np.ndarray:
    executable = machine_code.unary_executable(machine_code.unary_kernel("fadd", "1.0"), size, 1e6)
    (result,) = executable.run([array(np.arange(size))])
    return np.asarray(result)


def python(code: str, **environment: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


def test_set_and_get_threads() -> None:
    for count in (1, 2, 7, 1, 3):
        runtime.Pool.set_threads(count)
        assert runtime.Pool.get_threads() == count
        assert np.array_equal(run_big(), np.arange(300_000) + 1)
    for wrong in (0, -1, 100_000):
        with pytest.raises(ValueError, match="threads"):
            runtime.Pool.set_threads(wrong)
    with pytest.raises(TypeError):
        runtime.Pool.set_threads("two")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        runtime.Pool()


GET = "from weft import runtime; print(runtime.Pool.get_threads())"


def test_the_environment_decides() -> None:
    assert python(GET, WEFT_NUM_THREADS="3") == "3"
    assert python(GET, WEFT_NUM_THREADS="1") == "1"


def test_affinity_is_honoured() -> None:
    assert python("import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); " + GET) == "1"


GROUPS = {
    "no limit": ("0::/\n", {"cpu.max": "max 100000", "memory.max": "max"}, (0, 0)),
    "a quota": ("0::/\n", {"cpu.max": "150000 100000", "memory.max": "1073741824"}, (1.5, 1 << 30)),
    "of a group above": (
        "0::/user/job\n",
        {"user/cpu.max": "200000 100000", "user/job/cpu.max": "max 100000", "user/job/memory.max": "4096"},
        (2, 4096),
    ),
    "the strictest": (
        "0::/user/job\n",
        {"user/cpu.max": "200000 100000", "user/job/cpu.max": "300000 100000", "memory.max": "8192"},
        (2, 8192),
    ),
    "a container's own root": ("0::/docker/abc\n", {"cpu.max": "100000 100000"}, (1, 0)),
    "version 1": (
        "4:cpu,cpuacct:/job\n3:memory:/job\n0::/\n",
        {
            "cpu,cpuacct/job/cpu.cfs_quota_us": "250000",
            "cpu,cpuacct/job/cpu.cfs_period_us": "100000",
            "memory/job/memory.limit_in_bytes": "65536",
        },
        (2.5, 65536),
    ),
    "version 1 without limits": (
        "1:cpu:/\n4:memory:/\n",
        {
            "cpu/cpu.cfs_quota_us": "-1",
            "cpu/cpu.cfs_period_us": "100000",
            "memory/memory.limit_in_bytes": "9223372036854771712",
        },
        (0, 0),
    ),
    "nonsense": ("what\n::\n", {"cpu.max": "x y"}, (0, 0)),
}


@pytest.mark.parametrize("name", GROUPS)
def test_limits_of_control_groups(name: str, tmp_path: pathlib.Path) -> None:
    groups, files, expected = GROUPS[name]
    (tmp_path / "groups").write_text(groups)
    for path, text in files.items():
        (tmp_path / "root" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / path).write_text(text + "\n")
    assert runtime.cgroup_limits(str(tmp_path / "groups"), str(tmp_path / "root")) == expected
    assert runtime.cgroup_limits(str(tmp_path / "none"), str(tmp_path / "root")) == (0, 0)


def test_workers_stay_inside_the_affinity_mask() -> None:
    runtime.Pool.set_threads(max(2, len(os.sched_getaffinity(0))))
    run_big()
    allowed = os.sched_getaffinity(0)
    for task in os.listdir("/proc/self/task"):
        assert os.sched_getaffinity(int(task)) <= allowed


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: no mask can be narrowed")
def test_workers_follow_a_mask_that_changes() -> None:
    run_big()
    others = set(os.listdir("/proc/self/task"))
    runtime.Pool.set_threads(runtime.Pool.get_threads() % 2 + 2)  # a new pool, whose workers are new threads
    run_big()
    workers = set(os.listdir("/proc/self/task")) - others
    whole = os.sched_getaffinity(0)
    try:
        for mask in ({min(whole)}, {max(whole)}, whole):
            os.sched_setaffinity(0, mask)
            time.sleep(0.02)  # longer than a mask is taken to stay
            assert np.array_equal(run_big(), np.arange(300_000) + 1)
            assert workers and all(os.sched_getaffinity(int(worker)) <= mask for worker in workers)
    finally:
        os.sched_setaffinity(0, whole)


def test_many_callers_at_once() -> None:
    runtime.Pool.set_threads(3)
    failures: list[int] = []

    def work() -> None:
        for _ in range(30):
            if not np.array_equal(run_big(), np.arange(300_000) + 1):
                failures.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for count in (1, 4, 2, 3, 5, 2) * 3:
        runtime.Pool.set_threads(count)
        time.sleep(0.005)
    for thread in threads:
        thread.join()
    assert not failures


def test_small_jobs_in_quick_succession() -> None:
    # Late workers meet closed or newer jobs: no chunk may run twice or be lost.
    runtime.Pool.set_threads(4)
    executable = machine_code.unary_executable(machine_code.unary_kernel("fadd", "1.0"), 1024, 50_000.0)
    x = array(np.zeros(1024))
    for _ in range(5000):
        (y,) = executable.run([x])
        assert np.asarray(y)[::64].sum() == 16


FORK = """
import os, sys
sys.path.insert(0, ".")
import numpy as np
from tests.runtime import test_pool
from weft import runtime

def right():
    return np.array_equal(test_pool.run_big(), np.arange(300_000) + 1)

runtime.Pool.set_threads(2)
assert right()
for _ in range(3):
    child = os.fork()
    if child == 0:
        os._exit(0 if all(right() for _ in range(5)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert right()
print("done")
"""


def test_fork() -> None:
    assert python(FORK) == "done"


def test_the_process_exits_with_workers_awake() -> None:
    code = """
import sys
sys.path.insert(0, ".")
import numpy as np
from tests.runtime import test_pool
from weft import runtime
runtime.Pool.set_threads(3)
for _ in range(20):
    test_pool.run_big()
print("done")
"""
    for _ in range(3):
        assert python(code) == "done"
