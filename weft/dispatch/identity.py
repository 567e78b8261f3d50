"""Function identity: decides whether a new function object may share the trace of an earlier one.

In: a function and its static argument values. Out: an ``Identity``, or a ``Refusal`` that names the value or
instruction for which it cannot be decided. The keys of two identities are equal exactly if the functions have the same
code object and all that the code reads from outside has the same type and value: closure cells, defaults, globals,
builtins, attributes of modules, and the same for every Python function that it reaches. For example, two functions made
by ``def make(c): return lambda x: x * c`` with ``c = 2`` have equal keys; with ``c = 2`` and ``c = True``, or a list,
they do not.
"""

from __future__ import annotations

import builtins
import enum
import functools
import math
import struct as binary
import sys
import weakref
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from weft import dtypes, runtime
from weft.core import trace
from weft.core.budget import BUDGET
from weft.dispatch import code_facts, struct


class Refusal(Exception):
    """It cannot be decided whether functions are equal; the text says which value or instruction prevents it."""


class Identity:
    """The identity of a function. ``key`` is compared by ==; ``arrays`` are the weft Arrays that it contains by id."""

    __slots__ = ("arrays", "codes", "key", "words")

    def __init__(self, key: tuple[Any, ...], arrays: dict[int, Any], codes: tuple[Any, ...]) -> None:
        self.key = key
        self.arrays = arrays
        self.codes = codes  # all other objects that ``key`` contains by id, kept alive so that ids stay unique
        self.words: Any = None  # the key in the form of ``portable``, computed at its first use


PURE_BUILTINS = frozenset(
    id(value)
    for value in (
        abs, all, any, bool, bytes, complex, dict, divmod, enumerate, filter, float, frozenset, int, isinstance,
        len, list, map, max, min, pow, range, reversed, round, set, slice, sorted, str, sum, tuple, zip,
        NotImplemented, Ellipsis,
        *(value for value in vars(builtins).values() if isinstance(value, type) and issubclass(value, Exception)),
    )
)  # fmt: skip

_PURE_FUNCTOOLS = frozenset({"partial", "reduce"})


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_IMPURE_NUMPY = _words("""
    random save savez savez_compressed savetxt load loadtxt genfromtxt fromfile fromregex memmap seterr seterrcall
    errstate set_printoptions printoptions setbufsize get_include show_config test testing lib core ctypeslib
    f2py DataSource info show_runtime
""")
_IMPURE_WEFT = _words("""
    config clear_caches live_arrays print_environment_info device_get block_until_ready save savez load fromfile
    loadtxt profile profiler monitoring checking_leaks inspect tour cli runtime compiler distributed
""")

_FUNCTIONS_LIMIT = 256  # for more, comparing takes longer than tracing

_library: dict[int, Any] = {}  # id -> function, type or ufunc recognised as one of weft, numpy, math or functools


def _is_library_name(module: str) -> bool:
    return module.partition(".")[0] in ("weft", "numpy", "math", "functools", "ml_dtypes")


def _is_pure(root: str, name: str) -> bool:
    if root == "numpy":
        return name not in _IMPURE_NUMPY
    if root == "functools":
        return name in _PURE_FUNCTOOLS
    return root != "weft" or not (name in _IMPURE_WEFT or name.startswith("register_"))


_library_modules: dict[int, ModuleType] = {}


def is_library_module(module: ModuleType) -> bool:
    """weft, numpy, math, functools and their submodules, except those that hold state or do input and output."""
    if _library_modules.get(id(module)) is module and sys.modules.get(module.__name__) is module:
        return True
    if _is_pure_module(module):
        _library_modules[id(module)] = module
        return True
    return False


def _is_pure_module(module: ModuleType) -> bool:
    parts = module.__name__.split(".")
    if sys.modules.get(module.__name__) is not module or not _is_library_name(parts[0]):
        return False
    return all(_is_pure(parts[0], part) for part in parts[1:])


def _home(value: Any) -> str:
    """The module whose code a callable runs; not from a function's ``__module__``, which functools.wraps copies."""
    if isinstance(value, FunctionType):
        return value.__globals__.get("__name__", "")
    if isinstance(value, type):
        return value.__module__
    if isinstance(value, runtime.JitFunction):
        return _home(value.__wrapped__)
    kind = type(value).__module__ or ""
    if kind.partition(".")[0] in ("weft", "numpy"):
        return getattr(value, "__module__", None) or kind
    return getattr(value, "__module__", None) or ""


