"""The time of a launch on an H100, predicted from what the machine counted of a part of it.

Bounds are taken together, so that two of about the same length add a little: bytes of memory over the rate of a copy,
sectors over the rate of the second-level cache, instructions over the rate of each pipe and of the schedulers, and the
chains of blocks over as many as are resident. The rates are the hardware's, as the programming guide and a copy show
them; none is fitted to a single kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.gpu.ptx_machine import PIPES, Buffer, Counts, Module

MULTIPROCESSORS = 132
CLOCK = 1900.0  # cycles a microsecond, as it runs kernels of this length
MEMORY = 2.98e6  # bytes a microsecond: a copy of 512 MB took 180 us
CACHE = 5.5e6  # bytes a microsecond between the second-level cache and the multiprocessors
CACHE_BYTES = 30 << 20  # what is certainly still in it from the kernel before
ATOMICS = 80e3  # sectors a microsecond
LAUNCH = 3.0  # microseconds
# warps a cycle of a multiprocessor: 128 lanes of fma, 64 of others, 16 of special functions, 32 of loads and shuffles
RATES = {
    "fma": 4.0,
    "alu": 2.0,
    "integer": 2.0,
    "special": 0.5,
    "fp64": 2.0,
    "memory": 1.0,
    "control": 2.0,
    "tensor": 0.63,
}
ISSUE = 4.0 * 0.8  # of the four schedulers some cycles are lost to dependencies and banks of registers
FETCH = 1.1  # warps a cycle, where the code is longer than the cache of instructions
CODE_BYTES = 48 << 10
ROUND_TRIP = 1.1  # microseconds for a block to see what another one has published: three accesses of the cache
EXPONENT = 4  # of the norm by which bounds are taken together


class Prediction(NamedTuple):
    """Microseconds of a launch, and of each of its bounds."""

    time: float
    memory: float
    cache: float
    atomics: float
    pipe: str
    pipes: float
    chains: float


def resident_blocks(threads: int, registers: int, shared: int) -> int:
    """Blocks that a multiprocessor holds at a time."""
    warps = math.ceil(threads / 32)
    each = math.ceil(registers * 32 / 256) * 256 * warps
    return max(1, min(32, 64 // warps, 65536 // max(1, each), 227 * 1024 // (shared + 1024)))


def predict(
    counts: Counts, blocks: int, threads: int, registers: int, shared: int, sectors: float, looks_back: bool
) -> Prediction:
    """From the counts of some blocks the time of ``blocks`` of them, which touch so many sectors of memory."""
    scale = blocks / counts.blocks
    memory, cache = sectors * 32 / MEMORY, counts.sectors * 32 * scale / CACHE
    atomics = counts.atomics * scale / ATOMICS
    cycles = {name: counts.slots[k] / RATES[name] for k, name in enumerate(PIPES)}
    cycles["memory"] += max(0, counts.shared_passes - counts.shared_accesses)
    cycles["issue"] = counts.issued / (ISSUE if counts.code_bytes < CODE_BYTES else FETCH)
    pipe = max(cycles, key=lambda name: cycles[name])
    pipes = cycles[pipe] * scale / MULTIPROCESSORS / CLOCK if blocks >= MULTIPROCESSORS else 0.0
    waves = max(1.0, blocks / (MULTIPROCESSORS * resident_blocks(threads, registers, shared)))
    chains = waves * counts.block_cycles / CLOCK
    bounds = (memory, cache, atomics, pipes, chains)
    time = LAUNCH + sum(bound**EXPONENT for bound in bounds) ** (1 / EXPONENT)
    if looks_back:
        time += waves * ROUND_TRIP
    return Prediction(time, memory, cache, atomics, pipe, pipes, chains)


def measured_part(
    module: Module,
    name: str,
    grid: int,
    threads: int,
    arguments: Sequence[Any],
    registers: int,
    part: int,
    whole: Sequence[Buffer] = (),
) -> Prediction:
    """Runs the first ``part`` blocks of a launch of ``grid`` blocks, and predicts all of it.

    Buffers in ``whole`` have the size of the whole launch, the others that of the part.
    """

    def run(counted: int) -> tuple[Counts, float]:
        counts = module.launch(name, part, threads, *arguments, counted=counted, checks=0)
        scale, sectors = grid / part, 0.0
        for buffer in arguments:
            if isinstance(buffer, Buffer):
                most = buffer.nbytes / 32 if buffer in whole else math.inf
                sectors += sum(min(touched * scale, most) for touched in buffer.touched())
        return counts, sectors

    counts, sectors = run(1)
    if sectors * 32 < CACHE_BYTES:
        counts, _ = run(2)
        sectors = 0.0  # it lies in the second-level cache
    looks_back = "ld.relaxed" in module.text and grid > MULTIPROCESSORS
    return predict(counts, grid, threads, registers, module.entry(name).shared_bytes, sectors, looks_back)
