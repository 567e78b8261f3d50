"""Jaxprs as text, character for character as JAX prints them.

    { lambda a:f32[3]; b:f32[3]. let c:f32[3] = add b a in (c,) }

Variables are named a, b, ..., z, ba, bb, ... in the order of printing. A jaxpr object that several equations hold is
printed once, before the rest (``let f = {...} in``), under the name of its function. The variables of the inner jaxpr
of a jit equation are named like the equation's operands and results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._base.record import Record
from weft.core.avals import short_text
from weft.core.programs import document
from weft.core.programs import jaxpr as jaxpr_module
from weft.core.programs.document import SOFT_BREAK, Break, Document, Note, concat, group, join, nest
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Literal, Var


class Settings(Record):
    """What is shown."""

    source_info: bool = False
    print_shapes: bool = True
    custom_pp_eqn_rules: bool = True
    name_stack: bool = False
    print_effects: bool = False


class Context:
    """Names of variables so far, and of jaxprs that are printed once before the program."""

    def __init__(self, shared: dict[Jaxpr, str] | None = None) -> None:
        self.names: dict[Var, str] = {}
        self.shared = shared or {}
        self.taken = frozenset(self.shared.values())
        self.n_fresh = 0

    def name(self, v: Var) -> str:
        known = self.names.get(v)
        if known is None:
            known = self.names[v] = "_" if type(v) is DropVar else self._fresh()
        return known

    def _fresh(self) -> str:
        """The next name that is not the name of a shared jaxpr."""
        while True:
            name = letters(self.n_fresh)
            self.n_fresh += 1
            if name not in self.taken:
                return name

    def suggest(self, unnamed: Sequence[Atom], like: Sequence[Atom]) -> None:
        """Give each unnamed variable the name of its counterpart in ``like``; each name is handed on only once."""
        seen: set[Var] = set()
        for v, counterpart in zip(unnamed, like):
            if isinstance(v, Literal) or isinstance(counterpart, Literal) or v in self.names:
                continue
            name = self.name(counterpart)
            if counterpart not in seen:
                seen.add(counterpart)
                self.names[v] = name


def letters(index: int) -> str:
    """0 -> a, 25 -> z, 26 -> ba, 702 -> bba: the number in base 26."""
    text = ""
    while True:
        index, digit = divmod(index, 26)
        text = chr(ord("a") + digit) + text
        if index == 0:
            return text


def atom_text(atom: Atom, context: Context) -> str:
    if isinstance(atom, Literal):
        return f"{jaxpr_module.literal_text(atom.val)}:{short_text(atom.aval)}"
    return context.name(atom)


def _variables(variables: Sequence[Var], context: Context, settings: Settings, separator: str = "") -> Document:
    """Binders with their types, filled into lines."""
    texts = [f"{context.name(v)}:{short_text(v.aval)}" if settings.print_shapes else context.name(v) for v in variables]
    return nest(2, group(join(concat(separator, SOFT_BREAK), texts)))


def _value(value: Any, context: Context, settings: Settings) -> Document:
    """A parameter's value; jaxprs are printed, or named when they are shared."""
    if isinstance(value, ClosedJaxpr):
        value = value.jaxpr
    if isinstance(value, Jaxpr):
        return context.shared.get(value) or _jaxpr(value, context, settings)
    if type(value) in (tuple, list) and value and all(isinstance(item, (Jaxpr, ClosedJaxpr)) for item in value):
        return document.bracketed("(", [_value(item, context, settings) for item in value], ")")
    return printed_value(value)


def printed_value(value: Any) -> str:
    """A parameter that is not a jaxpr, as text."""
    if isinstance(value, np.dtype):
        return value.name
    return str(value)


def params_document(names: Sequence[str], params: dict[str, Any], context: Context, settings: Settings) -> Document:
    """``[a=1 b=2]``, on one line or one parameter a line; nothing when there is none."""
    if not names:
        return ""
    pairs = [concat(f"{name}=", _value(params[name], context, settings)) for name in names]
    return document.bracketed("[", pairs, "]")


def _eqn(eqn: JaxprEqn, context: Context, settings: Settings) -> Document:
    rule = getattr(eqn.primitive, "print_rule", None)
    if rule is not None and settings.custom_pp_eqn_rules:
        return rule(eqn, context, settings)
    params = eqn.params
    hook = getattr(eqn.primitive, "print_params", None)
    if hook is not None and settings.custom_pp_eqn_rules:
        params = hook(params)
    return eqn_document(eqn, sorted(params), params, context, settings)


def eqn_document(
    eqn: JaxprEqn, names: Sequence[str], params: dict[str, Any], context: Context, settings: Settings
) -> Document:
    """``outputs = primitive[params] operands``."""
    left = _variables(eqn.outvars, context, settings)
    right = concat(eqn.primitive.name, params_document(names, params, context, settings), _operands(eqn, context))
    whole = concat(left, " = ", right) if eqn.outvars else right
    remarks = []
    if settings.source_info:
        remarks.append(str(eqn.source_info))
    if settings.name_stack:
        remarks.append(f"[{'/'.join(eqn.source_info.name_stack)}]")
    return concat(Note(" ".join(remarks)), whole) if remarks else whole