_FACADES = ("weft.numpy", "weft.lax", "weft.nn", "weft", "weft.random", "weft.scipy.special", "numpy", "numpy.linalg")


def homes(value: Any) -> tuple[str, ...]:
    """The modules in which a callable of a library may be found under its own name."""
    return (_home(value), *_FACADES)


def _is_of_weft(function: Any) -> bool:
    """Whether a Python function was made by weft's own code."""
    name = function.__globals__.get("__name__", "")
    return name.startswith("weft.") and getattr(sys.modules.get(name), "__dict__", None) is function.__globals__


def known_library(number: int) -> Any:
    """The object that the key ("library", number) stands for."""
    return _library[number]


def is_library(value: Any, found_in: ModuleType | None = None) -> bool:
    """Whether ``value`` is a public callable or type of one of the libraries, found there under its own name."""
    if _library.get(id(value), _MISSING) is value:
        return True
    home = _home(value)
    root = home.partition(".")[0]
    if not _is_library_name(root):
        return False
    name = getattr(value, "__name__", None)
    if not isinstance(name, str) or not all(_is_pure(root, part) for part in (*home.split(".")[1:], name)):
        return False
    known = found_in is not None or (isinstance(value, type) and issubclass(value, np.generic))
    for module in () if known else homes(value):
        if getattr(sys.modules.get(module), "__dict__", {}).get(name) is value:
            known = True
            break
    if known:
        _library[id(value)] = value
    return known


