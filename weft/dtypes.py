"""dtypes: which exist, how they promote, and what 32-bit mode makes of the 64-bit ones.

Promotion follows JAX's lattice: each type promotes to the least type above it, Python scalars being the weak
types ``int*``, ``float*`` and ``complex*``, which adopt the type of what they meet. Without ``enable_x64`` every
64-bit dtype is narrowed to 32 bits, with a warning when a user asked for it by name.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import ml_dtypes
import numpy as np

from weft import config, errors
from weft.errors import TypePromotionError as TypePromotionError

# -- the types --------------------------------------------------------------------------------------------------------

_FLOAT8 = tuple(
    np.dtype(getattr(ml_dtypes, name))
    for name in (
        "float8_e3m4", "float8_e4m3", "float8_e8m0fnu", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
        "float8_e5m2", "float8_e5m2fnuz",
    )
)  # fmt: skip
_FLOAT4 = (np.dtype(ml_dtypes.float4_e2m1fn),)
_FLOAT6 = (np.dtype(ml_dtypes.float6_e2m3fn), np.dtype(ml_dtypes.float6_e3m2fn))
_INT_SUBBYTE = tuple(np.dtype(getattr(ml_dtypes, name)) for name in ("int2", "int4", "uint2", "uint4"))

POWERS_OF_TWO = np.dtype(ml_dtypes.float8_e8m0fnu)  # has no zero and no sign
bfloat16 = np.dtype(ml_dtypes.bfloat16)
float16, float32, float64 = np.dtype("float16"), np.dtype("float32"), np.dtype("float64")
complex64, complex128 = np.dtype("complex64"), np.dtype("complex128")
int8, int16, int32, int64 = (np.dtype(f"int{bits}") for bits in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64))
bool_ = np.dtype("bool")

SIGNED = (int8, int16, int32, int64)
UNSIGNED = (uint8, uint16, uint32, uint64)
FLOATS = (bfloat16, float16, float32, float64)
COMPLEX = (complex64, complex128)
STORAGE_ONLY = _FLOAT8 + _FLOAT6 + _FLOAT4 + _INT_SUBBYTE
ALL = (bool_, *SIGNED, *UNSIGNED, *FLOATS, *COMPLEX, *STORAGE_ONLY)

# The dtype of tangents of integers: takes no memory and has no values.
float0 = np.dtype([("float0", np.void, 0)])
FLOAT0_OPERAND = (
    "Called {name} with a float0 array. float0s do not support any operations: they are what integer and boolean "
    "arguments have for a gradient, and have no values. If you did not expect one, look for a gradient taken with "
    "respect to an integer; np.zeros(x.shape, float) makes zeros that can be added."
)

_CANONICAL: dict[np.dtype, np.dtype] = {dtype: dtype for dtype in (*ALL, float0)}
_NARROW = {int64: int32, uint64: uint32, float64: float32, complex128: complex64}
# dtypes that are the same in every configuration.
_CANONICAL_32 = {dtype: dtype for dtype in ALL if dtype not in _NARROW}
SCALAR_TYPES: tuple[type, ...] = (*(dtype.type for dtype in ALL), np.longlong, np.ulonglong, np.intc, np.uintc)
SCALAR_TYPES = tuple(dict.fromkeys(SCALAR_TYPES))

python_scalar_types = (bool, int, float, complex)
_PYTHON_DTYPES = {bool: bool_, int: int64, float: float64, complex: complex128}


class extended(np.generic):
    """Abstract category of dtypes that NumPy does not know."""


class prng_key(extended):
    """Abstract category of the dtypes of typed random keys."""


class ExtendedDType:
    """Base of dtypes that NumPy does not know. ``itemsize`` is the bytes of one element in memory."""

    type: type = extended
    name: str = "extended"
    itemsize: int = 0
    physical_dtype: np.dtype
    physical_shape: tuple[int, ...]
    kind = "V"

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__

    def of_words(self, words: Any) -> Any:
        """An array of this dtype from the words of its elements."""
        raise NotImplementedError(f"arrays of dtype {self} are not made of words")


def is_extended(dtype: Any) -> bool:
    """Whether a dtype is one that NumPy has no elements of, such as that of random keys."""
    return isinstance(dtype, ExtendedDType)


def is_words(dtype: Any) -> bool:
    """Whether elements of a dtype are, to compiled code, some words of another: keys, and float0, which has none."""
    return isinstance(dtype, ExtendedDType) or dtype == float0


def words_of(dtype: Any) -> tuple[tuple[int, ...], np.dtype]:
    """(the shape of the words of one element, their dtype)."""
    return (dtype.physical_shape, dtype.physical_dtype) if isinstance(dtype, ExtendedDType) else ((0,), bool_)


def is_supported(dtype: Any) -> bool:
    """Whether arrays of this dtype exist."""
    return is_extended(dtype) or dtype in _CANONICAL


def as_dtype(value: Any) -> Any:
    """The dtype named by a dtype, a scalar type, a Python type or a string; extended dtypes pass."""
    if isinstance(value, np.dtype):
        return _CANONICAL.get(value, value)
    if isinstance(value, ExtendedDType):
        return value
    if isinstance(value, str):
        named = getattr(ml_dtypes, value, None)
        if isinstance(named, type):
            return np.dtype(named)
    found = np.dtype(value)
    return _CANONICAL.get(found, found)


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> Any:
    """The dtype arrays get: 64-bit types are narrowed unless x64 is enabled."""
    if dtype in _CANONICAL_32:
        return _CANONICAL_32[dtype]
    if isinstance(dtype, ExtendedDType):
        if not allow_extended_dtype:
            raise ValueError(
                f"Internal: canonicalize_dtype called on extended dtype {dtype} with allow_extended_dtype=False"
            )
        return dtype
    found = as_dtype(dtype)
    return found if config.x64_enabled() else _NARROW.get(found, found)


def allowed_dtype(dtype: Any) -> Any:
    """As ``canonicalize_dtype``, for a dtype that a user gave by name: 64 bits stay where the configuration says so."""
    found = canonicalize_dtype(dtype, allow_extended_dtype=True)
    return found if found is dtype or config.read("explicit_x64_dtypes") != "allow" else as_dtype(dtype)


def narrows(dtype: np.dtype) -> bool:
    """Whether the dtype is not available in the current configuration."""
    return dtype in _NARROW and not config.x64_enabled()


def differ_in_width(a: Any, b: Any) -> bool:
    """Whether one of two dtypes is what the other is narrowed to."""
    return a is not b and (_NARROW.get(a) is b or _NARROW.get(b) is a)


def check_user_dtype(dtype: Any, fun_name: str) -> Any:
    """The dtype a user asked for in ``fun_name``: checked, and narrowed with a warning if it is not available."""
    if dtype is None or isinstance(dtype, ExtendedDType):
        return dtype
    plain = getattr(dtype, "dtype", None) if isinstance(dtype, type) else dtype  # of weft.numpy.float32
    if isinstance(plain, np.dtype) and plain in _CANONICAL_32:
        return _CANONICAL_32[plain]
    if isinstance(dtype, type) and dtype in _PYTHON_DTYPES:
        return scalar_dtype(dtype)
    if not isinstance(dtype, type) and hasattr(dtype, "dtype") and hasattr(dtype, "ndim"):
        raise ValueError(f"[{fun_name}] an array was given as dtype; pass its type, dtype=array.dtype")
    try:
        found = as_dtype(dtype)
    except TypeError as error:
        raise TypeError(f"[{fun_name}] {dtype!r} is not a dtype: {error}") from None
    if found not in _CANONICAL:
        raise TypeError(f"JAX only supports number, bool, and string dtypes, got dtype {dtype} in {fun_name}")
    if not narrows(found):
        return found
    narrow, wanted = _NARROW[found], config.read("explicit_x64_dtypes")
    if wanted == "allow":
        return found
    if wanted == "error":
        raise ValueError(
            f"Explicitly requested dtype {found.name} requested in {fun_name} is not available. To enable more dtypes, "
            "set the jax_enable_x64 or jax_explicit_x64_dtypes configuration options."
        )
    errors.warn(
        f"Explicitly requested dtype {found.name} requested in {fun_name} is not available, and will be truncated to "
        f"dtype {narrow.name}. To enable more dtypes, set the jax_enable_x64 configuration option or the "
        "WEFT_ENABLE_X64 shell environment variable.",
    )
    return narrow


def scalar_dtype(kind: type) -> np.dtype:
    """The dtype of a Python bool, int, float or complex in the current configuration."""
    wide = _PYTHON_DTYPES[kind]
    return wide if config.x64_enabled() else _NARROW.get(wide, wide)


def itemsize_bits(dtype: Any) -> int:
    """The number of bits of one element."""
    if dtype is None:
        raise ValueError("[itemsize_bits] dtype cannot be None.")
    if isinstance(dtype, ExtendedDType):
        return dtype.itemsize * 8
    if as_dtype(dtype) == float0:
        raise ValueError("[itemsize_bits] the elements of float0 hold nothing")
    found = as_dtype(dtype)
    if found == bool_:
        return 8
    if found in _INT_SUBBYTE:
        return ml_dtypes.iinfo(found).bits
    return ml_dtypes.finfo(found).bits if found in _FLOAT8 + _FLOAT6 + _FLOAT4 else found.itemsize * 8


# -- categories -------------------------------------------------------------------------------------------------------

_CATEGORY: dict[np.dtype, type] = {
    **dict.fromkeys((bfloat16, *_FLOAT8, *_FLOAT6, *_FLOAT4), np.floating),
    **dict.fromkeys(_INT_SUBBYTE[:2], np.signedinteger),
    **dict.fromkeys(_INT_SUBBYTE[2:], np.unsignedinteger),
}


def _category(value: Any) -> type:
    """The NumPy abstract or concrete scalar class that stands for a dtype or class."""
    if isinstance(value, ExtendedDType):
        return value.type
    if isinstance(value, type) and issubclass(value, np.generic) and value not in SCALAR_TYPES:
        return value
    if isinstance(value, type) and value in _PYTHON_DTYPES:
        return _PYTHON_DTYPES[value].type
    return as_dtype(value).type


def issubdtype(a: Any, b: Any) -> bool:
    """Whether dtype or category ``a`` is (within) ``b``; bfloat16, float8 and int4 belong to NumPy's categories."""
    try:
        return _is_within(a, b)
    except TypeError:
        return _is_within.__wrapped__(a, b)  # something unhashable: let NumPy say what is wrong with it


