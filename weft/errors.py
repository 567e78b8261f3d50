"""The errors users meet, in JAX's hierarchy and wording, followed by the ways out in the user's own names.

In: a traced value (anything with ``_error_repr()`` and ``_origin()``, see ``core.tracing.provenance``). Out: a message
that says what was attempted, while tracing which function at which line, which arguments the value depends on, and what
to write instead. ``help(weft.errors.TracerBoolConversionError)`` shows each mistake beside its cure.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

from weft._base import own_files


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn the user about the innermost line outside weft."""
    warnings.warn(message, category, own_files.depth_of_user())


class _WeftErrorMixin(Exception):
    """Appends where to read about the error."""

    _documented = True

    def __init__(self, message: str) -> None:
        pointer = f"\nSee help(weft.errors.{type(self).__name__})." if self._documented else ""
        super().__init__(f"{message}{pointer}")


class JAXTypeError(_WeftErrorMixin, TypeError):
    """A TypeError of tracing; the base of the classes below, under the name JAX gives it."""


class JAXIndexError(_WeftErrorMixin, IndexError):
    """An IndexError of tracing; the base of NonConcreteBooleanIndexError, under the name JAX gives it."""


class JaxRuntimeError(RuntimeError):
    """A compiled program failed while running."""


class OutOfMemoryError(MemoryError, JaxRuntimeError):
    """An array, a result or the temporaries of a program do not fit into memory or ``WEFT_MEMORY_LIMIT``.

    The text begins with ``RESOURCE_EXHAUSTED``, as JAX's, and names the program, what was asked for, and the limit.
    """


class DistributedError(JaxRuntimeError):
    """Processes that run one program do not stand at the same step: they differ, are missing, or have ended.

    The text names the ranks, and what each of them was about to do. After it no exchange between processes is
    possible in this job. If it is not caught, the job ends.
    """


class CheckError(Exception):
    """What a guard of a program found (``jit(f, checks=...)``, ``weft.checks``): a bad index, value or integer.

    ``check``: "index", "nan" or "overflow". ``primitive``: the name of the operation. ``index``: the element of its
    result, or of the indices. ``operands``: the values of the operands there. ``line``: the user's file, line and
    function. ``backward``: whether the gradient of that line was computed.
    """

    def __init__(
        self,
        message: str,
        *,
        check: str = "",
        primitive: str = "",
        index: tuple[int, ...] = (),
        operands: tuple[Any, ...] = (),
        line: str = "",
        backward: bool = False,
    ) -> None:
        super().__init__(message)
        self.check, self.primitive, self.index = check, primitive, index
        self.operands, self.line, self.backward = operands, line, backward


class IndexCheckError(CheckError, IndexError):
    """An index is out of bounds, where without the check it would be moved inside, or its window left out."""


class NanCheckError(CheckError, FloatingPointError):
    """An operation made a NaN from operands that are none."""


class OverflowCheckError(CheckError, OverflowError):
    """An integer does not fit in its dtype, or an operation made an infinity from finite operands."""


class JaxprTypeError(TypeError):
    """A jaxpr violates the typing, scoping or single-assignment rules (see ``core.programs.check``)."""


class ShardingTypeError(Exception):
    """Operands lie on a mesh with explicit axes in a way from which how the result lies does not follow."""


class InconclusiveDimensionOperation(Exception):
    """An operation on a symbolic dimension has no single answer."""


class TypePromotionError(ValueError):
    """Two dtypes have no implicit common dtype."""


class AxisError(ValueError, IndexError):
    """An axis that an array does not have: a ValueError or an IndexError in NumPy and JAX, by function."""


class ShapeError(ValueError, TypeError):
    """Shapes that do not fit, a matrix that is not square: a ValueError or a TypeError in JAX, by function."""


class ArrayHolderError(ValueError):
    """An object with a method ``__jax_array__`` was given where arrays are needed, and is not converted."""


class InternalError(RuntimeError):
    """A bug in weft, never in the user's program: names the stage, the node, the user's line and a dump."""

    def __init__(self, message: str, *, stage: str = "", node: str = "", line: str = "", dump: str = "") -> None:
        details = [
            f"{label}: {text}"
            for label, text in (("stage", stage), ("node", node), ("line", line), ("dump", dump))
            if text
        ]
        super().__init__("\n  ".join([f"{message} (this is a bug in weft)", *details]))
        self.stage, self.node, self.line, self.dump = stage, node, line, dump


