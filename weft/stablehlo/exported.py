"""Exported functions: a traced function as StableHLO, with the types and structures of its arguments and results."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import config, dtypes, runtime
from weft._base import lazy
from weft.autodiff.custom_vjp import custom_vjp
from weft.autodiff.derivatives import vjp as vjp_of
from weft.core import avals as avals_module
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, Literal
from weft.core.sharding.shardings import IndivisibleError, NamedSharding
from weft.core.tangents import tangent_aval
from weft.dispatch.calls import jit as jit_module
from weft.dispatch.calls import struct
from weft.dispatch.programs import exported_values
from weft.dispatch.programs.ahead_of_time import tree_differences
from weft.dispatch.programs.lowered_shardings import LoweredShardings
from weft.errors import InconclusiveDimensionOperation
from weft.operations.tokens import TOKEN
from weft.stablehlo import foreign_calls, module, portable, shardy
from weft.stablehlo.unknown_sizes import open_extents, open_traces, size_checks, symbolic_dims

CONVENTION = 10  # JAX's number for how the main function takes its arguments
MEMORY = "device"  # the memory that shardings name
PLATFORM = "cpu"  # what compiled programs of weft run on


class DisabledSafetyCheck:
    """A check that is left out when a function is exported, or when it is called after it was read.

    >>> weft.export.DisabledSafetyCheck.platform()
    platform
    """

    __slots__ = ("_impl",)

    def __init__(self, _impl: str) -> None:
        self._impl = _impl

    @classmethod
    def platform(cls) -> DisabledSafetyCheck:
        """Let a function be called on a platform that it was not exported for."""
        return cls("platform")

    @classmethod
    def custom_call(cls, target_name: str) -> DisabledSafetyCheck:
        """Let a program contain this custom call; weft writes none."""
        return cls(f"custom_call:{target_name}")

    def is_custom_call(self) -> str | None:
        """The target that is allowed, if this is such a check."""
        kind, _, target = self._impl.partition(":")
        return target if kind == "custom_call" else None

    def __repr__(self) -> str:
        return self._impl

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DisabledSafetyCheck) and self._impl == other._impl

    def __hash__(self) -> int:
        return hash(self._impl)


class Exported:
    """A function as StableHLO, with all that a call needs; ``weft.export.export`` makes one.

    Arguments and results are flat in ``in_avals`` and ``out_avals``; ``in_tree`` is the structure of ``(args, kwargs)``
    and ``out_tree`` that of the result. ``mlir_module()`` is the text, ``mlir_module_serialized`` the portable artifact
    (written by jaxlib, when it is first read). The other fields have JAX's names and meanings; the one effect is that
    of foreign functions.
    """

    ordered_effects: tuple[Any, ...] = ()
    _has_named_shardings = True

    def __init__(
        self,
        *,
        fun_name: str,
        in_tree: Any,
        in_avals: tuple[Any, ...],
        out_tree: Any,
        out_avals: tuple[Any, ...],
        platforms: tuple[str, ...],
        disabled_safety_checks: Sequence[DisabledSafetyCheck] = (),
        nr_devices: int = 1,
        calling_convention_version: int = CONVENTION,
        module_kept_var_idx: tuple[int, ...] | None = None,
        uses_global_constants: bool = False,
        text: str | None = None,
        artifact: bytes | None = None,
        program: ClosedJaxpr | None = None,
        get_vjp: Callable[[Exported], Exported] | None = None,
        in_shardings: Sequence[NamedSharding | None] | None = None,
        out_shardings: Sequence[NamedSharding | None] | None = None,
        unordered_effects: Sequence[Any] = (),
    ) -> None:
        self.fun_name = fun_name
        self.unordered_effects = tuple(unordered_effects)
        self.in_tree, self.in_avals = in_tree, in_avals
        self.out_tree, self.out_avals = out_tree, out_avals
        self.platforms = platforms
        self.disabled_safety_checks = tuple(disabled_safety_checks)
        self.nr_devices = nr_devices
        self.calling_convention_version = calling_convention_version
        kept = tuple(range(len(in_avals))) if module_kept_var_idx is None else module_kept_var_idx
        self.module_kept_var_idx = kept
        self.uses_global_constants = uses_global_constants
        self.in_shardings_hlo, self.out_shardings_hlo = (None,) * len(in_avals), (None,) * len(out_avals)
        self._in_named_shardings = tuple(in_shardings or (None,) * len(in_avals))
        self._out_named_shardings = tuple(out_shardings or (None,) * len(out_avals))
        self.lies: LoweredShardings | None = None  # with the devices of this process, where it was exported here
        self.trace: Callable[..., ClosedJaxpr] | None = None  # the function's program for shapes, where it is known
        self.plan: size_checks.SizePlan | None = None  # how unknown sizes follow from the arguments
        self.keeps_keys = program is not None and not _is_open(
            in_avals
        )  # whether the program has keys where the module has their words
        self._text, self._artifact, self._get_vjp = text, artifact, get_vjp
        self._programs: dict[Any, ClosedJaxpr] = {None: program} if program is not None and self.keeps_keys else {}

    def __repr__(self) -> str:
        return f"Exported(fun_name={self.fun_name}, ...)"

    @property
    def mlir_module_serialized(self) -> bytes:
        """The portable artifact. Raises ImportError where jaxlib, which writes it, is not installed."""
        if self._artifact is None:
            assert self._text is not None
            self._artifact = portable.serialized(self._text)
        return self._artifact

    def mlir_module(self, serialized: bool = True) -> Any:
        """The text of the module, or with ``serialized=False`` a module object."""
        if self._text is None:
            assert self._artifact is not None
            self._text = portable.text_of(self._artifact)
        return self._text if serialized else module.Module(self._text)

    def in_shardings_jax(self, mesh: Any) -> Sequence[Any]:
        """The sharding of each argument, over a mesh of devices; None where nothing was said.

        ValueError unless the mesh has the axes of the one that the function was exported for.

        >>> mesh = weft.make_mesh((1,), ("x",))
        >>> f = weft.jit(jnp.sin, in_shardings=weft.NamedSharding(mesh, weft.P("x")))
        >>> weft.export.export(f)(jnp.ones(4)).in_shardings_jax(mesh)
        (NamedSharding(mesh=Mesh('x': 1, axis_types=(Explicit,)), spec=P('x',), memory_kind=device),)
        """
        return tuple([_over(sharding, mesh) for sharding in self._in_named_shardings])

    def out_shardings_jax(self, mesh: Any) -> Sequence[Any]:
        """The sharding of each result, as ``in_shardings_jax``."""
        return tuple([_over(sharding, mesh) for sharding in self._out_named_shardings])

    def has_vjp(self) -> bool:
        return self._get_vjp is not None

    def vjp(self) -> Exported:
        """The exported function of the cotangents: of the flat arguments and cotangents of the results."""
        if self._get_vjp is None:
            raise ValueError("No VJP is available: serialize(vjp_order=1) writes the derivative with the function")
        return self._get_vjp(self)

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """The function as bytes that ``deserialize`` reads, here and in JAX; with ``vjp_order`` derivatives."""
        return lazy.submodule("weft.stablehlo.envelope").serialized(self, vjp_order)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The results of a call, also under transformations; gradients need ``has_vjp()``.

        Raises ValueError for arguments of another structure, shape or dtype.
        """
        return call(self)(*args, **kwargs)

    def sizes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """The unknown sizes where the arguments have these shapes. Raises ValueError where constraints do not hold."""
        if not _is_open(self.in_avals):
            return {}
        if self.plan is None:
            self.plan = size_checks.plan([aval.shape for aval in self.in_avals], self.in_tree)
        return size_checks.solved(self.plan, shapes)

    def program(self, shapes: tuple[tuple[int, ...], ...] | None = None) -> ClosedJaxpr:
        """The program as a jaxpr, read from the module if need be; ``shapes`` are those of its arguments."""
        key = shapes if _is_open(self.in_avals) else None
        if key not in self._programs:
            reader = lazy.submodule("weft.stablehlo.reading.reader")
            self._programs[key] = reader.program(self.mlir_module(), platforms=self.platforms, shapes=key)
        return self._programs[key]


