"""weft.ad: what the function that ``vjp`` returns takes and gives when its cotangents go to references."""

from __future__ import annotations

from weft.autodiff.gradient_refs import DidntWant, DontWant, GradRef, GradValue

__all__ = ["DidntWant", "DontWant", "GradRef", "GradValue"]
