"""Contexts of the user's own: a jitted function is traced anew under another value, as under another option."""

from __future__ import annotations

from typing import Any

from weft import config


class UserContext:
    """A value that holds for the process, and for a thread inside ``with context(value):``."""

    def __init__(self, default_value: Any) -> None:
        hash(default_value)  # values become parts of keys
        self._name, self._global = config.add_user_value(default_value), default_value

    @property
    def value(self) -> Any:
        """The value on this thread."""
        return config.read(self._name)

    def get_global(self) -> Any:
        """The value on threads that are in no context of this one."""
        return self._global

    def set_global(self, new_value: Any) -> None:
        hash(new_value)
        self._global = new_value
        config.set_value(self._name, new_value)

    def __call__(self, new_value: Any) -> Any:
        """A context manager under which this thread has another value."""
        hash(new_value)
        return config.overlaid(self._name, new_value)


def make_user_context(default_value: Any = None) -> UserContext:
    """A context on whose value traces depend, as they depend on options; TypeError for values without a hash.

    >>> scale = weft.make_user_context(1)
    >>> f = weft.jit(lambda x: x * scale.value)
    >>> with scale(3):
    ...     print(f(2.0))
    6.0
    >>> print(f(2.0))
    2.0
    """
    return UserContext(default_value)