def _over(sharding: NamedSharding | None, mesh: Any) -> NamedSharding | None:
    if sharding is None:
        return None
    own = sharding.mesh
    if (own.axis_sizes, own.axis_names, own.axis_types) != (mesh.axis_sizes, mesh.axis_names, mesh.axis_types):
        raise ValueError(f"NamedSharding new mesh {mesh} does not match the mesh used for export {own}.")
    return sharding.update(mesh=mesh)


def _is_open(avals: Sequence[Any]) -> bool:
    """Whether an extent has no value."""
    return any(map(symbolic_dims.is_symbolic_dim, [n for aval in avals for n in aval.shape]))


# -- export -----------------------------------------------------------------------------------------------------------


def export(
    fun_jit: Any, *, platforms: Sequence[str] | None = None, disabled_checks: Sequence[DisabledSafetyCheck] = ()
) -> Callable[..., Exported]:
    """A function that exports ``fun_jit``, a jitted function, for arguments of given shapes and dtypes.

    ``platforms`` names those it may be called on ("cpu", "cuda", "rocm", "tpu"); by default the CPU.
    Raises ValueError if the function is not jitted, NotImplementedError where the program calls Python.

    >>> exported = weft.export.export(weft.jit(jnp.sin))(weft.ShapeDtypeStruct((4,), jnp.float32))
    >>> exported.in_avals
    (ShapedArray(float32[4]),)
    >>> exported.call(np.zeros(4, np.float32)).tolist()
    [0.0, 0.0, 0.0, 0.0]
    """
    if not hasattr(fun_jit, "trace"):
        raise ValueError(f"[export] takes a jitted function, got {fun_jit}: export(weft.jit(f))")
    names = (PLATFORM,) if platforms is None else tuple(platforms)
    if isinstance(platforms, str) or not names:
        raise ValueError(f"[export] platforms is a sequence of names such as ('cpu', 'cuda'), got {platforms!r}")

    def exporting(*args: Any, **kwargs: Any) -> Exported:
        leaves, tree = runtime.tree_flatten((args, kwargs))
        if open_traces.scope_of(leaves) is not None:
            return open_export(fun_jit, leaves, tree, names, disabled_checks)
        traced = fun_jit.trace(*args, **kwargs)
        arguments = traced._arguments
        return closed_export(traced, tuple(arguments.avals), names, disabled_checks)

    return exporting