@functools.lru_cache(maxsize=4096)
def _is_within(a: Any, b: Any) -> bool:
    sub, above = _category(a), _category(b)
    if sub is above or issubclass(sub, above):
        return True
    generic = _CATEGORY.get(np.dtype(sub)) if sub in _CUSTOM_SCALARS else None
    return generic is not None and issubclass(generic, above)


_CUSTOM_SCALARS = {dtype.type for dtype in _CATEGORY}


def isdtype(dtype: Any, kind: Any) -> bool:
    """The array API's ``isdtype``: ``kind`` is a dtype, a category's name, or a tuple of these."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    categories = {
        "bool": np.bool_, "signed integer": np.signedinteger, "unsigned integer": np.unsignedinteger,
        "integral": np.integer, "real floating": np.floating, "complex floating": np.complexfloating,
        "numeric": np.number,
    }  # fmt: skip
    for one in kinds:
        if isinstance(one, str) and one in categories:
            if issubdtype(dtype, categories[one]):
                return True
        elif isinstance(one, str) and not hasattr(np, one) and not hasattr(ml_dtypes, one):
            raise ValueError(f"Unrecognized kind={one!r}; expected one of {list(categories)}, or a dtype")
        elif as_dtype(dtype) == as_dtype(one):
            return True
    return False


def scalar_type_of(x: Any) -> type:
    """The Python scalar type (bool, int, float, complex) of a value's dtype."""
    dtype = x if isinstance(x, type) else dtype_of(x)
    for category, python_type in zip((np.bool_, np.integer, np.floating, np.complexfloating), python_scalar_types):
        if issubdtype(dtype, category):
            return python_type
    raise TypeError(f"Invalid scalar value {x!r}")


