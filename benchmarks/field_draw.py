"""How a program of ``field.py`` is drawn from a seed: its row, numbers, sizes and dtype, and how its inputs are made.

The same seed gives the same program in every process. Its kind is the seed's remainder by the number of kinds.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from field_rows import ELEMENTS, KINDS, Row

SMOOTH = ("jnp.sin", "jnp.cos", "jnp.tanh", "jnp.arctan", "jnp.exp", "jax.nn.sigmoid", "jnp.arcsinh")
TOLERANCE = {"float32": 1e-3, "float64": 1e-9, "bfloat16": 6e-2, "int32": 1e-3}


@dataclass(frozen=True)
class Input:
    name: str
    shape: tuple[int, ...]
    larger: tuple[int, ...]
    law: str
    limit: int  # of indices: what they are below
    dtype: str
    shared: bool = False

    def array(self, rng: np.random.Generator, larger: bool = False) -> np.ndarray[Any, Any]:
        shape = self.larger if larger else self.shape
        return np.asarray(LAWS[self.law](rng, shape, self.limit)).astype(_made(self.dtype))


def _made(dtype: str) -> str:
    return "float32" if dtype == "bfloat16" else dtype


LAWS: dict[str, Callable[[np.random.Generator, tuple[int, ...], int], Any]] = {
    "normal": lambda rng, shape, _: rng.standard_normal(shape),
    "small": lambda rng, shape, _: rng.standard_normal(shape) * (shape[-2] if len(shape) > 1 else 10) ** -0.5,
    "positive": lambda rng, shape, _: rng.uniform(0.2, 4, shape),
    "unit": lambda rng, shape, _: rng.uniform(0.02, 0.98, shape),
    "sides": lambda rng, shape, _: rng.uniform(-1, 1, shape),
    "angle": lambda rng, shape, _: rng.uniform(-np.pi, np.pi, shape),
    "large": lambda rng, shape, _: rng.uniform(50, 150, shape),
    "mask": lambda rng, shape, _: rng.random(shape) < 0.3,
    "whole": lambda rng, shape, _: rng.integers(1, 100_000, shape),
    "index": lambda rng, shape, limit: rng.integers(0, limit, shape),
    "ascending": lambda rng, shape, _: np.sort(rng.uniform(0, 1, shape), axis=-1),
    "groups": lambda rng, shape, limit: np.sort(rng.integers(0, limit, shape)),
    "order": lambda rng, shape, _: rng.permuted(np.broadcast_to(np.arange(shape[-1]), shape), axis=-1),
    "seed": lambda rng, shape, _: rng.integers(0, 1 << 30, shape),
}
INTEGERS = ("whole", "index", "groups", "order", "seed")


@dataclass(frozen=True)
class DrawnProgram:
    """What a worker runs: ``source`` defines ``f`` of the inputs, in the names jax, jnp and lax."""

    seed: int
    kind: str
    name: str
    source: str
    inputs: tuple[Input, ...]
    dtype: str
    row: Row

    @property
    def tolerance(self) -> float:
        """The error allowed, as a share of a result's magnitude plus the root mean square of all."""
        return TOLERANCE[self.dtype]

    @property
    def plain(self) -> bool:
        """Only functions that NumPy has."""
        return not re.search(r"\b(lax|jax)\b|\.at\[", self.source)

    @property
    def grows(self) -> bool:
        """It has a second shape."""
        return any(i.larger != i.shape for i in self.inputs)

    def arrays(self, larger: bool = False) -> list[np.ndarray[Any, Any]]:
        rng = np.random.default_rng(self.seed)
        return [i.array(rng, larger) for i in self.inputs]

    def __str__(self) -> str:
        shapes = ", ".join(f"{i.name} {i.dtype}[{','.join(map(str, i.shape))}]" for i in self.inputs)
        return f"{self.name} ({shapes})"