def closed_export(
    traced: Any, in_avals: Sequence[Any], platforms: tuple[str, ...], checks: Sequence[DisabledSafetyCheck]
) -> Exported:
    """A traced function, exported; ``in_avals`` are the types of its arguments as they were given."""
    closed = traced.jaxpr
    ins, outs = (tuple([x.strip_weak_type() for x in types]) for types in (in_avals, closed.out_avals))
    found = exported(module.on_words(closed), traced, (ins, outs), platforms, checks)
    found._programs[None] = closed
    return found


def open_export(
    fun_jit: Any, leaves: Sequence[Any], tree: Any, platforms: tuple[str, ...], checks: Sequence[DisabledSafetyCheck]
) -> Exported:
    """A function for arguments with open extents, traced at several sizes (``open_extents``)."""
    specs = [leaf if isinstance(leaf, struct.ShapeDtypeStruct) else avals_module.get_aval(leaf) for leaf in leaves]
    plan = size_checks.plan([spec.shape for spec in specs], tree)

    def trace(specs: Sequence[Any]) -> Any:
        args, kwargs = runtime.tree_unflatten(tree, list(specs))
        return fun_jit.trace(*args, **kwargs)

    def written(closed: ClosedJaxpr, traced: Any, interface: Any) -> Exported:
        return exported(closed, traced, interface, platforms, checks, plan)

    try:
        found, small = open_extents.traced(leaves, trace, written)
    except IndivisibleError as error:
        raise InconclusiveDimensionOperation(
            f"[export] an unknown size need not be a multiple of the number of devices along which it is cut: export "
            f"for a multiple of it, such as 8*b ({error})"
        ) from None
    _check_small(found, small)

    def at(shapes: tuple[tuple[int, ...], ...]) -> ClosedJaxpr:
        dtypes_ = [aval.dtype for aval in found.in_avals]
        return trace([struct.ShapeDtypeStruct(*spec) for spec in zip(shapes, dtypes_, strict=True)]).jaxpr

    found.trace = at
    return found


