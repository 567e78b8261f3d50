"""The cost model: what registers, caches and prefetchers a target has, and what instructions cost there, by family.

``Target.model`` is the row of the target's family, with the sizes of caches that were read from the machine. Costs are
in instructions on a whole vector, as an operation's ``cost`` is (``core/kinds.py``). Figures beside the class are the
same for all families; ``RUNTIME`` are those that the native runtime works with, which is handed them when it is loaded.
benchmarks/NOTES.md says on which processors the numbers without a source were measured.
"""

from __future__ import annotations

from weft._base.record import Record

LINE = 64  # bytes of a cache line
PAGE = 4096  # bytes; hardware prefetchers stop at the end of a page
QUARTER = 16  # bytes of a register, or of a part of a longer one, within which most shuffles move elements
PAIRED = 32  # lanes of a vector of bfloat16 in two float32 registers: even positions in one, odd positions in the other
LARGE_CACHES = {2: 1 << 20, 3: 32 << 20}  # bytes, by level: what is assumed of a larger cache, or of an unknown one

# Arrays
FAR = 1 << 18  # elements; a larger array does not fit the nearer caches
FAR_ELEMENTS = 1 << 20  # elements of an array; single elements of a larger one are read from memory

# Costs
FUNCTION = 8.0  # instructions; operations of this cost are functions
DOUBLE = 2.0  # times the cost in float64 of other operations: two registers
DOUBLE_FUNCTION = 5.0  # times the cost in float64 of functions: more terms (3 to 9 were measured)
HIDDEN = 2.0  # instructions that the latency of a load hides

# Times, in nanoseconds
NS_PER_INSTRUCTION = 0.19  # one instruction on a whole vector
NS_PER_BYTE = 0.011  # from the second cache
NS_PER_ACCESS = 0.7  # one access at a computed address
NS_PER_COST = 0.03  # one unit of an operation's cost, for one element, by several workers
NS_STREAMED = 0.1  # an element of a row, by several workers
NS_NEAR, NS_FAR = 0.3, 4.0  # a single element of an array of less than FAR_ELEMENTS, and of a larger one
NS_LAUNCH = 1000.0  # the start of a kernel


class Model(Record):
    """One family of processors; bytes, vectors, and costs in instructions."""

    # registers
    registers: int  # for vectors
    register_bytes: int
    masks: bool  # registers for masks, by which every instruction can be masked
    tile: int  # vectors of a reducing tile: each row touches 256 contiguous bytes
    # instructions
    held: int = 0  # constant vectors that are kept in registers throughout; more would leave loops with too few
    long_quotients: bool = False  # vectors of 64-bit integers are divided through floats, not one by one
    past_caches: bool = False  # results that are too large for the caches are stored past them
    test: float = 2.0  # whether any lane is set, and a branch that is predicted
    masked_store: float = 1.0
    rounding: float = 6.0  # to a half precision
    access_apart: float = 2.0  # an access to lanes that are not side by side, for each element of a short row
    beside: int = 4  # sums in flight, each waiting for its last one: cycles that an addition takes
    waits: bool = False  # roots and quotients take so long that some are made of products meanwhile
    # compilation: LLVM's time grows with the code, by about 0.1 ms for 10 instructions
    unrolled: float = 10.0  # bodies up to this cost are written for several vectors
    twice: float = 16.0  # bodies below this cost are written twice, for whole vectors and for the last one
    function: float = FUNCTION  # operations of this cost take most of the time
    shuffled_strides: int = 12  # variants of loads and stores in a nest, each for one small stride
    # latency
    pipelined: float = 30.0  # bodies of this cost (150 instructions) fill half of the reorder window: they are halved
    # memory
    streams: int = 16  # rows side by side that prefetchers follow
    run_bytes: int = 256  # of one row, read before the next: four lines
    second_cache: int = LARGE_CACHES[2]  # bytes, of one core
    third_cache: int = LARGE_CACHES[3]  # bytes

    @property
    def kept_bytes(self) -> int:
        """What a tile may carry from row to row: half of the registers."""
        return self.registers * self.register_bytes // 2

    @property
    def tests_masks(self) -> bool:
        """Whether a store in a loop asks if its mask is whole."""
        return self.masked_store > self.test

    @property
    def line_bytes(self) -> int:
        """Bytes of the lines that a neighbourhood holds in registers: three quarters of these."""
        return self.registers * self.register_bytes * 3 // 4

    @property
    def fetched_bytes(self) -> int:
        """The longest row that is fetched ahead: a longer one might be evicted before it is used."""
        return self.second_cache // 4

    @property
    def streamed_bytes(self) -> int:
        """From how many bytes on results are stored past the caches: no cache would keep them.

        64 MB were measured where the third cache has 32 MB, and where it has more.
        """
        return 2 * self.third_cache

    @property
    def streamed_lines(self) -> int:
        """From how many bytes on results are stored past the caches if their lines are written rows apart."""
        return min(8 << 20, self.third_cache)


