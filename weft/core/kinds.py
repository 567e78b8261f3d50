"""The kinds of primitives: what the compiler must know of an operation, and nothing more.

Every ``Primitive`` carries one of these. The compiler, ``loops`` and ``codegen`` dispatch on the kind and never
on an operation's name, so that a new operation fuses by construction. Typing, printing and derivative slots
belong to the primitive itself (``core.primitive``); a kind holds only what lowering and the reference interpreter use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._base.record import Record
from weft.core.index_maps import IndexMap, Piece
from weft.core.loop_forms import LoopForms

if TYPE_CHECKING:  # most programs have no windows
    from weft.core.window_maps import WindowMap

Params = dict[str, Any]
Avals = Sequence[Any]  # untyped, since kinds come before avals in the import ladder


class Elementwise(Record):
    """One output element from the operands' elements at the same index (or from 0-d operands)."""

    scalar: Callable[..., Any]  # scalar(emit, *values, **params) -> value; see core.emit
    reference: Callable[..., Any]  # reference(*numpy_arrays, **params) -> numpy array
    cost: float = 1.0  # estimate of vector instructions per vector of lanes; guides fusion and threading
    chooses: bool = False  # selects between two operands by its first operand, a boolean
    wraps: Any = None  # an Elementwise on the same operands: whether the exact integer does not fit in the result
    waits: bool = False  # occupies one execution unit for long (roots): some vectors are computed without that unit
    # (dtype) -> the number that changes no operand beside it, but that -0.0 may become 0.0; None for a dtype that has
    # none
    identity: Callable[[np.dtype], Any] | None = None
    # (dtype of the first operand) -> the second operand that leaves every bit of the first; None if there is none
    right_identity: Callable[[np.dtype], Any] | None = None
    leaves: Callable[[np.dtype, Params], bool] | None = None  # whether it gives an operand of this dtype as it is
    # (operands, whether all numbers of one are whole) -> cheaper operations with the same bits, as a function and its
    # operands; None: there are none. See operations.pointwise.cheaper
    cheaper: (
        Callable[[Sequence[Any], Callable[[Any], bool]], tuple[Callable[..., Any], Sequence[Any]] | None] | None
    ) = None
    converts: bool = False  # gives the same number in another dtype, rounded if need be
    keeps_equal: bool = False  # applied to an operand and itself it gives the operand
    undoes_itself: bool = False  # applied to its own result it gives the operand
    rounds_once: bool = False  # the exact result, which is rounded once; whole for whole numbers


class View(Record):
    """Output index -> operand index, affine in each dimension (broadcast, transpose, slice, rev, squeeze).

    The axes of the index map are dimensions of the output. Along dimensions that it does not name, the operand is
    repeated.
    """

    index_map: Callable[[Any, Any, Params], IndexMap]  # (operand aval, out aval, params)
    reference: Callable[..., Any]


class Reshape(Record):
    """The same elements in row-major order under another shape: an alias of an operand in memory.

    If the parameters ask for more (a transposition first), ``rewrite(**params)`` gives a function of the operand, which
    is traced instead of it.
    """

    reference: Callable[..., Any]
    rewrite: Callable[..., Any] | None = None


class Assemble(Record):
    """The output is put together from regions of the operands (concatenate, pad)."""

    pieces: Callable[[Avals, Any, Params], tuple[Piece, ...]]
    reference: Callable[..., Any]


class Generate(Record):
    """An operation without array operands, whose elements are a function of their index along one dimension (iota)."""

    dimension: Callable[[Params], int]
    reference: Callable[..., Any]


class DynamicSlice(Record):
    """A slice whose start is read at run time: operands (array, *starts), clamped as lax.dynamic_slice does."""

    sizes: Callable[[Avals, Any, Params], tuple[int, ...]]
    reference: Callable[..., Any]


class DynamicUpdateSlice(Record):
    """operands (array, update, *starts): the array with the update written at the clamped start."""

    reference: Callable[..., Any]


class Windows(Record):
    """How index vectors select windows of an array.

    An index vector is a row along the last dimension of the indices. Its components are the start of one window, in the
    array dimensions ``starts``; ``most`` holds the largest start for which the window is inside the array. All windows
    are stacked in one array: the result of a gather, the updates of a scatter. ``moved`` names, for each dimension of
    the operand, the dimension of the stacked array along which the window extends, or None if the window has extent 1
    there. ``batch`` names, for each dimension of the indices but the last, the dimension of the stacked array.
    """

    starts: tuple[int, ...]
    moved: tuple[int | None, ...]
    batch: tuple[int, ...]
    most: tuple[int, ...]


