"""A program of two processes that goes wrong in the way its first argument says; run by test_failures.py."""

import os
import sys
import threading
import time

import numpy as np

import weft

how = sys.argv[1]
if how == "absent":
    if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")) == "1":
        time.sleep(600)
    weft.distributed.initialize(initialization_timeout=1)
weft.distributed.initialize()

from weft.distributed import transport  # noqa: E402 - the job comes first, as in programs of users
from weft.experimental import multihost_utils  # noqa: E402 - likewise
from weft.sharding import AxisType, NamedSharding, PartitionSpec  # noqa: E402 - likewise

job = transport.current()
assert job is not None
rank = job.rank
if how in ("stuck", "silent"):
    weft.config.update("collective_timeout", 1)
    weft.runtime.mpi_set_limits(0.3, 1.0)


def wait() -> None:
    """What every rank does at the end, and the broken one does not reach."""
    job.barrier("the last barrier")


def fork() -> None:
    child = os.fork()
    if child == 0:
        try:
            job.barrier("in a child")
        except weft.errors.DistributedError as error:
            print("child:", error)
            sys.stdout.flush()
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def differ() -> None:
    job.agree(job.next_number(), 11 + rank, f"jit(step{rank}) of f32[8]", f"train.py:{30 + rank}")


def broken_thread() -> None:
    def take_part() -> None:
        job.barrier("in a thread")
        raise RuntimeError("a thread failed")

    thread = threading.Thread(target=take_part)
    thread.start()
    thread.join()


def in_a_thread() -> None:
    thread = threading.Thread(target=job.barrier, args=("in a thread",))
    thread.start()
    thread.join()


def guarded() -> None:
    """A guard fails on rank 1 before it sends its sum; the error is caught, and the next sum must not be wrong."""
    mesh = weft.make_mesh((2,), ("x",), (AxisType.Auto,))
    cut = NamedSharding(mesh, PartitionSpec("x"))
    values = np.array([9.0, -1.0], np.float32)
    x = weft.make_array_from_callback((2,), cut, lambda index: values[index])
    try:
        print("sum", weft.jit(lambda x: weft.numpy.log(x).sum(), checks="nan")(x))
    except weft.errors.CheckError as error:
        print("caught", error)
    print("sum", x.sum(), flush=True)


job.barrier("all are here")
print("started", rank, flush=True)
if how == "differ":
    differ()
elif how == "guarded":
    guarded()
elif how == "lines":
    if rank == 0:
        multihost_utils.sync_global_devices("first")
    else:
        multihost_utils.sync_global_devices("second")
elif how == "thread":
    (broken_thread if rank == 1 else in_a_thread)()
elif how == "harmless":
    thread = threading.Thread(target=lambda: 1 / (rank - 1))  # which has no part in the job
    thread.start()
    thread.join()
    fork()
elif how == "silent":
    data = np.ones(1_000_000, np.float32)
    if rank == 0:
        job.all_reduce(data, data, "sum").wait("a sum")
    time.sleep(600)
elif how == "caught":
    try:
        differ()
    except weft.errors.DistributedError as error:
        print("caught:", error)
    sys.exit(0)
elif how == "interrupted_rank":
    if rank == 0:
        threading.Timer(0.3, os.kill, (os.getpid(), 2)).start()
    else:
        time.sleep(600)
elif rank == 1:
    if how == "raise":
        raise ValueError("the reason")
    if how == "exit":
        sys.exit(int(sys.argv[2]))
    if how == "_exit":
        os._exit(int(sys.argv[2]))
    if how == "kill":
        os.kill(os.getpid(), int(sys.argv[2]))
    if how == "stuck":
        time.sleep(600)
    if how == "interrupted":
        time.sleep(0.3)
        os.kill(os.getppid(), 2)  # mpirun gets what Ctrl-C sends
wait()
print("ended", rank, flush=True)
