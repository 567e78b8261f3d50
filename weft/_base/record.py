"""Record and NamedTuple: small values with named fields, whose classes cost microseconds to make.

    class Point(Record):
        x: int
        y: int = 0

Fields are the annotations, in order; a default is given as a value, or as ``field(default_factory=list)``.

- A **Record** is a value of its class. Two are equal if their class and their fields are; they are hashable if their
  fields are, and printed as ``Point(x=1, y=0)``. With ``class Point(Record, labels=("y",))`` the field y does not
  count for equality. With ``class Draft(Record, frozen=False)`` fields may be assigned, and an instance equals only
  itself.
- A **NamedTuple** is a tuple whose items have names, as ``typing.NamedTuple``: what a user gets as a tuple, what is
  taken apart (``a, b = pair``), a key whose hash has to be fast. It equals every tuple of the same items.

The standard library has both, but compiles source text for every class: docs/DESIGN.md has the measurements.
"""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Callable


class _Factory:
    """A default made anew for every record."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def field(*, default_factory: Callable[[], Any]) -> Any:
    """A default that is made anew for each record: ``field(default_factory=list)``."""
    return _Factory(default_factory)


def _complete(kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The values of all fields: those given, then defaults. Empties ``kwargs``."""
    fields, defaults = kind._fields, kind._field_defaults
    if len(args) > len(fields):
        raise TypeError(f"{kind.__name__} takes {len(fields)} values, got {len(args)}")
    values = list(args)
    for name in fields[len(args) :]:
        if name in kwargs:
            values.append(kwargs.pop(name))
        elif name in defaults:
            default = defaults[name]
            values.append(default.make() if type(default) is _Factory else default)
        else:
            raise TypeError(f"{kind.__name__} needs a value for {name!r}")
    for name in kwargs:
        raise TypeError(f"{kind.__name__} has no further field {name!r}")
    return values


def _own_fields(namespace: dict[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The fields of a class statement and their defaults."""
    written = namespace.get("__annotations__", {})
    fields = tuple([name for name, kind in written.items() if "ClassVar" not in str(kind).partition("[")[0]])
    return fields, {name: namespace[name] for name in fields if name in namespace}


class _RecordType(type):
    """Makes the fields of a Record slots."""

    def __new__(
        cls,
        name: str,
        bases: tuple[Any, ...],
        namespace: dict[str, Any],
        *,
        frozen: bool = True,
        labels: tuple[str, ...] = (),
    ) -> Any:
        own, defaults = _own_fields(namespace)
        for default in defaults:
            del namespace[default]  # a slot has the name
        namespace["__slots__"] = (*namespace.get("__slots__", ()), *own)
        fields = (*[field for base in bases for field in base._fields], *own)
        namespace["_fields"] = namespace["__match_args__"] = fields
        namespace["_field_defaults"] = {k: v for base in bases for k, v in base._field_defaults.items()} | defaults
        namespace["_labels"] = labels
        namespace["_compared"] = attrgetter(*[field for field in fields if field not in labels] or ["__class__"])
        if not frozen:
            namespace |= {method: getattr(object, method) for method in ("__setattr__", "__eq__", "__hash__")}
        made: Any = super().__new__(cls, name, bases, namespace)
        made._setters = tuple([getattr(made, field).__set__ for field in fields])
        return made


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Record(metaclass=_RecordType):
    """Base class; see the module."""

    __slots__ = ("__weakref__",)
    _fields: ClassVar[tuple[str, ...]]
    _field_defaults: ClassVar[dict[str, Any]]
    _labels: ClassVar[tuple[str, ...]]
    _compared: ClassVar[Any]
    _setters: ClassVar[tuple[Any, ...]]

    if TYPE_CHECKING:

        def __init_subclass__(cls, *, frozen: bool = True, labels: tuple[str, ...] = ()) -> None: ...

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        values = _complete(type(self), args, kwargs) if kwargs or len(args) != len(self._fields) else args
        for put, value in zip(self._setters, values):
            put(self, value)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"cannot assign to field {name!r} of {type(self).__name__}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._compared(self) == self._compared(other)

    def __hash__(self) -> int:
        return hash((type(self), self._compared(self)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join([f'{name}={getattr(self, name)!r}' for name in self._fields])})"

    def __reduce__(self) -> Any:
        return type(self), tuple([getattr(self, name) for name in self._fields])

    def replace(self, **changes: Any) -> Any:
        """A copy with some fields changed."""
        return type(self)(**{**{name: getattr(self, name) for name in self._fields}, **changes})


if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:

    def _plain_item(index: int) -> Any:
        return lambda record: tuple.__getitem__(record, index)

    class _NamedTupleType(type):
        """Makes the fields of a NamedTuple properties."""

        def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            fields, namespace["_field_defaults"] = _own_fields(namespace)
            namespace["_fields"] = namespace["__match_args__"] = fields
            namespace["__slots__"] = ()
            # a class with indexing of its own still has its items as fields
            item = _plain_item if "__getitem__" in namespace else itemgetter
            namespace.update((field, property(item(index))) for index, field in enumerate(fields))
            return super().__new__(cls, name, bases, namespace)

    class NamedTuple(tuple, metaclass=_NamedTupleType):
        """See the module."""

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return tuple.__new__(cls, _complete(cls, args, kwargs) if kwargs or len(args) != len(cls._fields) else args)

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
