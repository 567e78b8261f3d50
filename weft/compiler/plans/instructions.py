"""Instructions and outputs of a plan in the form that the runtime reads: records with named fields.

``link`` makes them from a plan and its compiled kernels, ``stored`` stores them on disk. Memory is given by locations:
(slot, byte offset, number of a run-time offset or -1). Slots are the inputs, then outputs, then temporaries. The
runtime gets the classes in the order of ``INSTRUCTIONS`` and ``OUTPUTS``, and checks every location when an Executable
is made (``runtime/src/plan/plan.cpp``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import runtime
from weft._base import lazy
from weft._base.record import NamedTuple

# what the runtime asks for where an instruction that it reads needs it
runtime.set_lapack_finder(lazy.lapack_files)
runtime.set_unit_finder(lambda unit: lazy.product_units.kernel(unit))

Location = tuple[int, int, int]  # slot, byte offset, run-time offset or -1
Sized = tuple[Location, int]  # and bytes
Typed = tuple[int, int, Any]  # slot, byte offset, aval
Nested = tuple[Any, tuple[Any, ...]]  # an Executable and its constants


class Kernel(NamedTuple):
    """A loop nest in machine code, and the dimensions around it that the runtime iterates."""

    kernel: Any
    operands: tuple[Location, ...]
    params: bytes
    outer: tuple[tuple[int, tuple[int, ...]], ...]  # extent, and the stride in bytes of each operand
    split: str  # what may be divided among threads: none, first, vector or blocks,
    extent: int  # its extent,
    grain: int  # parts are multiples of this
    cost_ns: float
    scratch_bytes: int
    partial_bytes: int
    first: int  # extents of the first dimension and of the vector dimension
    vector: int


class Offset(NamedTuple):
    """A run-time offset: the sum of clamped starts times strides. Terms: slot, offset, dtype char, most, stride."""

    number: int
    terms: tuple[tuple[int, int, str, int, int], ...]
    word: Location | None = None  # the byte that is set to 1 if a start was clamped


class Gemm(NamedTuple):
    """Products c[rows, columns] = sum over ``summed`` of a[rows, summed] b[summed, columns]: of matrices, or of views.

    Rows, columns and terms are dimensions, outermost first: extents, and the elements from one step to the next.
    Columns of c lie side by side.
    """

    source: str  # dtype chars, of operands and result
    result: str
    a: Location
    b: Location
    c: Location
    rows: tuple[tuple[int, int, int], ...]  # extent, strides in a and c
    columns: tuple[tuple[int, int], ...]  # extent, stride in b
    summed: tuple[tuple[int, int, int], ...]  # extent, strides in a and b
    batch: tuple[tuple[int, int, int, int], ...]  # extent, bytes from one to the next of a, b and c
    in_chains: bool  # whether a vector is multiplied in the order of NUMERICS.md for vectors
    whole: tuple[int, int, bool]  # rows and columns of the whole product: m, n or more; whether a and b are exchanged
    unit: bool = True  # whether a matrix unit may multiply them
    form: str = ""  # of the epilogue (``epilogues``): flat, grid, rows or products
    epilogue: Kernel | None = None
    precision: str = ""  # that was asked for: tf32 or float32; of GPUs (``loops.gpu.grid_products``)


class Copy(NamedTuple):
    """Copies bytes."""

    to: Location
    source: Location
    nbytes: int


class CopyRows(NamedTuple):
    """Copies runs of bytes at regular distances: (count, stride in bytes) of each dimension of runs."""

    to: Location
    source: Location
    nbytes: int
    steps: tuple[tuple[int, int], ...]


class Fill(NamedTuple):
    """Fills bytes with one value."""

    to: Location
    nbytes: int
    byte: int


class Sort(NamedTuple):
    """Sorts rows of n elements by keys; the first ``kept`` (or largest) elements are stored.

    ``keys``: location, order (u, i or f), bytes, stride in bytes, bits of infinity; ``values``: from, to, bytes.
    """

    rows: int
    n: int
    inner: int
    kept: int
    largest: bool
    keys: tuple[tuple[Location, str, int, int, int], ...]
    values: tuple[tuple[Location, Location, int], ...]
    positions: Location | None
    position_bytes: int
    bits: int = 0  # the low bits of the keys that may differ from 0; 0 for all bits


class Library(NamedTuple):
    """A routine of LAPACK on every matrix of a batch; ``type`` is its letter for their elements."""

    routine: str
    type: str
    batch: int
    sizes: tuple[int, ...]
    operands: tuple[Location, ...]
    results: tuple[Location, ...]


class Callback(NamedTuple):
    """A Python callable on whole arrays."""

    callable: Callable[..., Any]
    operands: tuple[Typed, ...]
    results: tuple[Typed, ...]


class Loop(NamedTuple):
    """Runs a program repeatedly; inputs and outputs have one row per iteration. ``trips`` -1: not known."""

    body: Nested
    cond: Nested | None
    trips: int
    reverse: bool
    tested: tuple[Sized, ...]
    captured: tuple[Sized, ...]
    carry: tuple[Sized, ...]
    inputs: tuple[Sized, ...]
    outputs: tuple[Sized, ...]
    independent: bool = False  # no state is passed on: iterations may run at the same time


class Routine(NamedTuple):
    """A loop that is one native function."""

    kernel: Any
    operands: tuple[Sized, ...]
    params: bytes
    cost_ns: float


class Branch(NamedTuple):
    """One of several programs, by a clamped int32."""

    which: Location
    branches: tuple[Nested, ...]
    operands: tuple[Sized, ...]
    results: tuple[Sized, ...]


class Exchange(NamedTuple):
    """Starts an exchange between processes; ``me`` is the position of this one among ``ranks``."""

    number: int  # in its plan
    way: str  # see weft/partitioning/exchange.py; agree: all processes run the same program
    tag: int
    ranks: tuple[int, ...]
    me: int
    operand: tuple[Sized, ...]  # one or none
    result: tuple[Sized, ...]  # likewise
    dtype: str = ""
    combiner: str = "sum"
    source: int = -1  # of permute: whose value comes here, -1: nobody's
    destinations: tuple[int, ...] = ()
    fingerprint: int = 0  # of agree
    words: str = ""
    meanwhile: bool = False  # whether other steps stand before the one that waits for it


class ExchangeDone(NamedTuple):
    """Waits for an exchange."""

    number: int
    what: str


class Launch(NamedTuple):
    """Kernels of a GPU, launched one after the other on its stream.

    Parameters of each: the address of every operand, that of the working memory, and the words of ``params``. A grid:
    entry; entry for addresses that are multiples of 16, or ""; blocks in x and y; threads; bytes of shared memory.
    """

    module: Any  # runtime.DeviceModule
    operands: tuple[Location, ...]
    params: bytes
    grids: tuple[tuple[str, str, int, int, int, int], ...]  # one without blocks is not launched
    wide: tuple[int, ...]  # the operands whose addresses decide which entry it is
    scratch_bytes: int  # working memory of the device
    cost_ns: float
    where: str = ""  # the lines of the user's program, for errors


class LibraryProduct(NamedTuple):
    """Matrix products c = a b by the library of a GPU's maker; rows, columns, terms and products of a batch."""

    source: str  # dtype chars, of operands and result
    result: str
    tf32: bool  # float32 may be multiplied so
    a: Location
    b: Location
    c: Location
    extents: tuple[int, int, int, int]
    steps: tuple[int, int, int, int, int]  # elements: of a by rows and terms, of b by terms and columns, of c by rows
    apart: tuple[int, ...]  # elements from one a, b and c of a batch to the next
    epilogue: str = ""  # bias, gelu or gelu_bias
    bias: Location | None = None  # a number for each column
    where: str = ""  # the lines of the user's program, for errors


