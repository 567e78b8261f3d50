"""Writes docs/WALKTHROUGH.md: softmax and its gradient in every form that weft gives a program.

    python docs/walkthrough.py            # compile, and write the page anew
    python docs/walkthrough.py --print    # only print it

The page is made for one fixed processor, so that it has the same text on every machine. A test in tests/docs makes it
again and fails where it differs; ``--update-golden`` writes it anew.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from pathlib import Path
from typing import Any

TARGET = "x86-64-v3"
if __name__ == "__main__":  # before weft is imported, which reads them once
    os.environ.update(WEFT_TARGET=TARGET, WEFT_CACHE="off", WEFT_CHECK="0")
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import weft  # noqa: E402 - the environment comes first
import weft.numpy as jnp  # noqa: E402 - the environment comes first

PAGE = Path(__file__).resolve().parent / "WALKTHROUGH.md"


def softmax(x: Any) -> Any:
    return weft.nn.softmax(x, axis=1)


def weighted(x: Any, w: Any) -> Any:
    return jnp.sum(softmax(x) * w)


OPENING = """\
# A walk from Python to machine code

<!-- Written by docs/walkthrough.py. Do not edit: change the script, and run it. -->

Here is one small function in every form it takes on its way to machine code, and then its gradient. Read it beside
[ARCHITECTURE.md](ARCHITECTURE.md), which says what each folder does. The texts are what `as_text(form)` gives; you get
the same for a function of yours with

    print(weft.jit(f).lower(*arguments).compile().as_text("kernel"))    # or: jaxpr, loops, llvm, asm, plan

Everything below was compiled for a processor with AVX2 (`WEFT_TARGET=x86-64-v3`), whose registers hold eight float32.
The program is

```python
{source}
```

called with a matrix of 64 rows and 100 columns.
"""

TRACED = """\
## 1. jaxpr: what the function does

`weft.jit` calls the function once, with a tracer instead of `x`: an object that has a shape and a dtype but no
numbers. Each operation that the tracer meets is recorded as one line, an *equation*: result, its type, the
operation with its parameters in brackets, its operands. Look at the types (`f32[64,1]`): every value has one, and
shapes are made equal by explicit `broadcast_in_dim`. The maximum is subtracted so that `exp` cannot overflow.
"""

SIMPLIFIED = """\
## 2. jaxpr, simplified: the same results with less work

The passes of the compiler take a jaxpr and give a jaxpr with the same results, bit for bit. Compare with the text
above: the maximum with `-inf` is gone, since no float is below it, and so is `stop_gradient`, which means something to
differentiation only.
"""

KERNEL = """\
## 3. kernel: which equations become one loop nest

Fusion has put all equations into one kernel. A kernel is a small jaxpr with a first line that names its index space
(`i0` runs over rows, `i1` over columns; "lanes": the elements of `i1` lie side by side in vector registers) and a last
line that says what is stored. Nothing between the two is ever an array in memory.
"""

LOOPS = """\
## 4. loops: the order of the work

The kernel as loops. Rows (`parallel i0`) are shared out to threads; each row goes through three *phases*. A phase is
one loop over the row's columns, eight lanes at a time. Look at what passes from one phase to the next: the maximum `v1`
and the sum `v5` are one number for each row; the exponentials are kept in `row0`, a buffer of one row that stays in the
first cache, because computing them twice would cost more. The sizes 64 and 100 do not appear: one machine code serves
all sizes.
"""

LLVM = """\
## 5. llvm: vectors and addresses

The loops written as LLVM's intermediate language, with explicit vectors; LLVM is left to choose instructions and
registers. This is the inner loop of the first phase alone (the whole text has {lines} lines). Look at the four `phi`
lines: there are four vectors of running maxima instead of one, because a maximum takes several cycles and four
independent ones overlap. `llvm.maximum` gives NaN where an operand is NaN, as NumPy's `max` does.
"""

ASM = """\
## 6. asm: what the processor runs

The same loop as machine code (of {lines} lines in all). One trip reads four vectors, 32 floats of a row, into `ymm`
registers, which hold eight floats each. AVX2's own `vmaxps` neither keeps NaN nor knows that +0 is above -0: the
comparisons and blends around it do that.
"""

PLAN = """\
## 7. plan: what a call does

