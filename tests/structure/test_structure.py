"""The architecture as a test: import ladders, file and function sizes, names, documentation of every file.

The ladders are those of docs/ARCHITECTURE.md. A module may import from its own rung's package and from lower
rungs, never from higher ones; imports stand at the top of a file; third-party libraries that cost start-up time
are reached through ``weft._base.lazy`` only.
"""

from __future__ import annotations

import ast
import collections
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from weft.compiler.passes import pass_list
from weft.core.primitive import registry

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "weft"
SOURCES = sorted(PACKAGE.rglob("*.py"))
NATIVE = sorted((PACKAGE / "runtime" / "src").rglob("*.[ch]*"))

MAX_FILE_LINES = 600
MAX_ROOM_FILES = 40
MAX_FUNCTION_LINES = 60

# The user's ladder: a module's rung is that of its longest matching prefix.
RUNGS: dict[str, int] = {
    "weft._base.collector": 0,
    "weft._base.forks": 0,
    "weft._base.lazy": 0,
    "weft._base.own_files": 0,
    "weft._base.private_files": 0,
    "weft._base.record": 0,
    "weft._base.target_model": 0,
    "weft.runtime": 0,
    "weft.errors": 1,
    "weft._base.unbuilt": 1,
    "weft._base.unbuilt_names": 1,
    "weft.config": 1,
    "weft.dtypes": 1,
    "weft.tree": 1,
    "weft.tree_util": 1,
    "weft._base.target": 1,
    "weft.core": 2,
    "weft.distributed": 3,
    "weft.operations": 3,
    "weft.autodiff": 4,  # these five know each other, module by module
    "weft.batching": 4,
    "weft.control": 4,
    "weft.dispatch": 4,
    "weft.effects": 4,
    "weft._base.array": 6,
    "weft.numpy": 7,
    "weft.random": 8,
    "weft.nn": 9,
    "weft.scipy": 9,
    "weft.image": 9,
    "weft.ops": 9,
    "weft.flatten_util": 9,
    "weft.lax": 10,
    "weft.debug": 10,
    "weft._base.debugger": 10,
    "weft.experimental": 10,
    "weft.checkpoints": 10,
    "weft.inspect": 10,
    "weft.stages": 10,
    "weft._base.api": 10,
    "weft.extend": 10,
    "weft.interpreters": 10,
    "weft.api_util": 10,
    "weft": 11,
}

# The compiler's ladder stands beside the user's: what each of its packages may import.
ROOMS = {"weft.autodiff", "weft.batching", "weft.control", "weft.dispatch", "weft.effects"}
COMPILER_MAY: dict[str, set[str]] = {
    "weft.loops": {"weft.loops"},
    "weft.codegen": {"weft.loops", "weft.codegen"},
    "weft.compiler": {"weft.loops", "weft.codegen", "weft.compiler", "weft.operations", *ROOMS},
    "weft.partitioning": {"weft.compiler", "weft.operations", "weft.partitioning", *ROOMS},
    "weft.stablehlo": {"weft.codegen", "weft.compiler", "weft.operations", "weft.lax", "weft.stablehlo", *ROOMS},
}
COMPILER_BASE = {"weft._base.lazy", "weft._base.record", "weft._base.target", "weft._base.target_model"}
COMPILER_BASE |= {
    "weft._base.collector",
    "weft._base.forks",
    "weft._base.own_files",
    "weft._base.private_files",
    "weft.runtime",
    "weft.errors",
    "weft.config",
    "weft.dtypes",
    "weft.core",
}
COMPILER_USERS = {"weft.inspect", "weft.stages", "weft._base.api", "weft"}

