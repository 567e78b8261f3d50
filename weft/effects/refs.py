"""Mutable references: ``new_ref`` makes one, ``ref[i]`` reads it, ``ref[i] = x`` writes it.

Outside of jit, and under grad and vmap, a reference is a ``Ref``: it holds its present value, which a write replaces.
While a program is recorded a reference is a variable of type ``Ref{f32[3]}``, and accesses are equations:

    b:Ref{f32[3]} = new_ref a;  c:f32[] <- b[0];  b[1] <- c;  b[2] += c;  d:f32[3] = freeze b

``effects.discharge`` makes of such a program one of values alone, before anything differentiates or compiles it.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from weft import dtypes, runtime
from weft.core import avals as avals_module
from weft.core import kinds, ref_types
from weft.core.primitive import Primitive
from weft.core.ref_types import AbstractRef, is_ref, ref_effect, same
from weft.core.tracing import trace as tracing
from weft.core.tracing.trace import DynamicJaxprTrace, DynamicJaxprTracer, set_current
from weft.core.tracing.tracer import Tracer
from weft.dispatch.calls import jit as jit_module
from weft.dispatch.calls.struct import ShapeDtypeStruct
from weft.effects import ref_indexing, ref_printing, ref_views
from weft.effects.ref_indexing import Index
from weft.operations.data_movement import assemble
from weft.operations.pointwise import convert

state = tracing.state


class _RefMethods:
    """The methods of references, those with a value and traced ones."""

    __slots__ = ()
    aval: Any

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: self.aval.ndim)
    size = property(lambda self: self.aval.size)

    def __getitem__(self, idx: Any) -> Any:
        return get(self, idx)

    def __setitem__(self, idx: Any, value: Any) -> None:
        set(self, idx, value)

    @property
    def at(self) -> _At:
        return _At(self)

    def get(self, idx: Any = ...) -> Any:
        return get(self, idx)

    def set(self, value: Any, idx: Any = ...) -> None:
        set(self, idx, value)

    def swap(self, value: Any, idx: Any = ...) -> Any:
        return swap(self, idx, value)

    def addupdate(self, x: Any, idx: Any = ...) -> None:
        """Add to the elements at an index."""
        addupdate(self, idx, x)

    def bitcast(self, dtype: Any) -> View:
        """This memory as elements of another dtype; where the widths differ, rows are divided or joined, lowest bits
        first."""
        return View(self, ref_views.bitcast(self.aval.inner_aval, dtype))

    def reshape(self, *shape: Any) -> View:
        """This memory in another shape."""
        return View(self, ref_views.reshape(self.aval.inner_aval, shape))

    def transpose(self, *permutation: Any) -> View:
        """This memory with its dimensions in another order."""
        return View(self, ref_views.transpose(self.aval.inner_aval, permutation))

    @property
    def T(self) -> View:
        return self.transpose()

    def __len__(self) -> int:
        if not self.aval.shape:
            raise TypeError("len() of a reference to a scalar")
        return self.aval.shape[0]

    def __iter__(self) -> Any:
        return iter([self[index] for index in range(len(self))])


class _RefType(type):
    """Traced references are instances of Ref too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return type(instance) is RefTracer or super().__instancecheck__(instance)


class Ref(_RefMethods, metaclass=_RefType):
    """A mutable reference to an array; ``new_ref`` makes them.

    >>> ref = weft.new_ref(jnp.arange(3.0))
    >>> ref[0] = 5.0
    >>> ref[1:] += jnp.ones(2)
    >>> ref
    Ref([5., 2., 3.], dtype=float32)
    """

    __slots__ = ("__weakref__", "_aval", "_closed", "_lent", "_level", "_own", "_value", "_whole")

    def __init__(self, aval: AbstractRef, value: Any, level: int = 0, lent: bool = True) -> None:
        self._aval = aval
        self._value = value
        self._level = level  # of the trace that made it: values of inner traces may not be written
        self._lent = lent  # whether somebody else may hold the array, so that it cannot be changed in place
        self._own: Any = None  # the reference of the caller for which this one stands within a transformation
        self._whole: Any = None  # if it is an element for vmap: (the mapped reference, its dimension, the axis)
        self._closed = False  # whether the call is over in which it stood for another

    aval = property(lambda self: self._aval)
    sharding = property(lambda self: self._value.sharding)
    format = property(lambda self: self._value.format)
    committed = property(lambda self: True)

    def unsafe_buffer_pointer(self) -> int:
        return self._value.unsafe_buffer_pointer()

    def block_until_ready(self) -> Ref:
        self._value.block_until_ready()
        return self

    def __repr__(self) -> str:
        value = self._value
        return "Ref" + repr(value)[5:] if isinstance(value, runtime.Array) else f"Ref({value!r})"


