"""``weft.inspect(f, *args)`` reports on a compiled function; the module also says why a call is traced.

The module can be called: ``weft.inspect(f, x)`` is ``weft.inspect.report(f, x)``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from weft.inspect.explain import explain
from weft.inspect.profiling import Profile, profile
from weft.inspect.report import Report, report, show

__all__ = ["Profile", "Report", "explain", "profile", "report", "show"]


class Inspect(ModuleType):
    """The module as a function; its attributes are named for type checkers."""

    explain = staticmethod(explain)
    profile = profile
    report = staticmethod(report)
    show = staticmethod(show)
    Profile, Report = Profile, Report

    def __call__(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Report:
        return report(function, *args, **kwargs)


sys.modules[__name__].__class__ = Inspect
