"""Record: small immutable values, as frozen dataclasses are, at a hundredth of their cost at import.

    class Point(Record):
        x: int
        y: int = 0

Fields are the annotations, in order; a default is a class attribute. Records are equal if they are of one class and
their fields are equal, hashable if their fields are, and printed as ``Point(x=1, y=0)``.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, dataclass_transform


@dataclass_transform(frozen_default=True)
class Record:
    """Base class; see the module."""

    _fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls._fields = (*cls._fields, *cls.__annotations__)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        fields, kind = self._fields, type(self)
        if len(args) > len(fields):
            raise TypeError(f"{kind.__name__} takes {len(fields)} values, got {len(args)}")
        values = dict(zip(fields, args))
        if kwargs:
            unknown = [name for name in kwargs if name not in fields or name in values]
            if unknown:
                raise TypeError(f"{kind.__name__} has no further field {unknown[0]!r}")
            values.update(kwargs)
        if len(values) < len(fields):
            for name in fields:
                if name not in values:
                    if not hasattr(kind, name):
                        raise TypeError(f"{kind.__name__} needs a value for {name!r}")
                    values[name] = getattr(kind, name)
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"cannot assign to field {name!r} of {type(self).__name__}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        values = self.__dict__
        return hash((type(self), *[values[name] for name in self._fields]))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self._fields)
        return f"{type(self).__name__}({values})"

    def replace(self, **changes: Any) -> Any:
        """A copy with some fields changed."""
        return type(self)(**{**self.__dict__, **changes})