class RefTracer(_RefMethods, DynamicJaxprTracer):
    """A reference in the program being recorded."""

    __slots__ = ()
    # tracers of arrays compare by element and have no hash; a reference is compared by identity
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"a reference of type {self.aval} is no array: read it, as in ref[...]")


ref_types.expect_refs()
tracing.tracer_types[AbstractRef] = RefTracer
avals_module.pytype_avals[Ref] = lambda ref: ref._aval


class _At:
    """``ref.at[i][j]``: a part of a part of a reference."""

    __slots__ = ("_indices", "_operands", "ref")

    def __init__(self, ref: Any, indices: tuple[Index, ...] = (), operands: tuple[Any, ...] = ()) -> None:
        self.ref, self._indices, self._operands = ref, indices, operands

    def __getitem__(self, idx: Any) -> Part:
        indices, operands, _ = _access(Part(self.ref, self._indices, self._operands), idx)
        return Part(self.ref, indices, operands)


class Part(_RefMethods):
    """A part of a reference, which is read and written as one."""

    __slots__ = ("_indices", "_operands", "ref")

    def __init__(self, ref: Any, indices: tuple[Index, ...], operands: tuple[Any, ...]) -> None:
        self.ref, self._indices, self._operands = ref, indices, operands

    @property
    def aval(self) -> Any:
        known = [avals_module.get_aval(x) for x in self._operands]
        return AbstractRef(_inner(self.ref.aval, self._indices, known))

    @property
    def at(self) -> _At:
        return _At(self.ref, self._indices, self._operands)


class View(_RefMethods):
    """A reference or a part of one, seen as an array of another dtype or shape, which is read and written as one."""

    __slots__ = ("_base", "_form")

    def __init__(self, base: Any, form: ref_views.Form) -> None:
        self._base, self._form = base, form

    aval = property(lambda self: AbstractRef(self._form.aval))

    def whole(self) -> Any:
        return self._form.there(self._base[...])

    def write(self, indices: Sequence[Index], operands: Sequence[Any], value: Any, adds: bool = False) -> None:
        self._base[...] = self._form.back(ref_indexing.write(self.whole(), indices, operands, value, adds))


def _inner(aval: AbstractRef, indices: Sequence[Index], operands: Sequence[Any]) -> Any:
    """The type of what indices select."""
    if not indices:
        return aval.inner_aval
    return aval.inner_aval.update(shape=ref_indexing.selected_shape(aval.shape, indices, operands))


def _access(ref: Any, idx: Any) -> tuple[tuple[Index, ...], tuple[Any, ...], Any]:
    """(indices, their operands, the type of what they select) of an access to a reference or a part of one."""
    index, operands = ref_indexing.parse(idx, ref.aval.shape)
    before = (ref._indices, ref._operands) if type(ref) is Part else ((), ())
    indices = before[0] if index is None else (*before[0], index)
    operands = (*before[1], *operands)
    whole = ref.ref.aval if type(ref) is Part else ref.aval
    return indices, operands, _inner(whole, indices, [avals_module.get_aval(x) for x in operands])


# -- primitives -------------------------------------------------------------------------------------------------------


_DISCHARGED = kinds.Higher(inline=lambda params: None)  # such an equation is gone before anything is compiled


class _Standing(threading.local):
    """Which references others stand for: (the reference, what stands for it), the innermost last."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Any, Ref]] = []


_standing = _Standing()


@contextlib.contextmanager
def standing_for(own: Sequence[Any], given: Sequence[Any]) -> Iterator[None]:
    """Accesses to the references ``own``, which a function closed over, are accesses to ``given`` within."""
    before = _standing.pairs
    _standing.pairs = [*before, *[(ref, other) for ref, other in zip(own, given, strict=True) if is_ref(ref)]]
    try:
        yield
    finally:
        _standing.pairs = before


def _present(ref: Any) -> Any:
    """The reference that stands for another one now."""
    for own, other in reversed(_standing.pairs):
        if same(own, ref):
            return other
    if type(ref) is Ref and ref._closed:
        raise NotImplementedError(
            f"a mutable array reference of type {ref._aval} is used after the mapped, repeated or differentiated "
            "function that it was an argument of: bwd of a custom_vjp function cannot use such a reference from its "
            "residuals. Save its value, as in ref[...], or let bwd close over the reference"
        )
    return ref


def root(ref: Any) -> Any:
    """The caller's own reference: the one that, through all transformations, this one stands for."""
    return ref._own if type(ref) is Ref and ref._own is not None else ref


