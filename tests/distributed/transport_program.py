"""What the transport and multihost_utils give on every rank, compared with NumPy; run by test_transport.py."""

import itertools
import os
import signal
import sys
import threading

import ml_dtypes
import numpy as np

import weft
import weft.numpy as jnp
from weft import runtime
from weft.distributed import joining

joining._PIECE_BYTES = int(sys.argv[1]) if len(sys.argv) > 1 else joining._PIECE_BYTES
weft.distributed.initialize()

from weft.distributed import processes, transport  # noqa: E402 - the job comes first, as in programs of users
from weft.experimental import multihost_utils  # noqa: E402 - likewise

job = transport.current()
assert job is not None
rank, size = job.rank, job.size
everyone = tuple(range(size))
DTYPES = [
    *(np.dtype(name) for name in ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]),
    *(np.dtype(name) for name in ["float16", "float32", "float64", "complex64", "complex128"]),
    np.dtype(ml_dtypes.bfloat16),
]
COUNTS = (0, 1, 5, 3000, 700_001)


def values(of_rank: int, dtype: np.dtype, count: int) -> np.ndarray:
    generator = np.random.default_rng([of_rank, count])
    if dtype.kind == "b":
        return generator.integers(0, 2, count).astype(dtype)
    if dtype.kind in "iu":
        return generator.integers(-100 if dtype.kind == "i" else 0, 100, count).astype(dtype)
    real = generator.standard_normal(count)
    return (real + 1j * generator.standard_normal(count) if dtype.kind == "c" else real).astype(dtype)


def reduced(combine: str, parts: list[np.ndarray]) -> np.ndarray:
    """In the order of ranks; halves in float32, rounded once."""
    dtype = parts[0].dtype
    wide = np.float32 if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype
    total = parts[0].astype(wide)
    for part in parts[1:]:
        if combine == "sum":
            total = total + part.astype(wide)
        else:
            total = (np.maximum if combine == "max" else np.minimum)(total, part.astype(wide))
    return total.astype(dtype)


