"""The kinds of primitives: what the compiler must know of an operation, and nothing more.

Every ``Primitive`` carries one of these. The compiler, ``loops`` and ``codegen`` dispatch on the kind and never
on an operation's name, so that a new operation fuses by construction. Typing, printing and derivative slots
belong to the primitive itself (``core.primitive``); a kind holds only what lowering and the reference
interpreter use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.core.index_maps import IndexMap, Piece
from weft.record import Record

Params = dict[str, Any]
Avals = Sequence[Any]  # ShapedArray, kept untyped here: kinds stand below avals in the ladder


class Elementwise(Record):
    """One output element from the operands' elements at the same index (or from 0-d operands)."""

    scalar: Callable[..., Any]  # scalar(emit, *values, **params) -> value; see core.emit
    reference: Callable[..., Any]  # reference(*numpy_arrays, **params) -> numpy array
    cost: float = 1.0  # about how many vector instructions a lane-vector costs; guides fusion and threading
    chooses: bool = False  # takes what its first operand, a boolean, says of two others
    waits: bool = False  # for one unit of the processor: of some vectors, the second is computed without it


class View(Record):
    """Output index -> operand index, affine per dimension (broadcast, transpose, slice, rev, squeeze).

    The axes of the index map are dimensions of the output; those that it does not name are broadcast.
    """

    index_map: Callable[[Any, Any, Params], IndexMap]  # (operand aval, out aval, params)
    reference: Callable[..., Any]


class Reshape(Record):
    """Same elements in row-major order under another shape: an alias of a materialised operand.

    ``rewrite(**params)`` gives a function of the operand, traced in the simplify stage, where they say more than that.
    """

    reference: Callable[..., Any]
    rewrite: Callable[..., Any] | None = None


class Assemble(Record):
    """The output is put together from regions of the operands (concatenate, pad)."""

    pieces: Callable[[Avals, Any, Params], tuple[Piece, ...]]
    reference: Callable[..., Any]


class Generate(Record):
    """No array operand; an element is a function of its index along one dimension (iota)."""

    dimension: Callable[[Params], int]
    reference: Callable[..., Any]


class DynamicSlice(Record):
    """A view whose start is read at run time: operands (array, *starts), clamped as lax.dynamic_slice does."""

    sizes: Callable[[Avals, Any, Params], tuple[int, ...]]
    reference: Callable[..., Any]


class DynamicUpdateSlice(Record):
    """operands (array, update, *starts): the array with the update written at the clamped start."""

    reference: Callable[..., Any]


class Windows(Record):
    """How index vectors place windows in an array.

    Every index vector, a row along the last dimension of the indices, is the start of one window of the array in the
    dimensions ``starts``, component by component. ``moved`` has for each dimension of the array the dimension of the
    windows (a gather's result, a scatter's updates) that walks it, or None where the window is one element thick;
    ``batch`` the dimension of the windows for each dimension of the indices but the last. ``most`` is the largest
    start, component by component, at which a window lies inside.
    """

    starts: tuple[int, ...]
    moved: tuple[int | None, ...]
    batch: tuple[int, ...]
    most: tuple[int, ...]


class Gather(Record):
    """operands (array, indices): result[b, w] = array[start(indices[b]) + w].

    A start outside is moved to the nearest one inside, or, where ``fill`` gives a value, its window is filled with it.
    """

    windows: Callable[[Avals, Any, Params], Windows]
    fill: Callable[[Any, Params], Any]  # (result aval, params) -> a value of its dtype, or None
    reference: Callable[..., Any]


class Scatter(Record):
    """operands (array, indices, updates): the array with ``updates[b, w]`` combined into start(indices[b]) + w.

    In row-major order of b, so that the last of several updates of one element wins, or a sum is summed in order.
    ``update`` gives the jaxpr of (old, update) -> new, or None where the update itself is new. Windows that do not
    lie inside are left out, or moved where ``clips``. ``unique`` promises that no element is updated twice.
    """

    windows: Callable[[Avals, Any, Params], Windows]
    update: Callable[[Params], Any]
    clips: Callable[[Params], bool]
    unique: Callable[[Params], bool]
    reference: Callable[..., Any]


