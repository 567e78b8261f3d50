"""Ahead-of-time compilation: ``jit(f).trace(...)`` -> Traced -> Lowered -> Compiled.

In: the arguments (or ShapeDtypeStructs). Out: objects that print and report without running anything. ``Compiled`` can
be called, but only with arguments of the structure and types it was made for. ``as_text(form)`` gives the text of each
of the five forms and of the plan.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from weft import runtime
from weft._base import lazy
from weft._base.record import NamedTuple
from weft.core import avals as avals_module
from weft.core.programs.jaxpr import ClosedJaxpr
from weft.core.ref_types import uses_refs
from weft.core.tracing import tracebacks
from weft.core.tracing.tracer import Tracer
from weft.dispatch import devices
from weft.dispatch.calls import jit as jit_module
from weft.dispatch.calls import jit_calls, signature, struct
from weft.dispatch.programs import executables, trace_cache

FORMS = ("jaxpr", "kernel", "loops", "llvm", "asm", "plan")


class ArgInfo:
    """Type of one argument leaf, and whether it is donated."""

    __slots__ = ("_aval", "donated")

    def __init__(self, _aval: Any, donated: bool) -> None:
        self._aval = _aval
        self.donated = donated

    @property
    def shape(self) -> tuple[int, ...]:
        return self._aval.shape

    @property
    def dtype(self) -> Any:
        return self._aval.dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArgInfo) and (self._aval, self.donated) == (other._aval, other.donated)

    def __hash__(self) -> int:
        return hash((self._aval, self.donated))

    def __repr__(self) -> str:
        return f"ArgInfo(_aval={self._aval!r}, donated={self.donated})"


class Arguments(NamedTuple):
    """The facts that all three stages share."""

    state: jit_calls.JitState
    trace: trace_cache.Trace
    in_tree: Any
    avals: tuple[Any, ...]
    donated: tuple[bool, ...]
    paths: Callable[[], list[str]]
    place: Any  # where it runs: see ``JitState.place``
    targets: tuple[Any, ...] = ()  # devices that are described and not here, which arguments name: ``topologies``


class MemoryAnalysis(dict[str, int]):
    """Sizes in bytes; ``memory.temp_size_in_bytes`` is ``memory["temp_size_in_bytes"]``."""

    def __getattr__(self, name: str) -> int:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"[memory_analysis] knows {', '.join(self)}, not {name}") from None


class Stage:
    """What every stage offers."""

    platforms: tuple[str, ...] = ("cpu",)  # that its StableHLO is for

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments

    @property
    def in_tree(self) -> Any:
        """The structure of ``(args, kwargs)``, static arguments left out."""
        return self._arguments.in_tree

    @property
    def out_tree(self) -> Any:
        """The structure of the result."""
        return self._arguments.trace.out_tree

    @property
    def args_info(self) -> Any:
        """An ``ArgInfo`` for each argument leaf, as ``(args, kwargs)``."""
        arguments = self._arguments
        infos = [ArgInfo(aval, donated) for aval, donated in zip(arguments.avals, arguments.donated, strict=True)]
        return runtime.tree_unflatten(arguments.in_tree, infos)

    @property
    def in_avals(self) -> Any:
        """The type of each argument leaf, as ``(args, kwargs)``."""
        return runtime.tree_unflatten(self._arguments.in_tree, list(self._arguments.avals))

    @property
    def out_info(self) -> Any:
        """A ``ShapeDtypeStruct`` for each result, in the result's structure."""
        return out_structs(self._arguments.trace)

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """The numbers of the donated argument leaves."""
        return tuple(index for index, donated in enumerate(self._arguments.donated) if donated)

    @property
    def fun_name(self) -> str:
        return self._arguments.trace.name

    def _text(self, form: str) -> str:
        if form == "sharding":
            arguments = self._arguments
            return lazy.submodule("weft.dispatch.programs.sharding_text").report(
                arguments.trace, arguments.place, arguments.paths()
            )
        if form not in FORMS:
            raise ValueError(f"[as_text] unknown form: {form}; the forms are {', '.join(FORMS)}, sharding")
        if form == "jaxpr" and self._arguments.trace.closed is not None:
            return str(self._arguments.trace.closed)
        return self._program().text(form)

    def _stablehlo(self, debug_info: bool = False) -> str:
        trace = self._arguments.trace
        paths = (trace.closed.debug_info and trace.closed.debug_info.result_paths) or ()
        attributes = [f'jax.result_info = "result{path}"' for path in paths]
        closed = lazy.ref_calls.of_values(trace)[1].closed if _takes_refs(trace) else trace.closed
        if len(attributes) != len(closed.out_avals):
            attributes = []
        return lazy.stablehlo.module_text(
            closed, module_name=f"jit_{trace.name}", debug_info=debug_info, result_attributes=attributes,
            platforms=self.platforms, shardings=self.shardings(),
        )  # fmt: skip

    def shardings(self) -> Any:
        """How arguments and results lie on several devices: ``lowered_shardings.LoweredShardings``."""
        arguments = self._arguments
        return lazy.submodule("weft.dispatch.programs.lowered_shardings").of_trace(arguments.trace, arguments.place)

    def _program(self) -> Any:
        return _compiled(self._arguments).program