def same(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert found.tobytes() == expected.tobytes(), (found, expected)


def reductions() -> None:
    for dtype, count, combine in itertools.product(DTYPES, COUNTS, ("sum", "max", "min")):
        if (dtype.kind == "b" and combine == "sum") or (dtype.kind == "c" and combine != "sum"):
            continue
        if count > 10_000 and (combine != "sum" or dtype.itemsize > 4):
            continue
        parts = [values(each, dtype, count) for each in everyone]
        mine, out = parts[rank].copy(), np.empty(count, dtype)
        job.all_reduce(mine, out, combine).wait("all_reduce")
        same(out, reduced(combine, parts))
        job.all_reduce(mine, mine, combine).wait("all_reduce in place")
        same(mine, out)
        if count % size == 0:
            piece = count // size
            part = np.empty(piece, dtype)
            job.reduce_scatter(parts[rank], part, combine).wait("reduce_scatter")
            same(part, out[rank * piece : (rank + 1) * piece])


def unbuilt_reductions() -> None:
    for dtype, combine in ((np.complex64, "max"), (np.bool_, "sum"), (ml_dtypes.float8_e4m3fn, "sum")):
        one = np.zeros(2, dtype)
        try:
            job.all_reduce(one, one, combine)
        except NotImplementedError as error:
            assert str(np.dtype(dtype)) in str(error)
        else:
            raise AssertionError(dtype)


def moves() -> None:
    for count in (0, 1, 7, 400_000):
        parts = [values(each, np.dtype(np.float32), count * size) for each in everyone]
        mine = parts[rank]
        out = np.empty((size, count * size), np.float32)
        job.all_gather(mine, out).wait("all_gather")
        same(out, np.stack(parts))
        exchanged = np.empty(count * size, np.float32)
        job.all_to_all(mine, exchanged).wait("all_to_all")
        same(exchanged, np.concatenate([part[rank * count : (rank + 1) * count] for part in parts]))
        for root in everyone:
            data = mine.copy()
            job.broadcast(data, root).wait("broadcast")
            same(data, parts[root])
        shifted = np.empty_like(mine)
        job.permute(mine, shifted, (rank - 1) % size, [(rank + 1) % size]).wait("permute")
        same(shifted, parts[rank - 1])
        job.permute(mine, shifted, -1 if rank == 0 else 0, everyone[1:] if rank == 0 else []).wait("permute")
        same(shifted, parts[0] if rank > 0 else np.zeros_like(mine))
        job.permute(mine, shifted, rank, [rank]).wait("permute to itself")
        same(shifted, mine)


def groups() -> None:
    """Ranks in another order, and a part of them."""
    backwards = everyone[::-1]
    parts = [values(each, np.dtype(np.float32), 100) for each in everyone]
    out = np.empty((size, 100), np.float32)
    job.all_gather(parts[rank], out, backwards).wait("all_gather")
    same(out, np.stack(parts[::-1]))
    total = np.empty(100, np.float32)
    job.all_reduce(parts[rank], total, "sum", backwards).wait("all_reduce")
    same(total, reduced("sum", parts[::-1]))
    first = everyone[: max(1, size - 1)]
    group = first if rank in first else (rank,)
    job.all_reduce(parts[rank], total, "sum", group).wait("all_reduce")
    same(total, reduced("sum", [parts[each] for each in group]))
    for wrong in ((*everyone, rank), (0, size), (), (size - 1 - rank,) if size == 2 else ((rank + 1) % size,)):
        try:
            job.all_reduce(parts[rank], total, "sum", wrong)
        except ValueError as error:
            assert "[mpi]" in str(error)
        else:
            raise AssertionError(wrong)


def overlapping() -> None:
    """What is sent and what is received lie apart, and pieces are whole elements."""
    data = np.zeros(4 * size, np.uint8)
    for action in (
        lambda: job.permute(data, data, rank, [rank]),
        lambda: job.all_to_all(data, data),
        lambda: job.all_gather(data[:4], data),
        lambda: job.all_reduce(data[: 2 * size], data[1 : 2 * size + 1], "sum"),
        lambda: runtime.mpi_all_reduce("float32", "sum", data[:3], data[3:6], everyone, 0),
        lambda: job.all_gather(data[:3], np.zeros(5, np.uint8)),
    ):
        try:
            action()
        except ValueError as error:
            assert "[mpi]" in str(error)
        else:
            raise AssertionError


def in_flight() -> None:
    """Many at once, under tags of their own, that end in another order."""
    arrays = [values(rank, np.dtype(np.float32), count) for count in (10, 900_000, 1000, 500_000, 1)]
    outs = [np.empty_like(array) for array in arrays]
    requests = [job.all_reduce(*pair, "sum", tag=tag) for tag, pair in enumerate(zip(arrays, outs, strict=True))]
    for request in reversed(requests):
        request.wait("all_reduce")
    for array, out in zip(arrays, outs, strict=True):
        same(out, reduced("sum", [values(each, array.dtype, array.size) for each in everyone]))


def messages() -> None:
    others = [each for each in everyone if each != rank]
    received = {each: np.zeros((3, 5), np.int64) for each in others}
    sent = np.arange(15).reshape(3, 5) + 100 * rank
    requests = [job.irecv(received[each], each, 9) for each in others]
    assert not others or set(others) == {each for request in requests for each in request.awaited()}
    requests += [job.isend(sent, each, 9) for each in others]
    for request in requests:
        request.wait("messages")
        assert request.test() and request.awaited() == ()
    for each in others:
        same(received[each], np.arange(15).reshape(3, 5) + 100 * each)
    for action in (
        lambda: job.isend(sent, size, 0), lambda: job.isend(sent, 0, 2**20), lambda: job.isend(sent.T, 0, 0),
        lambda: job.irecv(b"read only", 0, 0),
    ):  # fmt: skip
        try:
            action()
        except (ValueError, BufferError):
            pass
        else:
            raise AssertionError
    assert job.allgather(b"x" * rank) == [b"x" * each for each in everyone]
    assert job.bcast(b"from %d" % rank, size - 1) == b"from %d" % (size - 1)
    job.barrier("here")


def a_thread_waits_without_the_gil() -> None:
    if rank == 0:
        done = []
        thread = threading.Thread(target=lambda: done.append(job.barrier("two threads")))
        thread.start()
        count = 0
        while not done and count < 1000:  # this thread runs while the other one waits
            count += 1
        request = job.irecv(np.zeros(1), 1, 3)
        waiting = threading.Thread(target=request.wait, args=("two threads",))
        waiting.start()
        while True:  # until the other thread waits
            try:
                assert not request.test()
            except RuntimeError as error:
                assert "another thread waits" in str(error)
                break
        job.isend(np.zeros(1), 1, 4).wait("two threads")
        waiting.join()
        thread.join()
    else:
        job.barrier("two threads")
        if rank == 1:
            job.irecv(np.zeros(1), 0, 4).wait("two threads")
            job.isend(np.zeros(1), 0, 3).wait("two threads")


def facts() -> None:
    assert (weft.process_index(), weft.process_count()) == (rank, size)
    assert weft.process_indices() == list(everyone)
    assert processes.job().local_device_counts == (1,) * size and len(processes.job().hosts) == size
    assert weft.distributed.is_initialized()
    try:
        weft.distributed.initialize()
    except RuntimeError as error:
        assert "called once" in str(error)


def trees() -> None:
    multihost_utils.sync_global_devices("here")
    tree = {"a": np.arange(3.0) + rank, "b": (jnp.int32(rank), [True])}
    gathered = multihost_utils.process_allgather(tree)
    assert gathered["a"].tolist() == [[0.0 + each, 1.0 + each, 2.0 + each] for each in everyone]
    assert gathered["a"].dtype == np.float32 and gathered["b"][0].tolist() == list(everyone)
    tiled = multihost_utils.process_allgather(tree, tiled=True)
    assert tiled["a"].shape == (3 * size,) and tiled["b"][0].shape == (size,)
    assert multihost_utils.process_allgather(np.zeros((0, 2)), tiled=True).shape == (0, 2)
    assert multihost_utils.broadcast_one_to_all(tree)["a"].tolist() == [0, 1, 2]
    last = multihost_utils.broadcast_one_to_all(tree, is_source=rank == size - 1)
    assert last["b"][0] == size - 1 and last["b"][1][0]
    try:
        multihost_utils.broadcast_one_to_all(tree, is_source=True)
    except ValueError as error:
        assert "one process is the source" in str(error)
    multihost_utils.assert_equal({"step": 3, "shape": (2, 4)}, "steps differ")
    try:
        multihost_utils.assert_equal({"step": 3 + (rank == 0)}, "steps differ")
    except AssertionError as error:
        assert "steps differ" in str(error) and str(everyone[1:] if rank == 0 else 0).strip("()").rstrip(",") in str(
            error
        )
    else:
        raise RuntimeError("assert_equal accepts what differs")


def preemption() -> None:
    seen = []
    for step in range(3):
        if step == 1 and rank == size - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        seen.append(multihost_utils.reached_preemption_sync_point(step))
    assert seen == [False, True, True]


CHECKS = [
    reductions,
    unbuilt_reductions,
    moves,
    groups,
    overlapping,
    in_flight,
    messages,
    a_thread_waits_without_the_gil,
    facts,
    trees,
    preemption,
]
for check in CHECKS:
    check()
    job.barrier(f"after {check.__name__}")
if rank == 0:
    print("checked", len(CHECKS))
weft.distributed.shutdown()
assert not weft.distributed.is_initialized() and weft.process_count() == 1
weft.distributed.initialize(num_processes=size, process_id=rank)  # again
assert weft.process_count() == size