def _check_small(found: Exported, small: Sequence[Any]) -> None:
    """Raise InconclusiveDimensionOperation if the program is none for small sizes at which the function has one."""
    for sizes, ins, outs in small:
        try:
            program = found.program(ins)
            ends = tuple([aval.shape for aval in program.out_avals])
        except (ValueError, TypeError, NotImplementedError) as error:
            raise InconclusiveDimensionOperation(
                f"[export] the program that fits large sizes is none where {dict(sizes)}: {error}. Say that such sizes "
                "do not occur, as in symbolic_shape('b', constraints=['b >= 4'])"
            ) from None
        if ends != outs and 1 not in sizes.values():
            raise InconclusiveDimensionOperation(
                f"[export] results have other shapes where {dict(sizes)}: {outs}, but {ends} by the program for large "
                "sizes. Say that such sizes do not occur, as in symbolic_shape('b', constraints=['b >= 4'])"
            )
    found._programs.clear()


def exported(
    closed: ClosedJaxpr,
    traced: Any,
    interface: tuple[tuple[Any, ...], tuple[Any, ...]],
    platforms: tuple[str, ...],
    checks: Sequence[DisabledSafetyCheck],
    plan: size_checks.SizePlan | None = None,
) -> Exported:
    """A traced program (``on_words``) as an exported function, with the types that its arguments and results have."""
    name, lies = traced.fun_name, traced.shardings()
    if any(aval.dtype is TOKEN for avals in interface for aval in avals):
        raise NotImplementedError(
            f"[export] {name} takes or returns a token (lax.create_token), which files of exported functions do not "
            "have; make tokens inside of the function and return none"
        )
    allowed = {check.is_custom_call() for check in checks}
    if unsafe := sorted(foreign_calls.targets(closed.jaxpr) - allowed):
        raise ValueError(
            f"Cannot serialize code with custom calls whose targets have no compatibility guarantees: {name} calls "
            f"{', '.join(unsafe)}. Whoever loads the file must have registered the same foreign functions; to say that "
            f"they will, pass disabled_checks=[weft.export.DisabledSafetyCheck.custom_call({unsafe[0]!r})]"
        )
    text, count = module.text_and_count(
        closed, module_name=f"jit_{name}", platforms=platforms, interface=interface, shardings=lies, plan=plan
    )
    found = Exported(
        fun_name=name,
        in_tree=traced.in_tree,
        in_avals=interface[0],
        out_tree=traced.out_tree,
        out_avals=interface[1],
        platforms=platforms,
        disabled_safety_checks=checks,
        nr_devices=count,
        uses_global_constants=len(platforms) > 1 or _is_open(interface[0]),
        text=text,
        program=closed,
        get_vjp=exported_vjp,
        unordered_effects=[effect for effect in closed.effects if effect is foreign_calls.effect],
        in_shardings=_without_devices(lies.ins),
        out_shardings=_without_devices(lies.outs),
    )
    found.lies, found.plan = lies, plan
    return found


def _without_devices(shardings: Sequence[NamedSharding | None]) -> list[NamedSharding | None]:
    return [
        s if s is None else s.update(mesh=s.mesh.abstract_mesh, memory_kind=s.memory_kind or MEMORY) for s in shardings
    ]


