"""Cold functions: what vector math needs for rare lanes, as functions of the module that are written once.

    br i1 %any, label %cold, label %on      ; cold: %f = call { <8 x float>, <8 x i32> } @reduce_far_f32_v8(...)

The call is behind the rest of its function, and the registers that it needs are spilled there alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.codegen import module_text
from weft.codegen.arithmetic.features import Sharing
from weft.codegen.arithmetic.lanes import BYTES, Lanes, V
from weft.codegen.writer import Carried, Writer

Body = Callable[..., Sequence[V]]


def mend(emit: Sharing, name: str, mask: V, body: Body, arguments: Sequence[V], usual: Sequence[V]) -> list[V]:
    """``usual``, or if any lane of ``mask`` holds ``body(emit, *arguments, *usual)``; one lane gives no ``usual``."""
    lanes = mask.lanes
    given = [*arguments, *usual] if lanes.width > 1 else arguments
    types = [lanes.type(v.element) for v in usual]

    def write(writer: Writer, texts: list[str]) -> list[str]:
        inner: Any = type(emit)
        of = Lanes(writer, lanes.width)
        return [v.text for v in body(inner(of), *map(V, [of] * len(given), [v.element for v in given], texts))]

    def taken() -> list[str]:
        return call(lanes.writer, _named(name, lanes), [(lanes.type(v.element), v.text) for v in given], types, write)

    return _where_any(mask, taken, usual)


def mend_lanes(
    emit: Sharing,
    name: str,
    mask: V,
    body: Body,
    arguments: Sequence[V],
    usual: Sequence[V],
    which: Callable[..., V] | None = None,
) -> list[V]:
    """``usual``, or if any lane of ``mask`` holds ``body(*arguments)`` of one lane after another: all lanes, or those
    where ``which(*arguments)`` holds. All vectors have elements of one size."""
    lanes, count, given = mask.lanes, len(arguments), [*arguments, *usual]
    if lanes.width == 1:
        return mend(emit, name, mask, lambda emit, *given: body(*given), arguments, usual)
    nbytes = lanes.width * BYTES[given[0].element]  # of each vector
    box = lanes.writer.alloca(f"[{len(given) * nbytes} x i8]")

    def write(writer: Writer, texts: list[str]) -> list[str]:
        one = Lanes(writer, 1)

        def lane(at: str, _: list[str]) -> list[str]:
            first = writer.element(given[0].element, texts[0], at)
            xs = []
            for k, v in enumerate(arguments):
                xs.append(V(one, v.element, writer.load(v.element, writer.element("i8", first, str(k * nbytes)))))

            def found() -> list[str]:
                for k, v in enumerate(body(*xs), count):
                    address = writer.element("i8", first, str(k * nbytes))  # here, where it is part of an address
                    writer.line(f"store {v.element} {v.text}, ptr {address}")
                return []

            if which is None:
                found()
            else:
                writer.when(which(*xs).text, found, [], [], rare=False)
            return [writer.index("add", at, "1")]

        writer.repeat(str(lanes.width), [("i64", "0")], lane)
        return []

    def taken() -> list[str]:
        writer, addresses = lanes.writer, []
        for k, v in enumerate(given):
            addresses.append(writer.element("i8", box, str(k * nbytes)))
            writer.line(f"store {lanes.type(v.element)} {v.text}, ptr {addresses[k]}")
        call(writer, _named(name, lanes), [("ptr", box)], [], write)
        return [writer.load(lanes.type(v.element), each) for v, each in zip(usual, addresses[count:], strict=True)]

    return _where_any(mask, taken, usual)


def _where_any(mask: V, taken: Callable[[], list[str]], usual: Sequence[V]) -> list[V]:
    """``usual``, or what ``taken`` gives if any lane of the mask holds."""
    lanes = mask.lanes
    types = [lanes.type(v.element) for v in usual]
    texts = lanes.writer.when(lanes.any(mask), taken, types, [v.text for v in usual], aside=True)
    return [V(lanes, v.element, text) for v, text in zip(usual, texts, strict=True)]


def _named(name: str, lanes: Lanes) -> str:
    return name if lanes.width == 1 else f"{name}_v{lanes.width}"


def call(
    writer: Writer,
    name: str,
    arguments: Carried,
    results: Sequence[str],
    body: Callable[[Writer, list[str]], Sequence[str]],
) -> list[str]:
    """Call a function with (type, value) pairs; ``body`` writes it from its parameters when it is first called.

    In functions without vectors its convention preserves registers, so that loops which wait for their own state keep
    that in registers: with the usual one, three sines in a loop take a third longer. GPUs take it for the usual one.
    """
    convention = "preserve_allcc " if writer.scalar else ""
    type_ = f"{{ {', '.join(results)} }}" if results else "void"  # a result of no bytes is none of PTX
    if name not in writer.functions:
        inner = writer.other()
        parameters = [f"%a{k}" for k in range(len(arguments))]
        value = "poison"
        for k, (result, text) in enumerate(zip(results, body(inner, parameters), strict=True)):
            value = inner.op(f"insertvalue {type_} {value}, {result} {text}, {k}")
        given = ", ".join([f"{t} {p}" for (t, _), p in zip(arguments, parameters, strict=True)])
        table, loads, lines = module_text.constants(inner, name, f"ret {type_} {value}" if results else "ret void")
        head = f"define internal {convention}{type_} @{name}({given}) noinline cold nounwind {{"
        writer.functions[name] = "\n".join([*table, head, "entry:", *loads, lines, "}"])
        writer.functions |= inner.functions
        writer.declarations |= inner.declarations
        writer.cold_branches = writer.cold_branches or inner.cold_branches
    text = f"call {convention}{type_} @{name}({', '.join(map(' '.join, arguments))})"
    if not results:
        writer.line(text)
        return []
    found = writer.op(text)
    return [writer.op(f"extractvalue {type_} {found}, {k}") for k in range(len(results))]