# The rooms inside of a package have rungs too: what a room imports nothing of, not even for the type checker.
KNOWS_NOTHING_OF: dict[str, str] = {
    "weft.compiler.passes": "checks gpu storage",
    "weft.compiler.matrix_products": "checks gpu passes plans sizes",
    "weft.compiler.fusion": "gpu passes sizes storage",
    "weft.compiler.plans": "gpu sizes",
    "weft.compiler.checks": "gpu sizes storage",
    "weft.compiler.sizes": "checks fusion gpu matrix_products passes",
    "weft.compiler.storage": "checks fusion gpu matrix_products passes",
    "weft.loops.routines": "gpu schedules",
    "weft.loops.schedules": "gpu",
    "weft.codegen.arithmetic": "cpu gpu memory_access nests routines",
    "weft.codegen.memory_access": "cpu gpu routines",
    "weft.codegen.nests": "gpu routines",
    "weft.codegen.routines": "gpu",
    "weft.codegen.cpu": "gpu memory_access nests routines",
    "weft.core.symbolic": "caches sharding tracing",
    "weft.core.programs": "caches sharding",
    "weft.core.tracing": "caches sharding",
    "weft.core.caches": "sharding symbolic tracing",
    "weft.operations.pointwise": "data_movement linalg windowed",
    "weft.operations.data_movement": "linalg windowed",
    "weft.numpy.pointwise": "linear_algebra",
    "weft.numpy.array_creation": "linear_algebra",
    "weft.numpy.subscripts": "linear_algebra",
}

ONLY_THROUGH_LAZY = {"llvmlite", "scipy", "opt_einsum", "rich", "matplotlib", "mpi4py", "sklearn", "tensorstore"}
FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc", "base"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(module: str) -> str:
    """The ladder entry that owns a module."""
    best = "weft"
    for entry in (*RUNGS, *COMPILER_MAY):
        if (module == entry or module.startswith(entry + ".")) and len(entry) > len(best):
            best = entry
    return best


@functools.lru_cache(maxsize=1)  # all checks of a file follow each other
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(), str(path))))


def parse(path: Path) -> ast.Module:
    module = nodes(path)[0]
    assert isinstance(module, ast.Module)
    return module


MODULES = {module_name(path) for path in SOURCES}