X86_V4 = Model(
    registers=32, register_bytes=64, masks=True, tile=4, waits=True, held=15, long_quotients=True, past_caches=True
)
X86_V3 = Model(
    registers=16,
    register_bytes=32,
    masks=False,
    tile=8,
    masked_store=40.0,  # microcoded on AMD: 26 ns on Zen 3
    past_caches=True,
)
AARCH64 = Model(registers=32, register_bytes=16, masks=False, tile=4)
# One thread of a GPU. Schedules that follow from these figures have the bits of x86-64-v3.
GPU = Model(registers=64, register_bytes=4, masks=False, tile=4)
WARP = 32  # threads that run together
# Kernels of GPUs. The sizes of blocks were compared by the predicted times of tests/gpu/prediction.py, for an H100.
GPU_WORDS = 500  # words of 8 bytes: the parameters of a kernel, which older drivers hold to 4 KB
GPU_SHARED = 96 << 10  # bytes of a block's own memory: some GPUs have 99 KB for one, and an H100 runs two such blocks
GPU_THREADS = 256  # threads of a block
GPU_TILES = 96  # large tiles of a product that keep a GPU busy: an estimate, two thirds of an H100's 132 processors
GPU_EPILOGUE = 8 * FUNCTION  # instructions for each element of a tile, instead of its store: an estimate
# Where the library of a GPU's maker is installed (option product_library), it has the products of matrices of at least
# so many operations, two for each term, of the types and layouts that it knows; all others are kernels of our own. An
# H100 takes 42 us for them in float32, and 4 us in bfloat16; the library's first answer in a process, 77 to 120 ms.
GPU_LIBRARY_OPERATIONS = 1 << 31
GPU_REGISTERS = 1 << 16  # registers of 4 bytes, of all threads of a block
# Elements of a row that a thread keeps in registers: a softmax of rows of 4096 is predicted 195 us after 216.
GPU_HELD = 16
GPU_LANE_THREADS = 128  # threads of a block, where each has a loop of its own: an estimate
# Elements that a thread loads before it uses the first: a sum is predicted 116 us after 139, and a transposition 189 us
# after 192 by 4.
GPU_AT_ONCE = 8
WARP_ROW = 1024  # elements: a longer row is worth a block (on an H100 a warp needs 168 registers for 4096)
GPU_ROWS = 1 << 11  # rows from which on a device is full without cutting rows: two blocks for each multiprocessor
GPU_FEW = 4  # elements of a value of a loop that one thread keeps in registers: an estimate
# A loop whose kernels one block runs: at most so many times its threads one after the other, and so many terms of a
# product. Estimates: a launch takes 3.8 us, in which a block does this.
GPU_RESIDENT_ROUNDS, GPU_RESIDENT_TERMS = 16, 1 << 18
# Where each thread goes through its row one by one: so many rows keep a GPU busy, and of fewer rows it takes those of
# at most so many elements. Estimates: a step waits 0.3 us for memory, and a copy to the host takes some 10 us.
GPU_SERIAL_ROWS, GPU_SERIAL_STEPS = 1 << 10, 1 << 12

