"""Arguments and results of exported functions in programs that call them: how they lie, and on how many devices.

The operation ``exported_value`` compiles to nothing. Its sharding is over an abstract mesh, whose devices are those of
the program around it; their number must be that for which the function was exported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import config
from weft.core import kinds
from weft.core.primitive import ALL, Primitive
from weft.core.programs.jaxpr import Jaxpr, subjaxprs
from weft.core.sharding import explicit
from weft.core.sharding.meshes import Mesh
from weft.core.sharding.partition_specs import UNCONSTRAINED
from weft.core.sharding.shardings import NamedSharding, Sharding
from weft.dispatch.devices import shardings


def _type(x: Any, *, sharding: Any, is_result: bool, **_: Any) -> Any:
    """Arguments inside of the exported function have types without shardings; results have them along explicit axes."""
    return explicit.sharded(explicit.plain(x), sharding if is_result else None)


def _eager(params: dict[str, Any]) -> Any:
    def same(x: Any) -> Any:
        check({(params["name"], params["count"])}, len(x.sharding.device_list) if hasattr(x, "sharding") else 1)
        return x

    return same


def _asked(params: dict[str, Any]) -> Any:
    return shardings.axes_asked(params["sharding"])


exported_value_p = Primitive("exported_value", kind=kinds.Identity(eager=_eager, constraint=_asked))
exported_value_p.def_abstract_eval(_type)
exported_value_p.types_shardings = True
exported_value_p.linear = ALL
exported_value_p.transpose = lambda ct, x, **params: (exported_value_p.bind(ct, **params),)


def _batch(size: int, args: Sequence[Any], dims: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """The mapped dimension may lie anyhow."""
    (x,), (dim,), sharding = args, dims, params["sharding"]
    if sharding is not None:
        entries = list(sharding.spec.padded(dim).partitions)
        entries.insert(dim, UNCONSTRAINED if sharding.mesh.auto_axes else None)
        sharding = sharding.update(spec=sharding.spec.update(entries))
    return exported_value_p.bind(x, **{**params, "sharding": sharding}), dim


exported_value_p.batch = _batch


def exported_value(x: Any, exported: Any, sharding: NamedSharding | None, *, is_result: bool) -> Any:
    """An argument or result of a call of an exported function."""
    params = {"name": exported.fun_name, "count": exported.nr_devices, "is_result": is_result}
    return exported_value_p.bind(x, sharding=sharding, **params)


def counts(jaxpr: Jaxpr) -> frozenset[tuple[str, int]]:
    """(the name, the number of devices) of each exported function that a program calls."""
    return jaxpr.memoize("exported_counts", _find_counts)


def _find_counts(jaxpr: Jaxpr) -> frozenset[tuple[str, int]]:
    params = [eqn.params for eqn in jaxpr.eqns if eqn.primitive is exported_value_p]
    found = frozenset([(each["name"], each["count"]) for each in params])
    return found.union(*map(counts, subjaxprs(jaxpr)))


def check(called: Any, count: int) -> None:
    """ValueError for a function that was exported for another number of devices; one for one device runs anywhere."""
    for name, wanted in called:
        if wanted not in (1, count):
            raise ValueError(
                f"Function {name} was exported for {wanted} devices and is called in a context with {count} devices, "
                "which is not allowed."
            )


def checked(jaxpr: Jaxpr, known: Sequence[Sharding | None]) -> tuple[Any, ...]:
    """The devices on which a program runs, given what is known of its shardings; see ``check``."""
    listed = next((sharding.device_list for sharding in known if sharding is not None), ())
    mesh = config.mesh_state().concrete
    devices = tuple(listed) or (() if mesh is None else mesh.flat_devices)
    check(counts(jaxpr), len(devices) or 1)
    return devices


def on_devices(sharding: Sharding | None, devices: Sequence[Any]) -> Sharding | None:
    """A sharding over an abstract mesh, over a mesh of these devices; None if it has another number of them."""
    if not isinstance(sharding, NamedSharding) or isinstance(sharding.mesh, Mesh):
        return sharding
    if sharding.mesh.size != len(devices):
        return None
    array = np.empty(len(devices), object)
    array[:] = devices
    mesh = Mesh(array.reshape(sharding.mesh.axis_sizes), sharding.mesh.axis_names, sharding.mesh.axis_types)
    return NamedSharding(mesh, sharding.spec)