class _Snapshot:
    """The key of everything a function reads; ``arrays`` and ``kept`` collect the objects in it by id."""

    __slots__ = ("arrays", "certain", "kept", "loose", "names", "opaque", "outer", "places", "seen", "walked")

    def __init__(self) -> None:
        self.certain = True  # whether the key can be remembered: see _Remembered
        self.outer: Any = None  # the first function
        self.names: list[tuple[dict[str, Any], str, Any]] = []
        self.places: list[tuple[int, Any]] = []
        self.walked: list[tuple[Any, CodeType]] = []
        self.arrays: dict[int, Any] = {}
        self.kept: list[Any] = []
        self.seen: dict[int, int] = {}
        self.opaque: str | None = None  # a function or enum member that code may read attributes of
        self.loose: str | None = None  # an attribute read on a local value

    def value(self, value: Any, label: str, called: bool = False, module: ModuleType | None = None) -> Any:
        """The key of one value; raises Refusal for a kind that may change or cannot be compared."""
        kind = type(value)
        if kind in _PLAIN:
            return (kind, value)
        rule = _RULES.get(kind)
        self.certain = self.certain and kind in _CONSTANT
        if rule is not None:
            return rule(self, value, label, called)
        if id(value) in PURE_BUILTINS:
            return (kind, id(value))
        if isinstance(value, enum.Enum):
            self._flow(value, label)
            self.kept.append(value)
            return (kind, id(value))
        if isinstance(value, (np.dtype, dtypes.ExtendedDType)):
            return (kind, value)
        if isinstance(value, (trace.Tracer, runtime.Array)):
            raise Refusal(f"{label} is a traced value of an outer function")
        if isinstance(value, ModuleType):
            raise Refusal(f"{label} is a module that is passed around, or not one of weft, numpy, math, functools")
        if callable(value) and is_library(value, module):
            return ("library", id(value))
        raise Refusal(f"{label} is a {_describe(kind)}, whose contents are not compared")

    def _flow(self, value: Any, label: str) -> None:
        self.opaque = self.opaque or f"{label} ({_describe(type(value))})"

    def function(self, function: Any, label: str, called: bool = False) -> Any:
        """The key of a Python function: its code, and everything the code reads."""
        if not self.seen:
            known = _remembered.get(id(function.__code__))
            if known is not None and known.holds(function, called):
                self.kept, self.opaque, self.loose = list(known.kept), known.opaque, known.loose
                self.seen[id(function)] = 0
                return known.key
        if _library.get(id(function)) is function or is_library(function):
            return ("library", id(function))
        if function.__closure__ and _is_of_weft(function):
            return self._closure(function, label)
        if self.seen:
            return self._walk(function, label, called)
        self.outer, self.certain = function, True
        key = self._walk(function, label, called)
        if self.certain:
            if len(_remembered) >= _REMEMBERED_LIMIT:
                _remembered.clear()
            _remembered[id(function.__code__)] = _Remembered(function, called, key, self)
        return key

    def _known(self, function: Any) -> Any:
        """The key of a function met before, or None; a new one gets a number."""
        known = self.seen.get(id(function))
        if known is not None:
            return ("seen", known)
        self.seen[id(function)] = len(self.seen)
        if len(self.seen) > _FUNCTIONS_LIMIT:
            raise Refusal(f"it reaches more than {_FUNCTIONS_LIMIT} Python functions")
        return None

    def _closure(self, function: Any, label: str) -> Any:
        """The key of a function made by ``grad``, ``vmap`` and the like: weft's own code, and its closure variables."""
        known, code = self._known(function), function.__code__
        if known is not None:
            return known
        if function.__defaults__ is not None or function.__kwdefaults__ is not None:
            raise Refusal(f"{label} is a function of weft's with defaults")
        self.certain = False
        cells = zip(code.co_freevars, function.__closure__, strict=True)
        try:
            values = [self.value(cell.cell_contents, f"{name!r} of {label}", True) for name, cell in cells]
        except ValueError as error:
            raise Refusal(f"a variable of {label} has no value yet") from error
        self.kept.append(code)  # after the user's code objects
        return ("closure", id(code), function.__name__, tuple(values))

    def _walk(self, function: Any, label: str, called: bool) -> Any:
        if not called:
            self._flow(function, label)
        known = self._known(function)
        if known is not None:
            return known
        facts = code_facts.facts_of(function.__code__)
        self.walked.append((function, function.__code__))
        if facts.refusal is not None:
            raise Refusal(f"{label}: {facts.refusal}")
        self.kept.append(facts.code)
        self.loose = self.loose or (facts.loose_attribute and f"{facts.loose_attribute} of {label}")
        defaults, keyword_defaults = function.__defaults__, function.__kwdefaults__
        reads = tuple([self._read(function, facts.code, read) for read in facts.reads])
        key = (id(facts.code), function.__name__, reads)
        if defaults is None and keyword_defaults is None:
            return key
        self.certain = False
        where = f"a default of {label}"
        named = tuple(sorted((keyword_defaults or {}).items()))
        return (*key, self.value(defaults or (), where), tuple([(name, self.value(v, where)) for name, v in named]))

    def _read(self, function: Any, code: CodeType, read: code_facts.Read) -> Any:
        """The key of what ``read`` finds now."""
        name = read.name
        if read.is_cell:
            place = code.co_freevars.index(name)
            try:
                value = function.__closure__[place].cell_contents
            except ValueError as error:
                raise Refusal(f"the closure variable {name!r} has no value yet") from error
            self.places.append((place, value))
            self.certain = self.certain and function is self.outer
        else:
            value = function.__globals__.get(name, _MISSING)
            self.names.append((function.__globals__, name, value))
            self.certain = self.certain and (self.outer is None or function.__globals__ is self.outer.__globals__)
            if value is _MISSING:
                value = _builtin(function, name)
                self.names.append((function.__builtins__, name, value))
        if read.attributes:
            return self._attribute(value, read)
        if type(value) in _PLAIN:
            return (type(value), value)
        return self.value(value, f"the {'closure variable' if read.is_cell else 'global'} {name!r}", read.called)

    def _attribute(self, value: Any, read: code_facts.Read) -> Any:
        """Follow ``module.module.name``; an Array's attributes are constants like the Array itself."""
        module: ModuleType | None = None
        for position, attribute in enumerate(read.attributes):
            if type(value) is runtime.Array:
                return self.value(value, f"{read.name!r}")
            if not isinstance(value, ModuleType):
                base = ".".join((read.name, *read.attributes[:position]))
                raise Refusal(f"it reads the attribute {attribute!r} of {base!r}, a {_describe(type(value))}")
            if not is_library_module(value):
                raise Refusal(f"it reads {read} from a module other than weft, numpy, math and functools")
            module = value
            try:
                value = getattr(value, attribute)
            except AttributeError as error:
                raise Refusal(f"{read} does not exist") from error
            # a module may compute an attribute, so that it cannot be remembered
            self.names.append((vars(module), attribute, value))
        if _library.get(id(value), _MISSING) is value:
            return ("library", id(value))
        root = module.__name__.partition(".")[0] if module is not None else ""
        if not _is_pure(root, read.attributes[-1]):
            raise Refusal(f"{read} depends on state outside the function")
        return self.value(value, str(read), read.called, module)

    def partial(self, value: functools.partial[Any], label: str, called: bool = False) -> Any:
        if not called:
            self._flow(value, label)
        arguments = tuple([self.value(item, f"an argument of the partial {label}") for item in value.args])
        named = value.keywords.items()
        keywords = tuple(
            [(name, self.value(item, f"the argument {name!r} of the partial {label}")) for name, item in named]
        )
        return (functools.partial, self.value(value.func, f"the function of {label}", called), arguments, keywords)

    def jitted(self, value: Any, label: str, called: bool = False) -> Any:
        if is_library(value):
            return ("library", id(value))
        if not called:
            self._flow(value, label)
        return ("jit", value.identity_options(), self.value(value.__wrapped__, label, True))

    def array(self, value: Any, label: str, called: bool = False) -> Any:
        self.arrays[id(value)] = value
        return ("array", id(value))

    def sequence(self, value: Any, label: str, called: bool = False) -> Any:
        items = [self.value(item, f"an item of {label}") for item in value]
        return (tuple, tuple(items)) if type(value) is tuple else (frozenset, frozenset(items))

    def builtin(self, value: Any, label: str, called: bool = False) -> Any:
        if id(value) in PURE_BUILTINS or value.__self__ is math or is_library(value):
            return ("builtin", id(value))
        raise Refusal(f"{label} is the builtin {value.__name__}, which may depend on or change state")

    def treedef(self, value: Any, label: str, called: bool = False) -> Any:
        if not is_plain_tree(value):
            raise Refusal(f"{label} is a treedef with nodes of user-defined types")
        return (type(value), value)