def exported_vjp(primal: Exported) -> Exported:
    """The cotangents of the flat arguments, as an exported function of these and the cotangents of the results."""
    cotangents = [_tangent(aval) for aval in primal.out_avals]
    count = len(primal.in_avals)

    def function(*values: Any) -> tuple[Any, ...]:
        program = (primal.trace or primal.program)(tuple([avals_module.get_aval(x).shape for x in values[:count]]))
        _, pull = vjp_of(lambda *xs: eval_jaxpr(program.jaxpr, program.consts, *xs), *values[:count])
        return tuple(pull(list(values[count:])))

    function.__name__ = f"{primal.fun_name}_vjp"
    jitted = jit_module.jit(function, **_lying_alike(primal))
    avals = (*primal.in_avals, *cotangents)
    specs = [struct.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
    if open_traces.scope_of(specs) is not None:
        tree = runtime.tree_flatten((tuple(specs), {}))[1]
        return open_export(jitted, specs, tree, primal.platforms, primal.disabled_safety_checks)
    traced = jitted.trace(*specs)
    return closed_export(traced, avals, primal.platforms, primal.disabled_safety_checks)


def _lying_alike(primal: Exported) -> dict[str, Any]:
    """The shardings of cotangents are those of the values."""
    lies = primal.lies
    if lies is None or not any((*lies.ins, *lies.outs)):
        return {}
    return {"in_shardings": (*lies.ins, *lies.outs), "out_shardings": lies.ins}


def _tangent(aval: Any) -> Any:
    """The type of a tangent; that of an open type is open."""
    if isinstance(aval, runtime.ShapedArray):
        return tangent_aval(aval)
    inexact = dtypes.issubdtype(aval.dtype, np.inexact)
    return struct.ShapeDtypeStruct(aval.shape, aval.dtype if inexact else dtypes.float0)


# -- call -------------------------------------------------------------------------------------------------------------


def call(exported: Exported) -> Callable[..., Any]:
    """``exported.call`` as a function."""
    if not isinstance(exported, Exported):
        raise ValueError(f"The exported argument must be an export.Exported. Found {exported}.")

    def called(*args: Any, **kwargs: Any) -> Any:
        leaves, in_tree = runtime.tree_flatten((args, kwargs))
        _check_call(exported, leaves, in_tree)
        return runtime.tree_unflatten(exported.out_tree, _on_words(exported, leaves))

    return called


def _check_call(exported: Exported, leaves: Sequence[Any], in_tree: Any) -> None:
    name = exported.fun_name
    if in_tree != exported.in_tree:
        pairs = zip(("args", "kwargs"), exported.in_tree.children(), in_tree.children(), strict=True)
        lines = [line for word, old, new in pairs for line in tree_differences(word, old, new)]
        raise ValueError(
            "The invocation args and kwargs must have the same pytree structure as when the function "
            f"'{name}' was exported, but they have the following structural differences:\n"
            + "\n".join([f"   - {line}" for line in lines])
        )
    disabled = DisabledSafetyCheck.platform() in exported.disabled_safety_checks
    if PLATFORM not in exported.platforms and not disabled:
        raise ValueError(
            f"Function '{name}' was exported for platforms '{exported.platforms}' but it is used on '('{PLATFORM}',)'."
        )
    given = [avals_module.get_aval(leaf) for leaf in leaves]
    _check_ranks(exported, given)
    sizes = exported.sizes([aval.shape for aval in given])
    for index, (found, aval) in enumerate(zip(given, exported.in_avals, strict=True)):
        weak = found.weak_type and dtypes.can_cast(found.dtype, aval.dtype, "same_kind")
        shape = tuple([n.at(sizes) if symbolic_dims.is_symbolic_dim(n) else n for n in aval.shape])
        if found.shape != shape or (found.dtype != aval.dtype and not weak):
            text = str(struct.ShapeDtypeStruct(aval.shape, aval.dtype)) if shape != aval.shape else aval.str_short()
            raise ValueError(
                f"[export] argument leaf {index} of '{name}' was exported as {text}, and is {found.str_short()} "
                f"in the call{f', where {sizes}' if sizes else ''}"
            )


def _check_ranks(exported: Exported, given: Sequence[Any]) -> None:
    """Sizes are found in shapes of the right rank only."""
    for index, (found, aval) in enumerate(zip(given, exported.in_avals, strict=True)):
        if len(found.shape) != len(aval.shape) and _is_open([aval]):
            raise ValueError(
                f"Rank mismatch for argument leaf {index} of '{exported.fun_name}': it was exported as "
                f"{tuple(aval.shape)} and is {found.str_short()} in the call"
            )


def _on_words(exported: Exported, leaves: Sequence[Any]) -> Sequence[Any]:
    """The flat results. A program that was read works on the words of random keys."""
    if exported.keeps_keys:
        return _flat(exported)(*leaves)
    random = lazy.submodule("weft.random")
    keys = [dtypes.is_extended(aval.dtype) for aval in exported.in_avals]
    words = [random.key_data(x) if is_key else x for x, is_key in zip(leaves, keys, strict=True)]
    outs = _flat(exported)(*words)
    return [
        random.wrap_key_data(x, dtype=aval.dtype) if dtypes.is_extended(aval.dtype) else x
        for x, aval in zip(outs, exported.out_avals, strict=True)
    ]


def _typed_literals(jaxpr: Jaxpr) -> Jaxpr:
    """The program with NumPy scalars for Python numbers, whose types do not depend on enable_x64."""

    def typed(atom: Any) -> Any:
        if type(atom) is not Literal or not isinstance(atom.val, (bool, int, float, complex)):
            return atom
        return Literal(np.asarray(atom.val).astype(atom.aval.dtype)[()], atom.aval)

    eqns = [eqn.replace(invars=[typed(atom) for atom in eqn.invars]) for eqn in jaxpr.eqns]
    return jaxpr.replace(eqns=eqns, outvars=[typed(atom) for atom in jaxpr.outvars])


@functools.lru_cache(maxsize=256)
def _flat(exported: Exported) -> Callable[..., Any]:
    """A jitted function of the flat arguments, whose derivative is the exported one."""
    in_avals = exported.in_avals
    if not exported.keeps_keys:
        in_avals = [avals_module.physical_aval(x) if dtypes.is_extended(x.dtype) else x for x in in_avals]

    def run(*leaves: Any) -> tuple[Any, ...]:
        values = [_typed(leaf, aval) for leaf, aval in zip(leaves, in_avals, strict=True)]
        values = _lying(values, exported, exported._in_named_shardings, False)
        if not exported.keeps_keys:
            values = [values[index] for index in exported.module_kept_var_idx]
        program = exported.program(tuple([avals_module.get_aval(x).shape for x in values]))
        with config.context("enable_x64", True):  # the types are those of the program
            outs = eval_jaxpr(program.jaxpr.memoize("typed_literals", _typed_literals), program.consts, *values)
        outs = _lying(outs, exported, exported._out_named_shardings, True)
        return tuple([_result(x, aval) for x, aval in zip(outs, exported.out_avals, strict=True)])

    run.__name__ = exported.fun_name
    jitted = jit_module.jit(run)
    function = custom_vjp(jitted)

    def forward(*leaves: Any) -> tuple[Any, Any]:
        return jitted(*leaves), leaves

    def backward(leaves: Any, cotangents: Any) -> tuple[Any, ...]:
        derivative = exported.vjp()
        expected = derivative.in_avals[len(leaves) :]
        given = [
            np.zeros(avals_module.get_aval(x).shape, dtypes.float0) if aval.dtype == dtypes.float0 else x
            for x, aval in zip(cotangents, expected, strict=True)
        ]
        return tuple(_flat(derivative)(*leaves, *given))

    function.defvjp(forward, backward)
    return function


def _lying(values: Sequence[Any], exported: Exported, shardings: Sequence[Any], is_result: bool) -> list[Any]:
    """Arguments or results that lie as was exported, on as many devices."""
    if exported.nr_devices == 1:
        return list(values)
    return [
        exported_values.exported_value(x, exported, s if shardy.says_something(s) else None, is_result=is_result)
        for x, s in zip(values, shardings, strict=True)
    ]


def _typed(leaf: Any, aval: Any) -> Any:
    given = avals_module.get_aval(leaf)
    if given.dtype == aval.dtype and not given.weak_type:
        return leaf
    return lazy.submodule("weft.operations").convert_element_type(leaf, aval.dtype)


def _result(x: Any, aval: Any) -> Any:
    """A result of the type that was exported: booleans become the tangents of integers."""
    if aval.dtype == dtypes.float0 and avals_module.get_aval(x).dtype != dtypes.float0:
        return np.zeros(avals_module.get_aval(x).shape, dtypes.float0)
    return x
