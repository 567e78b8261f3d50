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
    return stablehlo.serialize_portable_artifact_str(text.encode(), version)


def text_of(artifact: bytes) -> str:
    """The text, in generic form, of the module of an artifact."""
    stablehlo, ir = dialect(), lazy.submodule("jaxlib.mlir.ir")
    context = ir.Context()
    context.allow_unregistered_dialects = True
    with context:
        stablehlo.register_dialect(context)
        for name in ("chlo", "sdy"):  # JAX's files hold operations and attributes of these
            lazy.submodule(f"jaxlib.mlir.dialects.{name}").register_dialect(context)
        module = stablehlo.deserialize_portable_artifact(context, artifact)
        return module.operation.get_asm(print_generic_op_form=True, large_elements_limit=None)
