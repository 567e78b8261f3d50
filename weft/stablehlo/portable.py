"""The portable artifact of StableHLO: bytes that later readers understand, written and read by jaxlib if installed."""

from __future__ import annotations

from typing import Any

from weft._base import lazy


def dialect() -> Any:
    """jaxlib's module of StableHLO, also where weft stands in for JAX; JAX itself is not imported."""
    try:
        return lazy.submodule("jaxlib.mlir.dialects.stablehlo")
    except ImportError:
        raise ImportError(
            "[stablehlo] the portable artifact is written and read by jaxlib, which is not installed: "
            "pip install jaxlib; the text of a module needs no other package"
        ) from None


def is_available() -> bool:
    """Whether jaxlib is installed."""
    try:
        dialect()
    except ImportError:
        return False
    return True


def serialized(text: str, version: str | None = None) -> bytes:
    """The artifact of a module's text, for readers that are at most 12 weeks old unless a version is given."""
    stablehlo = dialect()
    if version is None:
        requirement = stablehlo.StablehloCompatibilityRequirement.WEEK_12
        version = stablehlo.get_version_from_compatibility_requirement(requirement)
    if "sdy." not in text and "chlo." not in text:
        return stablehlo.serialize_portable_artifact_str(text.encode(), version)
    ir, extension = lazy.submodule("jaxlib.mlir.ir"), lazy.submodule("jaxlib.mlir._mlir_libs._jax_mlir_ext")
    registry = ir.DialectRegistry()
    extension.register_dialects(registry)
    context = _context()
    context.append_dialect_registry(registry)
    with context:  # Shardy's and client operations are kept as they are, beside those of the artifact
        return stablehlo.serialize_portable_artifact(ir.Module.parse(text), version, True)


def hlo(text: str) -> Any:
    """The HLO of a module, as XLA's computation. Raises ImportError, with the way out, without jaxlib."""
    if not is_available():
        raise ImportError("[hlo] XLA's HLO is made of StableHLO by jaxlib, which is not installed: pip install jaxlib")
    return lazy.submodule("jaxlib._jax").mlir.mlir_module_to_xla_computation(
        text, use_tuple_args=False, return_tuple=False
    )


def text_of(artifact: bytes) -> str:
    """The text, in generic form, of the module of an artifact."""
    stablehlo, context = dialect(), _context()
    with context:
        module = stablehlo.deserialize_portable_artifact(context, artifact)
        return module.operation.get_asm(print_generic_op_form=True, large_elements_limit=None)


def _context() -> Any:
    """What MLIR needs to know of weft's texts and of JAX's files."""
    context = lazy.submodule("jaxlib.mlir.ir").Context()
    context.allow_unregistered_dialects = True
    for name in ("stablehlo", "chlo", "sdy"):
        lazy.submodule(f"jaxlib.mlir.dialects.{name}").register_dialect(context)
    return context