class Gather(Record):
    """operands (array, indices): result[b, w] = array[start(indices[b]) + w].

    A window that is not inside the array is moved to the nearest start that is; if ``fill`` gives a value, the window
    is filled with that value instead.
    """

    windows: Callable[[Avals, Any, Params], Windows]
    fill: Callable[[Any, Params], Any]  # (result aval, params) -> a value of its dtype, or None
    reference: Callable[..., Any]


class Scatter(Record):
    """operands (array, indices, updates): the array with ``updates[b, w]`` combined into start(indices[b]) + w.

    Updates are made in row-major order of b: of several updates of one element the last wins, and sums are taken in
    order. ``update`` gives the jaxpr of (old, update) -> new, or None if the update replaces the old element. A window
    that is not inside the array is skipped, or with ``clips`` moved inside. ``unique`` promises that no element is
    updated twice, ``ordered`` that the starts are sorted. ``combiner``: how the results of parts of the updates give
    that of all ("sum", where one part begins with the array and the others with zeros, "max", "min"), or None.
    ``neutral(dtype)`` is an element that changes nothing, with which a part may begin; ``merged(array, parts)`` is the
    array with the parts, which lie along the first axis of ``parts``: only where there is a ``combiner``.
    ``free(dtype, params)``: in which sense updates may come in any order: "once" if ``unique``, the combiner if the
    result is the same or the program allows another one, or None.
    """

    windows: Callable[[Avals, Any, Params], Windows]
    update: Callable[[Params], Any]
    clips: Callable[[Params], bool]
    unique: Callable[[Params], bool]
    ordered: Callable[[Params], bool]
    reference: Callable[..., Any]
    combiner: str | None = None
    neutral: Callable[[np.dtype], Any] | None = None
    merged: Callable[[Any, Any], Any] | None = None
    free: Callable[[np.dtype, Params], str | None] = lambda dtype, params: None


class Reduction(Record):
    """Combine the elements along ``axes`` into accumulators, in the fixed order of docs/NUMERICS.md.

    ``accumulators(in_avals, params)`` gives (dtype, identity) for each accumulator. Combined with identities, values
    stay what they are, but that -0.0 may become 0.0, and that complex ones with a part that is infinite or NaN change.
    ``prepare(emit, values, index, **params)`` turns the operand elements (and the int64 position along the one
    reduced axis, for argmin/argmax) into one value per accumulator.
    ``combine(emit, left, right, **params)`` is associative up to rounding; both are tuples of values.
    ``finish(emit, accs, **params)`` gives the outputs (a rounding to bfloat16, the index of argmax).
    ``exact(dtype)``: whether combinations of accumulators of this dtype have the same bits in every order.
    ``absorbing(dtype)`` is a value of the first accumulator that no further element can change, or None.
    ``nan_wins``: the result is NaN if an element is, and otherwise ``combine`` is max or min.
    ``forms``: other ways to compute the same outputs.
    ``combiner``: how the outputs of parts of the elements give the output of all ("sum", "max", "min", or "again": by
    the same reduction); None if there is no way. ``wraps``: NumPy's ufunc of the combination, if integers may leave
    their dtype by it; the same reduction in float64 then says so.
    """

    axes: Callable[[Params], tuple[int, ...]]
    accumulators: Callable[[Avals, Params], tuple[tuple[np.dtype, Any], ...]]
    prepare: Callable[..., tuple[Any, ...]]
    combine: Callable[..., tuple[Any, ...]]
    finish: Callable[..., tuple[Any, ...]]
    reference: Callable[..., Any]  # NumPy semantics; the reference interpreter uses the fixed order
    needs_index: bool = False
    operands: Callable[[Avals], int] | None = None  # reduce: how many operands are arrays (the rest are inits)
    exact: Callable[[np.dtype], bool] = lambda dtype: False
    absorbing: Callable[[np.dtype], Any] | None = None
    nan_wins: bool = False
    forms: LoopForms = LoopForms()
    combiner: str | None = None
    wraps: Any = None


class Cumulative(Record):
    """Running combination along one axis (reverse: from the end), in the fixed order. Same slots as Reduction.

    ``cost``: that of ``combine``, as of Elementwise.
    """

    axis: Callable[[Params], int]
    reverse: Callable[[Params], bool]
    accumulators: Callable[[Avals, Params], tuple[tuple[np.dtype, Any], ...]]
    combine: Callable[..., tuple[Any, ...]]
    finish: Callable[..., tuple[Any, ...]]
    reference: Callable[..., Any]
    cost: float = 1.0
    exact: Callable[[np.dtype], bool] = lambda dtype: False