def _float_key(snapshot: _Snapshot, value: float, label: str, called: bool) -> Any:
    return (float, binary.pack("d", value))


def _complex_key(snapshot: _Snapshot, value: complex, label: str, called: bool) -> Any:
    return (complex, binary.pack("dd", value.real, value.imag))


def _struct_key(snapshot: _Snapshot, value: struct.ShapeDtypeStruct, label: str, called: bool) -> Any:
    return (struct.ShapeDtypeStruct, value.shape, value.dtype, value.weak_type)


_PLAIN = frozenset({type(None), bool, int, str, bytes})
_RULES: dict[type, Callable[..., Any]] = {
    float: _float_key,
    complex: _complex_key,
    tuple: _Snapshot.sequence,
    frozenset: _Snapshot.sequence,
    FunctionType: _Snapshot.function,
    BuiltinFunctionType: _Snapshot.builtin,
    functools.partial: _Snapshot.partial,
    runtime.JitFunction: _Snapshot.jitted,
    runtime.Array: _Snapshot.array,
    runtime.PyTreeDef: _Snapshot.treedef,
    struct.ShapeDtypeStruct: _struct_key,
}

_MISSING = object()


def _builtin(function: Any, name: str) -> Any:
    value = function.__builtins__.get(name, _MISSING)
    if value is _MISSING:
        raise Refusal(f"the global {name!r} has no value")
    return value


