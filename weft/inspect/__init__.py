"""Reports: why a call is traced, what a function compiles to, and what each stage cost."""

from __future__ import annotations

from weft.inspect.explain import explain
from weft.inspect.report import Report, report, show

__all__ = ["Report", "explain", "report", "show"]