# What the native runtime decides by (runtime/src/figures.h): where and when something is computed, and never what. Only
# ``fast_pairs`` also decides bits: it chooses how products of bfloat16 are added (docs/NUMERICS.md). Figures are bytes,
# or, where a name ends with _ns, nanoseconds of one thread for one such thing. Each group names the script of
# benchmarks/ that shows what another value costs.
RUNTIME: dict[str, float] = {
    # products: which operands are read where they lie; benchmarks/products.py, sizes from the first cache to memory
    "in_place_bytes": 640 << 10,  # an operand that the second cache keeps beside another
    "few_columns_bytes": 128 << 10,  # a block of the right operand, of few columns, however many blocks there are
    "few_terms_bytes": 160 << 10,  # a block of it that is read whole for every few rows
    "strip_bytes": 2 << 20,  # a matrix of contiguous columns that is read in narrow strips, from the second cache
    "complex_strip_bytes": 7 << 18,  # a complex one of more than one strip
    "crossing_bytes": 96 << 10,  # one whose columns cross cache lines
    "few_sums_bytes": 256 << 10,  # the sums of a block of terms
    "block_bytes": 1 << 20,  # both operands of a block of terms, in the second cache
    "held_bytes": 1 << 20,  # packed operands that the second cache keeps
    "batch_bytes": 1 << 20,  # a batch from where on the next product is fetched during one
    "partial_bytes": 4 << 20,  # sums of blocks of terms that wait to be added
    "large_bytes": 16 << 20,  # a matrix that comes from memory
    "shared_bytes": 32 << 20,  # a packed operand of all threads, in the third cache
    # the same, as shares of a cache; benchmarks/field.py, products of matrices and vectors again and again
    "nearly_held": 0.85,  # of the second cache: a larger matrix has always lost what comes next
    "most_held": 2.25,  # times the second cache: a larger matrix is not read to and fro
    "strips_held": 9.0 / 32,  # of the third cache: a matrix that is faster in strips of lanes than by columns
    "complex_strips_held": 12.0 / 32,  # the same, complex
    # 1 or 0, by benchmarks/products.py
    "in_parts": 1,  # columns that come from the third cache are added in parts
    "in_strips": 0,  # a matrix that caches hold is read in strips of lanes
    "fast_pairs": 0,  # sums of pairs of bfloat16 (AVX512_BF16) are faster than float32: Zen 4 twice, an Intel half
    # what products take; benchmarks/products.py
    "near_byte_ns": 0.012,  # of an operand in caches
    "far_byte_ns": 0.05,  # of one in memory
    "product_ns": 20,  # one product of a batch
    "tile_ns": 6,  # one tile of a result
    "term_ns": 0.15,  # one term of a row of few columns
    # memory; benchmarks/run.py, copies and checks.py
    "copy_byte_ns": 0.1,
    "fill_byte_ns": 0.05,
    "scan_byte_ns": 0.04,  # looked at by a guard
    "python_byte_ns": 0.25,  # of a callback's operands: at least that much of its time
    # messages between processes of one machine; benchmarks/collectives.py
    "exchange_ns": 1500,  # sent
    "exchange_done_ns": 2500,  # waited for
    "exchange_byte_ns": 0.15,
    # Fourier transforms and factorizations; benchmarks/transforms_and_layers.py and linear_algebra.py
    "fft_flop_ns": 0.06,
    "matrix_ns": 300,  # one matrix of LAPACK's, besides its flops
    "matrix_flop_ns": 0.15,  # of a small matrix
    # sorts; benchmarks/modules.py
    "sort_word_ns": 1.5,  # one word in one pass that counts digits
    "sort_read_ns": 0.5,  # one element that is made a word
    "sort_move_ns": 2.0,  # one element that is moved to where its word is
    "compare_ns": 4.0,  # one comparison of rows of keys
    "vector_compare_ns": 0.6,  # one of words, by vectors
    "value_compare_ns": 0.5,  # one of values, by NumPy's vectors
    "value_pass_ns": 0.5,  # one value in one pass that counts
    # threads; benchmarks/busy.py
    "inline_ns": 20_000,  # a longer program is worth another thread: the stream runs it
    "wake_ns": 2_000_000,  # queued work that is worth waking the stream's thread, which takes 5,000 to 45,000 and a CPU
    "awake_ns": 4_000,  # a job that is worth several threads that are awake: 2,300 was measured to be even
    "asleep_ns": 40_000,  # the same, of threads that have to be woken
    "streak_pause_ns": 2_000,  # between jobs that follow each other
    # profiles; benchmarks/profiles.py
    "clock_ns": 40,  # a look at the clock, and the counters of a step
    "call_ns": 100,  # what a call takes besides its steps
}  # fmt: skip

# What other makers' processors have otherwise: measured on a Zen 4, where the figures above are an Intel's.
BY_MAKER: dict[str, dict[str, float]] = {
    "AuthenticAMD": {"most_held": 4.2, "in_parts": 0, "in_strips": 1, "fast_pairs": 1},
}


def runtime_figures(maker: str) -> dict[str, float]:
    """The native runtime's figures on a processor of this maker, by its name for itself."""
    return RUNTIME | BY_MAKER.get(maker, {})
