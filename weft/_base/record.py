"""Record and NamedTuple: small immutable values at a fraction of what the standard library's cost at import.

    class Point(Record):
        x: int
        y: int = 0

Fields are the annotations, in order; a default is a class attribute. Records are equal if they are of one class and
their fields are equal, hashable if their fields are, and printed as ``Point(x=1, y=0)``.
A NamedTuple behaves as ``typing.NamedTuple`` does, which writes and compiles a function for every class.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, dataclass_transform


def _complete(kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The values of all fields: those given, then defaults."""
    fields = kind._fields
    if len(args) > len(fields):
        raise TypeError(f"{kind.__name__} takes {len(fields)} values, got {len(args)}")
    values = dict(zip(fields, args))
    for name in kwargs:
        if name not in fields or name in values:
            raise TypeError(f"{kind.__name__} has no further field {name!r}")
    values.update(kwargs)
    for name in fields[len(args) :]:
        if name not in values:
            if name not in kind._field_defaults:
                raise TypeError(f"{kind.__name__} needs a value for {name!r}")
            values[name] = kind._field_defaults[name]
    return values


@dataclass_transform(frozen_default=True)
class Record:
    """Base class; see the module."""

    _fields: ClassVar[tuple[str, ...]] = ()
    _field_defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        cls._fields = (*cls._fields, *cls.__annotations__)
        cls._field_defaults = {name: getattr(cls, name) for name in cls._fields if hasattr(cls, name)}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        complete = not kwargs and len(args) == len(self._fields)
        self.__dict__.update(zip(self._fields, args) if complete else _complete(type(self), args, kwargs))

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


if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:

    class _NamedTupleType(type):
        def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            fields = tuple(namespace.get("__annotations__", ()))
            namespace["_field_defaults"] = {field: namespace[field] for field in fields if field in namespace}
            namespace["_fields"] = namespace["__match_args__"] = fields
            namespace["__slots__"] = ()
            namespace.update((field, property(itemgetter(index))) for index, field in enumerate(fields))
            return super().__new__(cls, name, bases, namespace)

    class NamedTuple(tuple, metaclass=_NamedTupleType):
        """See the module."""

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            if kwargs or len(args) != len(cls._fields):
                values = _complete(cls, args, kwargs)
                args = [values[name] for name in cls._fields]
            return tuple.__new__(cls, args)

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

        def __repr__(self) -> str:
            return f"{type(self).__name__}({', '.join([f'{k}={v!r}' for k, v in self._asdict().items()])})"

        @classmethod
        def _make(cls, values: Any) -> Any:
            return cls(*values)

        def _replace(self, **changes: Any) -> Any:
            return type(self)(**{**self._asdict(), **changes})

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))