class Traced(Stage):
    """A function traced for given types: its jaxpr, not yet compiled."""

    @property
    def jaxpr(self) -> ClosedJaxpr:
        return self._arguments.trace.closed

    def _repr_html_(self) -> str:
        return self.jaxpr._repr_html_()

    @property
    def out_avals(self) -> Any:
        trace = self._arguments.trace
        return runtime.tree_unflatten(trace.out_tree, list(trace.out_avals))

    def as_text(self, form: str = "jaxpr") -> str:
        return self._text(form)

    def lower(self, *, lowering_platforms: Sequence[str] | None = None, _private_parameters: Any = None) -> Lowered:
        """The next stage, for this machine; for other platforms ("cuda", "rocm", "tpu") as StableHLO."""
        lowered = Lowered(self._arguments)
        if lowering_platforms is not None and tuple(lowering_platforms) != ("cpu",):
            if isinstance(lowering_platforms, str):
                raise ValueError(f"[lower] lowering_platforms is a sequence of names, got {lowering_platforms!r}")
            lowered.platforms = tuple(lowering_platforms)
        return lowered


class Lowered(Stage):
    """A traced function that can be shown in every form and compiled.

    One for other ``platforms`` is shown as StableHLO and HLO only.
    """

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """The program as ``"stablehlo"`` (default, as in JAX), or in one of weft's forms.

        These are jaxpr, kernel, loops, llvm, asm and plan, and sharding: how values lie on a mesh, and each collective
        with its reason. ``debug_info``: operations of StableHLO carry the user's
        lines.
        """
        if dialect in (None, "stablehlo"):
            return self._stablehlo(debug_info)
        if dialect == "hlo":
            return lazy.submodule("weft.stablehlo.portable").hlo(self._stablehlo(debug_info)).as_hlo_text()
        if self.platforms != ("cpu",):
            raise ValueError(
                f"[as_text] lowered for {self.platforms} it has the forms stablehlo and hlo, got {dialect}"
            )
        return self._text(dialect)

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """The program as data: a module of ``"stablehlo"``, or (default) the jaxpr that weft compiles."""
        if dialect == "stablehlo":
            return lazy.stablehlo.Module(self._stablehlo())
        if dialect == "hlo":
            return lazy.submodule("weft.stablehlo.portable").hlo(self._stablehlo())
        if dialect not in (None, "jaxpr"):
            raise ValueError(f"[compiler_ir] unknown dialect: {dialect}; weft has 'jaxpr', 'stablehlo' and 'hlo'")
        return self._arguments.trace.closed

    def cost_analysis(self) -> Any:
        return self._program().cost_analysis()

    def compile(self, compiler_options: Any = None, *, device_assignment: Any = None, topology: Any = None) -> Compiled:
        """Machine code, ready to be called.

        ``topology``: for another machine, which need not be there, through the plugin of its maker: a name such as
        "v5e:2x2", or what ``weft.experimental.topologies.get_topology_desc`` gives. What is compiled so reports on
        itself and is saved to a file, and runs where such a device is.
        """
        executables.ignore_compiler_options(compiler_options)
        if "cpu" not in self.platforms:
            raise NotImplementedError(
                f"[compile] the function was lowered for {self.platforms}, and this is compiled for 'cpu' only: leave "
                "out lowering_platforms, or give as_text() to a compiler for it"
            )
        arguments = self._arguments
        if topology is not None or arguments.targets:
            topologies = lazy.submodule("weft.dispatch.programs.topologies")
            targets = arguments.targets if topology is None else topologies.targets_of(topology)
            if isinstance(targets[0], topologies.TopologyDevice):
                return topologies.compile_for(arguments, targets, self.shardings())
            arguments = arguments._replace(place=targets[0].number << 1 | 1)
        return Compiled(arguments, _compiled(arguments))


