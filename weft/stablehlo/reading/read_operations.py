"""How each operation of StableHLO is read: as a call of an operation of weft on traced values."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import lax, runtime
from weft.core import avals
from weft.core.primitive import registry
from weft.core.tracing.trace import eval_context, trace_to_jaxpr
from weft.operations.pointwise import functions
from weft.stablehlo import foreign_calls
from weft.stablehlo.reading import known_extents, known_reductions, parser, read_lapack, read_shards

Reader = Callable[..., Any]

ELEMENTWISE = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "remainder": "rem", "maximum": "max",
    "minimum": "min", "power": "pow", "atan2": "atan2", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "not": "bitwise_not", "shift_left": "shift_left", "shift_right_logical": "shift_right_logical",
    "shift_right_arithmetic": "shift_right_arithmetic", "negate": "neg", "abs": "abs", "sign": "sign",
    "floor": "floor", "ceil": "ceil", "exponential": "exp", "exponential_minus_one": "expm1", "log": "log",
    "log_plus_one": "log1p", "logistic": "logistic", "sine": "sin", "cosine": "cos", "tan": "tan", "tanh": "tanh",
    "sqrt": "sqrt", "rsqrt": "rsqrt", "cbrt": "cbrt", "is_finite": "is_finite", "real": "real", "imag": "imag",
    "complex": "complex", "popcnt": "population_count", "count_leading_zeros": "clz", "clamp": "clamp",
}  # fmt: skip
# operations of the dialect of client operations, which JAX's files hold
CLIENT = {
    "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan", "atanh": "atanh",
    "cosh": "cosh", "sinh": "sinh", "tan": "tan", "erf": "erf", "erfc": "erfc",
    "lgamma": "lgamma", "digamma": "digamma", "polygamma": "polygamma", "zeta": "zeta", "conj": "conj",
    "next_after": "nextafter", "square": "square",
}  # fmt: skip


def _function(name: str) -> Reader:
    return lambda site, *operands: getattr(lax, name)(*operands)


READERS: dict[str, Reader] = {f"stablehlo.{theirs}": _function(ours) for theirs, ours in ELEMENTWISE.items()}
READERS |= known_extents.DYNAMIC
READERS |= read_shards.READERS
READERS |= {f"chlo.{theirs}": _function(ours) for theirs, ours in CLIENT.items()}
READERS["chlo.erf_inv"] = lambda site, x: functions.erf_inv_drawn(x)  # whose bits are those of XLA's


def reads(*names: str) -> Callable[[Reader], Reader]:
    """Register a reader for operations of StableHLO (or of another dialect, with a dot)."""

    def register(reader: Reader) -> Reader:
        READERS.update({name if "." in name else f"stablehlo.{name}": reader for name in names})
        return reader

    return register


def _shape(x: Any) -> tuple[int, ...]:
    return avals.get_aval(x).shape


def _dtype(x: Any) -> Any:
    return avals.get_aval(x).dtype


# -- elements and constants -------------------------------------------------------------------------------------------


@reads("constant")
def constant(site: Any) -> Any:
    return parser.constant(site.attribute("value"))


@reads("convert")
def convert(site: Any, x: Any) -> Any:
    dtype = site.types[0][1]
    return lax.convert_element_type(lax.real(x) if _dtype(x).kind == "c" and dtype.kind != "c" else x, dtype)


@reads("bitcast_convert")
def bitcast(site: Any, x: Any) -> Any:
    return lax.bitcast_convert_type(x, site.types[0][1])


@reads("compare")
def compare(site: Any, x: Any, y: Any) -> Any:
    direction = parser.word(site.attribute("comparison_direction")).lower()
    if parser.word(site.attribute("compare_type")) == "TOTALORDER" and _dtype(x).kind not in "biu":
        if direction in ("gt", "ge"):
            x, y, direction = y, x, {"gt": "lt", "ge": "le"}[direction]
        if direction == "ne":
            return lax.bitwise_not(lax.eq_to_p.bind(x, y))
        return getattr(lax, f"{direction}_to_p").bind(x, y)
    return getattr(lax, direction)(x, y)


@reads("select")
def select(site: Any, which: Any, on_true: Any, on_false: Any) -> Any:
    return lax.select_n(which, on_false, on_true)


@reads("round_nearest_even", "round_nearest_afz")
def rounded(site: Any, x: Any) -> Any:
    even = site.operation.name.endswith("even")
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN if even else lax.RoundingMethod.AWAY_FROM_ZERO)


@reads("reduce_precision")
def reduce_precision(site: Any, x: Any) -> Any:
    bits = [parser.integer(site.attribute(name)) for name in ("exponent_bits", "mantissa_bits")]
    return lax.reduce_precision(x, *bits)


@reads("chlo.is_inf", "chlo.is_pos_inf", "chlo.is_neg_inf")
def is_inf(site: Any, x: Any) -> Any:
    kind = site.operation.name
    return lax.eq(x if kind != "chlo.is_inf" else lax.abs(x), lax.full_like(x, -np.inf if "neg" in kind else np.inf))


@reads("optimization_barrier")
def barrier(site: Any, *operands: Any) -> Any:
    return lax.optimization_barrier(operands)


@reads("create_token")
def create_token(site: Any) -> Any:
    return lax.create_token()


@reads("after_all")
def after_all(site: Any, *tokens: Any) -> Any:
    return lax.after_all(*tokens)


# -- movement ---------------------------------------------------------------------------------------------------------


@reads("broadcast_in_dim")
def broadcast(site: Any, x: Any) -> Any:
    if site.types[0][0] == () == _shape(x):  # a constant stays one
        return x
    return lax.broadcast_in_dim(x, site.types[0][0], parser.integers(site.attribute("broadcast_dimensions")))


@reads("reshape")
def reshape(site: Any, x: Any) -> Any:
    return lax.reshape(x, site.types[0][0])


@reads("transpose")
def transpose(site: Any, x: Any) -> Any:
    return lax.transpose(x, parser.integers(site.attribute("permutation")))


@reads("reverse")
def reverse(site: Any, x: Any) -> Any:
    return lax.rev(x, parser.integers(site.attribute("dimensions")))


@reads("slice")
def sliced(site: Any, x: Any) -> Any:
    names = ("start_indices", "limit_indices", "strides")
    return lax.slice(x, *[parser.integers(site.attribute(name)) for name in names])


@reads("pad")
def pad(site: Any, x: Any, value: Any) -> Any:
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    return lax.pad(x, value, list(zip(*[parser.integers(site.attribute(name)) for name in names], strict=True)))


@reads("concatenate")
def concatenate(site: Any, *xs: Any) -> Any:
    return lax.concatenate(xs, parser.integer(site.attribute("dimension")))


@reads("iota")
def iota(site: Any) -> Any:
    shape, dtype = site.types[0]
    return lax.broadcasted_iota(dtype, shape, parser.integer(site.attribute("iota_dimension")))


@reads("dynamic_slice")
def dynamic_slice(site: Any, x: Any, *starts: Any) -> Any:
    return lax.dynamic_slice(x, starts, parser.integers(site.attribute("slice_sizes")))


@reads("dynamic_update_slice")
def dynamic_update_slice(site: Any, x: Any, update: Any, *starts: Any) -> Any:
    return lax.dynamic_update_slice(x, update, starts)


def _vectors_last(indices: Any, dim: int) -> Any:
    """Indices whose last dimension holds the index vectors."""
    rank = len(_shape(indices))
    if dim == rank:
        return lax.expand_dims(indices, (rank,))
    order = [d for d in range(rank) if d != dim]
    return indices if dim == rank - 1 else lax.transpose(indices, [*order, dim])


@reads("gather", "dynamic_gather")
def gather(site: Any, x: Any, indices: Any, given: Any = None) -> Any:
    text = site.attribute("dimension_numbers")
    field = functools.partial(parser.field, text)
    numbers = lax.GatherDimensionNumbers(
        field("offset_dims"),
        field("collapsed_slice_dims"),
        field("start_index_map"),
        field("operand_batching_dims"),
        field("start_indices_batching_dims"),
    )
    indices = _vectors_last(indices, *(field("index_vector_dim") or (0,)))
    sizes = site.attribute("slice_sizes")
    sizes = parser.integers(sizes) if given is None else known_extents.extents(given, "dynamic_gather")
    return lax.gather(x, indices, numbers, sizes, mode="clip", **_promises(site))


def _promises(site: Any) -> dict[str, bool]:
    names = ("indices_are_sorted", "unique_indices")
    return {name: site.attribute(name) == "true" for name in names}


SCATTERS = {
    "second": "scatter", "stablehlo.add": "scatter_add", "stablehlo.multiply": "scatter_mul",
    "stablehlo.subtract": "scatter_sub", "stablehlo.minimum": "scatter_min", "stablehlo.maximum": "scatter_max",
}  # fmt: skip


@reads("scatter")
def scatter(site: Any, *operands: Any) -> Any:
    """Several arrays at once are scattered one by one, if each result of the region is made of elements of one
    array."""
    count = len(operands) // 2
    arrays, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    if count == 1:
        return _scattered(site, arrays[0], indices, updates[0])
    return [
        _scattered(site.of_one(index, count), x, indices, update)
        for index, (x, update) in enumerate(zip(arrays, updates, strict=True))
    ]


def _scattered(site: Any, x: Any, indices: Any, updates: Any) -> Any:
    field = functools.partial(parser.field, site.attribute("scatter_dimension_numbers"))
    numbers = lax.ScatterDimensionNumbers(
        field("update_window_dims"),
        field("inserted_window_dims"),
        field("scatter_dims_to_operand_dims"),
        field("input_batching_dims"),
        field("scatter_indices_batching_dims"),
    )
    indices = _vectors_last(indices, *(field("index_vector_dim") or (0,)))
    name = SCATTERS.get(site.single())
    if name is not None:
        return getattr(lax, name)(x, indices, updates, numbers, mode="drop", **_promises(site))
    return lax.scatter_p.bind(
        x, indices, updates, dimension_numbers=numbers, mode=lax.GatherScatterMode.from_any("drop"),
        update_jaxpr=_combination(site, _dtype(x)), update_consts=(), **_promises(site),
    )  # fmt: skip


def _combination(site: Any, dtype: np.dtype) -> Any:
    """The program of (old element, update) of a scatter."""
    region = site.region()
    closed = trace_to_jaxpr(lambda old, new: region(old, new), [runtime.ShapedArray((), dtype)] * 2)[0]
    if closed.consts:
        raise NotImplementedError("[stablehlo] a scatter by a function of values around it: weft's take two elements")
    return closed.jaxpr


# -- reductions and sorts ---------------------------------------------------------------------------------------------


@reads("reduce")
def reduce(site: Any, *operands: Any) -> Any:
    half = len(operands) // 2
    arrays, starts = operands[:half], operands[half:]
    axes = parser.integers(site.attribute("dimensions"))
    name, identity = known_reductions.NAMES.get(site.single(), ("", 0))
    if half == 1 and name and known_reductions.is_identity(starts[0], identity):
        if _dtype(arrays[0]).kind == "b" and name in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min"):
            name = {"reduce_sum": "reduce_or", "reduce_max": "reduce_or"}.get(name, "reduce_and")
        return getattr(lax, name)(arrays[0], axes)
    region = site.region()
    combine = lambda left, right: tuple(region(*left, *right))  # noqa: E731 - it is handed on
    return lax.reduce(tuple(arrays), tuple(starts), combine, axes)


@reads("reduce_window")
def reduce_window(site: Any, *operands: Any) -> Any:
    half = len(operands) // 2
    rank = len(_shape(operands[0]))
    ones = (1,) * rank
    names = ("window_strides", "base_dilations", "window_dilations")
    strides, base, window = [parser.integers(site.attribute(name)) or ones for name in names]
    pairs = padding(site, rank)
    region, single = site.region(), site.single()
    sizes = parser.integers(site.attribute("window_dimensions"))
    known = {"stablehlo.add": lax.add, "stablehlo.maximum": lax.max, "stablehlo.minimum": lax.min}.get(single)
    if half == 1 and {*strides, *base, *window} == {1}:
        found = known_reductions.running(operands[0], operands[1], single, sizes, pairs)
        if found is not None:
            return found
    if half == 1:
        combine = known or (lambda x, y: region(x, y)[0])
        start = operands[1].item() if isinstance(operands[1], np.ndarray) else operands[1]
        start = operands[1].dtype.type(start) if isinstance(operands[1], np.ndarray) else start
        return lax.reduce_window(operands[0], start, combine, sizes, strides, pairs, base, window)
    combine = lambda left, right: tuple(region(*left, *right))  # noqa: E731 - it is handed on
    return lax.reduce_window(operands[:half], operands[half:], combine, sizes, strides, pairs, base, window)


def _order(site: Any) -> tuple[int, bool]:
    """The number of keys of a comparator, and whether it sorts downward."""
    block = site.operation.regions[0]
    arguments = [name for name, _ in block.arguments]

    def reached(name: str) -> set[str]:
        return parser.reached(block, name)

    used = reached(block.operations[-1].operands[0])
    keys = len({arguments.index(name) // 2 for name in used})
    directions = set()
    for op in block.operations:
        direction = parser.word(op.attributes.get("comparison_direction"))
        left, right = (reached(name) for name in op.operands[:2]) if len(op.operands) == 2 else (set(), set())
        if direction in ("LT", "GT") and len(left) == len(right) == 1:
            a, b = (arguments.index(next(iter(side))) for side in (left, right))
            if a // 2 == b // 2 and a != b:
                directions.add((direction == "LT") == (a < b))
    if len(directions) != 1 or used != set(arguments[: 2 * keys]):
        raise NotImplementedError("[stablehlo] a sort by a comparison other than less or greater of its first operands")
    return keys, not directions.pop()


def _check_lexicographic(site: Any, operands: Sequence[Any], keys: int, downward: bool) -> None:
    """NotImplementedError unless the comparator orders keys as tuples are ordered; tried on small keys.

    Keys that do not differ in the first four numbers differ in all others, so that the number of trials is bounded.
    """
    region = site.region()
    few = list(itertools.product((0, 1), repeat=min(keys, 4)))
    rows = [(*row, *row[-1:] * (keys - len(row))) for row in few]
    with eval_context():
        for left, right in itertools.product(rows, rows):
            given = [np.asarray(0, _dtype(x)) for x in operands for _ in range(2)]
            for index, pair in enumerate(zip(left, right, strict=True)):
                given[2 * index : 2 * index + 2] = [np.asarray(key, _dtype(operands[index])) for key in pair]
            if bool(region(*given)[0]) != (left > right if downward else left < right):
                raise NotImplementedError(
                    "[stablehlo] a sort by a comparison that does not order its first operands as tuples are ordered"
                )


@reads("sort")
def sort(site: Any, *operands: Any) -> Any:
    keys, downward = _order(site)
    _check_lexicographic(site, operands, keys, downward)
    axis = parser.integer(site.attribute("dimension"), -1) % len(_shape(operands[0]))
    flipped = [lax.rev(x, (axis,)) for x in operands] if downward else list(operands)
    found = lax.sort(tuple(flipped), dimension=axis, num_keys=keys)
    return [lax.rev(x, (axis,)) for x in found] if downward else list(found)


@reads("chlo.top_k")
def top_k(site: Any, x: Any) -> Any:
    return lax.top_k(x, parser.integer(site.attribute("k")))


# -- products ---------------------------------------------------------------------------------------------------------


def padding(site: Any, rank: int) -> list[tuple[int, int]]:
    """The amounts before and after each dimension; none if they are not given."""
    given = site.attribute("padding")
    return [(0, 0)] * rank if given is None else [(int(a), int(b)) for a, b in parser.constant(given).reshape(-1, 2)]


def _precision(site: Any) -> Any:
    words = re.findall(r"precision (\w+)", site.attribute("precision_config") or "")
    found = tuple([None if word == "DEFAULT" else getattr(lax.Precision, word) for word in words])
    return found if len(found) == 2 and any(found) else None


@reads("dot_general")
def dot_general(site: Any, lhs: Any, rhs: Any) -> Any:
    text = site.attribute("dot_dimension_numbers")
    sums, batch = [
        (parser.field(text, f"lhs_{kind}_dimensions"), parser.field(text, f"rhs_{kind}_dimensions"))
        for kind in ("contracting", "batching")
    ]
    dtype = site.types[0][1]
    return lax.dot_general(lhs, rhs, (sums, batch), precision=_precision(site), preferred_element_type=dtype)


def _spec(text: str, first: str, second: str) -> tuple[int, ...]:
    """The dimensions in order of their roles, from ``b, f, 0, 1``."""
    roles = [role.strip() for role in text.split(",")]
    return tuple([roles.index(role) for role in (first, second, *map(str, range(len(roles) - 2)))])


@reads("convolution")
def convolution(site: Any, lhs: Any, rhs: Any) -> Any:
    a, b, c = re.findall(r"\[([^\]]*)\]", site.attribute("dimension_numbers"))
    numbers = lax.ConvDimensionNumbers(_spec(a, "b", "f"), _spec(b, "o", "i"), _spec(c, "b", "f"))
    spatial = numbers.rhs_spec[2:]
    ones = (1,) * len(spatial)
    reversal = parser.flags(site.attribute("window_reversal"))
    if any(reversal):
        rhs = lax.rev(rhs, [dim for dim, turned in zip(spatial, reversal, strict=True) if turned])
    names = ("window_strides", "lhs_dilation", "rhs_dilation")
    strides, base, window = [parser.integers(site.attribute(name)) or ones for name in names]
    return lax.conv_general_dilated(
        lhs,
        rhs,
        strides,
        padding(site, len(spatial)),
        base,
        window,
        numbers,
        feature_group_count=parser.integer(site.attribute("feature_group_count"), 1),
        batch_group_count=parser.integer(site.attribute("batch_group_count"), 1),
        precision=_precision(site),
        preferred_element_type=site.types[0][1],
    )


@reads("fft")
def fft(site: Any, x: Any) -> Any:
    lengths = parser.integers(site.attribute("fft_length"))
    return lax.fft(x, parser.word(site.attribute("fft_type")).lower(), lengths)


@reads("cholesky")
def cholesky(site: Any, a: Any) -> Any:
    if site.attribute("lower") == "true":
        return lax.linalg.cholesky(a, symmetrize_input=False)
    order = [*range(len(_shape(a)) - 2), len(_shape(a)) - 1, len(_shape(a)) - 2]
    lower = lax.linalg.cholesky(lax.conj(lax.transpose(a, order)), symmetrize_input=False)
    return lax.conj(lax.transpose(lower, order))


@reads("triangular_solve")
def triangular_solve(site: Any, a: Any, b: Any) -> Any:
    turned = parser.word(site.attribute("transpose_a"))
    words = {name: site.attribute(name) == "true" for name in ("left_side", "lower", "unit_diagonal")}
    return lax.linalg.triangular_solve(
        a, b, transpose_a=turned in ("TRANSPOSE", "ADJOINT"), conjugate_a=turned == "ADJOINT", **words
    )


# -- calls and control flow -------------------------------------------------------------------------------------------


@reads("func.call")
def call(site: Any, *operands: Any) -> Any:
    name = site.attribute("callee").lstrip("@").strip('"')
    if not name.startswith("weft."):
        return site.called(name)(*operands)
    primitive, *params = [word for word in name.split(".")[1:] if not word.isdigit()]
    return registry[primitive].bind(*operands, **dict.fromkeys(params))


@reads("composite")
def composite(site: Any, *operands: Any) -> Any:
    return site.called(site.attribute("decomposition").lstrip("@"))(*operands)


@reads("while")
def while_loop(site: Any, *operands: Any) -> Any:
    going, turn = site.region(0), site.region(1)
    return lax.while_loop(lambda c: going(*c)[0], lambda c: tuple(turn(*c)), tuple(map(_array, operands)))


def _array(x: Any) -> Any:
    return np.asarray(x) if isinstance(x, np.generic) else x


@reads("case")
def case(site: Any, index: Any) -> Any:
    count = len(site.operation.regions)
    if isinstance(index, np.ndarray):  # the number of the platform
        return site.region(int(index) if 0 <= index < count else count - 1)()
    outside = lax.bitwise_or(lax.lt(index, np.int32(0)), lax.ge(index, np.int32(count)))
    index = lax.select_n(outside, index, np.int32(count - 1))
    return lax.switch(index, [lambda n=n: tuple(site.region(n)()) for n in range(count)])


@reads("if")
def cond(site: Any, which: Any) -> Any:
    return lax.cond(which, lambda: tuple(site.region(0)()), lambda: tuple(site.region(1)()))


@reads("rng_bit_generator")
def rng_bit_generator(site: Any, state: Any) -> Any:
    shape, dtype = site.types[1]
    return lax.rng_bit_generator(state, shape, dtype)


@reads("rng")
def rng(site: Any, low: Any, high: Any, shape: Any) -> Any:
    if parser.word(site.operation.attributes.get("rng_distribution")) != "UNIFORM":
        raise NotImplementedError("[stablehlo] rng of numbers that are not evenly distributed")
    return lax.rng_uniform(low, high, site.types[0][0])


# -- windows that choose, and what other dialects hold ----------------------------------------------------------------


@reads("select_and_scatter")
def select_and_scatter(site: Any, x: Any, source: Any, start: Any) -> Any:
    block = site.operation.regions[0]
    direction = parser.word(block.operations[0].attributes.get("comparison_direction"))
    choice = {"GE": lax.ge_p, "LE": lax.le_p}.get(direction)
    if (
        choice is None
        or len(block.operations) != 2
        or site.single(1) != "stablehlo.add"
        or not known_reductions.is_identity(start, 0)
    ):
        raise NotImplementedError("[stablehlo] select_and_scatter other than sums at the largest or smallest elements")
    ones = (1,) * len(_shape(x))
    return lax.select_and_scatter_add_p.bind(
        source,
        x,
        select_prim=choice,
        window_dimensions=parser.integers(site.attribute("window_dimensions")) or ones,
        window_strides=parser.integers(site.attribute("window_strides")) or ones,
        padding=tuple(padding(site, len(ones))),
    )


IDENTITIES = ("Sharding", "annotate_device_placement", "xla.sdy.FuncResultSharding")


@reads("custom_call")
def custom_call(site: Any, *operands: Any) -> Any:
    target = (site.attribute("call_target_name") or "").strip('"')
    if target in IDENTITIES:
        return list(operands)
    if target == "shape_assertion":
        return known_extents.check(site, *operands)
    if target == "stablehlo.dynamic_reduce_window":
        return _open_windows(site, *operands)
    if target == "ApproxTopK":
        return _approximate_top_k(site, *operands)
    routine = re.fullmatch(r"lapack_[sdcz](\w+?)_ffi", target)
    reader = read_lapack.ROUTINES.get(routine[1]) if routine else None
    if reader is None and (site.attribute("mhlo.backend_config") is not None or foreign_calls.is_known(target)):
        return foreign_calls.read(site, *operands)
    if reader is None:
        raise NotImplementedError(f"[stablehlo] the custom call {target!r} is not read: weft has no program for it")
    config = site.attribute("mhlo.backend_config") or ""
    letters = {name: chr(int(code)) for name, code in re.findall(r"(\w+) = (\d+) : ui8", config)}
    return reader(letters, site.types, *operands)


def _approximate_top_k(site: Any, x: Any, *_: Any) -> Any:
    """The largest or smallest elements along a dimension, and where they are; exact here."""
    config = dict(re.findall(r"(\w+) = (-?[\w.]+)", site.attribute("mhlo.backend_config") or ""))
    count, axis = int(config["top_k"]), int(config["reduction_dim"])
    if site.types[0][0][axis] != count:
        raise NotImplementedError("[stablehlo] ApproxTopK that gives more than the elements asked for")
    (name,) = re.findall(r"@([\w.$-]+)", site.attribute("called_computations"))
    direction = parser.word(site.reading.functions[name].operations[0].attributes.get("comparison_direction"))
    find = {"GT": lax.approx_max_k, "LT": lax.approx_min_k}.get(direction)
    if find is None:
        raise NotImplementedError("[stablehlo] ApproxTopK by a comparison other than less or greater")
    return find(x, count, reduction_dimension=axis)


def _open_windows(site: Any, x: Any, start: Any, *bounds: Any) -> Any:
    """``reduce_window`` where extents are open: window, strides, dilations and padding are operands."""
    sizes, strides, base, window, pairs = [known_extents.extents(bound, "dynamic_reduce_window") for bound in bounds]
    (name,) = re.findall(r"@([\w.$-]+)", site.attribute("called_computations"))
    block = site.reading.functions[name]
    known = {"stablehlo.add": lax.add, "stablehlo.maximum": lax.max, "stablehlo.minimum": lax.min}
    combine = known.get(block.operations[0].name) if len(block.operations) == 2 else None
    combined = combine or (lambda a, b: site.called(name)(a, b)[0])
    first = start.dtype.type(start.item()) if isinstance(start, np.ndarray) else start
    padded = [(pairs[k], pairs[k + 1]) for k in range(0, len(pairs), 2)]
    return lax.reduce_window(x, first, combined, sizes, strides, padded, base, window)