def _describe(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


_plain_trees: dict[Any, bool] = {}


def is_plain_tree(treedef: Any) -> bool:
    """Whether all nodes are tuples, lists, dicts or None, so that no code of the user runs when they are used."""
    known = _plain_trees.get(treedef)
    if known is None:
        if len(_plain_trees) > 4096:
            _plain_trees.clear()
        known = _plain_trees[treedef] = _walk_plain(treedef)
    return known


def _walk_plain(treedef: Any) -> bool:
    waiting = [treedef]  # no recursion: containers may be nested as deep as Python's stack allows
    while waiting:
        node = waiting.pop()
        data = node.node_data()
        if data is not None and data[0] not in (tuple, list, dict, type(None)):
            return False
        waiting += node.children()
    return True


_CONSTANT = frozenset({float, complex, FunctionType})
_REMEMBERED_LIMIT = 1024


class _Remembered:
    """The key of a function, and the objects that must be the same for another function of the same code to have it.

    Kept only for functions for which comparing objects is enough: functions without defaults that read only numbers,
    strings, other such functions, and objects that library modules hold under a name.
    """

    __slots__ = (
        "called", "globals", "held", "identity", "kept", "key", "loose", "name", "names", "opaque", "partial", "places",
        "walked",
    )  # fmt: skip

    def __init__(self, function: Any, called: bool, key: Any, snapshot: _Snapshot) -> None:
        self.called, self.key = called, key
        self.identity: Identity | None = None  # the function's, without static values
        self.partial: Identity | None = None  # that of functools.partial(function)
        self.globals, self.name = id(function.__globals__), function.__name__
        self.kept, self.opaque, self.loose = tuple(snapshot.kept), snapshot.opaque, snapshot.loose
        # weak references keep no user function or module alive; while they are valid, ids are unique
        self.walked = [(weakref.ref(inner), code) for inner, code in snapshot.walked if inner is not function]
        found = [value for _, value in snapshot.places] + [value for *_, value in snapshot.names]
        walked = {id(inner) for inner, _ in snapshot.walked}
        self.held = [value for value in found if id(value) not in walked]
        self.places = [(place, id(value)) for place, value in snapshot.places]
        self.names = [
            (None if owner is function.__globals__ else owner, name, id(value)) for owner, name, value in snapshot.names
        ]

    def holds(self, function: Any, called: bool) -> bool:
        """Whether ``function`` certainly has this key."""
        names = function.__globals__
        if id(names) != self.globals or function.__name__ != self.name or called is not self.called:
            return False
        if function.__defaults__ is not None or function.__kwdefaults__ is not None:
            return False
        for reference, code in self.walked:
            inner = reference()
            if inner is None or inner.__code__ is not code:
                return False
            if inner.__defaults__ is not None or inner.__kwdefaults__ is not None:
                return False
        for owner, name, number in self.names:
            if id((names if owner is None else owner).get(name, _MISSING)) != number:
                return False
        try:
            for place, number in self.places:
                if id(function.__closure__[place].cell_contents) != number:
                    return False
        except ValueError:  # an empty cell
            return False
        return True


_remembered: dict[int, _Remembered] = {}  # by the id of the code object, which ``kept`` keeps alive


def forget() -> None:
    """Drop the memo (``weft.clear_caches``)."""
    _remembered.clear()


BUDGET.enlist(_remembered.__len__, 1200, forget)


def _called(function: Any) -> Any:
    """The function inside a partial without arguments; any other function itself."""
    bare = type(function) is functools.partial and not function.args and not function.keywords
    return function.func if bare else function


def remembered(function: Any) -> Identity | None:
    """The remembered identity of ``function`` without static values, if there is one."""
    inner = _called(function)
    known = _remembered.get(id(inner.__code__)) if type(inner) is FunctionType else None
    if known is None:
        return None
    found = known.identity if inner is function else known.partial
    return found if found is not None and known.holds(inner, True) else None


def identify(function: Any, statics: tuple[Any, ...], in_tree: Any) -> Identity | Refusal:
    """The identity of ``function`` with these static values and arguments of structure ``in_tree``, or a Refusal."""
    if not statics and is_plain_tree(in_tree):
        found = remembered(function)
        if found is not None:
            return found
    snapshot = _Snapshot()
    try:
        if not is_plain_tree(in_tree):
            raise Refusal("an argument is a user-defined container")
        key = snapshot.value(function, getattr(function, "__name__", "the function"), True)
        values = tuple([snapshot.value(value, "a static argument") for value in statics])
        if snapshot.loose is not None and snapshot.opaque is not None:
            raise Refusal(
                f"it reads the {snapshot.loose}, and {snapshot.opaque} is passed around, whose attributes may change"
            )
    except Refusal as refusal:
        return Refusal(str(refusal))  # made anew without a traceback, whose frames would hold the function
    found = Identity((key, values), snapshot.arrays, tuple(snapshot.kept))
    if not statics:
        inner = _called(function)
        known = _remembered.get(id(inner.__code__)) if type(inner) is FunctionType else None
        if known is not None and inner is function and known.key is key:
            known.identity = found
        elif known is not None and inner is not function and known.key is key[1]:
            known.partial = found
    return found


def number_of(key: Any) -> float | complex:
    """The number behind the key of a float or complex, which holds its bits."""
    if key[0] is float:
        return binary.unpack("d", key[1])[0]
    return complex(*binary.unpack("dd", key[1]))
