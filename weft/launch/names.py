"""Which of weft's modules stands for which of JAX's, and the modules and names of theirs that are nobody's business.

``jax.a.b`` is ``weft.a.b``, except for the internals of weft whose names JAX does not use, and for the few modules
listed here. ``jax._src`` is JAX's own inside: of it exists what libraries are known to read, each name from the public
module that has it, or from ``weft/launch/private_names.py``.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator

# Parts of weft that are not JAX's.
_INTERNAL = (
    "autodiff", "batching", "codegen", "compiler", "control", "dispatch", "effects", "inspect", "launch", "loops",
    "operations", "pytest_as_jax", "run", "runtime", "tour",
)  # fmt: skip

_ELSEWHERE = {
    "jax": "weft",
    "jax.version": "weft.launch.followed",
    "jaxlib": "weft.launch.jaxlib",
    "jaxlib.version": "weft.launch.followed",
    "jaxlib.xla_client": "weft.launch.jaxlib.xla_client",
    "jaxlib.xla_extension": "weft.launch.jaxlib.xla_client",
    "jaxlib._jax": "weft.launch.jaxlib.xla_client",
}

# Modules of jax._src -> the modules of weft in which their names are looked for, after the private names.
PRIVATE: dict[str, str] = {
    "ad_checkpoint": "ad_checkpoint weft",
    "ad_util": "interpreters.ad lax extend.core.primitives",
    "api": "weft",
    "api_util": "api_util",
    "array": "weft",
    "basearray": "weft",
    "checkify": "experimental.checkify",
    "cloud_tpu_init": "",
    "compiler": "",
    "config": "config",
    "core": "core extend.core extend.core.primitives",
    "custom_api_util": "",
    "custom_batching": "custom_batching",
    "custom_derivatives": "custom_derivatives extend.core.primitives weft",
    "custom_transpose": "custom_derivatives",
    "debugging": "debug",
    "deprecations": "",
    "dispatch": "",
    "distributed": "distributed",
    "dtypes": "dtypes weft",
    "effects": "core extend.core",
    "errors": "errors",
    "flatten_util": "flatten_util",
    "interpreters": "",
    "interpreters.ad": "interpreters.ad",
    "interpreters.batching": "interpreters.batching",
    "interpreters.mlir": "interpreters.mlir",
    "interpreters.partial_eval": "interpreters.partial_eval",
    "interpreters.pxla": "interpreters.pxla",
    "interpreters.xla": "interpreters.xla",
    "lax": "lax",
    "lax.control_flow": "lax",
    "lax.control_flow.conditionals": "lax",
    "lax.control_flow.loops": "lax",
    "lax.control_flow.solves": "lax",
    "lax.convolution": "lax",
    "lax.lax": "lax",
    "lax.linalg": "lax.linalg",
    "lax.parallel": "lax",
    "lax.slicing": "lax",
    "lax.special": "lax",
    "lax.utils": "",
    "lax.windowed_reductions": "lax",
    "lib": "",
    "linear_util": "extend.linear_util",
    "literals": "",
    "mesh": "sharding",
    "monitoring": "monitoring",
    "named_sharding": "sharding",
    "nn": "nn",
    "nn.functions": "nn",
    "nn.initializers": "nn.initializers",
    "numpy": "numpy",
    "numpy.einsum": "numpy",
    "numpy.fft": "numpy.fft",
    "numpy.indexing": "numpy",
    "numpy.lax_numpy": "numpy",
    "numpy.linalg": "numpy.linalg",
    "numpy.reductions": "numpy",
    "numpy.scalar_types": "numpy",
    "numpy.ufuncs": "numpy",
    "numpy.util": "numpy",
    "ops": "ops",
    "ops.scatter": "ops",
    "partition_spec": "sharding",
    "pjit": "weft extend.core.primitives",
    "prng": "random extend.random weft",
    "public_test_util": "test_util",
    "random": "random",
    "random.core": "random",
    "random.prng": "random extend.random weft",
    "random.threefry2x32": "extend.random",
    "scipy": "scipy",
    "scipy.linalg": "scipy.linalg",
    "scipy.optimize": "scipy.optimize",
    "scipy.sparse": "scipy.sparse",
    "scipy.sparse.linalg": "scipy.sparse.linalg",
    "scipy.special": "scipy.special",
    "sharding": "sharding",
    "sharding_impls": "sharding",
    "source_info_util": "extend.source_info_util",
    "stages": "stages",
    "state": "ref",
    "state.types": "",
    "test_util": "test_util",
    "traceback_util": "",
    "tree": "tree",
    "tree_util": "tree_util",
    "typing": "typing weft",
    "util": "",
    "xla_bridge": "extend.backend weft",
}  # fmt: skip


def is_jax(name: str) -> bool:
    """Whether a module's name is JAX's or jaxlib's."""
    return name.partition(".")[0] in ("jax", "jaxlib")


def is_public(name: str) -> bool:
    """Whether a module of weft is one of JAX's too."""
    first, _, rest = name.partition(".")
    return first == "weft" and not rest.startswith("_") and rest.partition(".")[0] not in _INTERNAL


def counterpart(name: str) -> str | None:
    """The module of weft that the JAX module ``name`` is; None where weft has none. ``jax._src`` is apart."""
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    if not name.startswith("jax."):
        return None
    rest = name.removeprefix("jax.")
    if rest.startswith("_") or rest.partition(".")[0] in _INTERNAL:
        return None
    try:
        found = importlib.util.find_spec(f"weft.{rest}")
    except ModuleNotFoundError:  # a parent is no package
        return None
    return f"weft.{rest}" if found is not None else None


def private_sources(name: str) -> Iterator[object]:
    """The modules of weft that have names of ``jax._src.<name>``, loaded one after another."""
    for source in PRIVATE[name].split():
        try:
            yield importlib.import_module("weft" if source == "weft" else f"weft.{source}")
        except ModuleNotFoundError:
            continue


def is_private(name: str) -> bool:
    """Whether ``jax._src.<name>`` exists."""
    return name in PRIVATE