def finfo(dtype: Any) -> Any:
    """Machine limits of a floating type."""
    return _finfo(as_dtype(dtype))


@functools.lru_cache(maxsize=64)
def _finfo(dtype: np.dtype) -> Any:
    return ml_dtypes.finfo(as_dtype(dtype)) if as_dtype(dtype) in _CATEGORY else np.finfo(as_dtype(dtype))


def iinfo(int_type: Any) -> Any:
    """Machine limits of an integer type."""
    dtype = as_dtype(int_type)
    return ml_dtypes.iinfo(dtype) if dtype in _INT_SUBBYTE else np.iinfo(dtype)


# -- promotion --------------------------------------------------------------------------------------------------------

_INT, _FLOAT, _COMPLEX = "int*", "float*", "complex*"
_WEAK_NODES = {_INT: int, _FLOAT: float, _COMPLEX: complex}
Node = Any  # np.dtype, or one of the three weak nodes


def _standard_edges() -> dict[Node, list[Node]]:
    """What each type promotes to in one step."""
    edges: dict[Node, list[Node]] = {dtype: [] for dtype in ALL}
    edges[bool_] = [_INT]
    edges[_INT] = [uint8, int8, *_INT_SUBBYTE, _FLOAT]
    edges[_FLOAT] = [*_FLOAT8, *_FLOAT6, *_FLOAT4, bfloat16, float16, _COMPLEX]
    edges[_COMPLEX] = [complex64]
    for small, large in itertools.pairwise(SIGNED):
        edges[small] = [large]
    for index, small in enumerate(UNSIGNED[:-1]):
        edges[small] = [UNSIGNED[index + 1], SIGNED[index + 1]]
    edges[int64] = edges[uint64] = [_FLOAT]
    edges[bfloat16] = edges[float16] = [float32]
    edges[float32] = [float64, complex64]
    edges[float64] = edges[complex64] = [complex128]
    return edges