def _takes_refs(trace: trace_cache.Trace) -> bool:
    return trace.closed is not None and uses_refs(trace.closed.jaxpr) and lazy.ref_calls.takes_refs(trace)


def _compiled(arguments: Arguments) -> executables.Compiled:
    state, trace, donated, place = arguments.state, arguments.trace, arguments.donated, arguments.place
    if _takes_refs(trace):
        return lazy.ref_calls.compiled_ahead(state, trace, donated, place)
    return state.compiled(trace, donated, place)


class Compiled(Stage):
    """Machine code for one structure and one set of types of the arguments."""

    def __init__(self, arguments: Arguments, compiled: executables.Compiled) -> None:
        super().__init__(arguments)
        self._compiled = compiled

    def _repr_html_(self) -> str:
        return lazy.submodule("weft.inspect.notebook").compiled(self)

    def as_text(self, form: str | None = None) -> str:
        """The program in one of weft's forms (default "asm").

        On the device of a plugin: "stablehlo" (default), "jaxpr", or "hlo", what the plugin's compiler made.
        """
        program = self._compiled.program
        if hasattr(program, "stablehlo"):
            return program.text(form or "stablehlo")
        return self._stablehlo() if form == "stablehlo" else self._text(form or "asm")

    def cost_analysis(self) -> Any:
        """Operations and bytes of the program."""
        return self._compiled.program.cost_analysis()

    def memory_analysis(self) -> Any:
        """Bytes of arguments, results and temporaries, by name or as attributes."""
        return MemoryAnalysis(self._compiled.program.memory_analysis())

    @property
    def input_shardings(self) -> Any:
        """How the arguments lie: (those by position, those by name), each in the arguments' structure."""
        found = lazy.sharded_calls.input_shardings(self._arguments)
        return runtime.tree_unflatten(self.in_tree, found)

    @property
    def output_shardings(self) -> Any:
        """How the results lie, in the result's structure."""
        found = lazy.sharded_calls.output_shardings(self._arguments.trace, self._compiled.place)
        return runtime.tree_unflatten(self.out_tree, found)

    @property
    def input_formats(self) -> Any:
        """``input_shardings`` with the one layout there is (``weft.experimental.layout``)."""
        avals = runtime.tree_unflatten(self.in_tree, list(self._arguments.avals))
        return runtime.tree_map(_format, self.input_shardings, avals)

    @property
    def output_formats(self) -> Any:
        """``output_shardings`` with the one layout there is."""
        avals = runtime.tree_unflatten(self.out_tree, list(self._arguments.trace.out_avals))
        return runtime.tree_map(_format, self.output_shardings, avals)

    def runtime_executable(self) -> Any:
        return self._compiled.program.executable

    def report(self, *args: Any, **kwargs: Any) -> Any:
        """What ``weft.inspect`` gives: all forms linked, as a page. With arguments it is run, and measured."""
        return lazy.submodule("weft.inspect.report").of_compiled(self, None, *args, **kwargs)

    def save(self, path: Any) -> None:
        """Write the program to a file, with its kernels and captured arrays, for ``weft.load`` in another process.

        NotImplementedError, with the reason, for a program that calls Python, captures keys, or whose arguments are
        containers of your own. See ``weft.load`` for where the file can be used.
        """
        lazy.submodule("weft.compiler.storage.saving").save(self, path)

    def compiled_anew(self) -> Compiled:
        """The same, compiled once more and not shared with equal programs, so that lines and names are its own."""
        arguments = self._arguments
        keep = arguments.state.options.keep_unused
        place = lazy.sharded_calls.places_of_results(arguments.trace, arguments.place)
        bound = executables.bind(arguments.trace, arguments.donated, keep, place=place, anew=True)
        return Compiled(arguments, bound)

    def parts(self) -> tuple[Arguments, executables.Compiled]:
        """What it was compiled for, and the program with its constants."""
        return self._arguments, self._compiled

    def saved_trees(self) -> tuple[bytes, bytes] | None:
        """The structures of arguments and result in plain values; None if they have containers of the user's own."""
        plain_values = lazy.submodule("weft.core.caches.plain_values")
        try:
            return plain_values.tree(self.in_tree), plain_values.tree(self.out_tree)
        except plain_values.NotPlainError:
            return None

    @tracebacks.boundary
    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run. Raises TypeError if the arguments are not of the structure and types compiled for."""
        arguments = self._arguments
        leaves, in_tree = runtime.tree_flatten((args, kwargs))
        if in_tree != arguments.in_tree:
            raise TypeError(_tree_mismatch(arguments.in_tree, in_tree))
        for leaf in leaves:
            if isinstance(leaf, Tracer):
                raise TypeError(
                    "Cannot apply JAX transformations to a function lowered and compiled for a particular signature. "
                    f"Detected argument of Tracer type {type(leaf)}: call the jitted function instead"
                )
        call = signature.Call(args, kwargs, (), len(args))
        avals = signature.leaf_avals(arguments.state.function, call, leaves, accept_structs=False)
        self._check_types(avals)
        place = arguments.place
        if type(place) is not int or runtime.committed_place(leaves) not in (0, place):
            lazy.sharded_calls.check_arguments(arguments, leaves)
        if _takes_refs(arguments.trace):
            return lazy.ref_calls.run_compiled(self._compiled, arguments.trace, leaves)
        return executables.run(self._compiled, arguments.trace, leaves, arguments.avals)

    __call__ = call

    def _check_types(self, avals: Sequence[Any]) -> None:
        expected = self._arguments.avals
        if all(a is b or (a.shape == b.shape and a.dtype == b.dtype) for a, b in zip(avals, expected, strict=True)):
            return
        lines = [
            f"Argument '{path}' compiled with {_long(old)} and called with {_long(new)}"
            for path, old, new in zip(self._arguments.paths(), expected, avals, strict=True)
            if old.shape != new.shape or old.dtype != new.dtype
        ]
        raise TypeError(
            "Argument types differ from the types for which this computation was compiled. Perhaps you are calling the "
            "compiled executable with a different enable_x64 mode than when it was AOT compiled? The mismatches are:\n"
            + "\n".join(lines)
        )


def _format(sharding: Any, aval: Any) -> Any:
    return lazy.submodule("weft.experimental.layout").dense(sharding, aval.ndim)


def _long(aval: Any) -> str:
    return aval.strip_weak_type().str_short(short_dtypes=False)


def _tree_mismatch(expected: Any, given: Any) -> str:
    found: list[str] = []
    for name, old, new in zip(("args", "kwargs"), expected.children(), given.children(), strict=True):
        found += tree_differences(name, old, new)
    listed = "\n".join(f"    * at {line}" for line in found)
    return (
        "Function compiled with input pytree does not match the input pytree it was called with. "
        f"There are {len(found)} mismatches, including:\n{listed}"
    )


def tree_differences(where: str, old: Any, new: Any) -> list[str]:
    """The differences between two structures, one line each: ``args[0], seen ... but now given ...``."""
    if old == new:
        return []
    old_type, old_data = _node(old)
    new_type, new_data = _node(new)
    if old_type is not new_type:
        seen, given = _node_text(old_type), _node_text(new_type)
        return [f"{where}, seen {seen} but now given {given}, so their Python types differ"]
    olds, news = old.children(), new.children()
    if len(olds) != len(news) and old_type in (tuple, list):
        kind = old_type.__name__
        return [
            f"{where}, seen {kind} of length {len(olds)} but now given {kind} of length {len(news)}, "
            "so the lengths do not match"
        ]
    if len(olds) != len(news):
        text = (
            f"{where}, seen {old_type} with {len(olds)} child but now given {new_type} with {len(news)} child, "
            "so the numbers of children do not match"
        )
        keys = isinstance(old_data, list) and isinstance(new_data, list)
        return [f"{text}, with the symmetric difference of key sets: {set(old_data) ^ set(new_data)}" if keys else text]
    if old_data != new_data:
        return [f"{where}, seen {old_type} with {old_data} but now given {new_data}, so the node metadata differ"]
    found: list[str] = []
    for index, (old_child, new_child) in enumerate(zip(olds, news, strict=True)):
        key = old_data[index] if old_type is dict else index
        found += tree_differences(f"{where}[{key!r}]", old_child, new_child)
    return found


def _node(treedef: Any) -> tuple[Any, Any]:
    """(type, metadata) of the root of a structure; (None, None) for a leaf."""
    return treedef.node_data() or (None, None)


def _node_text(kind: type | None) -> str:
    return "pytree leaf" if kind is None else str(kind)


def out_structs(trace: trace_cache.Trace) -> Any:
    """ShapeDtypeStructs in the structure of the result."""
    structs = [
        struct.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=aval.explicit_sharding, weak_type=aval.weak_type)
        for aval in trace.out_avals
    ]
    return runtime.tree_unflatten(trace.out_tree, structs)


# -- methods of jitted functions --------------------------------------------------------------------------------------


@tracebacks.boundary
def _trace(jitted: Any, /, *args: Any, **kwargs: Any) -> Traced:
    """Trace for these arguments (arrays or ShapeDtypeStructs) without compiling or running."""
    state: jit_calls.JitState = jitted._state
    prepared = state.prepare(args, kwargs, accept_structs=True)
    trace = state.trace(prepared)
    names = jit_calls.debug_info(state.function, prepared, [None])
    paths = functools.partial(_paths, names)
    donated = state.donated(prepared)
    described = any(getattr(leaf, "sharding", None) is not None for leaf in prepared.leaves)
    targets = _described_devices(state, prepared.leaves, trace)
    place: Any = 0
    if len(targets) > 1 or (described and not targets):
        place = lazy.sharded_calls.of_call(state, prepared)
    elif not targets:
        place = state.place(prepared)
    return Traced(Arguments(state, trace, prepared.in_tree, prepared.avals, donated, paths, place, targets))


def _described_devices(state: jit_calls.JitState, leaves: Sequence[Any], trace: Any) -> tuple[Any, ...]:
    """The devices of a topology that arguments, ``jit`` or the program name in their shardings, if any."""
    shardings = [leaf.sharding for leaf in leaves if isinstance(leaf, struct.ShapeDtypeStruct)]
    if state.options.shardings is not None:
        shardings += state.options.shardings.named()
    if trace.closed is not None and executables.names_shardings(trace.closed.jaxpr):
        shardings += lazy.sharded_calls.constraints(trace.closed.jaxpr)
    named = [sharding for sharding in shardings if sharding is not None and lazy.sharded_calls.has_devices(sharding)]
    return next((tuple(sharding.device_list) for sharding in named if devices.is_described(sharding)), ())


def _paths(names: Any) -> list[str]:
    return list(names.arg_names or ())


def _lower(jitted: Any, /, *args: Any, **kwargs: Any) -> Lowered:
    """Trace and lower for these arguments."""
    return _trace(jitted, *args, **kwargs).lower()


@tracebacks.boundary
def _eval_shape(jitted: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Shapes and dtypes of the result, without compiling or running."""
    return _trace(jitted, *args, **kwargs).out_info


@runtime_checkable
class Wrapped(Protocol):
    """What ``jit`` gives, for annotations and ``isinstance``: callable, with ``trace`` and ``lower``."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def trace(self, *args: Any, **kwargs: Any) -> Traced: ...

    def lower(self, *args: Any, **kwargs: Any) -> Lowered: ...


CompilerOptions = dict[str, "str | bool"]

jit_module.install_methods(trace=_trace, lower=_lower, eval_shape=_eval_shape)


def get_aval(value: Any) -> Any:
    """The type of a value or of a ShapeDtypeStruct."""
    if isinstance(value, struct.ShapeDtypeStruct):
        return runtime.ShapedArray(value.shape, value.dtype, weak_type=value.weak_type)
    return avals_module.get_aval(value)