def imported_modules(path: Path) -> Iterator[tuple[str, ast.stmt]]:
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    for node in nodes(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node
        elif isinstance(node, ast.ImportFrom):
            prefix = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                prefix = ".".join([*parents, *([prefix] if prefix else [])])
            for alias in node.names:
                full = f"{prefix}.{alias.name}"
                yield full if full in MODULES else prefix, node


Check = Callable[[Path], None]
CHECKS: list[tuple[Check, frozenset[Path]]] = []


def over(paths: Sequence[Path]) -> Callable[[Check], Check]:
    """A check that every one of these files passes; ``test_every_file`` runs all of them, file by file."""

    def listed(check: Check) -> Check:
        CHECKS.append((check, frozenset(paths)))
        return check

    return listed


def test_every_file() -> None:
    wrong = []
    for path in sorted(set().union(*[paths for _, paths in CHECKS])):
        for check, paths in CHECKS:
            if path in paths:
                try:
                    check(path)
                except AssertionError as error:
                    wrong.append(f"{path.relative_to(ROOT)}: {check.__name__}: {str(error).splitlines()[0]}")
    assert not wrong, "\n".join(wrong)


def is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def typing_only_lines(path: Path) -> set[int]:
    """Lines of imports for the type checker alone, which load nothing."""
    lines: set[int] = set()
    for node in nodes(path):
        if isinstance(node, ast.If) and is_type_checking(node.test):
            lines.update(child.lineno for child in ast.walk(node) if isinstance(child, ast.stmt))
    return lines


@over(SOURCES)
def imports_follow_the_ladders(path: Path) -> None:
    module = module_name(path)
    owner = package_of(module)
    for target, node in imported_modules(path):
        if not (target == "weft" or target.startswith("weft.")):
            continue
        other = package_of(target)
        where = f"{path.relative_to(ROOT)}:{node.lineno} imports {target}"
        if owner in COMPILER_MAY:
            assert other in COMPILER_MAY[owner] | COMPILER_BASE, where
        elif other in COMPILER_MAY:
            assert owner in COMPILER_USERS, where
        else:
            assert other == owner or RUNGS[other] <= RUNGS[owner], f"{where}: an arrow up the ladder"


@over([path for path in SOURCES if module_name(path).rpartition(".")[0] in KNOWS_NOTHING_OF])
def rooms_import_from_lower_rooms(path: Path) -> None:
    room = module_name(path).rpartition(".")[0]
    package = room.rpartition(".")[0]
    higher = {f"{package}.{name}" for name in KNOWS_NOTHING_OF[room].split()}
    for target, node in imported_modules(path):
        above = higher & {target, ".".join(target.split(".")[:3])}
        assert not above, f"{path.relative_to(ROOT)}:{node.lineno} imports {target}: {room} knows nothing of it"


def test_rooms_with_rungs_exist() -> None:
    for room, others in KNOWS_NOTHING_OF.items():
        package = room.rpartition(".")[0]
        assert {room, *[f"{package}.{name}" for name in others.split()]} <= MODULES, room


@over(SOURCES)
def imports_stand_at_the_top(path: Path) -> None:
    tree = parse(path)
    if module_name(path) in {"weft", "weft._base.lazy"}:
        return  # the two modules that import on demand
    top = {id(node) for node in tree.body}
    for node in tree.body:
        alone = isinstance(node, ast.With) and all(isinstance(child, ast.ImportFrom) for child in node.body)
        if alone or (isinstance(node, ast.If) and is_type_checking(node.test)):
            top.update(id(child) for child in node.body)
    for node in nodes(path):
        if isinstance(node, ast.Import | ast.ImportFrom):
            assert id(node) in top, f"{path.relative_to(ROOT)}:{node.lineno}: an import hidden in a block"


@over(SOURCES)
def slow_libraries_are_reached_through_lazy(path: Path) -> None:
    module = module_name(path)
    typing_only = typing_only_lines(path)
    for target, node in imported_modules(path):
        root = target.split(".")[0]
        if root in ONLY_THROUGH_LAZY and node.lineno not in typing_only:
            assert module == "weft._base.lazy", f"{path.relative_to(ROOT)}:{node.lineno} imports {target}"
        if target == "weft.runtime._native":
            assert module == "weft.runtime", f"{path.relative_to(ROOT)}:{node.lineno} imports the native module"
        assert root not in {"jax", "jaxlib"}, f"{path.relative_to(ROOT)}:{node.lineno}: JAX is an oracle of tests only"


# private names and internal headers of CPython: they change without notice from one version to the next
PRIVATE_PYTHON = re.compile(r"""\b_Py[A-Z]\w*|#\s*include\s*[<"](?:internal/|pycore_)|\bPy_BUILD_CORE\w*""")


@over(NATIVE)
def native_sources_use_the_public_interface_of_python(path: Path) -> None:
    text = "\n".join(line.partition("//")[0] for line in path.read_text().splitlines())
    assert not PRIVATE_PYTHON.findall(text)


# names of processors and of their instructions, which what writes code for them, the target model and the native
# runtime know alone
PROCESSORS = re.compile(r"avx|x86|aarch64|neon|\bsse", re.IGNORECASE)
KNOW_PROCESSORS = [
    PACKAGE / "codegen" / "cpu",
    PACKAGE / "runtime",
    PACKAGE / "_base" / "target.py",
    PACKAGE / "_base" / "target_model.py",
]


@over([path for path in SOURCES if not any(path.is_relative_to(folder) for folder in KNOW_PROCESSORS)])
def processors_are_named_where_code_is_written_for_them(path: Path) -> None:
    assert not PROCESSORS.findall(path.read_text())


def test_private_names_of_python_are_found() -> None:
    for line in ("_PyType_Lookup(type, name)", "#include <internal/pycore_dict.h>", '#include "pycore_frame.h"'):
        assert PRIVATE_PYTHON.search(line)
    assert not PRIVATE_PYTHON.search("Py_TYPE(x) PyDict_New() weft_PyTree")


# private names of Python's library and of llvmlite that were once used here
PRIVATE_LIBRARY = re.compile(r"\bpythonapi\b|\b_tuplegetter\b|\._cfn\b|\bSetAsyncExc\b|\bgc\.(?:un)?freeze\b")


@over(SOURCES)
def python_sources_use_public_libraries(path: Path) -> None:
    assert not PRIVATE_LIBRARY.findall(path.read_text())


# Functions that may wait for the GIL or run Python code. python.h says why they are called through in_python.
RUNS_PYTHON = re.compile(
    r"(?<![\w<])(?:PyObject_(?:Call\w*|Vectorcall\w*|[GS]etAttr\w*|[GS]etItem|RichCompare\w*|Hash|Repr|Str|IsTrue)"
    r"|PySequence_(?:Tuple|List|Fast|GetItem|Contains)|PyNumber_\w+|PyImport_ImportModule"
    r"|PyErr_(?:CheckSignals|WriteUnraisable)|PyEval_RestoreThread|PyGILState_Ensure)\("
)


@over(NATIVE)
def native_sources_wait_for_the_gil_in_one_function(path: Path) -> None:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = RUNS_PYTHON.findall(line.partition("//")[0])
        assert not found, f"{path.name}:{number} calls {found} outside in_python"


@over([*SOURCES, *NATIVE])
def file_size(path: Path) -> None:
    lines = path.read_text().count("\n")
    assert lines <= MAX_FILE_LINES, f"{lines} lines; a file has one subject and at most {MAX_FILE_LINES} lines"


def test_rooms_have_at_most_forty_files() -> None:
    """A folder has one subject, which its name tells: which file is meant is seen from what it does."""
    files = [*SOURCES, *NATIVE, *(ROOT / "tests").rglob("*.py")]
    rooms = collections.Counter(file.parent.relative_to(ROOT) for file in files)
    full = {str(room): count for room, count in rooms.items() if count > MAX_ROOM_FILES}
    assert not full, f"divide {full} by what their files do"


@over(SOURCES)
def function_size(path: Path) -> None:
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= MAX_FUNCTION_LINES, f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {lines} lines"


# The one system of small records is weft._base.record: the standard library's compile source text for every class.
OTHER_RECORDS = re.compile(r"^\s*(?:import dataclasses|from dataclasses import|.*\bnamedtuple\b)", re.M)


@over(SOURCES)
def small_records_are_made_in_one_way(path: Path) -> None:
    assert not OTHER_RECORDS.search(path.read_text()), f"{path.relative_to(ROOT)}: use weft._base.record"
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module == "typing" and module_name(path) != "weft._base.record":
            assert "NamedTuple" not in {alias.name for alias in node.names}, f"{path.relative_to(ROOT)}:{node.lineno}"


# Meanings and statements are told apart by class: as tuples, a load of operand 0 would equal parameter 0.
BY_CLASS = ("core/kinds.py", "core/loop_forms.py", "loops/ir.py", "loops/routines/routine.py")


@over([PACKAGE / name for name in BY_CLASS])
def values_told_apart_by_class_are_no_tuples(path: Path) -> None:
    for node in parse(path).body:
        if isinstance(node, ast.ClassDef):
            assert "NamedTuple" not in map(ast.unparse, node.bases), (
                f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
            )


@over(SOURCES)
def names_and_docstrings(path: Path) -> None:
    assert path.stem not in FORBIDDEN_NAMES, f"{path.relative_to(ROOT)}: the name says nothing of the subject"
    assert ast.get_docstring(parse(path)), f"{path.relative_to(ROOT)} opens without a docstring"


@pytest.mark.parametrize("name", [entry.name for entry in pass_list.PASSES])
def test_every_pass_has_a_test_of_its_own(name: str) -> None:
    """A file of its name, which runs it alone: a program in, operations out."""
    file = ROOT / "tests" / "compiler" / "passes" / f"test_{name}.py"
    assert file.exists(), f"{file.relative_to(ROOT)} is missing"
    alone = (f'ladder.after("{name}"', f'ladder.after, "{name}"', f"{name}.{name}(")
    assert any(text in file.read_text() for text in alone), f"{file.name} does not run {name} alone"


def test_every_file_has_its_sentence() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    names = [str(p.relative_to(ROOT)) for p in [*SOURCES, *NATIVE]]
    missing = [name for name in names if f"`{name}`" not in text]
    assert not missing, f"docs/ARCHITECTURE.md has no sentence for {missing}"
    known = set(names)
    for line in text.splitlines():
        if line.startswith("- `weft/"):
            named = line.split("`")[1]
            assert named in known, f"docs/ARCHITECTURE.md describes {named}, which does not exist"


@over([*SOURCES, *sorted((ROOT / "tests").rglob("*.py"))])
def every_exception_to_a_rule_has_its_reason(path: Path) -> None:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        _, mark, rest = line.partition("# no" + "qa")
        assert not mark or re.match(r": [A-Z]+\d+(, [A-Z]+\d+)* - \w", rest), f"{path}:{number}: give rule and reason"


COMPILING = [path for path in SOURCES if path.relative_to(PACKAGE).parts[0] in ("compiler", "loops", "codegen")]
# words that name a step or instruction of a plan, the tree of cumulative operations, a comparison, and a primitive too
NO_PRIMITIVES = {"check", "copy", "scan", "le", "name", "exchange_done"}
# the emitter's words are those of the operations, which NumPy evaluates by their references
SPEAKS_OPERATIONS = "weft.loops.numpy_emit"


def _is_primitive_name(node: ast.AST) -> bool:
    """``equation.primitive.name`` or ``primitive.name``."""
    if not isinstance(node, ast.Attribute) or node.attr != "name":
        return False
    owner = node.value
    return "primitive" in (getattr(owner, "attr", ""), getattr(owner, "id", ""))


# how operations relate: the tables that may ask for one by its name
RELATIONS = {"weft.compiler.passes.algebra"}


def _is_primitive(node: ast.AST) -> bool:
    """``lax.add_p`` or ``add_p``; ``c_void_p`` is a type of ctypes."""
    return bool(re.fullmatch(r"(?!c_)\w+_p", getattr(node, "attr", "") or getattr(node, "id", "")))


def _asks_for_a_primitive(node: ast.AST) -> bool:
    """``eqn.primitive is lax.add_p``, and a collection of primitives, which could be asked whether it has one."""
    if isinstance(node, ast.Compare):
        return any(map(_is_primitive, (node.left, *node.comparators)))
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(map(_is_primitive, node.elts))
    return isinstance(node, ast.Dict) and any(_is_primitive(key) for key in node.keys if key is not None)


@over(COMPILING)
def the_compiler_asks_for_no_primitive(path: Path) -> None:
    for node in nodes(path):
        found = _asks_for_a_primitive(node) and module_name(path) not in RELATIONS
        line = getattr(node, "lineno", 0)
        assert not found, f"{path.relative_to(ROOT)}:{line} asks which primitive it is: ask its kind, or algebra"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("eqn.primitive is lax.add_p", True), ("primitive in (add_p, lax.sub_p)", True), ("{lax.add_p: 1}", True),
        ("frozenset([lax.add_p])", True), ("JaxprEqn([x], [y], lax.add_p, {})", False), ("bind(lax.add_p, x)", False),
    ],
)  # fmt: skip
def test_asking_for_a_primitive_is_found(text: str, found: bool) -> None:
    assert any(_asks_for_a_primitive(node) for node in ast.walk(ast.parse(text))) is found


