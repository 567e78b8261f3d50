"""Primitive: an operation of the language, known by name, typed by its abstract evaluation.

``bind`` hands its operands to the current trace. The kind of a primitive (``core.kinds``) says how it is lowered. Each
derivative and batching rule has a slot: it holds the rule, None if there is none on purpose, or ``MISSING``. Abstract
evaluation is memoised by operand avals and parameters.

The derivative of an operation is stated in one of four ways, read by ``autodiff.jvp``:

    partials   one entry per operand: coefficient(out, *operands, **params), along(...), or None for zero
    linear     a slice of the operands in which it is jointly linear: its tangent is the operation on their tangents
    expansion  a function of the operands and parameters that computes the same; its derivative is taken
    jvp        jvp(primals, tangents, **params) -> (out, tangent out); None: it has no derivative, and asking raises

``transpose(ct, *operands, **params)`` returns (or yields) one cotangent, or None, per operand; ``Undefined`` stands for
the operands that the equation is linear in. ``linearize(live, *primals, **params)`` is for primitives with jaxprs as
parameters: it gives the results, which of them have tangents, and a function from the live tangents to theirs.

A primitive made with a name alone is a user's own (``kinds.Opaque``), with JAX's rules: ``impl`` computes its results
from concrete values, ``lowering(context, *values, **params)`` from traced ones when a program is compiled.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import config, errors
from weft._base import lazy
from weft._base.record import NamedTuple
from weft.core import avals as avals_module
from weft.core import kinds
from weft.core.caches.budget import BUDGET
from weft.core.effects import Effects, no_effects
from weft.core.programs.jaxpr import Atom, Literal
from weft.core.sharding import varying
from weft.core.symbolic import sizes
from weft.core.tracing import trace as trace_module

_MEMO_BOUND = 4096  # abstract evaluations remembered per primitive; the memo is emptied when full

registry: dict[str, Primitive] = {}


class _Missing:
    """The value of a slot that was not filled."""

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING = _Missing()
ALL = slice(None)  # linear in every operand
FIRST = slice(0, 1)
_state = trace_module.state


class Extents(NamedTuple):
    """The shape of the first operand (None without one) and of the result, before and after both have changed."""

    old_operand: tuple[int, ...] | None
    operand: tuple[int, ...] | None
    old: tuple[int, ...]
    new: tuple[int, ...]


def taken_whole(name: str) -> Callable[[dict[str, Any], Extents], dict[str, Any]]:
    """A rule for ``Primitive.extents``: where the parameter has the operand's extent, it has the new one."""

    def rule(params: dict[str, Any], shapes: Extents) -> dict[str, Any]:
        rows = zip(params[name], shapes.old_operand or (), shapes.operand or (), strict=True)
        return {name: tuple([new if entry == old else entry for entry, old, new in rows])}

    return rule


def _is_made_by_weft() -> bool:
    """Whether a module of weft that is being imported makes a primitive, not a user, who may call functions of weft."""
    frame, outermost = inspect.currentframe(), None
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "weft":
        frame, outermost = frame.f_back, frame
    return outermost is not None and outermost.f_code.co_name == "<module>"