class RefPrimitive(Primitive):
    """An operation on references. A trace that makes a program records it; others do it on a ``Ref``, by ``run``."""

    refuses_refs = False

    def __init__(self, name: str, run: Any, typing: Any, multiple_results: bool = False) -> None:
        super().__init__(name, _DISCHARGED, multiple_results, memoize=False)
        self.run = run
        self.jvp = self.transpose = self.batch = None
        self.def_effectful_abstract_eval(lambda *avals, **params: (typing(*avals, **params), {ref_effect}))

    def bind(self, *args: Any, **params: Any) -> Any:
        trace = state.trace
        if type(trace) is not DynamicJaxprTrace:
            if args and is_ref(args[0]):
                args = (_present(args[0]), *args[1:])
            return self.run(*args, **params)
        out = trace.process(self, args, params)
        if type(out) is DynamicJaxprTracer and type(out.aval) is AbstractRef:
            return RefTracer(out._trace, out.aval, out.val, out.source)
        return out


def _recorded(primitive: Primitive, ref: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """An access to a traced reference, recorded by the program around the current trace."""
    trace = tracing.recorder()
    if trace is None:
        raise tracing.escaped_tracer(ref)
    with set_current(trace):
        return primitive.bind(ref, *args, **params)


def _inner_values(level: int, args: Sequence[Any]) -> list[Any]:
    """The operands that belong to traces further inside than ``level``."""
    return [x for x in args if isinstance(x, Tracer) and x._trace.level > level]


def _check_inner(action: str, ref: Any, level: int, args: Sequence[Any]) -> None:
    inner = _inner_values(level, args)
    if not inner:
        return
    kind = "vmapped" if "Batch" in type(inner[0]).__name__ else "differentiated"
    where = "an unbatched" if kind == "vmapped" else "a non-differentiated"
    mapped = "vmapped" if kind == "vmapped" else "differentiated"
    raise ValueError(
        f"performing {action} operation with a {kind} value on {where} array reference of type {ref.aval}. Move the "
        f"array reference to be an argument of the {mapped} function, or make it inside."
    )


def _home(ref: Any) -> int:
    """The level of the program that records accesses to a traced reference."""
    trace = tracing.recorder()
    if trace is None:
        raise tracing.escaped_tracer(ref)
    return trace.level


def _run_new(value: Any, *, memory_space: Any, kind: Any) -> Ref:
    aval = _new_type(avals_module.get_aval(value), memory_space=memory_space, kind=kind)
    trace = state.trace
    if avals_module.get_aval(value).weak_type:
        value = convert.convert(value, aval.dtype, False)
    return Ref(aval, _as_value(value, aval), trace.level)


def _new_type(aval: Any, *, memory_space: Any, kind: Any) -> AbstractRef:
    if type(aval) is AbstractRef:
        raise TypeError(f"[new_ref] a reference holds an array, got a reference of type {aval}")
    return AbstractRef(aval.strip_weak_type(), memory_space, kind)


def _run_empty(*, ty: Any, memory_space: Any) -> Ref:
    return Ref(AbstractRef(ty, memory_space), assemble.full(ty.shape, 0, ty.dtype), state.trace.level, lent=False)


def _is_held(ref: Any) -> bool:
    """Whether a reference is a value here; if not, the program being recorded around the current trace accesses it."""
    if type(ref) is not Ref:
        return False
    trace = tracing.recorder()
    return trace is None or trace.level <= ref._level


def _run_get(ref: Any, *operands: Any, indices: tuple[Index, ...]) -> Any:
    if _is_held(ref):
        ref._lent = ref._lent or not indices
        return ref_indexing.read(ref._value, indices, operands)
    if _inner_values(_home(ref), operands):
        return ref_indexing.read(_recorded(get_p, ref, (), {"indices": ()}), indices, operands)
    return _recorded(get_p, ref, operands, {"indices": indices})


def _run_swap(ref: Any, new: Any, *operands: Any, indices: tuple[Index, ...]) -> Any:
    if not _is_held(ref):
        _check_inner("a set/swap", ref, _home(ref), (new, *operands))
        return _recorded(swap_p, ref, (new, *operands), {"indices": indices})
    before = _run_get(ref, *operands, indices=indices)
    _store(ref, new, operands, indices, False)
    return before


def _run_addupdate(ref: Any, new: Any, *operands: Any, indices: tuple[Index, ...]) -> list[Any]:
    if _is_held(ref):
        _store(ref, new, operands, indices, True)
    else:
        _check_inner("an addupdate", ref, _home(ref), (new, *operands))
        _recorded(addupdate_p, ref, (new, *operands), {"indices": indices})
    return []


def _store(ref: Ref, new: Any, operands: Sequence[Any], indices: tuple[Index, ...], adds: bool) -> None:
    """Replace the value of a reference; the array is changed in place where nobody else can hold it."""
    _check_inner("an addupdate" if adds else "a set/swap", ref, ref._level, (new, *operands))
    new = _as_value(new, ref._aval.inner_aval)
    if not indices and not adds:
        ref._value, ref._lent = new, True
        return
    concrete = state.trace is tracing.EVAL and type(ref._value) is runtime.Array
    if not concrete or any(isinstance(x, Tracer) for x in (new, *operands)):
        ref._value = ref_indexing.write(ref._value, indices, operands, new, adds)
    else:
        run = _write_shared if ref._lent else _write_in_place
        ref._value = run(ref._value, new, tuple(operands), indices, adds)
    ref._lent = False


def _as_value(new: Any, aval: Any) -> Any:
    if isinstance(new, (runtime.Array, Tracer)):
        return new
    return convert.convert_element_type_p.bind(new, new_dtype=aval.dtype, weak_type=False, sharding=None)


def _written(value: Any, new: Any, operands: tuple[Any, ...], indices: tuple[Index, ...], adds: bool) -> Any:
    return ref_indexing.write(value, indices, operands, new, adds)


_write_shared = jit_module.jit(_written, static_argnums=(3, 4))
_write_in_place = jit_module.jit(_written, static_argnums=(3, 4), donate_argnums=0)


def _run_freeze(ref: Any) -> Any:
    if _is_held(ref):
        ref._lent = True
        return ref._value
    return _recorded(freeze_p, ref, (), {})


def _run_free(ref: Any) -> list[Any]:
    return [] if _is_held(ref) else _recorded(free_ref_p, ref, (), {})


def _type_get(aval: Any, *operands: Any, indices: tuple[Index, ...]) -> Any:
    return _inner(aval, indices, operands)


def _type_swap(aval: Any, new: Any, *operands: Any, indices: tuple[Index, ...]) -> Any:
    found = _inner(aval, indices, operands)
    if new.shape != found.shape or new.dtype != found.dtype:
        raise TypeError(f"[swap] {new.str_short()} is written where there is {found.str_short()}")
    return found


def _type_addupdate(aval: Any, new: Any, *operands: Any, indices: tuple[Index, ...]) -> list[Any]:
    _type_swap(aval, new, *operands, indices=indices)
    return []


new_ref_p = RefPrimitive("new_ref", _run_new, _new_type)
empty_ref_p = RefPrimitive("empty_ref", _run_empty, lambda *, ty, memory_space: AbstractRef(ty, memory_space))
free_ref_p = RefPrimitive("free_ref", _run_free, lambda aval: [], multiple_results=True)
freeze_p = RefPrimitive("freeze", _run_freeze, lambda aval: aval.inner_aval)
get_p = RefPrimitive("get", _run_get, _type_get)
swap_p = RefPrimitive("swap", _run_swap, _type_swap)
addupdate_p = RefPrimitive("addupdate", _run_addupdate, _type_addupdate, multiple_results=True)
empty_ref_p.print_params = lambda params: {**params, "ty": avals_module.long_text(params["ty"])}


get_p.print_rule, swap_p.print_rule = ref_printing.get, ref_printing.swap
addupdate_p.print_rule = ref_printing.addupdate


# -- public functions -------------------------------------------------------------------------------------------------


def new_ref(init_val: Any, *, memory_space: Any = None, kind: str | None = None) -> Any:
    """A mutable reference whose first value is the array ``init_val``.

    ``ref[idx]`` reads and ``ref[idx] = x``, ``ref[idx] += x`` write it, outside of jit and inside, in loops and
    branches. A reference may be an argument of a jitted function, which then writes to it. TypeError if ``init_val`` is
    no array; ``memory_space`` needs jit.

    >>> ref = weft.new_ref(jnp.zeros(3))
    >>> weft.jit(lambda ref, x: ref.addupdate(x, 1))(ref, 2.0)
    >>> ref[...]
    Array([0., 2., 0.], dtype=float32)
    """
    if not avals_module.is_valid(init_val):
        raise TypeError(
            "Error interpreting argument to new_ref as a JAX value. The problematic value is of type "
            f"{type(init_val)} and was passed to new_ref at position 0."
        )
    if memory_space is not None and state.trace is tracing.EVAL:
        raise NotImplementedError("array ref with memory space only works inside of a `jit`.")
    return new_ref_p.bind(init_val, memory_space=memory_space, kind=kind)


def empty_ref(ty: Any, memory_space: Any = None) -> Any:
    """A reference to an array of type ``ty`` (anything with a shape and a dtype), which is to be written first."""
    struct = ShapeDtypeStruct(ty.shape, ty.dtype)
    return empty_ref_p.bind(ty=runtime.ShapedArray(struct.shape, struct.dtype), memory_space=memory_space)


def free_ref(ref: Any) -> tuple[()]:
    """Say that a reference is not used any more."""
    free_ref_p.bind(_checked("free_ref", ref))
    return ()


def freeze(ref: Any) -> Any:
    """The last value of a reference, which is not to be used afterwards."""
    return freeze_p.bind(_checked("freeze", ref))


def get(ref: Any, idx: Any = ...) -> Any:
    """``ref[idx]``: the elements of a reference at an index of integers, slices, ``...`` and integer arrays."""
    target = _checked("ref_get", ref)
    indices, operands, _ = _access(ref, idx)
    if type(target) is View:
        return ref_indexing.read(target.whole(), indices, operands)
    return get_p.bind(target, *operands, indices=indices)


def set(ref: Any, idx: Any, value: Any) -> None:
    """``ref[idx] = value``; the value has the shape and dtype of what is replaced (Python numbers are converted)."""
    target = _checked("ref_set", ref)
    indices, operands, value = _prepared("swap", ref, idx, value)
    if type(target) is View:
        return target.write(indices, operands, value)
    present = target if type(state.trace) is DynamicJaxprTrace else _present(target)
    if type(state.trace) is not DynamicJaxprTrace and _is_held(present):
        _store(present, value, operands, indices, False)
    else:
        swap_p.bind(target, value, *operands, indices=indices)
    return None


def swap(ref: Any, idx: Any, value: Any) -> Any:
    """Write ``value`` at an index and give back what was there."""
    target = _checked("ref_swap", ref)
    indices, operands, value = _prepared("swap", ref, idx, value)
    if type(target) is View:
        before = ref_indexing.read(target.whole(), indices, operands)
        target.write(indices, operands, value)
        return before
    return swap_p.bind(target, value, *operands, indices=indices)


def addupdate(ref: Any, idx: Any, x: Any) -> None:
    """Add ``x`` to the elements at an index; where an index array names one twice, both are added."""
    target = _checked("ref_addupdate", ref)
    indices, operands, x = _prepared("addupdate", ref, idx, x)
    if type(target) is View:
        return target.write(indices, operands, x, adds=True)
    addupdate_p.bind(target, x, *operands, indices=indices)
    return None


def _checked(name: str, ref: Any) -> Any:
    """The reference itself; ValueError for anything else."""
    if type(ref) is Part:
        return ref.ref
    if not is_ref(ref):
        raise ValueError(f"Can only call `{name}` on a `Ref`: {ref!r}.")
    return ref


def _prepared(name: str, ref: Any, idx: Any, value: Any) -> tuple[tuple[Index, ...], tuple[Any, ...], Any]:
    """(indices, operands, the value in the type of the reference)."""
    indices, operands, found = _access(ref, idx)
    try:
        aval = avals_module.get_aval(value)
    except TypeError as error:
        raise TypeError(f"Argument '{value}' of type '{type(value)}' is not a valid JAX type") from error
    if type(aval) is AbstractRef:
        raise TypeError(f"[{name}] a reference of type {aval} is no value to write: read it, as in ref[...]")
    if aval.shape != found.shape:
        raise ValueError(
            f"Invalid shape for `{name}`. Ref shape: {ref.aval.shape}. Expected shape: {found.shape}. Value shape: "
            f"{aval.shape}. Index: {idx}. Values are not broadcast: use weft.numpy.broadcast_to."
        )
    weak = aval.weak_type and name == "swap" and _category(aval.dtype) == _category(found.dtype)
    if aval.dtype != found.dtype and not weak:
        raise ValueError(
            f"Invalid dtype for `{name}`. Ref dtype: {found.dtype.name}. Value dtype: {aval.dtype.name}. Values are "
            "not converted: use value.astype(ref.dtype)."
        )
    if aval.weak_type or aval.dtype != found.dtype or isinstance(value, (np.ndarray, np.generic)):
        value = convert.convert(value, found.dtype, False)
    return indices, operands, value


_OF_EXTRA = (("i", np.signedinteger), ("u", np.unsignedinteger), ("f", np.generic))  # bfloat16, int4 and the like


@functools.cache
def _category(dtype: Any) -> str:
    if dtype.kind != "V":
        return dtype.kind
    return next(c for c, group in _OF_EXTRA if dtypes.issubdtype(dtype, group))