def _dispatches_on_a_name(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return any(_is_primitive_name(side) for side in (node.left, *node.comparators))
    if isinstance(node, ast.Subscript):
        return _is_primitive_name(node.slice) or getattr(node.value, "id", "") == "registry"
    if isinstance(node, ast.Match):
        return _is_primitive_name(node.subject)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ("get", "startswith", "endswith") and (
            any(_is_primitive_name(argument) for argument in node.args[:1])
            or _is_primitive_name(node.func.value)
            or getattr(node.func.value, "id", "") == "registry"
        )
    return False


@over(COMPILING)
def the_compiler_names_no_primitive(path: Path) -> None:
    if module_name(path) == SPEAKS_OPERATIONS:
        return
    where = path.relative_to(ROOT)
    # codegen's strings are LLVM's instructions, many of which are called as primitives are
    names = set(registry) - NO_PRIMITIVES if path.relative_to(PACKAGE).parts[0] != "codegen" else set()
    for node in nodes(path):
        line = getattr(node, "lineno", 0)
        assert not _dispatches_on_a_name(node), f"{where}:{line} decides by the name of a primitive: use its kind"
        named = isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names
        assert not named, f"{where}:{line} names the primitive {getattr(node, 'value', '')!r}: use its kind or a slot"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("maker.primitive.name != 'transpose'", True), ("rules.get(eqn.primitive.name)", True),
        ("registry['reshape']", True), ("rules[primitive.name]", True), ("eqn.primitive.name in names", True),
        ("f'{eqn.primitive.name} stays'", False), ("eqn.primitive is operations.pow_p", False),
    ],
)  # fmt: skip
def test_dispatch_on_names_is_found(text: str, found: bool) -> None:
    assert any(_dispatches_on_a_name(node) for node in ast.walk(ast.parse(text))) is found


def test_one_class_has_a_name_that_says_little() -> None:
    """A second class of such a name says what it writes, or of what it is the plan."""
    for name in ("Writer", "Block", "Program", "Plan"):
        defined = re.compile(rf"^class _?{name}\b", re.MULTILINE)
        paths = [path for path in SOURCES if path.name != "like_programs.py"]  # whose writer is being replaced
        found = [str(path.relative_to(ROOT)) for path in paths if defined.search(path.read_text())]
        assert len(found) == 1, f"several classes {name}: {found}"
