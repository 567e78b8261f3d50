"""Facts from the bytecode of a code object: what it reads and does.

In: a code object. Out: ``CodeFacts``. It has the globals, builtins and closure cells that the code reads (each with the
attribute chain that follows, and whether the value is only called), the first attribute that it reads on any other
value, and the first thing it does that forbids sharing a trace (a store, an import, a generator, an unknown
instruction). Nested code counts as part of it. ``lambda x: jnp.sin(x) * c`` reads ``jnp.sin`` (called) and the cell
``c``. The instructions of Python 3.11 to 3.13 are known; with a later Python nothing is shared.
"""

from __future__ import annotations

import dis
import inspect
import sys
from types import CodeType
from typing import Any

from weft._base.record import NamedTuple
from weft.core.budget import BUDGET


class Read(NamedTuple):
    """One value from outside the function: ``name`` in its globals or cells, then ``attributes`` of it."""

    is_cell: bool
    name: str
    attributes: tuple[str, ...]
    called: bool  # the value is used for nothing but being called

    def __str__(self) -> str:
        return ".".join((self.name, *self.attributes))


class CodeFacts(NamedTuple):
    """See the module's docstring. ``loose_attribute`` is a description of an attribute read on a local value."""

    code: CodeType
    reads: tuple[Read, ...]
    loose_attribute: str | None
    refusal: str | None


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX"})

# Instructions that take their operands from the stack and push exactly one value.
_EXPRESSIONS = _words("""
    LOAD_FAST LOAD_FAST_CHECK LOAD_CONST LOAD_CLOSURE LOAD_DEREF LOAD_NAME
    BINARY_OP BINARY_SUBSCR BINARY_SLICE COMPARE_OP IS_OP CONTAINS_OP UNARY_NEGATIVE UNARY_NOT UNARY_INVERT
    UNARY_POSITIVE BUILD_TUPLE BUILD_LIST BUILD_MAP BUILD_SET BUILD_SLICE BUILD_STRING BUILD_CONST_KEY_MAP
    LIST_EXTEND DICT_MERGE DICT_UPDATE LIST_TO_TUPLE MAKE_FUNCTION SET_FUNCTION_ATTRIBUTE FORMAT_VALUE FORMAT_SIMPLE
    FORMAT_WITH_SPEC CONVERT_VALUE
""")
_NEUTRAL = frozenset({"KW_NAMES", "PRECALL", "CACHE", "NOP", "RESUME", "EXTENDED_ARG"})

# Other instructions that a function with a shared trace may execute: control flow, local variables, containers.
_HARMLESS = _words("""
    POP_TOP PUSH_NULL RETURN_VALUE RETURN_CONST STORE_FAST DELETE_FAST LOAD_FAST_LOAD_FAST LOAD_FAST_AND_CLEAR
    STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST MAKE_CELL COPY_FREE_VARS LIST_APPEND MAP_ADD SET_ADD SET_UPDATE
    UNPACK_SEQUENCE UNPACK_EX TO_BOOL GET_LEN GET_ITER FOR_ITER END_FOR SWAP COPY RAISE_VARARGS RERAISE
    PUSH_EXC_INFO POP_EXCEPT CHECK_EXC_MATCH BEFORE_WITH WITH_EXCEPT_START LOAD_ASSERTION_ERROR MATCH_SEQUENCE
    MATCH_MAPPING MATCH_KEYS JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT JUMP_IF_TRUE_OR_POP
    JUMP_IF_FALSE_OR_POP POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE
    POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE
    POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE
""")
_INTRINSICS = frozenset({3, 5, 6})  # of CALL_INTRINSIC_1: StopIteration in a generator, unary plus, list to tuple
_GENERATOR_EXPRESSION = frozenset({"RETURN_GENERATOR", "YIELD_VALUE", "SEND", "END_SEND", "GEN_START"})
_REFUSALS = {
    "STORE_GLOBAL": "it assigns the global {name!r}",
    "DELETE_GLOBAL": "it deletes the global {name!r}",
    "STORE_NAME": "it assigns {name!r} in a namespace",
    "DELETE_NAME": "it deletes {name!r} from a namespace",
    "STORE_DEREF": "it assigns the nonlocal {name!r}",
    "DELETE_DEREF": "it deletes the nonlocal {name!r}",
    "STORE_ATTR": "it assigns the attribute {name!r}",
    "DELETE_ATTR": "it deletes the attribute {name!r}",
    "STORE_SUBSCR": "it assigns an item",
    "STORE_SLICE": "it assigns a slice",
    "DELETE_SUBSCR": "it deletes an item",
    "IMPORT_NAME": "it imports {name!r}",
    "IMPORT_FROM": "it imports {name!r}",
    "LOAD_BUILD_CLASS": "it defines a class",
}