class Primitive:
    """One operation. See ``def_abstract_eval`` for what makes it usable.

    >>> double_p = weft.extend.core.Primitive("double")  # a primitive of one's own
    >>> _ = double_p.def_impl(lambda x: x + x)
    >>> _ = double_p.def_abstract_eval(lambda x: weft.core.ShapedArray(x.shape, x.dtype))
    >>> print(double_p.bind(4.0), weft.jit(double_p.bind)(weft.numpy.ones(2)))
    8.0 [2. 2.]
    """

    refuses_refs = True
    multiple_results = False
    call_primitive = False
    always_batched = False  # True if the batching rule runs even for operands that are not mapped
    has_hidden_rules = False  # True if the parameters have functions that may refer to named axes when they are run
    lowering: Callable[..., Any] | None = None
    # How results lie on the devices of a mesh, if the parameters say so: ``(params) -> shardings``, None where not said
    result_shardings: Callable[[dict[str, Any]], Sequence[Any]] | None = None
    inside: Callable[[dict[str, Any]], Any] = staticmethod(lambda params: contextlib.nullcontext())
    types_shardings = False  # True if the abstract evaluation says how results lie on explicit mesh axes
    # A collective where its axes lie between processes: see ``partitioning.between_processes``
    between: Callable[..., Any] | None = None
    # JAX's words for what no primitive of weft's has
    ref_primitive = skip_canonicalization = ref_allocating = False

    def __init__(
        self,
        name: str,
        kind: Any = None,
        multiple_results: bool | None = None,
        *,
        memoize: bool = True,
        print_params: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self.name = name
        self.is_own = _is_made_by_weft()  # its name alone says what it does, in every process
        self.kind = kinds.Opaque() if kind is None else kind
        if multiple_results is not None:
            self.multiple_results = multiple_results
        self.print_params = print_params  # the parameters as printed
        self.unnamed_params: frozenset[str] = frozenset(("name", "debug_info"))  # do not change what is computed
        self.print_rule: Callable[..., Any] | None = None  # (eqn, context, settings) -> Document
        self.jvp: Any = MISSING
        self.linear: slice | None = None
        self.partials: Any = None
        self.on_words: Any = None  # the operation on the words of keys; see operations.key_words
        self.expansion: Callable[..., Any] | None = None
        self.linearize: Any = None
        self.separate: Any = None  # see autodiff.known_values
        self.transpose: Any = MISSING
        self.batch: Any = MISSING
        self.batch_axis: Any = None  # used instead of ``batch`` where the name of the mapped axis matters
        self.axis_names: Callable[[dict[str, Any]], tuple[Any, ...]] | None = None  # params -> the names it refers to
        self.varying: Callable[..., Any] | None = None  # (axes of an operand, params) -> those of the result
        # the parameters that hold extents, for operands of other shapes; None: none do
        self.extents: Callable[[dict[str, Any], Extents], dict[str, Any]] | None = None
        self.shortcut: Callable[[list[Atom], dict[str, Any]], Atom | None] | None = None
        self._abstract_eval: Callable[..., Any] | None = None
        self._effectful = False
        self._memo: dict[Any, Any] | None = {} if memoize and kind is not None else None
        self._fold: Callable[..., Any] | None = None
        self._forward: Callable[..., Any] | None = None
        if kind is not None:
            registry[name] = self

    def bind(self, *args: Any, **params: Any) -> Any:
        """Apply the operation: an Array or Tracer, or a list of them with ``multiple_results``."""
        state = _state
        if state.varying is not None:
            args = state.varying.agreed(self, args)
        return state.trace.process(self, args, params)

    def bind_with_trace(self, trace: Any, args: Any, avals: Any, params: dict[str, Any], /) -> Any:
        """Apply the operation under a given trace; ``avals`` are not needed."""
        with trace_module.set_current(trace):
            return trace.process(self, tuple(args), params)

    def def_bind_with_trace(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """``rule(trace, args, avals, params)`` replaces ``bind`` and ``bind_with_trace``."""
        self.bind_with_trace = rule

        def bind(*args: Any, **params: Any) -> Any:
            trace = trace_module.current()
            with trace_module.eval_context():
                return rule(trace, args, tuple([avals_module.get_aval(x) for x in args]), params)

        self.bind = bind
        return rule

    def get_bind_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """The parameters with which ``bind`` makes an equation with these parameters again: the same."""
        return params

    def def_impl(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """``rule(*values, **params)`` computes the results (a list with ``multiple_results``) from concrete values."""
        self.impl = rule
        return rule

    def impl(self, *args: Any, **params: Any) -> Any:
        """The results on concrete values."""
        return trace_module.EVAL.process(self, args, params)

    @property
    def has_impl(self) -> bool:
        """Whether ``def_impl``, or a subclass, has given a rule."""
        return "impl" in vars(self) or type(self).impl is not Primitive.impl

    def abstract_eval(self, *avals: Any, **params: Any) -> tuple[Any, Effects]:
        """(result aval or sequence of them, effects)."""
        return self.typed(avals, params)

    def is_high(self, *avals: Any, **params: Any) -> bool:
        """False: every primitive of weft is one of arrays."""
        return False

    def def_abstract_eval(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """``rule(*avals, **params)`` gives the result's aval (a sequence of them with ``multiple_results``)."""
        self._abstract_eval = rule
        self._effectful = False
        return rule

    def def_effectful_abstract_eval(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """``rule(*avals, **params)`` gives (result avals, set of effects)."""
        self._abstract_eval = rule
        self._effectful = True
        return rule

    def def_fold(self, rule: Callable[[list[Any], dict[str, Any]], Any]) -> None:
        """``rule(values, params)``, called while tracing when all operands are literals, gives the result's value: a
        Python or NumPy scalar of the result's dtype, or NotImplemented."""
        self._fold = rule
        self.shortcut = self._shortcut

    def def_forward(self, rule: Callable[[tuple[Any, ...], dict[str, Any]], int | None]) -> None:
        """``rule(avals, params)``: the index of the operand that equals the result, or None."""
        self._forward = rule
        self.shortcut = self._shortcut

    def _shortcut(self, atoms: list[Atom], params: dict[str, Any]) -> Atom | None:
        """The atom that equals the result, so that no equation is needed; otherwise None."""
        if self._forward is not None:
            index = self._forward(tuple(atom.aval for atom in atoms), params)
            if index is not None:
                return atoms[index]
        if self._fold is not None and all(isinstance(atom, Literal) for atom in atoms):
            value = self._fold([atom.val for atom in atoms], params)  # type: ignore[union-attr]
            if value is not NotImplemented:
                aval, _ = self.typed(tuple(atom.aval for atom in atoms), params)
                return Literal(_as_weak(value, aval) if aval.weak_type else value, aval)
        return None

    def typed(self, in_avals: tuple[Any, ...], params: dict[str, Any]) -> tuple[Any, Effects]:
        """(result aval or tuple of them, effects), memoised."""
        memo = self._memo
        if memo is None or (trace_module.explicit_types and config.mesh_state().relaxed and any(map(_lies, in_avals))):
            return self._type(in_avals, params)
        key = (in_avals, config.x64_enabled(), *params.items()) if params else (in_avals, config.x64_enabled())
        if sizes.opened.all and sizes.keeper(key) is not None:  # types of one compilation
            return self._type(in_avals, params)
        try:
            found = memo.get(key)
        except TypeError:  # an unhashable parameter
            return self._type(in_avals, params)
        if found is None:
            found = self._type(in_avals, params)
            if len(memo) >= _MEMO_BOUND:
                memo.clear()
            memo[key] = found
        return found

    def _type(self, in_avals: Sequence[Any], params: dict[str, Any]) -> tuple[Any, Effects]:
        if self.refuses_refs and any(hasattr(aval, "inner_aval") for aval in in_avals):
            raise TypeError(f"{self.name} takes arrays, got a mutable array reference: read it, as in ref[...]")
        if not self.types_shardings and type(self.kind) not in PROGRAMS and any(map(_lies, in_avals)):
            return lazy.submodule("weft.core.sharding.explicit").typed(self, in_avals, params)
        if self._abstract_eval is None:
            raise NotImplementedError(
                f"Abstract evaluation for '{self.name}' not implemented: the types of its results are unknown. Give "
                f"it a rule: {self.name}_p.def_abstract_eval(lambda *avals, **params: ShapedArray(shape, dtype))"
            )
        if any(map(_varies, in_avals)) and type(self.kind) not in varying.PROGRAMS:
            return varying.typed(self, in_avals, params)
        if type(self.kind) is not kinds.Opaque:
            out = self._abstract_eval(*in_avals, **params)
        else:
            with trace_module.eval_context():  # what a user's rule computes is no part of the program
                out = self._abstract_eval(*in_avals, **params)
        out, effects = out if self._effectful else (out, no_effects)
        if type(self.kind) is kinds.Opaque:
            out = self._checked_types(out)
        return (tuple(out) if self.multiple_results else out), frozenset(effects)

    def _checked_types(self, out: Any) -> Any:
        """What a user's rule gave, if it is a type, or a sequence of them."""
        if self.multiple_results and not isinstance(out, (list, tuple)):
            raise TypeError(
                f"the abstract evaluation of '{self.name}' gives a sequence of types, since the primitive has several "
                f"results (multiple_results is True); got {out!r}"
            )
        for aval in out if self.multiple_results else (out,):
            if not (hasattr(aval, "shape") and hasattr(aval, "dtype")):
                raise TypeError(
                    f"the abstract evaluation of '{self.name}' gives a type such as ShapedArray(shape, dtype); got "
                    f"{aval!r}. If the primitive has several results, set {self.name}_p.multiple_results = True"
                )
        return out

    def __repr__(self) -> str:
        return self.name

    def __copy__(self) -> Primitive:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Primitive:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        return (_lookup, (self.name,)) if registry.get(self.name) is self else super().__reduce_ex__(protocol)


PROGRAMS = frozenset(
    (kinds.Loop, kinds.Branch, kinds.Higher, kinds.Routine, kinds.Opaque, kinds.Effect)
)  # whose results are typed by the programs inside


def _lies(aval: Any) -> bool:
    """Whether a type says how values lie on a mesh."""
    return getattr(aval, "explicit_sharding", None) is not None


def _varies(aval: Any) -> bool:
    return bool(getattr(aval, "varying", ()))


def missing_rule(primitive: Primitive, text: str, how: str) -> NotImplementedError:
    """The error for a rule that a primitive does not have; users are told how to give theirs one."""
    if type(primitive.kind) is kinds.Opaque:
        text += f". Register a rule for it: {how.format(name=f'{primitive.name}_p')}"
    return NotImplementedError(text)


def _as_weak(value: Any, aval: Any) -> Any:
    """A weakly typed NumPy number as a Python number, since those are weakly typed in programs."""
    scalar = value.item() if isinstance(value, np.generic) else value
    return scalar if avals_module.get_aval(scalar) is aval else value


def clear_memos() -> None:
    """Forget all memoised abstract evaluations (part of ``weft.clear_caches``)."""
    for primitive in registry.values():
        if primitive._memo is not None:
            primitive._memo.clear()


def _lookup(name: str) -> Primitive:
    if name not in registry:
        raise errors.InternalError(f"unknown primitive {name!r}")
    return registry[name]


def _memo_length() -> int:
    return sum([len(primitive._memo) for primitive in registry.values() if primitive._memo])


BUDGET.enlist(_memo_length, 500, clear_memos)