# -- the ways out -----------------------------------------------------------------------------------------------------


def _argument_names(origin: Any) -> list[str]:
    """The user's parameters behind ``d['a'][0]`` or ``args[1]``, each once, in order."""
    return list(dict.fromkeys(re.split(r"[.\[]", path, maxsplit=1)[0] for path in origin.arg_paths))


def _static_cure(origin: Any) -> str | None:
    names = origin.static_names
    if not names or origin.traced_for not in ("jit", "pjit"):
        return None
    listed = ", ".join(repr(name) for name in names) + ("," if len(names) == 1 else "")
    few = f"{' and '.join(names)} {'takes' if len(names) == 1 else 'take'} few different values"
    static = f"weft.jit({origin.function.strip('<>')}, static_argnames=({listed}))"
    return f"if {few}, mark as static: {static}; each value is traced anew"


def _outside_cure(origin: Any) -> str | None:
    if origin.function is None:
        return None
    function = origin.function.strip("<>")
    return f"compute what needs the value before {function} is called, outside weft.{origin.traced_for or 'jit'}"


def _ways_out(origin: Any, *specific: str) -> str:
    """A list of cures under the line where the value was needed."""
    if origin is None:
        return ""
    location = f"\nThe value was needed at {origin.use}" if origin.use.location else ""
    cures = [*specific, _static_cure(origin), _outside_cure(origin)]
    listed = "".join(f"\n  * {cure}" for cure in cures if cure)
    return f"{location}\nWays out:{listed}" if listed else location


def _subject(origin: Any) -> str:
    names = _argument_names(origin) if origin is not None else []
    return names[0] if names else "x"


# -- values that are needed too early ---------------------------------------------------------------------------------


class ConcretizationTypeError(JAXTypeError):
    """A traced value was used where Python needs its concrete value.

    Wrong, since ``x`` has no value while ``f`` is traced::

        @weft.jit
        def f(x):
            return x * int(x.sum())

    Right, staying with traced values::

        @weft.jit
        def f(x):
            return x * x.sum().astype(int)

    or, when the value must be known while tracing, pass it as a static argument
    (``weft.jit(f, static_argnames=...)``).
    """

    def __init__(self, tracer: Any, context: str = "") -> None:
        origin = tracer._origin()
        parts = [
            f"Abstract tracer value encountered where concrete value is expected: {tracer._error_repr()}",
            context,
            origin.text if origin is not None else "",
        ]
        cures = self._cures(origin)
        super().__init__("\n".join(part for part in parts if part) + _ways_out(origin, *cures))

    def _cures(self, origin: Any) -> tuple[str, ...]:
        return (f"stay with arrays: convert with {_subject(origin)}.astype(...), select with weft.numpy.where",)


class TracerAttributeError(ConcretizationTypeError, AttributeError):
    """A traced value was asked for an attribute of the array that it stands for, such as its shards.

    Wrong, since ``x`` lies nowhere while the function is traced::

        weft.jit(lambda x: x * len(x.addressable_shards))

    Right, asking the array itself::

        shards = len(x.addressable_shards)
        weft.jit(lambda x: x * shards)(x)
    """

    def _cures(self, origin: Any) -> tuple[str, ...]:
        return ("ask the array for it, outside of the traced function",)


class NonConcreteBooleanIndexError(JAXIndexError):
    """A traced boolean array was used as an index, so that the size of the result is unknown.

    Wrong::

        weft.jit(lambda x: x[x > 0].sum())

    Right::

        weft.jit(lambda x: weft.numpy.where(x > 0, x, 0).sum())
    """

    def __init__(self, tracer: Any) -> None:
        origin = tracer._origin() if hasattr(tracer, "_origin") else None
        cure = f"keep the shape: weft.numpy.where(mask, {_subject(origin)}, 0), or a reduction's where= argument"
        text = f"\n{origin.text}" if origin is not None else ""
        mask = getattr(tracer, "aval", tracer)
        super().__init__(f"Array boolean indices must be concrete; got {mask}{text}{_ways_out(origin, cure)}")