class Draw:
    """The numbers of one program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def log(self, low: float, high: float) -> int:
        return round(low * (max(high, low) / low) ** self.random.random())

    def extent(self, low: int, high: int) -> int:
        """A size as people choose them: round, a power of two, or whatever it is."""
        size = max(self.log(low, high), 1)
        match self.random.randrange(3):
            case 0 if size >= 8:
                return min(max(1 << (size.bit_length() - 1), low), max(high, low))
            case 1 if size >= 100:
                scale = 10 ** (len(str(size)) - 2)
                return max(size // scale * scale, low)
        return size

    def dims(self, row: Row, letters: list[str], total: int) -> dict[str, int]:
        """Extents by letter; the first letter of the first input takes what the others leave of ``total``."""
        first, *others = times = Counter(letters)
        found: dict[str, int] = {}
        room = total
        for letter in others:
            low, high = row.dims.get(letter) or DIMS[letter]
            most = (room // 4) ** (1 / times[letter])
            found[letter] = self.extent(low, max(low, min(high, int(most))))
            room = max(room // found[letter] ** times[letter], 1)
        low, high = row.dims.get(first, (2, total))
        return {first: min(max(round(room ** (1 / times[first])), low), max(high, low)), **found}

    def holes(self, row: Row) -> dict[str, object]:
        pick = self.random
        return {
            **{name: f"{pick.uniform(0.2, 2.5):.2f}" for name in "abcd"},
            "s": f"{pick.uniform(0.01, 0.15):.3f}",
            "k": pick.randint(2, 8),
            "axis": pick.choice((0, -1)),
            "steps": self.log(*row.steps),
            "f": pick.choice(SMOOTH),
            "g": pick.choice(SMOOTH),
        }


DIMS = {
    **dict.fromkeys("n", (2, 4_000_000)),
    **dict.fromkeys("dw", (3, 2048)),
    **dict.fromkeys("eh", (4, 512)),
    "m": (16, 2000),
    "k": (2, 16),
    "p": (8, 600),
    "c": (1, 32),
    "b": (2, 64),
    "t": (8, 300),
}
_INPUT = re.compile(r"(\w+)\[([\w ]*)\] (\w+)(?: (\w+))?(?: (shared))?$")


def _inputs(row: Row, draw: Draw, total: int, dtype: str) -> tuple[Input, ...]:
    found: list[tuple[str, list[str], str, str, bool]] = []
    for text in row.inputs.split(";"):
        match = _INPUT.match(text.strip())
        if match is None:
            raise ValueError(f"[field] the inputs of {row.name!r} do not read: {text.strip()!r}.")
        name, letters, law, limit, shared = match.groups()
        if limit == "shared":
            limit, shared = None, "shared"
        found.append((name, letters.split(), law, limit or "", bool(shared)))
    order = list(dict.fromkeys(letter for _, letters, _, _, _ in found for letter in letters if not letter.isdigit()))
    order += [limit for _, _, _, limit, _ in found if limit and not limit.isdigit() and limit not in order]
    first = [letter for letter in found[0][1] if not letter.isdigit()]
    total //= math.prod(int(letter) for letter in found[0][1] if letter.isdigit())
    dims = draw.dims(row, first, max(total, 2)) if first else {}
    for letter in order:
        if letter not in dims:
            low, high = row.dims.get(letter) or DIMS[letter]
            dims[letter] = draw.extent(low, max(low, min(high, total)))
    grows = row.grows or (order[0] if order else "")

    def size(text: str, larger: bool) -> int:
        return int(text) if text.isdigit() else dims[text] + _growth(dims[text], larger and text == grows)

    return tuple(
        Input(
            name,
            tuple(size(letter, False) for letter in letters),
            tuple(size(letter, True) for letter in letters),
            law,
            size(limit, False) if limit else 0,
            "int32" if law in INTEGERS else "bool" if law == "mask" else dtype,
            shared,
        )
        for name, letters, law, limit, shared in found
    )


def _growth(extent: int, grows: bool) -> int:
    return max(extent // 16, 1) if grows else 0


def usable(least: int = 0) -> dict[str, list[Row]]:
    """The kinds that have programs of so many elements."""
    if not least:
        return KINDS
    found = {kind: [row for row in rows if row.scales and row.most >= least] for kind, rows in KINDS.items()}
    return {kind: rows for kind, rows in found.items() if rows}


def kind_of(seed: int, least: int = 0) -> str:
    names = list(usable(least))
    return names[seed % len(names)]


def drawn(seed: int, least: int = 0, most: int = 0) -> DrawnProgram:
    """The program of a seed, with at least and at most so many elements in its first input (0: as the row says).

    With ``most`` loops are short too: what is asked then is whether results are right.
    """
    kind = kind_of(seed, least)
    draw = Draw(seed)
    row = draw.random.choice(usable(least)[kind])
    if most:
        row = replace(row, most=min(row.most, most), steps=(2, 12))
    transform = kind if kind in TRANSFORMS else ""
    low, high = max(ELEMENTS[0] if row.scales else 2, least), max(row.most, least)
    batch = draw.extent(2, 8 if most else 128) if transform == "vmap" else 1
    split = 1 if row.inputs.split(";")[0].endswith("shared") else batch
    total = max(draw.log(min(low, high), high) // split, 4)
    dtype = draw.random.choice(row.dtypes)
    inputs = _inputs(row, draw, total, dtype)
    while sum(math.prod(i.shape) for i in inputs) > max(2 * high // batch, 20_000):
        total = max(total * 3 // 4, 4)  # other inputs than the first are large: draw again
        inputs = _inputs(row, draw, total, dtype)
    names_of = ", ".join(i.name for i in inputs)
    holes = draw.holes(row)
    body = row.body.strip("\n").format(**holes)
    source = f"def f({names_of}):\n" + "\n".join(f"    {line}" if line else "" for line in body.split("\n"))
    row = replace(row, name=row.name.format(**holes), numba=row.numba.format(**holes))
    program = DrawnProgram(seed, kind, row.name, source, inputs, dtype, row)
    return TRANSFORMS[transform](program, draw, batch) if transform else program


def _gradient(program: DrawnProgram, draw: Draw, batch: int) -> DrawnProgram:
    indices = [i for i, x in enumerate(program.inputs) if x.dtype not in ("int32", "bool")]
    which = tuple(indices if draw.random.random() < 0.5 else indices[:1])
    text = f"""