def _strict_edges() -> dict[Node, list[Node]]:
    """Only Python scalars promote, within their kind or to a wider kind."""
    edges: dict[Node, list[Node]] = {dtype: [] for dtype in ALL}
    edges[_INT] = [*SIGNED, *UNSIGNED, *_INT_SUBBYTE, _FLOAT]
    edges[_FLOAT] = [*FLOATS, *_FLOAT8, *_FLOAT6, *_FLOAT4, _COMPLEX]
    edges[_COMPLEX] = [*COMPLEX]
    return edges


def _closure(edges: dict[Node, list[Node]]) -> dict[Node, frozenset[Node]]:
    """Each type with all types above it, itself included."""
    above: dict[Node, frozenset[Node]] = {}
    for node in edges:
        _reach(node, edges, above)
    return above


def _reach(node: Node, edges: dict[Node, list[Node]], above: dict[Node, frozenset[Node]]) -> frozenset[Node]:
    if node not in above:
        above[node] = frozenset({node}).union(*(_reach(upper, edges, above) for upper in edges[node]))
    return above[node]


@functools.cache
def _above(mode: str) -> dict[Node, frozenset[Node]]:
    """Each type with all types above it, in one of the two modes of promotion."""
    return _closure(_strict_edges() if mode == "strict" else _standard_edges())


@functools.lru_cache(maxsize=4096)
def _join(mode: str, nodes: frozenset[Node]) -> Node:
    """The least type above all nodes; TypePromotionError when there is none."""
    if float0 in nodes:
        raise TypeError(FLOAT0_OPERAND.format(name="a function"))
    above = _above(mode)
    for node in nodes:
        if node not in above:
            raise ValueError(f"dtype={node!r} is not a valid dtype for JAX type promotion.")
    common = frozenset.intersection(*(above[node] for node in nodes))
    least = [node for node in common if common <= above[node]]
    if len(least) == 1:
        return least[0]
    raise TypePromotionError(_no_path(mode, nodes))


def _no_path(mode: str, nodes: frozenset[Node]) -> str:
    names = tuple(sorted(str(_WEAK_NODES[n]) if n in _WEAK_NODES else n.name for n in nodes))
    text = f"Input dtypes {names} have no available implicit dtype promotion path"
    if mode == "strict":
        return (
            f"{text} when jax_numpy_dtype_promotion=strict. Try explicitly casting inputs to the desired output type, "
            "or set jax_numpy_dtype_promotion=standard."
        )
    for group, what, example in (
        (_FLOAT8, "8-bit floats do", "float32"),
        (_FLOAT6 + _FLOAT4, "4-bit floats do", "float32"),
        (_INT_SUBBYTE, "1-bit, 2-bit and 4-bit integers do", "int32"),
    ):
        if any(node in group for node in nodes):
            return (
                f"{text}. To avoid unintended promotion, {what} not support implicit promotion. If you'd like your "
                f"inputs to be promoted to another type, you can do so explicitly using e.g. x.astype('{example}')"
            )
    return f"{text}."


def _node(dtype: np.dtype, weak: bool) -> Node:
    """The lattice's node of a (weak) dtype; a weak bool is a bool."""
    if not weak or dtype == bool_:
        return dtype
    return _INT if issubdtype(dtype, np.integer) else _FLOAT if issubdtype(dtype, np.floating) else _COMPLEX


def _dtype_of_node(node: Node) -> tuple[np.dtype, bool]:
    return (_PYTHON_DTYPES[_WEAK_NODES[node]], True) if node in _WEAK_NODES else (node, False)


def promote_types(a: Any, b: Any) -> Any:
    """The dtype both promote to; Python types count as weak."""
    nodes = []
    for value in (a, b):
        weak = isinstance(value, type) and value in _PYTHON_DTYPES and value is not bool
        nodes.append(_node(as_dtype(value), weak))
    if nodes[0] is nodes[1]:
        return _dtype_of_node(nodes[0])[0]
    joined = _dtype_of_node(_join(config.read("numpy_dtype_promotion"), frozenset(nodes)))[0]
    wide_input = any(node in _NARROW or node in _WEAK_NODES for node in nodes)
    return joined if wide_input else canonicalize_dtype(joined)