class TracerArrayConversionError(JAXTypeError):
    """A traced array was handed to NumPy, which needs its values.

    Wrong::

        weft.jit(lambda x: numpy.sin(x))

    Right::

        weft.jit(lambda x: weft.numpy.sin(x))
    """

    def __init__(self, tracer: Any) -> None:
        origin = tracer._origin()
        cure = "call the function of the same name in weft.numpy instead of numpy's"
        super().__init__(
            f"The numpy.ndarray conversion method __array__() was called on {tracer._error_repr()}"
            f"{_line(origin)}{_ways_out(origin, cure)}"
        )


class TracerIntegerConversionError(JAXTypeError):
    """A traced integer was used where Python needs an index or a size.

    Wrong, since ``range`` needs the value of ``n``::

        @weft.jit
        def f(x, n):
            for i in range(n):
                x = x + i
            return x

    Right, either with ``static_argnames=("n",)``, so that each ``n`` is traced anew, or::

        @weft.jit
        def f(x, n):
            return weft.lax.fori_loop(0, n, lambda i, x: x + i, x)
    """

    def __init__(self, tracer: Any) -> None:
        origin = tracer._origin()
        subject = _subject(origin)
        cures = (
            f"loop over {subject} with weft.lax.fori_loop(0, {subject}, body, init)",
            f"index an array instead of a list: weft.numpy.array(sequence)[{subject}]",
        )
        super().__init__(
            f"The __index__() method was called on {tracer._error_repr()}{_line(origin)}{_ways_out(origin, *cures)}"
        )


class TracerBoolConversionError(ConcretizationTypeError):
    """A traced value was used as the condition of ``if``, ``while``, ``and``, ``or``, ``not`` or ``assert``.

    Wrong, since ``x`` has no value while ``f`` is traced::

        @weft.jit
        def f(x):
            if x > 0:
                return x
            return -x

    Right::

        @weft.jit
        def f(x):
            return weft.numpy.where(x > 0, x, -x)

    Use ``weft.lax.cond`` when only one side may run, ``&``, ``|`` and ``~`` for ``and``, ``or`` and ``not``.
    """

    def __init__(self, tracer: Any) -> None:
        origin = tracer._origin()
        JAXTypeError.__init__(
            self,
            f"Attempted boolean conversion of {tracer._error_repr()}.{_line(origin)}"
            f"{_ways_out(origin, *_condition_cures(origin))}",
        )


def _condition_cures(origin: Any) -> tuple[str, ...]:
    """What to write instead of a condition on a traced value, with the user's own condition in it."""
    if origin is None:
        return ()
    line, condition = origin.use.line, origin.use.expression or "condition"
    if condition.startswith("bool(") and condition.endswith(")"):
        condition = condition[len("bool(") : -1]
    if condition.startswith("not "):
        condition = f"~{condition[len('not ') :]}"
    if line.startswith("while "):
        return (f"loop on traced values: weft.lax.while_loop(lambda state: {condition}, body_fun, init_state)",)
    if line.startswith("assert "):
        return ("check the values that the call gives back, or print them: weft.debug.print('{}', value)",)
    return (
        f"choose between values: weft.numpy.where({condition}, if_true, if_false)",
        f"run only one side: weft.lax.cond({condition}, true_fun, false_fun, *operands)",
    )


def _line(origin: Any) -> str:
    return f"\n{origin.text}" if origin is not None and origin.text else ""


class UnexpectedTracerError(JAXTypeError):
    """A traced value was kept beyond the call that traced it.

    Wrong, since what ``f`` appends has no value once ``f`` is traced::

        results = []

        @weft.jit
        def f(x):
            results.append(x + 1)
            return x

    Right::

        @weft.jit
        def f(x):
            return x, x + 1

    ``with weft.checking_leaks():`` finds the leak where it happens.
    """

    def __init__(self, msg: str) -> None:
        super().__init__(msg)


class KeyReuseError(JAXTypeError):
    """A random key was used twice."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


__all__ = [
    "CheckError",
    "ConcretizationTypeError",
    "DistributedError",
    "InconclusiveDimensionOperation",
    "IndexCheckError",
    "InternalError",
    "JAXIndexError",
    "JAXTypeError",
    "JaxRuntimeError",
    "JaxprTypeError",
    "KeyReuseError",
    "NanCheckError",
    "NonConcreteBooleanIndexError",
    "OutOfMemoryError",
    "OverflowCheckError",
    "ShardingTypeError",
    "TracerArrayConversionError",
    "TracerBoolConversionError",
    "TracerIntegerConversionError",
    "TypePromotionError",
    "UnexpectedTracerError",
]