_facts: dict[int, CodeFacts] = {}
_FACTS_LIMIT = 8192


def facts_of(code: CodeType) -> CodeFacts:
    """The facts of ``code``, analysed at its first use. The memo keeps the code object alive, so its id is unique."""
    facts = _facts.get(id(code))
    if facts is None:
        if len(_facts) >= _FACTS_LIMIT:
            _facts.clear()
        facts = _facts[id(code)] = _analyse(code)
    return facts


def forget() -> None:
    """Drop the memo (``weft.clear_caches``)."""
    _facts.clear()


BUDGET.enlist(_facts.__len__, 600, forget)


class Instruction(NamedTuple):
    """One instruction: ``value`` is the name or constant it refers to, where that matters here."""

    offset: int
    opcode: int
    name: str
    arg: int
    value: Any


_ANALYSED = sys.version_info < (3, 14)
_METHOD_FLAG = sys.version_info >= (3, 12)  # LOAD_ATTR replaces LOAD_METHOD, with the low bit of its argument set
_SHIFT = {"LOAD_GLOBAL": 1, "LOAD_ATTR": int(_METHOD_FLAG), "LOAD_SUPER_ATTR": 2}  # flags below the index of the name
_NAMED = frozenset(dis.hasname)
_VARIABLE = frozenset(dis.hasfree)
_SKIPPED = frozenset({"CACHE", "EXTENDED_ARG"})


def instructions_of(code: CodeType) -> list[Instruction]:
    """The instructions, decoded without line numbers: about 20 times faster than ``dis.get_instructions``."""
    cells = [name for name in code.co_cellvars if name not in code.co_varnames]
    variables = (*code.co_varnames, *cells, *code.co_freevars)
    names, constants, raw = code.co_names, code.co_consts, code.co_code
    found: list[Instruction] = []
    extended = 0
    for offset in range(0, len(raw), 2):
        opcode = raw[offset]
        name = dis.opname[opcode]
        arg = raw[offset + 1] | extended
        extended = arg << 8 if name == "EXTENDED_ARG" else 0
        if name in _SKIPPED:
            continue
        value = None
        if opcode in _NAMED:
            value = names[arg >> _SHIFT.get(name, 0)]
        elif opcode in _VARIABLE:
            value = variables[arg]
        elif name == "LOAD_CONST":
            value = constants[arg]
        found.append(Instruction(offset, opcode, name, arg, value))
    return found


def _line_at(code: CodeType, offset: int) -> int:
    line = code.co_firstlineno
    for start, number in dis.findlinestarts(code):
        if start > offset:
            break
        line = number or line
    return line


def _analyse(code: CodeType) -> CodeFacts:
    refusal = _refused_flags(code)
    if refusal is not None:
        return CodeFacts(code, (), None, refusal)
    reads: dict[Read, None] = {}
    loose: str | None = None
    instructions = instructions_of(code)
    position = 0
    while position < len(instructions):
        ins = instructions[position]
        if ins.name in _LOADS and not _is_local_cell(code, ins):
            read, position = _read_at(instructions, position)
            reads[read] = None
            continue
        if ins.name in _ATTRIBUTES:
            loose = loose or f"attribute {ins.value!r} (line {_line_at(code, ins.offset)})"
        elif _is_refused(code, ins):
            return CodeFacts(code, (), None, _refused_instruction(code, ins))
        elif isinstance(ins.value, CodeType):
            inner = _analyse(ins.value)
            if inner.refusal is not None:
                return CodeFacts(code, (), None, inner.refusal)
            reads.update(dict.fromkeys(_seen_from(code, inner.reads)))
            loose = loose or inner.loose_attribute
        position += 1
    return CodeFacts(code, tuple(reads), loose, None)


