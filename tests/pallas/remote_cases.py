"""Kernels that send from device to device, on four virtual devices; a program that prints their results.

python -m tests.pallas.remote_cases weft|jax
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import numpy as np

N = 4


def cases(module: Any, interpret: Any) -> dict[str, Any]:
    pl, tpu = [importlib.import_module(f"{module.__name__}.experimental.pallas{name}") for name in ("", ".tpu")]
    lax, jnp = module.lax, module.numpy
    P, NamedSharding = module.sharding.PartitionSpec, module.sharding.NamedSharding
    ring = module.make_mesh((N,), ("x",))
    square = module.make_mesh((2, 2), ("x", "y"))
    whole = pl.BlockSpec(memory_space=pl.ANY)
    dma, ids = tpu.SemaphoreType.DMA, pl.DeviceIdType
    found: dict[str, Any] = {}

    def case(shape: Any, mesh: Any = ring, count: int = 2, grid: Any = (), **options: Any) -> Any:
        def run(kernel: Any) -> None:
            spec = P(mesh.axis_names)
            call = pl.pallas_call(
                kernel, module.ShapeDtypeStruct(shape, "float32"), grid=grid, in_specs=[whole], out_specs=whole,
                scratch_shapes=[dma] * count, interpret=interpret, **options,
            )  # fmt: skip
            x = module.device_put(jnp.arange(2.0 * N), NamedSharding(mesh, spec))
            mapped = module.shard_map(call, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
            found[kernel.__name__] = np.asarray(module.jit(mapped)(x)).tolist()

        return run

    def wait_for_all() -> None:
        barrier = tpu.get_barrier_semaphore()
        for other in range(1, N):
            there = lax.rem(lax.axis_index("x") + other, N)
            pl.semaphore_signal(barrier, inc=1, device_id=(there,), device_id_type=ids.MESH)
        pl.semaphore_wait(barrier, N - 1)

    collective = tpu.CompilerParams(collective_id=0)

    @case((2,))
    def to_the_right(x: Any, o: Any, sent: Any, received: Any) -> None:
        there = lax.rem(lax.axis_index("x") + 1, N)
        copy = tpu.make_async_remote_copy(x, o, sent, received, device_id=(there,), device_id_type=ids.MESH)
        copy.start()
        copy.wait()

    @case((2,))
    def to_the_left_by_name(x: Any, o: Any, sent: Any, received: Any) -> None:
        there = lax.rem(lax.axis_index("x") + N - 1, N)
        copy = tpu.async_remote_copy(x, o, sent, received, device_id={"x": there}, device_id_type=ids.MESH)
        copy.wait_send()
        copy.wait_recv()

    @case((2,))
    def reversed_by_number(x: Any, o: Any, sent: Any, received: Any) -> None:
        there = N - 1 - lax.axis_index("x")
        tpu.async_remote_copy(x, o, sent, received, device_id=there, device_id_type=ids.LOGICAL).wait()

    @case((2,), square)
    def transposed(x: Any, o: Any, sent: Any, received: Any) -> None:
        there = (lax.axis_index("y"), lax.axis_index("x"))
        tpu.async_remote_copy(x, o, sent, received, device_id=there, device_id_type=ids.MESH).wait()

    @case((2,), square)
    def along_one_axis(x: Any, o: Any, sent: Any, received: Any) -> None:
        there = {"y": 1 - lax.axis_index("y")}
        tpu.async_remote_copy(x, o, sent, received, device_id=there, device_id_type=ids.MESH).wait()

    @case((N, 2), count=3, grid=(N - 1,), compiler_params=collective)
    def gathered_around_a_ring(x: Any, o: Any, copied: Any, sent: Any, received: Any) -> None:
        me, step = lax.axis_index("x"), pl.program_id(0)

        @pl.when(step == 0)
        def _() -> None:
            wait_for_all()
            tpu.async_copy(x, o.at[me], copied).wait()

        slot = lax.rem(me - step + N, N)  # it differs between sender and receiver
        copy = tpu.make_async_remote_copy(
            o.at[slot], o.at[slot], sent, received, device_id=(lax.rem(me + 1, N),), device_id_type=ids.MESH
        )
        copy.start()
        copy.wait()

    return found


if __name__ == "__main__":
    library = importlib.import_module(sys.argv[1])
    library.config.update("jax_num_cpu_devices", N)
    tpu_module = importlib.import_module(f"{sys.argv[1]}.experimental.pallas.tpu")
    for words in sys.argv[2:]:
        print(
            json.dumps(cases(library, tpu_module.InterpretParams() if words == "checked" else words == "interpreted"))
        )