def loss(*arguments):
    return sum(jnp.mean(part ** 2) for part in jax.tree.leaves(value(*arguments)))

f, value = jax.value_and_grad(loss, argnums={which}), f"""
    return replace(program, name=f"gradient of {program.name}", source=program.source + "\n" + text)


def _vmap(program: DrawnProgram, draw: Draw, batch: int) -> DrawnProgram:
    larger = batch + _growth(batch, True)
    inputs = tuple(
        replace(i, larger=i.shape) if i.shared else replace(i, shape=(batch, *i.shape), larger=(larger, *i.shape))
        for i in program.inputs
    )
    axes = tuple(None if i.shared else 0 for i in inputs)
    name, source = f"vmap of {program.name}", f"{program.source}\n\nf = jax.vmap(f, in_axes={axes})"
    return replace(program, name=name, source=source, inputs=inputs)


TRANSFORMS = {"gradients": _gradient, "vmap": _vmap}


def numba_source(program: DrawnProgram) -> str:
    """The program as numba would be asked for it, or an empty text where no such form is known."""
    row = program.row
    if program.kind in TRANSFORMS or program.dtype == "bfloat16":
        return ""
    if row.numba:
        return row.numba
    if not row.elementwise or not program.plain or len({i.shape for i in program.inputs}) != 1:
        return ""
    lines = program.source.replace("jnp.", "np.").split("\n")[1:]
    if lines[-1].count("return ") != 1 or re.search(r"return .*, ", re.sub(r"\(.*\)", "", lines[-1])):
        return ""
    made = "np.float32" if program.dtype == "float32" else "np.float64"
    body = [re.sub(r"(?<![\w.])\d+\.\d+(?:e-?\d+)?", lambda m: f"{made}({m.group()})", line) for line in lines]
    names = [i.name for i in program.inputs]
    heads = [f"    {name}_ = {name}.ravel()" for name in names]
    reads = [f"        {name} = {name}_[i]" for name in names]
    body[-1] = body[-1].replace("return ", "out[i] = ", 1)
    result = made if program.dtype != "int32" else "np.int32"
    arguments = ", ".join(names)
    return "\n".join(
        [
            f"def f({arguments}):",
            f"    out = np.empty({names[0]}.size, {result})",
            *heads,
            f"    for i in prange({names[0]}_.size):",
            *(r.replace(f"{n} =", f"{n}0 =") for r, n in zip(reads, names)),
            *(f"    {_renamed(line, names)}" for line in body),
            f"    return out.reshape({names[0]}.shape)",
        ]
    )


def _renamed(line: str, names: list[str]) -> str:
    """Elements have names of their own: numba gives a name one type."""
    for name in names:
        line = re.sub(rf"\b{name}\b(?!\s*=[^=])", f"{name}0", line)
    return line