def _not_an_array_type(value: Any, dtype: Any) -> TypeError:
    return TypeError(
        f"Value '{value}' with dtype {dtype} is not a valid JAX array type. "
        "Only arrays of numeric types are supported by JAX."
    )


def _dtype_and_weakness(value: Any) -> tuple[Any, bool]:
    """The canonical dtype an operand or dtype contributes to promotion, and whether it is weak."""
    aval = getattr(value, "aval", None)
    if aval is not None and hasattr(aval, "weak_type"):
        return aval.dtype, aval.weak_type
    kind = value if isinstance(value, type) else type(value)
    if kind in _PYTHON_DTYPES:
        return scalar_dtype(kind), kind is not bool
    if value is None:
        return scalar_dtype(float), False
    if isinstance(value, (ExtendedDType, np.dtype, str, type)):
        dtype = as_dtype(value)
        if dtype in _NARROW:
            return allowed_dtype(dtype), False
    elif hasattr(value, "dtype"):
        weak = bool(getattr(value, "weak_type", False))
        dtype = value.dtype if isinstance(value.dtype, ExtendedDType) else as_dtype(value.dtype)
        return _checked(value, dtype), weak
    else:
        number = getattr(value, "python_type", None)  # a size is a Python number
        if number is not None:
            return scalar_dtype(number), True
        bases = [base for base in type(value).__mro__ if base in _PYTHON_DTYPES]
        if not bases:
            raise TypeError(f"Cannot determine dtype of {value}")
        return scalar_dtype(bases[0]), bases[0] is not bool
    return _checked(value, dtype), False


def _checked(value: Any, dtype: Any) -> Any:
    if isinstance(dtype, ExtendedDType):
        return dtype
    if dtype not in _CANONICAL:
        raise _not_an_array_type(value, dtype)
    return canonicalize_dtype(dtype)


def dtype_of(value: Any) -> Any:
    """The canonical dtype of an array, a traced value or a scalar."""
    return _dtype_and_weakness(value)[0]


_promoted: dict[tuple[Any, ...], tuple[Any, bool]] = {}  # (config token, what each operand contributes)
_PROMOTED_BOUND = 1 << 14


def lattice_result_type(*args: Any) -> tuple[Any, bool]:
    """(dtype, weak) of the promotion of arrays, scalars and dtypes."""
    key: list[Any] = [config.token()]
    for arg in args:
        kind = type(arg)
        if kind in _PYTHON_DTYPES:
            key.append(kind)
            continue
        aval = getattr(arg, "aval", None)
        if aval is not None:
            key.append(getattr(aval, "hint", aval))  # interned, so that its hash is its address
        else:
            key += _dtype_and_weakness(arg)
    known = _promoted.get(tuple(key))
    if known is None:
        if len(_promoted) >= _PROMOTED_BOUND:
            _promoted.clear()
        known = _promoted[tuple(key)] = _promote(args)
    return known


def _promote(args: tuple[Any, ...]) -> tuple[Any, bool]:
    pairs = [_dtype_and_weakness(arg) for arg in args]
    first = pairs[0][0]
    if all(dtype == first for dtype, _ in pairs) and not all(weak for _, weak in pairs):
        return first, False
    if len(pairs) == 1 and isinstance(first, ExtendedDType):
        return first, False
    if any(isinstance(dtype, ExtendedDType) for dtype, _ in pairs):
        names = tuple(str(dtype) for dtype, _ in pairs)
        raise TypePromotionError(f"Input dtypes {names} have no available implicit dtype promotion path.")
    nodes = frozenset(_node(dtype, weak) for dtype, weak in pairs)
    joined = next(iter(nodes)) if len(nodes) == 1 else _join(config.read("numpy_dtype_promotion"), nodes)
    dtype, weak = _dtype_of_node(joined)
    return (canonicalize_dtype if weak or nodes.isdisjoint(_NARROW) else allowed_dtype)(dtype), weak


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
    """The dtype that arrays, scalars and dtypes promote to (and whether it is weak)."""
    if not args:
        raise ValueError("at least one array or dtype is required")
    dtype, weak = lattice_result_type(*args)
    return (dtype, weak) if return_weak_type_flag else dtype


def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    """NumPy's ``can_cast``, for all dtypes here."""
    source = from_ if isinstance(from_, ExtendedDType) else as_dtype(from_)
    target = to if isinstance(to, ExtendedDType) else as_dtype(to)
    if source == target:
        return True
    if isinstance(source, ExtendedDType) or isinstance(target, ExtendedDType):
        return False
    return bool(np.can_cast(source, target, casting=casting))  # type: ignore[arg-type]
