"""weft.experimental.pallas.tpu: what kernels written for a TPU say that has a meaning on every processor.

Memory spaces are names, scalars are fetched before as on a TPU, copies are done where they are started. Other names of
this module in JAX raise NotImplementedError naming themselves.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft import dtypes
from weft import numpy as jnp
from weft import operations as lax
from weft._base import unbuilt
from weft._base.record import Record
from weft.effects import ref_views, refs
from weft.experimental.pallas import inside, remote, semaphores, spaces
from weft.experimental.pallas.blocks import GridSpec, no_block_spec
from weft.experimental.pallas.einshape import einshape
from weft.experimental.pallas.interpret import (
    InterpretParams,
    force_tpu_interpret_mode,
    reset_tpu_interpret_mode_state,
    set_tpu_interpret_mode,
)
from weft.experimental.pallas.meshes import TensorCoreMesh, create_tensorcore_mesh
from weft.experimental.pallas.numbers import (
    prng_random_bits,
    prng_seed,
    stateful_bernoulli,
    stateful_bits,
    stateful_normal,
    stateful_uniform,
)
from weft.experimental.pallas.pipeline import emit_pipeline
from weft.experimental.pallas.semaphores import get_barrier_semaphore
from weft.experimental.pallas.spaces import SemaphoreType
from weft.experimental.pallas.triton import load, store
from weft.operations import collectives

__all__ = [
    "ARBITRARY",
    "CMEM",
    "CORE_PARALLEL",
    "HBM",
    "PARALLEL",
    "SEMAPHORE",
    "SMEM",
    "SUBCORE_PARALLEL",
    "VMEM",
    "VMEM_SHARED",
    "CompilerParams",
    "GridDimensionSemantics",
    "InterpretParams",
    "MemorySpace",
    "PrefetchScalarGridSpec",
    "SemaphoreType",
    "SideEffectType",
    "TensorCoreMesh",
    "async_copy",
    "async_remote_copy",
    "bitcast",
    "create_tensorcore_mesh",
    "einshape",
    "emit_pipeline",
    "force_tpu_interpret_mode",
    "get_barrier_semaphore",
    "is_tpu_device",
    "load",
    "make_async_copy",
    "make_async_remote_copy",
    "prng_random_bits",
    "prng_seed",
    "reset_tpu_interpret_mode_state",
    "roll",
    "run_on_first_core",
    "set_tpu_interpret_mode",
    "stateful_bernoulli",
    "stateful_bits",
    "stateful_normal",
    "stateful_uniform",
    "store",
    "sync_copy",
    "with_memory_space_constraint",
]  # fmt: skip


class MemorySpace(spaces.Space):
    """The memories of a TPU, by name; called with a shape and a dtype, the type of a scratch buffer."""

    VMEM = "vmem"
    VMEM_SHARED = "vmem_shared"
    SMEM = "smem"
    CMEM = "cmem"
    SEMAPHORE = "semaphore_mem"
    HBM = "hbm"


VMEM, VMEM_SHARED, SMEM, CMEM = MemorySpace.VMEM, MemorySpace.VMEM_SHARED, MemorySpace.SMEM, MemorySpace.CMEM
SEMAPHORE, HBM = MemorySpace.SEMAPHORE, MemorySpace.HBM


class GridDimensionSemantics(enum.Enum):
    """Whether cells along an axis of the grid depend on each other (``ARBITRARY``) or may run at the same time."""

    PARALLEL = "parallel"
    CORE_PARALLEL = "core_parallel"
    SUBCORE_PARALLEL = "subcore_parallel"
    ARBITRARY = "arbitrary"


PARALLEL, ARBITRARY = GridDimensionSemantics.PARALLEL, GridDimensionSemantics.ARBITRARY
CORE_PARALLEL, SUBCORE_PARALLEL = GridDimensionSemantics.CORE_PARALLEL, GridDimensionSemantics.SUBCORE_PARALLEL


class SideEffectType(enum.Enum):
    """What ``has_side_effects`` of CompilerParams may say; kernels of weft tell it by their references."""

    PURE = "pure"
    DATAFLOW_SIDE_EFFECTING = "dataflow_side_effecting"
    SIDE_EFFECTING = "side_effecting"


class CompilerParams(Record):
    """``dimension_semantics`` says which axes of the grid are parallel; what is for a TPU alone changes nothing."""

    dimension_semantics: Sequence[Any] | None = None
    allow_input_fusion: Sequence[bool] | None = None
    vmem_limit_bytes: int | None = None
    collective_id: int | None = None
    has_side_effects: Any = False
    flags: Mapping[str, Any] | None = None
    internal_scratch_in_bytes: int | None = None
    serialization_format: int = 1
    disable_bounds_checks: bool = False
    disable_semaphore_checks: bool = False
    skip_device_barrier: bool = False
    allow_collective_id_without_custom_barrier: bool = False
    shape_invariant_numerics: bool = True
    use_tc_tiling_on_sc: bool | None = None
    needs_layout_passes: bool = True
    fuse_transposed_lhs_in_matmul: bool = False


class PrefetchScalarGridSpec(GridSpec):
    """A grid whose first ``num_scalar_prefetch`` operands are known before: index maps get references to them.

    >>> def kernel(order_ref, x_ref, out_ref):
    ...     out_ref[...] = x_ref[...]
    >>> grid_spec = pallas.tpu.PrefetchScalarGridSpec(
    ...     num_scalar_prefetch=1,
    ...     grid=3,
    ...     in_specs=[pallas.BlockSpec((None,), lambda i, order_ref: (order_ref[i],))],
    ...     out_specs=pallas.BlockSpec((None,), lambda i, order_ref: (i,)),
    ... )
    >>> x = jnp.arange(3.0)
    >>> pallas.pallas_call(kernel, x, grid_spec=grid_spec)(jnp.array([2, 0, 1]), x)
    Array([2., 0., 1.], dtype=float32)
    """

    def __init__(
        self,
        num_scalar_prefetch: int,
        grid: Any = (),
        in_specs: Any = no_block_spec,
        out_specs: Any = no_block_spec,
        scratch_shapes: Any = (),
    ) -> None:
        super().__init__(grid, in_specs, out_specs, scratch_shapes)
        self.num_scalar_prefetch = num_scalar_prefetch


# -- copies -----------------------------------------------------------------------------------------------------------


class _Copy:
    """A copy between references, done when it is started."""

    def __init__(self, source: Any, target: Any, semaphore: Any) -> None:
        self._source, self._target, self._semaphore = source, target, semaphore

    def start(self, priority: int = 0, *, add: bool = False) -> None:
        value = refs.get(self._source)
        if add:
            refs.addupdate(self._target, ..., value)
        else:
            refs.set(self._target, ..., value)
        if self._semaphore is not None:
            semaphores.semaphore_signal(self._semaphore, int(np.prod(self._target.shape)))

    def wait(self) -> None:
        if self._semaphore is not None:
            semaphores.semaphore_wait(self._semaphore, int(np.prod(self._target.shape)))


class _RemoteCopy(_Copy):
    """A copy to another device, done when it is started; every device starts one."""

    def __init__(self, source: Any, target: Any, sent: Any, received: Any, device: Any) -> None:
        super().__init__(source, target, received)
        self._sent, self._device = sent, device

    def start(self, priority: int = 0, *, add: bool = False) -> None:
        arrived = remote.copy(self._source, self._target, self._device, add)
        size = np.int32(np.prod(self._target.shape))
        semaphores.semaphore_signal(self._sent, int(size))
        semaphores.semaphore_signal(self._semaphore, lax.mul(arrived, size))

    def wait_send(self) -> None:
        semaphores.semaphore_wait(self._sent, int(np.prod(self._source.shape)))

    def wait_recv(self) -> None:
        super().wait()

    def wait(self) -> None:
        self.wait_send()
        self.wait_recv()


def make_async_remote_copy(
    src_ref: Any, dst_ref: Any, send_sem: Any, recv_sem: Any, device_id: Any,
    device_id_type: semaphores.DeviceIdType = semaphores.DeviceIdType.MESH,
) -> _RemoteCopy:  # fmt: skip
    """A copy from a reference (or part) of this device to one of another, inside of ``shard_map``.

    ``device_id``: a coordinate for each axis of the mesh, a dictionary of some, or with ``DeviceIdType.LOGICAL`` the
    number of the device. Every device starts the copy, each to a device of its own; it is done at the start.
    """
    device = remote.number_of(device_id, device_id_type is semaphores.DeviceIdType.MESH)
    return _RemoteCopy(src_ref, dst_ref, send_sem, recv_sem, device)


def async_remote_copy(
    src_ref: Any, dst_ref: Any, send_sem: Any, recv_sem: Any, device_id: Any,
    device_id_type: semaphores.DeviceIdType = semaphores.DeviceIdType.MESH,
) -> _RemoteCopy:  # fmt: skip
    """``make_async_remote_copy``, started."""
    copy = make_async_remote_copy(src_ref, dst_ref, send_sem, recv_sem, device_id, device_id_type)
    copy.start()
    return copy


def make_async_copy(src_ref: Any, dst_ref: Any, sem: Any) -> _Copy:
    """A copy from a reference (or part) to another, with ``start()`` and ``wait()``; it is done at the start."""
    return _Copy(src_ref, dst_ref, sem)


def async_copy(src_ref: Any, dst_ref: Any, sem: Any, *, priority: int = 0, add: bool = False) -> _Copy:
    """``make_async_copy``, started."""
    copy = _Copy(src_ref, dst_ref, sem)
    copy.start(priority, add=add)
    return copy


def sync_copy(src_ref: Any, dst_ref: Any, *, add: bool = False) -> None:
    """Copy a reference (or part) to another."""
    _Copy(src_ref, dst_ref, None).start(add=add)


def bitcast(x: Any, ty: Any) -> Any:
    """The bits of an array as elements of dtype ``ty``. Where the widths differ, rows (the last dimension but one) are
    divided or joined; the first row has the lowest bits.

    >>> pallas.tpu.bitcast(jnp.uint8([[1], [2], [0], [0]]), "uint32")
    Array([[513]], dtype=uint32)
    """
    return ref_views.packed(jnp.asarray(x), dtypes.canonicalize_dtype(dtypes.as_dtype(ty)))


def roll(x: Any, shift: Any, axis: int, *, stride: int | None = None, stride_axis: int | None = None) -> Any:
    """The elements along ``axis`` moved by ``shift`` positions, those beyond the end to the front.

    With ``stride`` those at index i along ``stride_axis`` are moved by ``shift + i * stride``. ValueError for numbers
    below zero (``shift`` may be traced), axes that are none, and a stride along the same axis.

    >>> pallas.tpu.roll(jnp.arange(6).reshape(2, 3), 1, 1, stride=1, stride_axis=0)
    Array([[2, 0, 1],
           [4, 5, 3]], dtype=int32)
    """
    x = jnp.asarray(x)
    for name, number in (("axis", axis), ("stride_axis", 0 if stride_axis is None else stride_axis)):
        if not 0 <= number < x.ndim:
            raise ValueError(f"[roll] {name} is out of range: {number}, of an array of {x.ndim} dimensions")
    for name, count in (("shift", shift), ("stride", 0 if stride is None else stride)):
        if isinstance(count, int) and count < 0:
            raise ValueError(f"[roll] {name} must be non-negative, got {count}")
    if (stride is None) != (stride_axis is None):
        raise ValueError(f"[roll] give stride and stride_axis, or none of them; got {stride} and {stride_axis}")
    if stride is None or stride_axis is None:
        return jnp.roll(x, shift, axis)
    if axis == stride_axis:
        raise ValueError(f"[roll] the stride is along another axis than {axis}, along which elements move")
    rows = (1,) * stride_axis, (1,) * (x.ndim - 1 - stride_axis)
    moved = shift + stride * jnp.arange(x.shape[stride_axis], dtype=np.int32).reshape(*rows[0], -1, *rows[1])
    index = jnp.arange(x.shape[axis], dtype=np.int32).reshape(*[-1 if d == axis else 1 for d in range(x.ndim)])
    return jnp.take_along_axis(x, jnp.broadcast_to((index - moved) % x.shape[axis], x.shape), axis)


def with_memory_space_constraint(x: Any, memory_space: Any) -> Any:
    """``x``. Where an array lies is the affair of its device."""
    del memory_space
    return x


def is_tpu_device() -> bool:
    """False: no device of weft's is a TPU."""
    return False


def run_on_first_core(core_axis_name: Any) -> Callable[[Callable[[], None]], None]:
    """A decorator: the function runs at once, on the first core along an axis."""
    count = collectives.axis_size(core_axis_name)
    return inside.when(count == 1 or collectives.axis_index(core_axis_name) == 0)


__getattr__ = unbuilt.fallback(__name__)