class Foreign(NamedTuple):
    """A foreign function, found by its name when the plan is made. See ``weft/effects/foreign_calls.py``."""

    target: str
    version: int  # of its interface
    attributes: tuple[Any, ...]  # name, type, dtype, bytes: (elements, bytes) of arrays, attributes of dictionaries
    opaque: bytes  # a text instead of attributes, of versions before 4
    operands: tuple[tuple[Location, int, int, tuple[int, ...]], ...]  # bytes, dtype, extents
    results: tuple[tuple[Location, int, int, tuple[int, ...]], ...]
    where: str  # the lines of the user's program, for errors


class Guard(NamedTuple):
    """A Python callable on whole arrays, called if the byte ``word`` is not 0 or a scanned array has a bad element.

    ``scans``: location, number of words, their bytes; an element is bad whose bits, without the sign, are at least
    these.
    """

    callable: Callable[..., Any]
    operands: tuple[Typed, ...]
    word: Location | None
    scans: tuple[tuple[Location, int, int, int], ...]


class NewOutput(NamedTuple):
    """A result in a new buffer."""

    nbytes: int
    aval: Any


class DonatedOutput(NamedTuple):
    """A result in the buffer of a donated input; a new one if that cannot be taken."""

    source: int
    nbytes: int
    aval: Any


class InputOutput(NamedTuple):
    """A result that is an input."""

    source: int
    aval: Any


class SameOutput(NamedTuple):
    """A result that is the same as an earlier one."""

    source: int
    aval: Any


Instruction = (
    Kernel | Offset | Gemm | Copy | CopyRows | Fill | Sort | Library | Callback | Loop | Routine | Branch | Guard
    | Exchange | ExchangeDone | Launch | Foreign | LibraryProduct
)  # fmt: skip
Output = NewOutput | DonatedOutput | InputOutput | SameOutput
INSTRUCTIONS = (
    Kernel, Offset, Gemm, Copy, CopyRows, Fill, Sort, Library, Callback, Loop, Routine, Branch, Guard, Exchange,
    ExchangeDone, Launch, Foreign, LibraryProduct,
)  # fmt: skip
OUTPUTS = (NewOutput, DonatedOutput, InputOutput, SameOutput)
runtime.install_instructions(INSTRUCTIONS, OUTPUTS)


def words(record: Any) -> str:
    """An instruction or an output as a line of text."""
    name = type(record).__name__.removesuffix("Output").lower()
    return " ".join([name, *[str(field) for field in record if field not in ("", None)]])