class Window(Record):
    """Combine the elements of each window of the operands, in row-major order of the window.

    ``windows(params)`` says where windows lie. ``combine(left, right, **params)`` takes and gives lists of arrays of
    one shape, and is written in elementwise operations. ``accumulators(in_avals, params)`` gives (dtype, identity) for
    each of them; None where the second half of the operands are initial values instead, with which every window begins
    and which need not be identities. ``begins``: windows begin with the identity too (0.0 + -0.0 is 0.0).
    ``reduce(array, axes)``: the reduction that combines the same way.
    """

    windows: Callable[[Params], WindowMap]
    combine: Callable[..., list[Any]]
    accumulators: Callable[[Avals, Params], tuple[tuple[np.dtype, Any], ...] | None]
    reference: Callable[..., Any]
    begins: bool = False
    reduce: Callable[[Any, Sequence[int]], Any] | None = None


class Contraction(Record):
    """dot_general: params carry dimension_numbers and preferred_element_type."""

    reference: Callable[..., Any]


class StridedContraction(Record):
    """A contraction of strided views: params carry a ``ProductSpace`` as space, and preferred_element_type."""

    reference: Callable[..., Any]


class Ordering(Record):
    """A stable sort of operands along ``axis`` by the first ``n_keys`` of them.

    Result i is operand ``moved[i]``, sorted (operand i if ``moved`` is None); an additional last result holds the
    positions. Numbers ascend, -0.0 equals 0.0, NaN is last. With ``largest``, numbers descend, NaN is first, -0.0 is
    below 0.0, and only the first ``largest`` elements are kept. ``bits``: keys are unsigned, and have no more (0: no
    fewer than their dtype).
    """

    axis: int
    n_keys: int
    largest: int | None = None
    moved: tuple[int, ...] | None = None
    bits: int = 0


class Library(Record):
    """A native routine that runs on every matrix of a batch: its name in the runtime, and the sizes passed to it.

    ``letter`` names the element type as NumPy does (f, d, F, D; i for int32). ``written`` lists the results that the
    routine computes; None: all.
    """

    routine: str
    letter: str
    batch: int
    sizes: tuple[int, ...]
    written: tuple[int, ...] | None = None


class Handler(Record):
    """A function of the user in machine code: the fields of its instruction that the call decides.

    ``dtypes`` and ``shapes``: what it is told of operands, then results. ``aliases``: (operand, result) that share
    memory.
    """

    target: str
    version: int
    attributes: tuple[Any, ...]
    opaque: bytes
    dtypes: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    aliases: tuple[tuple[int, int], ...] = ()


class External(Record):
    """A library call on whole arrays: ``call(*numpy_arrays, **params)`` -> tuple of numpy arrays.

    ``foreign``: the call is a function of the user, in Python, or, if ``handler(in_avals, params)`` describes it, in
    machine code that the runtime calls itself. ``ordering(params)`` describes a sort, so that the runtime
    can do it itself where that is faster than the call. ``library(in_avals, params, read)`` names the native routine
    that the runtime calls instead (None: it has none), where ``read`` says which results are used; ``call`` is then its
    reference. ``unrolled(in_avals, params)`` gives, for many small matrices, a function of the operands that does the
    same in other operations, or None. ``batch(in_avals, params)``: how many leading dimensions all operands and results
    have in common, along which the call is repeated.
    """

    call: Callable[..., Any]
    foreign: bool = False
    ordering: Callable[[Params], Ordering] | None = None
    library: Callable[[Avals, Params, Sequence[bool]], Library | None] | None = None
    unrolled: Callable[[Avals, Params], Callable[..., Any] | None] | None = None
    batch: Callable[[Avals, Params], int] | None = None
    handler: Callable[[Avals, Params], Handler] | None = None


class Exchange(Record):
    """Values that processes send each other: two instructions, which start the messages and wait for them.

    ``message(rank, **params)``: what the process of this number does, as fields of the instruction.
    """

    message: Callable[..., dict[str, Any]]


class ExchangeDone(Record):
    """The second half of an exchange: operands are those of the first, and its result."""