The last form is the list of steps that the runtime carries out at each call, with the memory of every value. Here it
is one kernel, which reads the argument and writes the result, and no temporary.
"""

GRADIENT = """\
# The gradient

```python
{source}
```

`weft.grad(weighted)` is a function too, and takes the same way. Differentiation happens while it is traced: it turns a
jaxpr into another jaxpr, so everything behind it is what you have seen above.

## 8. jaxpr of the gradient, as traced

First the forward pass, each operation with what its derivative needs (up to the sum `ba`); then, from the last
operation to the first, the backward pass, which begins at the constant 1 (`bb`). Values that nobody reads, such as
`ba`, are still there.
"""

GRADIENT_SIMPLIFIED = """\
## 9. jaxpr of the gradient, simplified

What nobody reads is gone, with all that led to it: the derivative of the maximum was multiplied by zero through
`stop_gradient`.
"""

GRADIENT_KERNEL = """\
## 10. kernel of the gradient

Forward and backward pass are one kernel: no array of exponentials or quotients is kept between the two.
"""

GRADIENT_LOOPS = """\
## 11. loops of the gradient

Four phases: maximum; exponentials and their sum; the sum that the backward pass needs; the result. `param` is a number
that the program gives to the kernel at each call, so that another literal is not another kernel.
"""

GRADIENT_PLAN = """\
## 12. plan of the gradient

Again one step. The last lines say what the backward pass reads from the forward pass (its *residuals*): nothing is kept
in memory for it; the values listed as "not kept" live inside the kernel.
"""

CLOSING = """\
## Where to go on

`WEFT_SHOW=all python program.py` prints every stage of every program as it is compiled, `WEFT_DUMP=folder` writes them
to files. [CONTRIBUTING.md](../CONTRIBUTING.md) shows how to add an operation, [NUMERICS.md](NUMERICS.md) in which
order sums are taken.
"""


def page() -> str:
    """The whole page."""
    x = weft.ShapeDtypeStruct((64, 100), jnp.float32)
    forward = weft.jit(softmax).lower(x).compile()
    backward = weft.jit(weft.grad(weighted)).lower(x, x).compile()
    llvm, asm = forward.as_text("llvm"), forward.as_text("asm")
    sections = [
        (OPENING.format(source=inspect.getsource(softmax).strip()), ""),
        (TRACED, forward.as_text("jaxpr")),
        (SIMPLIFIED, simplified(forward)),
        (KERNEL, forward.as_text("kernel")),
        (LOOPS, forward.as_text("loops")),
        (LLVM.format(lines=llvm.count("\n")), inner_loop(llvm, r"b\d+", r"br i1 .* label %{label}")),
        (ASM.format(lines=asm.count("\n")), inner_loop(asm, r"\.LBB\w+", r"\tj\w+\t{label}$")),
        (PLAN, forward.as_text("plan")),
        (GRADIENT.format(source=inspect.getsource(weighted).strip()), backward.as_text("jaxpr")),
        (GRADIENT_SIMPLIFIED, simplified(backward)),
        (GRADIENT_KERNEL, backward.as_text("kernel")),
        (GRADIENT_LOOPS, backward.as_text("loops")),
        (GRADIENT_PLAN, backward.as_text("plan")),
        (CLOSING, ""),
    ]
    return "\n".join(prose + (f"\n```text\n{text.rstrip()}\n```\n" if text else "") for prose, text in sections)


def simplified(compiled: Any) -> str:
    """The jaxpr that the passes leave, which is what is fused."""
    return compiled._compiled.program.text("jaxpr")


def inner_loop(text: str, label: str, jump: str) -> str:
    """The first block of vector code that ends with a jump to its own start."""
    for block in re.split(rf"(?m)^(?={label}:)", text)[1:]:
        name, own = block.partition(":")[0], []
        for line in block.splitlines():
            own.append(line.split("  #")[0].rstrip())
            if re.search(jump.format(label=re.escape(name)), line):
                if any("ymm" in found or "<8 x float>" in found for found in own):
                    return "\n".join(own)
                break
    raise LookupError("no loop of vectors in this text")


def main() -> None:
    if "--print" in sys.argv:
        print(page(), end="")
    else:
        PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
