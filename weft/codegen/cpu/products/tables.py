"""The kernels of one instruction set for all dtypes, and the tables by which runtime/src/gemm_choice.cpp finds them."""

from __future__ import annotations

from collections.abc import Sequence

from . import columns, packing, rows, tiles
from .lanes import MACHINES, NARROW, Lanes, Machine, Pairs
from .writer import Function, Module

WIDER = {"f": "eE", "i": "hHbB"}  # dtypes of sums, and of narrower elements that they are made of
FOLDED_ROWS = 8  # rows at a time of more than so many terms: many long rows are too many streams
ALIASED_STREAMS = 8  # columns side by side, if their lines share sets of the first cache
PEAKS = {"v4": 115.0, "v3": 58.0, "neon": 29.0}  # flops of float32 in a nanosecond, of one thread
SLOWER = {"f": 1.0, "d": 2.0, "F": 4.0, "D": 8.0, "i": 1.3, "l": 8.0}
ATTRIBUTES = '"prefer-vector-width"="512" "min-legal-vector-width"="512"'


def _ints(*numbers: int) -> list[str]:
    return [f"i32 {number}" for number in numbers]


def _pointers(*names: str) -> list[str]:
    return [f"ptr {name}" for name in names]


def _record(module: Module, name: str, fields: Sequence[str]) -> str:
    module.constants.append(f"@{name} = internal constant {_struct(fields)}")
    return f"@{name}"


def _struct(fields: Sequence[str]) -> str:
    return f"{{ {', '.join(field.split(' ')[0] for field in fields)} }} {{ {', '.join(fields)} }}"