class Identity(Record):
    """Nothing to compute: output i is operand i (stop_gradient, optimization_barrier, copy).

    ``constraint(params)``: how the user wants the result to lie on a mesh, for each dimension its axes, None for a
    dimension that is left open.
    """

    barrier: bool = False  # fusion stops at a barrier
    copies: bool = False  # as a result of a program it does not share an input's memory
    eager: Callable[[Params], Callable[..., Any] | None] | None = None  # what runs outside of programs
    constraint: Callable[[Params], Any] | None = None


class Resolve(Record):
    """Rewritten into other primitives before fuse (random bits, key wrapping): ``expand(*args, **params)``.

    The compiler traces ``expand`` on the operands' avals, and inlines the result. ``of_keys``: the primitive takes or
    gives random keys, and ``expand`` gets, beside their words, their dtype as ``key_type``.
    ``factors(in_avals, out_avals, params)`` gives its ``core.sharding.factors.Factors``, if each of several devices can
    run it on a part of its operands.
    """

    expand: Callable[..., Any]
    of_keys: bool = False
    factors: Callable[[Avals, Avals, Params], Any] | None = None


class Effect(Record):
    """One plan instruction with a side effect: ``call(*numpy_arrays, **params)``.

    ``admit(params)`` is called when a program with this operation is compiled. It returns False to leave the operation
    out, and raises if the operation may not be compiled.
    """

    call: Callable[..., Any]
    admit: Callable[[Params], bool] | None = None


class LoopParts(Record):
    """The parts of a loop.

    Operands, in order: values captured by the condition, values captured by the body, the initial state, the inputs.
    Results: the final state, the outputs.
    ``body``: (captured, state, one element of each input) -> (state, one element of each output), without constants.
    ``cond``: (captured, state) -> bool; None if the body runs ``trips`` times.
    Iteration i uses element i of inputs and outputs along their first axis (with ``reverse`` from the end). ``unroll``
    iterations may be compiled as one. ``independent``: there is no state, and iterations may run at the same time.
    """

    body: Any
    n_consts: int
    n_carry: int
    cond: Any = None
    n_cond_consts: int = 0
    trips: int | None = None
    reverse: bool = False
    unroll: int = 1
    independent: bool = False


class Loop(Record):
    """A body run repeatedly on a state, as native control flow. ``mapped`` gives the equation with other programs."""

    parts: Callable[[Params], LoopParts]
    mapped: Callable[[Params, Callable[[Any], Any]], Params]


class Routine(Record):
    """A loop in registers: params ``lowered`` (see ``loops.routines.register_promotion``), ``parts``, ``literals``."""


class Branch(Record):
    """Operands (index, *args): branch number ``index`` (clamped) of ``branches(params)`` runs on ``args``."""

    branches: Callable[[Params], tuple[Any, ...]]
    mapped: Callable[[Params, Callable[[Any], Any]], Params]


class Opaque(Record):
    """A primitive that a user made: opaque until it is lowered.

    When a program is compiled, an equation of this kind is replaced by the program of the primitive's ``lowering``, a
    function of traced values. Without one, the primitive's ``impl`` is called as a step of the program.
    """


class Shards(Record):
    """A program of the shards of one device: for each operand and result the axes that each dimension is cut along.

    ``axes``: all axes of the mesh along which devices run it. ``consts``: the values of its constvars.
    """

    program: Any
    axes: frozenset[Any]
    in_specs: tuple[Any, ...]
    out_specs: tuple[Any, ...]
    consts: tuple[Any, ...] = ()


class Higher(Record):
    """Has jaxprs as parameters. ``inline(params)`` gives the ClosedJaxpr that replaces the equation, or None.

    ``shards(params, sizes)``: the program that each device of a mesh runs instead, if the user wrote one; for a block
    of several devices where ``sizes`` has fewer parts along an axis than the mesh. ``written_shards(params)``: the
    program as it was written, along any of the axes.
    """

    inline: Callable[[Params], Any]
    shards: Callable[[Params, Mapping[Any, int]], Shards | None] | None = None
    written_shards: Callable[[Params], Shards] | None = None


Kind = (
    Elementwise
    | Exchange
    | ExchangeDone
    | View
    | Reshape
    | Assemble
    | Generate
    | DynamicSlice
    | DynamicUpdateSlice
    | Gather
    | Scatter
    | Reduction
    | Cumulative
    | Window
    | Contraction
    | StridedContraction
    | External
    | Identity
    | Resolve
    | Effect
    | Loop
    | Routine
    | Branch
    | Opaque
    | Higher
)