class Reduction(Record):
    """Combine the elements along ``axes`` into accumulators, in the fixed tree of docs/NUMERICS.md.

    ``accumulators(in_avals, params)`` gives (dtype, identity) for each accumulator.
    ``prepare(emit, values, index, **params)`` turns the operand elements (and the int64 position along the one
    reduced axis, for argmin/argmax) into one value per accumulator.
    ``combine(emit, left, right, **params)`` is associative up to rounding; both are tuples of values.
    ``finish(emit, accs, **params)`` gives the outputs (a rounding to bfloat16, the index of argmax).
    ``append(emit, left, right, **params)`` is a cheaper ``combine`` with the same result where right is one element
    after all of left's, and left began as ``seed(emit, identities, index, **params)`` at its first position.
    ``absorbing(dtype)`` is the first accumulator, of that dtype, that no further element changes, or None.
    ``nan_wins`` says that NaN among floats is the result, and that among numbers ``combine`` is max or min.
    ``leader`` reduces the values alone where the outputs are the first position of its result (but for NaN).
    ``of_words(dtype)`` gives the same outputs from the bits of operands of that dtype, as uint16, or is None. Its first
    accumulator is a uint16 that begins with 0; the others are as here.
    """

    axes: Callable[[Params], tuple[int, ...]]
    accumulators: Callable[[Avals, Params], tuple[tuple[np.dtype, Any], ...]]
    prepare: Callable[..., tuple[Any, ...]]
    combine: Callable[..., tuple[Any, ...]]
    finish: Callable[..., tuple[Any, ...]]
    reference: Callable[..., Any]  # NumPy semantics; the tree itself is run by the reference interpreter
    needs_index: bool = False
    operands: Callable[[Avals], int] | None = None  # reduce: how many operands are arrays (the rest are inits)
    append: Callable[..., tuple[Any, ...]] | None = None
    seed: Callable[..., tuple[Any, ...]] | None = None
    absorbing: Callable[[np.dtype], Any] | None = None
    nan_wins: bool = False
    leader: Reduction | None = None
    of_words: Callable[[np.dtype], Reduction | None] | None = None


class Cumulative(Record):
    """Running combination along one axis, in index order (reverse: from the end). Same slots as Reduction."""

    axis: Callable[[Params], int]
    reverse: Callable[[Params], bool]
    accumulators: Callable[[Avals, Params], tuple[tuple[np.dtype, Any], ...]]
    combine: Callable[..., tuple[Any, ...]]
    finish: Callable[..., tuple[Any, ...]]
    reference: Callable[..., Any]


class Contraction(Record):
    """dot_general: params carry dimension_numbers and preferred_element_type."""

    reference: Callable[..., Any]


class Ordering(Record):
    """What puts operands in the order of their first ``n_keys`` along ``axis``, equal ones in their own.

    Result i is operand ``moved[i]`` (None: operand i); one more are the positions. Numbers ascend, -0.0 is 0.0 and NaN
    last; with ``largest`` they descend, NaN first and -0.0 below 0.0, and only so many are kept.
    """

    axis: int
    n_keys: int
    largest: int | None = None
    moved: tuple[int, ...] | None = None


class External(Record):
    """A library call on whole arrays: ``call(*numpy_arrays, **params)`` -> tuple of numpy arrays.

    ``foreign`` calls are the user's own Python functions. ``ordering(params)`` says what a sort does, which the
    executor does itself where there is little to sort.
    """

    call: Callable[..., Any]
    foreign: bool = False
    ordering: Callable[[Params], Ordering] | None = None


class Identity(Record):
    """Nothing to compute: output i is operand i (stop_gradient, optimization_barrier, copy)."""

    barrier: bool = False  # fusion does not cross a barrier


class Resolve(Record):
    """Rewritten into other primitives before fuse (random bits, key wrapping): ``expand(*args, **params)``.

    ``expand`` is traced on the operands' avals by the simplify stage, which inlines the result.
    """

    expand: Callable[..., Any]


class Effect(Record):
    """One plan instruction with a side effect: ``call(*numpy_arrays, **params)``.

    ``admit(params)`` is asked when a program that holds the operation is compiled: False leaves it out, and it raises
    where the operation may not be compiled.
    """

    call: Callable[..., Any]
    admit: Callable[[Params], bool] | None = None


class LoopParts(Record):
    """What a loop is made of. Operands: what the condition captured, what the body captured, the state, the inputs.

    ``body``: (captured, state, one element of each input) -> (state, one element of each output), without constants.
    ``cond``: (captured, state) -> bool, or None if ``trips`` says how often the body runs. Elements are taken and put
    along the leading axis in index order, from the end with ``reverse``. The results are the state and the outputs.
    ``unroll`` steps may be made one.
    """

    body: Any
    n_consts: int
    n_carry: int
    cond: Any = None
    n_cond_consts: int = 0
    trips: int | None = None
    reverse: bool = False
    unroll: int = 1


class Loop(Record):
    """A body run over and over on a state: native control flow. ``mapped`` rewrites the programs it carries."""

    parts: Callable[[Params], LoopParts]
    mapped: Callable[[Params, Callable[[Any], Any]], Params]


class Routine(Record):
    """A loop that the compiler keeps in registers: params ``lowered`` (see loops.small), ``parts`` and ``literals``."""


class Branch(Record):
    """Operands (index, *args): the one of ``branches(params)`` that the index names runs on args (clamped)."""

    branches: Callable[[Params], tuple[Any, ...]]
    mapped: Callable[[Params, Callable[[Any], Any]], Params]


class Higher(Record):
    """Carries jaxprs. ``inline(params)`` gives the ClosedJaxpr to splice in place of the equation, or None."""

    inline: Callable[[Params], Any]


Kind = (
    Elementwise
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
    | Contraction
    | External
    | Identity
    | Resolve
    | Effect
    | Loop
    | Routine
    | Branch
    | Higher
)