class Kernels:
    """All kernels whose sums are of one dtype."""

    def __init__(self, module: Module, machine: Machine, sums: str) -> None:
        self.module, self.machine, self.e, self.name = module, machine, Lanes(machine, sums), f"{machine.name}_{sums}"
        e, floats = self.e, sums in "fdFD"
        modes = ("strided", "carrying", "storing", "in_runs")
        self.packed = tiles.tiles(module, e, self.name, "packed")
        self.modes = {mode: tiles.tiles(module, e, self.name, mode) if floats else "null" for mode in modes}
        self.broad = tiles.broad_tiles(module, e, self.name) if floats else ["null", "null"]
        self.thin_terms = machine.free // e.parts
        made = [tiles.thin(module, e, self.name, terms) for terms in range(1, self.thin_terms + 1)]
        self.thin = module.table(f"{self.name}_thin", made)
        self.wide_rows = self._rows(sums)
        self.short_rows = f"@{rows.short_rows(module, e, self.name).name}" if machine.masks else "null"

    def _rows(self, source: str) -> list[str]:
        """Kernels of rows: near and far ones, each of short and of long rows."""
        e, made = self.e, []
        held = min(self.machine.free // (e.parts * e.folds), e.width)
        for far in (False, True):
            name = f"{self.name}_{'far_' * far}rows_{source}"
            rows.RowsKernel(self.module, e, name, source, held, far)
            long = name
            if held > FOLDED_ROWS:
                long = f"{name}_long"
                rows.RowsKernel(self.module, e, long, source, FOLDED_ROWS, far)
            made += [f"@{name}", f"@{long}"]
        return made

    def _streams(self) -> list[str]:
        """Columns side by side: of single terms, of several, aliased ones, whole lanes of many, parts of lanes."""
        e, module, name = self.e, self.module, self.name
        many, few = 16 if self.machine.masks else 8, ALIASED_STREAMS

        def function(shape: tuple[int, int, int], ahead: int = columns.STREAM_AHEAD, part: bool = False) -> Function:
            text = f"{name}_streams_{'part_' * part}{'_'.join(map(str, shape))}_{ahead}"
            return module.functions.get(text) or columns.Streams(module, e, name, shape, ahead, part).f

        def several(kind: str, terms: range, streams: int, ahead: int = columns.STREAM_AHEAD) -> str:
            """Tables of each number of terms: by the lanes that have them all."""
            made = []
            for count in terms:
                lanes = columns.lanes_of_streams(e, count, streams)
                functions = [function((lanes, count, full), ahead) for full in range(lanes + 1)]
                made.append(module.table(f"{name}_{kind}_{count}", functions))
            return module.tables(f"{name}_{kind}", made) if made else "null"

        return [
            module.table(f"{name}_single", [function((count, 1, count)) for count in range(1, e.chains + 1)]),
            several("several", range(2, many + 1), many),
            several("aliased", range(2, (few if many > few else 0) + 1), few),
            several("unfetched", range(few + 1, many + 1), few, 0),
            module.table(f"{name}_parts", [function((1, terms, 1), part=True) for terms in range(few // 2, few + 1)]),
        ]

    def _by_vector(self, source: str) -> str:
        """The record of the kernels of a matrix and a vector."""
        e, module, name = self.e, self.module, self.name
        by_rows = self._rows(source) if source in NARROW else self.wide_rows
        strips = columns.strips(module, e, name, source)
        fields = _pointers(*by_rows, *self.wide_rows, self.short_rows, strips)
        strip = columns.strip_vectors(e)
        if source in NARROW:
            return _record(
                module, f"{name}_by_vector_{source}", [*fields, *_pointers(*["null"] * 12), *_ints(0, 0, 0, 0, strip)]
            )
        masks = self.machine.masks
        most = (16 if e.parts == 1 else 14) if self.machine.free > 8 else 8 // e.parts
        narrow_rows, groups = 8 // (e.parts * e.folds), (16 if e.parts == 1 else 10) if masks else 0
        numbers = most, 16 if masks else 8, narrow_rows, groups, strip
        chain = [columns.add_to_chain(module, e, name, deep) for deep in range(most + 1)]
        narrow = [columns.narrow(module, e, name, count + 1) for count in range(narrow_rows)]
        grouped = [columns.grouped(module, e, name, count + 1) for count in range(groups)]
        fields += _pointers(
            columns.strips(module, e, name, source, by_lane=True) if masks else "null",
            module.table(f"{name}_chain", chain),
            f"@{columns.add_chains(module, e, name).name}",
            *self._streams(),
            module.table(f"{name}_narrow", narrow) if narrow else "null",
            module.table(f"{name}_grouped", grouped) if grouped else "null",
            f"@{columns.add_groups(module, e, name).name}",
            f"@{rows.put(module, e, name).name}",
        )
        return _record(module, f"{name}_by_vector_{source}", [*fields, *_ints(*numbers)])

    def record(self, source: str) -> str:
        """The record of all kernels for elements of a dtype."""
        e, module, same = self.e, self.module, source not in NARROW
        modes = self.modes if same else dict.fromkeys(self.modes, "null")
        broad = self.broad if same else ["null", "null"]
        widths = [packing.source_bytes(e, source), e.item, e.item, e.item * e.parts, 1]
        fields = [
            *_ints(e.height, tiles.VECTORS, e.width, *widths),
            *_pointers(self.packed, modes["strided"], *broad),
            *_ints(tiles.broad_height(e)),
            *_pointers(modes["carrying"], modes["storing"], f"@{packing.pack(module, e, self.name, source).name}"),
            *_pointers(self._by_vector(source)),
            f"double {PEAKS[self.machine.name] / SLOWER[e.sums]!r}",
            *_pointers("null", modes["in_runs"], self.thin),
            *_ints(self.thin_terms),
        ]
        return _record(module, f"{self.name}_{source}", fields)


def table(machine: Machine) -> str:
    """A module with all kernels of an instruction set, and the list of their records."""
    module, entries = Module(), []
    for sums in SLOWER:
        kernels = Kernels(module, machine, sums)
        for source in sums + WIDER.get(sums, ""):
            entries.append(f"{{ i8, i8, ptr }} {{ i8 {ord(source)}, i8 {ord(sums)}, ptr {kernels.record(source)} }}")
    entries.append("{ i8, i8, ptr } zeroinitializer")
    items = ", ".join(entries)
    module.constants.append(
        f"@weft_gemm_{machine.name} = hidden constant [{len(entries)} x {{ i8, i8, ptr }}] [{items}]"
    )
    return module.text(ATTRIBUTES)


def pairs_table(machine: Machine) -> str:
    """A module with the kernels that add products of bfloat16 in pairs: packed tiles alone."""
    module, e = Module(), Pairs(machine)
    packed = tiles.tiles(module, e, "pairs", "packed")
    fields = [
        *_ints(e.height, tiles.VECTORS, e.width, 2, 4, 4, 4, 2),
        *_pointers(packed, "null", "null", "null"),
        *_ints(0),
        *_pointers("null", "null", f"@{packing.pack_pairs(module, e, 'pairs').name}", "null"),
        f"double {2 * PEAKS[machine.name]!r}",
        *_pointers("null", "null", "null"),
        *_ints(0),
    ]
    module.constants.append(f"@weft_gemm_pairs = hidden constant {_struct(fields)}")
    return module.text(ATTRIBUTES)


PAIRS = Machine("v4", 64, 14, False, True, "x86-64-v4", "-prefer-256-bit,+avx512bf16")


def module_of(name: str) -> tuple[str, Machine]:
    """The text of an object file of kernels, ``pairs`` or an instruction set's name, and what it is for."""
    return (pairs_table(PAIRS), PAIRS) if name == "pairs" else (table(MACHINES[name]), MACHINES[name])
