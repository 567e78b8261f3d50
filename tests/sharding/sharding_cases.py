"""Expressions about meshes and shardings on 8 devices, for weft and for JAX.

``python sharding_cases.py weft FILE meshes-0 ...`` writes to FILE, as JSON, for each expression named by its group and
number: ["value", its text] or ["error", class, text]. A group has names of its own, which ``setup`` gives.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import pickle
import sys
import warnings
from typing import Any

import numpy as np

GROUPS: dict[str, str] = {
    "meshes": """
        d, len(d), d[3].platform, d[3].process_index, d[3].local_hardware_id, d[3].device_kind, d[1] is jax.devices()[1]
        jax.device_count(), jax.local_device_count(), jax.devices('cpu'), jax.process_count()
        jax.local_devices(process_index=1)
        mesh, str(mesh), mesh.shape, mesh.size, mesh.device_ids.tolist(), mesh.axis_names, mesh.axis_types, mesh.empty
        mesh.abstract_mesh, mesh.abstract_mesh.size, mesh.abstract_mesh == amesh.abstract_mesh
        amesh, str(amesh), amesh.are_all_axes_explicit, amesh.explicit_axes, amesh.auto_axes, amesh.manual_axes
        mesh.local_mesh == mesh, mesh.is_multi_process, mesh.local_devices == d, hash(mesh) == hash(mesh.update())
        mesh.update(axis_types=(AxisType.Explicit, AxisType.Auto)), mesh.update(axis_names=('a', 'b'))
        AbstractMesh((4, 2), ('x', 'y')), AbstractMesh((4,), ('x',), (AxisType.Manual,)).update(axis_sizes=(2,))
        AbstractMesh((4,), ('x',)).devices
        AbstractMesh((4,), ('x',)).update_axis_types({'x': AxisType.Explicit})
        jax.make_mesh((4, 3), ('x', 'y'))
        jax.make_mesh((2, 2), ('x', 'y')).devices, jax.make_mesh((4,), ('x',), devices=d[4:]).device_ids
        jax.make_mesh(4, 'x')
        Mesh(np.array(d), ('x', 'y'))
        Mesh(np.array(d), ('x',), axis_types='a')
        Mesh(np.array(d), ('x',), axis_types=(AxisType.Auto,) * 2)
        Mesh(d, 'x'), Mesh(np.array([d[0], d[0]]), ('x',))
        Mesh(np.array(d), (None,))
        P('x') == ('x',), P('x') + ('y',), P('x') + P('y'), ('y',) + P('x'), P('x') == P('x', None), set(P('x'))
        P(('x',)), P(()), P(['x', 'y']), P(None), P(), P('x', None, ('y', 'z')), P(P.UNCONSTRAINED)
        P('x', unreduced={'y'}), P('x', reduced={'y'}), P('x', unreduced={'z'}, reduced={'y'})
        P('x', unreduced={'x'})
        P('x', unreduced='x')
        P('x', unreduced={'y'}, reduced={'y'})
        P('x').index('x'), P('x', 'y').count('x'), P('x').update(partitions=('y',)), len(P('x', 'y')), P('x', 'y')[1]
        tuple(P('x', unreduced={'y'}))
        pickle.loads(pickle.dumps(P('x', ('y',)))) == P('x', 'y'), hash(P('x')) == hash(P('x'))
        mesh_utils.create_device_mesh((4, 2)).tolist(), mesh_utils.create_device_mesh((2,), d[:2]).tolist()
        mesh_utils.create_device_mesh((3,))
        mesh_utils.create_hybrid_device_mesh((8,), (1,), process_is_granule=True).tolist()
        mesh_utils.create_hybrid_device_mesh((8,), (1,))
        jax.config.update('jax_num_cpu_devices', 4)
        get_mesh(), get_abstract_mesh()
        use(lambda: (get_mesh(), get_abstract_mesh().explicit_axes, jax.device_put(x, P('x')).sharding), amesh)
        use(lambda: jax.jit(lambda v: get_abstract_mesh().shape_tuple[0][1] * v)(1), amesh)
        set_mesh(3)
        use_abstract_mesh(3)
        """,
    "shardings": """
        S(mesh, P('x')), S(mesh, P('x')).memory_kind, S(mesh, P('x')) == S(mesh, P('x')), S(mesh, P('x')).num_devices
        hash(S(mesh, P('x'))) == hash(S(mesh, P('x'))), S(mesh, P('x')) == S(mesh, P('x', None))
        S(mesh, P('x')).shard_shape((8, 4)), S(mesh, P(('x', 'y'), None)).shard_shape((8, 4))
        S(mesh, P('x')).shard_shape((7, 4))
        S(mesh, P('x')).shard_shape(())
        S(mesh, P('x')).devices_indices_map((8, 4))
        S(mesh, P(('x', 'y'))).devices_indices_map((8, 4))
        S(mesh, P(('y', 'x'))).devices_indices_map((8, 4))
        S(mesh, P(None, 'y')).addressable_devices_indices_map((8, 4))
        S(mesh, P('x')).is_equivalent_to(S(mesh, P('x', None)), 2), S(mesh, P('x')).is_equivalent_to(S(mesh, P('y')), 2)
        S(mesh, P('x')).is_equivalent_to(S(mesh, P('x', 'y')), 2), S(mesh, P()).is_equivalent_to(one, 2)
        S(mesh, P('z'))
        S(mesh, 'x')
        S(mesh, P('x')).update(spec=('y',)), S(mesh, P('x')).with_memory_kind('pinned_host')
        S(mesh, P('x')).replicated_axes, S(mesh, P('x')).is_fully_replicated, S(mesh, P()).is_fully_replicated
        S(mesh, P('x')).is_fully_addressable, S(mesh, P('x')).device_set == set(d), S(mesh, P('x')).mesh is mesh
        S(mesh, P('x', unreduced={'y'}))
        S(amesh, P('x', unreduced={'y'})), S(amesh, P('x', unreduced={'y'})).is_fully_replicated
        S(amesh, P(P.UNCONSTRAINED))
        one, one.is_fully_replicated, one.num_devices, one.shard_shape((3,)), one == SingleDeviceSharding(d[0])
        S(AbstractMesh((4,), ('x',)), P('x')), S(AbstractMesh((4,), ('x',)), P('x')).shard_shape((8,))
        S(AbstractMesh((4,), ('x',)), P('x')).device_set
        """,
    "arrays": """
        x.sharding, x.committed, x.devices(), x.device, y3.sharding, y3.committed, y3.device
        xs.sharding, xs.device, xs.committed, xs.is_fully_addressable, xs.is_fully_replicated, len(xs.devices())
        xs.addressable_shards[1], xs.addressable_shards[3].data.sharding, xs.addressable_shards[3].data.committed
        [(s.replica_id, s.index, s.device.id) for s in jax.device_put(x, S(mesh, P('x'))).addressable_shards]
        [np.asarray(s.data).tolist() for s in xs.addressable_shards], xs.global_shards[0].data.shape
        [np.asarray(s.data).tolist() for s in jax.device_put(x, S(mesh, P(None, ('y',)))).addressable_shards]
        xs.addressable_data(3), xs.addressable_data(-1)
        xs.addressable_data(8)
        jax.device_put(x, S(mesh, P(None, None, 'x')))
        jax.device_put(jnp.ones(7), S(mesh, P('x')))
        jax.device_put(np.ones(7), S(mesh, P('x')))
        jax.device_put(jnp.ones((0, 4)), S(mesh, P('x'))).addressable_shards[0].data.shape
        jax.device_put(1.0, S(mesh, P('x')))
        jax.device_put(1.0, S(mesh, P())).sharding
        jax.device_put(x, S(mesh, P('x')).with_memory_kind('foo'))
        jax.device_put({'a': x, 'b': x}, {'a': S(mesh, P('x')), 'b': d[2]})['a'].sharding
        jax.device_put([x, x], [S(mesh, P('x')), d[2]])[1].sharding, jax.device_put((x, x), S(mesh, P('y')))[1].sharding
        jax.device_put({'a': x}, {'b': d[2]})
        jax.device_put(x, P('x'))
        jax.device_put(x, 'cpu')
        jax.device_put(x, d[2]).sharding, jax.device_put(y3).sharding, jax.device_put(xs, d[0]).sharding
        jax.device_put(xs).sharding, jax.device_put(x, SingleDeviceSharding(d[4])).sharding, x.to_device(d[2]).sharding
        xs + y3
        y3 + jax.device_put(x, d[2])
        (y3 + 1).sharding, (y3 + 1).committed, (y3 * x).devices(), jnp.sin(y3).device, (2 * x).committed
        (xs + x).sharding, (xs @ xs.T).sharding, xs.sum().sharding
        xs.sum(0).sharding, xs.sum(1).sharding
        xs[0].sharding, xs.T.sharding, xs.reshape(32).sharding, xs.reshape(4, 8).sharding, jnp.exp(xs).sharding
        jnp.zeros_like(xs).sharding, jnp.ones_like(xs).sharding
        jnp.zeros_like(y3).sharding, jnp.zeros_like(x).committed
        jnp.asarray(x, device=d[3]).sharding
        jnp.zeros(8, device=d[3]).sharding, jnp.array([1, 2], device=d[3]).sharding
        jnp.zeros(8, device=S(mesh, P('x'))).sharding, jnp.arange(8, device=S(mesh, P('x'))).sharding
        jnp.ones(7, device=S(mesh, P('x')))
        jnp.zeros(8, device=d[3], out_sharding=S(mesh, P()))
        jnp.zeros(8, out_sharding=P('x'))
        jnp.zeros(8, out_sharding=S(mesh, P('x')))
        jax.make_array_from_callback((8, 4), S(mesh, P('x')), lambda i: N[i]).sharding
        np.asarray(jax.make_array_from_callback((8, 4), S(mesh, P('x', 'y')), lambda i: N[i])).tolist()
        jax.make_array_from_callback((8, 4), S(mesh, P('x')), lambda i: N)
        jax.make_array_from_callback((8, 4), S(mesh, P('x')), lambda i: N[i], dtype=jnp.bfloat16).dtype
        jax.make_array_from_single_device_arrays((8, 4), S(mesh, P('x')), [x])
        jax.make_array_from_single_device_arrays((8, 4), S(mesh, P('x')), [x[:2]] * 8)
        jax.make_array_from_single_device_arrays((8, 4), xs.sharding, [s.data for s in xs.addressable_shards]).tolist()
        jax.make_array_from_process_local_data(S(mesh, P('x')), np.ones((8, 4))).sharding
        jax.make_array_from_process_local_data(S(mesh, P('x')), np.ones((8, 4)), (16, 4))
        default(lambda: (jnp.ones(3).device, jnp.arange(3).device, jax.jit(lambda a: a + 1)(1.0).device), d[5])
        default(lambda: (jnp.ones(3).committed, (jnp.ones(3) + x[0, :3]).device, (y3 + 1).device), d[5])
        (xs == x).all(), np.asarray(xs).tolist() == np.asarray(x).tolist(), float(xs.sum())
        jax.random.key(0).sharding, jax.device_put(jax.random.split(jax.random.key(0), 8), S(mesh, P('x'))).sharding
        pickle.loads(pickle.dumps(y3)).sharding, pickle.loads(pickle.dumps(y3)).tolist() == y3.tolist()
        text(lambda: jax.debug.visualize_array_sharding(xs, use_color=False))
        text(lambda: jax.debug.visualize_array_sharding(xs.sum(0), use_color=False))
        text(lambda: jax.debug.visualize_sharding((8, 4), S(mesh, P('x')), use_color=False, scale=0.5))
        text(lambda: jax.debug.inspect_array_sharding(xs, callback=print))
        """,
    "programs": """
        jax.jit(lambda a, b: a + b)(xs, y3)
        jax.jit(lambda a, b: a + b)(xs, jax.device_put(x, S(half, P('x'))))
        jax.jit(lambda a, b: a + b)(xs, jax.device_put(x, S(other, P('x')))).tolist() == (2 * x).tolist()
        jax.jit(lambda a: (a, a.sum(), 1.0, jnp.zeros(3)))(xs)[2].sharding
        [o.sharding for o in jax.jit(lambda a: (a * 2, a.sum(0), a.T, a @ a.T, jnp.zeros(3)))(xs)]
        jax.jit(lambda a: jnp.zeros(3), out_shardings=S(mesh, P()))(x).sharding
        jax.jit(lambda a: a, in_shardings=S(mesh, P('x')))(x).sharding
        jax.jit(lambda a: a * 2, in_shardings=S(mesh, P('x')))(x).sharding
        jax.jit(lambda a: a * 2, in_shardings=S(mesh, P('x')))(xs)
        jax.jit(lambda a: a * 2, in_shardings=S(mesh, P('x')))(y3)
        jax.jit(lambda a: a * 2, in_shardings=d[0])(x)
        jax.jit(lambda a: a * 2, in_shardings=P('x'))(x)
        jax.jit(lambda a: a * 2, out_shardings=P('x'))(x)
        jax.jit(lambda a: a * 2, in_shardings=(S(mesh, P('x')), S(mesh, P('x'))))(x)
        jax.jit(lambda a: a * 2, out_shardings=(S(mesh, P('x')), S(mesh, P('x'))))(x)
        jax.jit(lambda a: a * 2, out_shardings=S(mesh, P('x')))(jnp.ones(7))
        jax.jit(lambda a: a * 2, in_shardings=S(mesh, P('x')))(jnp.ones(7))
        jax.jit(lambda a: a * 2, in_shardings=S(mesh, P('x')))(1.0)
        jax.jit(lambda a: a * 2, in_shardings='foo')(x)
        jax.jit(lambda a: a * 2, in_shardings=S(mesh, P('x')))(a=x)
        jax.jit(lambda a: {'b': a * 2, 'c': a}, out_shardings={'b': S(mesh, P('x')), 'c': None})(x)['b'].sharding
        jax.jit(lambda a, b: a * b, in_shardings=(S(mesh, P('x')), None))(x, x).sharding
        jax.jit(lambda a, b: a * b, in_shardings=(S(mesh, P('x')), None))(x, jax.device_put(x, S(mesh, P(None, 'y'))))
        jax.jit(lambda a, n: a * n, static_argnums=1, in_shardings=(S(mesh, P('x')),))(x, 3).sharding
        jax.jit(lambda a: a * 2, out_shardings=one)(x).sharding, jax.jit(lambda a: a, out_shardings=one)(x).committed
        jax.jit(lambda a: a * 2, device=d[3])(x).sharding, jax.jit(lambda a: a * 2, device=d[3])(xs).sharding
        jax.jit(lambda a: a * 2, device=d[3], in_shardings=S(mesh, P()))
        use(lambda: jax.jit(lambda a: a * 2, in_shardings=P('x'), out_shardings=P('y'))(x).sharding, mesh)
        lax.with_sharding_constraint(x, S(mesh, P('x'))).sharding
        lax.with_sharding_constraint(x, P('x'))
        lax.with_sharding_constraint(y3, S(mesh, P('x')))
        jax.jit(lambda a: lax.with_sharding_constraint(a, S(mesh, P('x'))))(x).sharding
        jax.jit(lambda a: lax.with_sharding_constraint(a * 2, S(mesh, P(None, 'y'))).sum(0))(x).sharding
        jax.jit(lambda a: lax.with_sharding_constraint(a, S(mesh, P('x'))))(y3)
        lax.with_sharding_constraint(jnp.ones(7), S(mesh, P('x')))
        lax.with_sharding_constraint(x, 3)
        lax.with_sharding_constraint({'a': x}, {'b': S(mesh, P('x'))})
        lax.with_sharding_constraint({'a': x, 'b': x}, S(mesh, P('x')))['b'].sharding
        jax.vmap(lambda v: lax.with_sharding_constraint(v, S(mesh, P('y'))))(x).tolist() == x.tolist()
        jax.grad(lambda v: lax.with_sharding_constraint(v * v, S(mesh, P('x'))).sum())(x).tolist() == (2 * x).tolist()
        jax.grad(lambda v: (v * v).sum())(xs).sharding, jax.jit(jax.grad(lambda v: (v @ v.T).sum()))(xs).sharding
        jax.vmap(lambda v: v * 2)(xs).sharding, jax.jvp(jnp.sin, (xs,), (xs,))[1].sharding
        lax.scan(lambda c, v: (c + v, c), jnp.zeros(4), xs)[1].shape
        jax.ShapeDtypeStruct((8, 4), jnp.float32, sharding=S(mesh, P('x')))
        jax.ShapeDtypeStruct((8, 4), jnp.float32, sharding=P('x'))
        jax.eval_shape(lambda a: a * 2, xs).sharding, jax.jit(lambda a: a * 2).eval_shape(xs).sharding
        jax.jit(lambda a: a * 2).lower(xs).compile().input_shardings
        jax.jit(lambda a: (a * 2, a.sum(0))).lower(xs).compile().output_shardings
        jax.jit(lambda a: a * 2).lower(SDS).compile()(xs)
        jax.jit(lambda a: a * 2).lower(SDS).compile()(x).sharding
        jax.jit(lambda a: a * 2).lower(y3).compile()(x).sharding
        jax.jit(lambda a: a * 2).lower(x).compile()(x).sharding
        jax.jit(lambda a: a * 2, donate_argnums=0)(jax.device_put(x, S(mesh, P('x')))).sharding
        jax.jit(lambda a: jax.device_put(a, S(mesh, P('x'))) * 1)(xs).tolist() == x.tolist()
        text(lambda: jax.jit(lambda a: jax.debug.inspect_array_sharding(a.T, callback=print))(xs))
        jax.checkpoint(lambda a: jnp.sin(a))(xs).sharding
        """,
    "explicit": """
        ty(x), ty(x).sharding.spec, x.sharding, ty(r), ty(r).sharding.spec, r.sharding, ty(jnp.arange(3)).sharding.spec
        ty(x + 1), (x + 1).sharding, ty(x + r), ty(2 * x), ty(-x), ty(x ** 2), ty(x.astype(jnp.int32))
        x + c
        ty(a @ b), (a @ b).sharding, ty(jnp.einsum('ij,jk->ik', a, b)), ty(jnp.matmul(a, k))
        jnp.dot(k.T, k)
        jnp.einsum('ij,kj->ik', x, x)
        ty(jnp.dot(k.T, k, out_sharding=P('x', None))), ty(jnp.einsum('ij,kj->ik', x, x, out_sharding=P('x', None)))
        jnp.vdot(a, a)
        ty(x.sum()), x.sum().sharding, ty(x.sum(0)), ty(x.sum(1)), x.sum(1).sharding, ty(jnp.mean(x, 0)), ty(x.var(0))
        ty(jnp.max(x, 1)), ty(jnp.argmax(x, 0))
        ty(x.T), ty(jnp.swapaxes(x, 0, 1)), ty(jnp.expand_dims(x, 1)), ty(jnp.squeeze(x[None], 0))
        ty(x.reshape(32)), ty(x.reshape(8, 2, 2)), ty(x.reshape(4, 2, 4)), ty(a.reshape(128))
        x.reshape(2, 4, 4)
        ty(lax.reshape(x, (32,), out_sharding=P('x'))), ty(jnp.reshape(x, (32,), out_sharding=P('x')))
        x[0]
        x[:3]
        x[:, 0]
        ty(a[:, 3])
        ty(jnp.concatenate([x, x])), ty(jnp.stack([x, x])), ty(jnp.broadcast_to(x, (3, 8, 4))), ty(jnp.split(x, 2)[0])
        jnp.concatenate([x, c])
        ty(jnp.exp(x)), ty(jnp.where(x > 0, x, 0)), ty(jax.nn.softmax(x)), ty(jax.nn.relu(x))
        jnp.cumsum(x, 0)
        jnp.sort(x)
        x[jnp.array([0, 1])]
        x.at[0].set(1.0)
        ty(x.at[jnp.array([0, 1])].get(out_sharding=P(None, 'y')))
        ty(jnp.zeros((8, 4), out_sharding=P('x', None))), jnp.zeros((8, 4), out_sharding=P('x', None)).sharding
        ty(jnp.zeros((8, 4))), ty(jnp.eye(8)), ty(jnp.arange(8, out_sharding=P('x'))), ty(lax.iota(jnp.int32, 8))
        jnp.zeros((8, 4), out_sharding=S(mesh, P('x')))
        jnp.zeros((8, 4), out_sharding='x')
        ty(jax.random.normal(jax.random.key(0), (8, 4), out_sharding=P('x')))
        ty(reshard(x, P('y', None))), reshard(x, P('y')).sharding, ty(reshard(x, P()))
        reshard(x, S(mesh, P('y')))
        reshard(x, None)
        ty(jax.jit(lambda v: v * 2)(x)), jax.jit(lambda v: v * 2)(x).sharding
        jax.jit(lambda v: jnp.zeros((3,)))(x).sharding
        jax.make_jaxpr(lambda a, b: jnp.sin(a) @ b)(a, b)
        jax.make_jaxpr(lambda v: reshard(v, P('y', None)))(x)
        jax.jit(lambda a, b: a @ b)(jnp.swapaxes(k, 0, 1), k)
        ty(jax.grad(lambda v: jnp.sum(v @ b))(a)), jax.grad(lambda v: jnp.sum(jnp.sin(v @ b)))(a).sharding
        ty(jax.grad(lambda v: jnp.sum(v))(x)), jax.grad(lambda v: jnp.sum(v))(x).sharding
        ty(jax.jit(jax.grad(lambda v: jnp.sum(v * v)))(x)), ty(jax.jit(jax.grad(lambda v: jnp.sum(v @ b)))(a))
        gradient(a, b).tolist() == gradient(A, B).tolist()
        jax.eval_shape(lambda v: v * 2, x)
        lax.with_sharding_constraint(x, P('x', 'y')).sharding
        lax.with_sharding_constraint(x, P('y'))
        ty(jax.vmap(lambda v: v * 2)(x)), ty(jax.vmap(lambda v: v.sum())(x))
        ty(lax.scan(lambda s, v: (s + v, s * 2), jnp.zeros(4, out_sharding=P('y')), r)[1])
        lax.scan(lambda s, v: (s + v, s), jnp.zeros(4), reshard(x, P(None, 'y')))
        ty(jax.jit(lambda v: lax.cond(v.sum() > 0, lambda u: u * 2, lambda u: u, v))(x))
        ty(lax.while_loop(lambda s: s.sum() < 1e4, lambda s: s * 2, x))
        ty(jax.jit(jax.grad(lambda v: lax.scan(lambda s, w: (jnp.sin(s * w), None), v, W)[0].sum()))(x))
        ty(jax.jvp(jax.grad(lambda v: (v ** 3).sum()), (x,), (x,))[1]), ty(jax.grad(lambda v: jnp.sum(once(v)))(x))
        [ty(g) for g in jax.jit(jax.grad(lambda u, v: ((v @ u[0]) @ u[1]).mean()))([r, r.T], a[:, :8])]
        ty(jax.jit(lambda v: reshard(v, P('x')))(jnp.ones(8))), jax.jit(lambda v: reshard(v, P('y')))(r).sharding
        ty(jax.jit(jax.grad(lambda v: jax.nn.log_softmax(v).sum()))(reshard(x, P('x', None)))), ty(x + N)
        ty(jax.shard_map(lambda v: v * 2, out_specs=P('x', 'y'))(x))
        ty(auto_axes(lambda v: v.T @ v, out_sharding=P(None, 'y'))(x)), ty(jax.jit(auto(lambda v: v.T @ v))(x))
        auto_axes(lambda v: v.T @ v)(x)
        auto_axes(lambda v: v.T @ v, axes='z', out_sharding=P())(x)
        ty(jnp.tile(r, (2, 1))), ty(jnp.repeat(r, 2, 0)), ty(jnp.pad(x, ((4, 4), (0, 0))))
        jnp.flip(x, 0), jnp.roll(x, 1, 0)
        use(lambda: explicit_axes(lambda v: ty(v * 2), in_sharding=P('x'))(r), mesh)
        """,
}


def cases(group: str) -> list[str]:
    """The expressions of a group."""
    return [line.strip() for line in GROUPS[group].strip().splitlines()]


def setup(library: str, group: str) -> dict[str, Any]:
    """The names that expressions of a group use."""
    jax = importlib.import_module(library)
    jnp, lax = importlib.import_module(f"{library}.numpy"), importlib.import_module(f"{library}.lax")
    names: dict[str, Any] = dict(vars(importlib.import_module(f"{library}.sharding")))
    mesh_utils = importlib.import_module(f"{library}.experimental.mesh_utils")
    P, S, Mesh, d = names["PartitionSpec"], names["NamedSharding"], names["Mesh"], jax.devices()
    mesh = Mesh(np.array(d).reshape(4, 2), ("x", "y"))
    amesh = jax.make_mesh((4, 2), ("x", "y"))
    N = np.arange(32, dtype=np.float32).reshape(8, 4)

    def use(run: Any, chosen: Any) -> Any:
        with jax.set_mesh(chosen):
            return run()

    def default(run: Any, device: Any) -> Any:
        with jax.default_device(device):
            return run()

    names.update(jax=jax, jnp=jnp, lax=lax, mesh_utils=mesh_utils, np=np, pickle=pickle, P=P, S=S, d=d, N=N)
    names.update(mesh=mesh, amesh=amesh, use=use, default=default, text=text, ty=jax.typeof)
    one, x = names["SingleDeviceSharding"](d[0]), jnp.asarray(N)
    half, other = Mesh(np.array(d[:4]).reshape(2, 2), ("x", "y")), Mesh(np.array(d).reshape(2, 4), ("x", "y"))
    names.update(one=one, x=x, half=half, other=other, y3=jax.device_put(x, d[3]))
    names.update(xs=jax.device_put(x, S(mesh, P("x", "y"))))
    names.update(SDS=jax.ShapeDtypeStruct((8, 4), jnp.float32, sharding=S(mesh, P("x"))))
    if group == "explicit":
        jax.set_mesh(amesh)
        A, B = np.sin(np.arange(128, dtype=np.float32)).reshape(8, 16), np.ones((16, 4), np.float32)
        names.update(A=A, B=B, x=jax.device_put(N, P("x", "y")), a=jax.device_put(A, P("x", None)))
        names.update(b=jax.device_put(B, P(None, "y")), c=jax.device_put(N, P("y", "x")))
        names.update(r=jax.device_put(N, P(None, None)), k=jax.device_put(A.reshape(16, 8), P("x", None)))
        names.update(gradient=lambda v, w: jax.grad(lambda u: jnp.sum(jnp.sin(u @ w)))(v))
        names.update(once=jax.checkpoint(jnp.sin), W=jnp.ones((3, 1, 1)))
        names.update(auto=lambda f: names["auto_axes"](f, out_sharding=P(None, "y")))
    return names


def text(run: Any) -> str:
    """What a call prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        run()
    return out.getvalue()


def evaluated(expression: str, names: dict[str, Any]) -> list[str]:
    try:
        return ["value", repr(eval(expression, names))]
    except Exception as error:
        return ["error", type(error).__name__, str(error)[:600]]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    library, path, *wanted = sys.argv[1:]
    found = {}
    for group in GROUPS:
        given = setup(library, group)
        for number, expression in enumerate(cases(group)):
            if f"{group}-{number}" in wanted:
                found[f"{group}-{number}"] = evaluated(expression, given)
    with open(path, "w") as file:
        json.dump(found, file)