def _operands(eqn: JaxprEqn, context: Context) -> Document:
    texts = [atom_text(atom, context) for atom in eqn.invars]
    return concat(" ", nest(2, group(join(SOFT_BREAK, texts))))


def _jaxpr(jaxpr: Jaxpr, context: Context, settings: Settings) -> Document:
    constvars = _variables(jaxpr.constvars, context, settings)
    invars = _variables(jaxpr.invars, context, settings)
    eqns = [_eqn(eqn, context, settings) for eqn in jaxpr.eqns]
    outvars = [atom_text(atom, context) for atom in jaxpr.outvars]
    results = concat("(", nest(2, group(join(concat(",", SOFT_BREAK), outvars))), ",)" if len(outvars) == 1 else ")")
    effects = ""
    if settings.print_effects:
        effects = f" : {{ {', '.join(sorted(map(str, jaxpr.effects)))} }}"
    body = concat(
        "{ lambda ", constvars, "; ", invars, ". let",
        nest(2, concat(Break(), join(Break("; "), eqns))), Break(),
        "in ", results, effects,
    )  # fmt: skip
    return group(concat(nest(2, body), " }"))


_LONGEST_INLINE = 10  # equations: JAX prints longer inner jaxprs ahead of the program


def _times_held(children: dict[Jaxpr, list[Jaxpr]]) -> dict[Jaxpr, int]:
    """How often each jaxpr would be printed if all were printed in place, in the order of ``children``."""
    counts = dict.fromkeys(children, 0)
    holders = dict.fromkeys(children, 0)  # equations that hold it and are not yet counted
    for held in children.values():
        for inner in held:
            holders[inner] += 1
    ready = [outermost := next(iter(children))]
    counts[outermost] = 1
    while ready:
        current = ready.pop()
        for inner in children[current]:
            counts[inner] += counts[current]
            holders[inner] -= 1
            if holders[inner] == 0:
                ready.append(inner)
    return counts


def _shared_jaxprs(jaxpr: Jaxpr) -> dict[Jaxpr, str]:
    """The jaxprs held more than once, and long inner ones, breadth first, with a unique name each."""
    children: dict[Jaxpr, list[Jaxpr]] = {}
    names: dict[Jaxpr, str] = {}
    pending = deque([jaxpr])
    while pending:
        current = pending.popleft()
        if current in children:
            continue
        held = children[current] = []
        for eqn in current.eqns:
            name = eqn.params.get("name") if eqn.primitive.name == "jit" else None
            for inner in jaxpr_module.jaxprs_in_params(eqn.params):
                held.append(inner)
                if isinstance(name, str):
                    names.setdefault(inner, name.strip("<>"))
        pending.extend(held)
    counts = _times_held(children)
    shared: dict[Jaxpr, str] = {}
    seen: dict[str, int] = {}
    for inner, count in counts.items():
        if count > 1 or (inner is not jaxpr and len(inner.eqns) > _LONGEST_INLINE):
            name = names.get(inner, "jaxpr")
            repeats = seen[name] = seen.get(name, -1) + 1
            shared[inner] = f"{name}{repeats}" if repeats else name
    return shared


def document_of(jaxpr: Jaxpr, settings: Settings) -> Document:
    """The whole program, shared inner jaxprs ahead of it."""
    context = Context(shared=_shared_jaxprs(jaxpr))
    parts: list[Document] = []
    for inner, name in context.shared.items():
        definition = concat(f"let {name} = ", _jaxpr(inner, context, settings), " in")
        parts.append(definition)
    parts.append(_jaxpr(jaxpr, context, settings))
    return join("\n", parts)


def print_jaxpr(jaxpr: Jaxpr, *, width: int = 80, **settings: Any) -> str:
    """The text of a jaxpr; keyword arguments as in ``Settings``."""
    settings.pop("use_color", None)
    return document.layout(document_of(jaxpr, Settings(**settings)), width)


def print_eqn(eqn: JaxprEqn, *, width: int = 80, **settings: Any) -> str:
    """The text of one equation, its variables named on their own."""
    return document.layout(_eqn(eqn, Context(), Settings(**settings)), width)


def jit_rule(hidden: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[..., Document]:
    """The print rule of equations that call one jaxpr: its variables take over the caller's names.

    ``hidden`` gives the parameters that are shown; ``name`` comes first.
    """

    def rule(eqn: JaxprEqn, context: Context, settings: Settings) -> Document:
        inner = eqn.params["jaxpr"].jaxpr
        if inner not in context.shared:
            context.suggest(inner.invars, eqn.invars)
            context.suggest(inner.outvars, eqn.outvars)
        params = hidden(eqn.params)
        names = ["name", *sorted(name for name in params if name != "name")]
        return eqn_document(eqn, names, params, context, settings)

    return rule


jaxpr_module._printer.update(jaxpr=print_jaxpr, eqn=print_eqn)
