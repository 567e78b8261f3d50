"""Two ranks exchange a random sequence of things; one of them goes wrong at a random step. By test_failures.py."""

import os
import random
import signal
import sys
import time

import numpy as np

import weft

kind, seed = sys.argv[1], int(sys.argv[2])
weft.config.update("collective_timeout", 2)
weft.distributed.initialize()
weft.runtime.mpi_set_limits(0.2, 2.0)

from weft.distributed import transport  # noqa: E402 - the job comes first, as in programs of users
from weft.experimental import multihost_utils  # noqa: E402 - likewise

job = transport.current()
assert job is not None
pick = random.Random(seed)
steps, at, culprit = 20, pick.randrange(20), pick.randrange(job.size)


def total(size: int) -> None:
    job.start_together(f"jit(total) of f32[{size}]", size)
    data = np.ones(size, np.float32)
    job.all_reduce(data, data, "sum").wait(f"psum of f32[{size}]")
    assert (data == job.size).all()


def step(size: int, which: int) -> None:
    if which == 0:
        total(size)
    elif which == 1:
        multihost_utils.process_allgather({"x": np.zeros(size % 7)})
    elif which == 2:
        multihost_utils.sync_global_devices(f"step {size}")
    else:
        job.bcast(b"x" * (size % 1000), size % job.size)


for number in range(steps):
    size, which, other = pick.randrange(1, 300_000), pick.randrange(4), pick.randrange(3)
    if number == at and job.rank == culprit:
        if kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "raised":
            raise ValueError("the reason")
        if kind == "stuck":
            time.sleep(1000)
        if kind == "differ":  # another operation, another size, one more, one less
            if other == 0:
                which = (which + 1) % 4
            elif other == 1:
                size, which = size + 1, 0 if which in (1, 3) else which
                step(size, which)
            else:
                continue
    step(size, which)
multihost_utils.sync_global_devices("the end")
print("all done")