def _refused_flags(code: CodeType) -> str | None:
    if not _ANALYSED:
        return f"the bytecode of Python {sys.version_info.major}.{sys.version_info.minor} is not analysed"
    flags = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    if code.co_flags & flags and code.co_name != "<genexpr>":
        return f"{code.co_name} is a generator or coroutine"
    return None


_ACCEPTED = _EXPRESSIONS | _HARMLESS | _CALLS | _NEUTRAL | _LOADS


def _is_refused(code: CodeType, ins: Instruction) -> bool:
    if ins.name in _ACCEPTED:
        return False
    if ins.name == "STORE_DEREF" and _is_local_cell(code, ins):
        return False  # a local variable that a nested function reads
    if ins.name == "CALL_INTRINSIC_1":
        return ins.arg not in _INTRINSICS
    return not (ins.name in _GENERATOR_EXPRESSION and code.co_name == "<genexpr>")


def _refused_instruction(code: CodeType, ins: Instruction) -> str:
    text = _REFUSALS.get(ins.name, "it executes the instruction {opcode}")
    return f"{text.format(name=ins.value, opcode=ins.name)} (line {_line_at(code, ins.offset)})"


def _is_local_cell(code: CodeType, ins: Instruction) -> bool:
    """Decided by the index: a cell of an inlined comprehension may have the name of a closure variable."""
    if ins.name not in ("LOAD_DEREF", "STORE_DEREF"):
        return False
    return ins.arg < len({*code.co_varnames, *code.co_cellvars})  # the closure's cells come last


def _seen_from(outer: CodeType, reads: tuple[Read, ...]) -> list[Read]:
    """The reads of nested code for the enclosing function, whose own cells are locals and no reads."""
    return [read for read in reads if not read.is_cell or read.name in outer.co_freevars]


def _pushes_null(ins: Instruction) -> bool:
    return ins.name == "LOAD_GLOBAL" and bool(ins.arg & 1)


def _is_method(ins: Instruction) -> bool:
    """True for an attribute load that can only be followed by a call of the attribute."""
    if ins.name == "LOAD_METHOD":
        return True
    return ins.name == "LOAD_ATTR" and _METHOD_FLAG and bool(ins.arg & 1)


def _read_at(instructions: list[Instruction], position: int) -> tuple[Read, int]:
    """The read that starts at ``position`` and the position after its attribute chain."""
    first = instructions[position]
    before = instructions[position - 1].name if position else ""
    may_be_callee = _pushes_null(first) or before == "PUSH_NULL"
    attributes: list[str] = []
    called = False
    end = position + 1
    while end < len(instructions) and instructions[end].name in _ATTRIBUTES and not called:
        attributes.append(instructions[end].value)
        called = _is_method(instructions[end])
        end += 1
    may_be_callee = may_be_callee or (end < len(instructions) and instructions[end].name == "PUSH_NULL")
    called = called or (may_be_callee and _reaches_call(instructions, end))
    is_cell = first.name == "LOAD_DEREF"
    return Read(is_cell, first.value, tuple(attributes), called), end


def _reaches_call(instructions: list[Instruction], start: int) -> bool:
    """Whether the value on top of the stack before ``start`` is used as the callee of a call and nothing else."""
    above = 0  # values pushed on top of it
    for ins in instructions[start:]:
        name = ins.name
        if name in _CALLS:
            count = 1 + (ins.arg & 1) if name == "CALL_FUNCTION_EX" else ins.arg + (name == "CALL_KW")
            if above in (count, count + 1) and above - count <= (instructions[start].name == "PUSH_NULL"):
                return True
            above -= count + 1  # callee, null and arguments are popped, the result is pushed
            if above < 1:
                return False
        elif name == "LOAD_GLOBAL":
            above += 2 if _pushes_null(ins) else 1
        elif name == "LOAD_FAST_LOAD_FAST":
            above += 2
        elif name == "CALL_INTRINSIC_1":
            if above < 1:
                return False
        elif name == "PUSH_NULL" or _is_method(ins):
            above += 1
        elif name in _NEUTRAL:
            continue
        elif name in _EXPRESSIONS or name in _ATTRIBUTES:
            effect = dis.stack_effect(ins.opcode, ins.arg if ins.opcode >= dis.HAVE_ARGUMENT else None, jump=False)
            if 1 - effect > above:
                return False
            above += effect
        else:
            return False
    return False
