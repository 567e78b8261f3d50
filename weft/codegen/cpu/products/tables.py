"""Units: the kernels of an instruction set for operands of one dtype, whose sums are of one, and where they are.

``v4_Ef`` is the unit of bfloat16 with sums of float32 (NumPy's letters) on AVX-512. runtime/src/gemm_units.cpp asks for
it when a product first needs it.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import columns, packing, rows, tiles
from .lanes import MACHINES, NARROW, PAIRS, Lanes, Machine, Pairs
from .writer import Function, Module

Values = dict[str, str | int | float]  # of a record's fields

# The records of runtime/src/gemm_kernels.h that tell it of kernels: GemmKernels and GemmVectorKernels.
KERNELS = [
    ("height", "i32"), ("vectors", "i32"), ("lanes", "i32"), ("source_bytes", "i32"), ("packed_bytes", "i32"),
    ("result_bytes", "i32"), ("sum_bytes", "i32"), ("depth", "i32"), ("packed", "ptr"), ("strided", "ptr"),
    ("broad", "ptr"), ("half", "ptr"), ("broad_height", "i32"), ("carrying", "ptr"), ("storing", "ptr"),
    ("pack", "ptr"), ("by_vector", "ptr"), ("flops_per_ns", "double"), ("unit", "ptr"), ("in_runs", "ptr"),
    ("thin", "ptr"), ("thin_terms", "i32"),
]  # fmt: skip
ROWS = ["rows", "long_rows", "far_rows", "far_long_rows"]
VECTOR_KERNELS = [
    *((kind, "ptr") for kind in ROWS), *((f"wide_{kind}", "ptr") for kind in ROWS), ("short_rows", "ptr"),
    ("strips", "ptr"), ("lane_strips", "ptr"), ("single", "ptr"), ("several", "ptr"), ("aliased", "ptr"),
    ("parts", "ptr"), ("near_parts", "ptr"), ("narrow", "ptr"), ("grouped", "ptr"), ("add_groups", "ptr"),
    ("put", "ptr"), ("widen", "ptr"), ("streams", "i32"), ("narrow_rows", "i32"), ("grouped_vectors", "i32"),
    ("strip_vectors", "i32"),
]  # fmt: skip

MODES = ("strided", "carrying", "storing", "in_runs")  # of tiles, beside packed ones
WIDER = {"f": "eE", "i": "hHbB"}  # dtypes of sums, and of narrower elements that they are made of
FOLDED_ROWS = 8  # rows read at a time if they have more terms than kGemmFoldedDepth: more are too many streams
ALIASED_STREAMS = 8  # columns read side by side if their lines share sets of the first cache: kGemmAliasedStreams
# What one thread can multiply and add, in flops of float32 in a nanosecond: 117 were measured on a Zen 4 with AVX-512
# (benchmarks/NOTES.md); the others follow from the bytes of a vector. The model of targets is not there in a build.
PEAKS = {"v4": 115.0, "v3": 58.0, "neon": 29.0}
# How many times as long a term takes as one of float32.
SLOWER = {"f": 1.0, "d": 2.0, "F": 4.0, "D": 8.0, "i": 1.3, "l": 8.0}
# LLVM may use vectors of 64 bytes, which it would split in two; where there are none this changes nothing.
ATTRIBUTES = '"prefer-vector-width"="512" "min-legal-vector-width"="512"'


def _record(module: Module, name: str, layout: Sequence[tuple[str, str]], values: Values) -> str:
    """The name of a record, whose fields without a value are null or 0."""
    assert values.keys() <= {field for field, _ in layout}, f"{name} has other fields than its record"
    nothing = {"ptr": "null", "i32": 0, "double": 0.0}
    return module.record(name, layout, [str(values.get(field, nothing[type_])) for field, type_ in layout])


class Kernels:
    """Kernels whose sums are of one dtype."""

    def __init__(self, module: Module, machine: Machine, sums: str) -> None:
        self.module, self.machine, self.e, self.name = module, machine, Lanes(machine, sums), f"{machine.name}_{sums}"
        e = self.e
        self.wide_rows = self._rows(sums)
        self.short_rows = f"@{rows.short_rows(module, e, self.name).name}" if machine.masks else "null"

    def _rows(self, source: str) -> list[str]:
        """Kernels of rows in a near cache, and of rows far away, which are fetched ahead: for each, short rows and long
        ones."""
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

    def _streams(self) -> Values:
        """Kernels of columns side by side: with a single term, with several, for aliased columns, parts of lanes."""
        e, module, name = self.e, self.module, self.name
        many, few = 16 if self.machine.masks else 8, ALIASED_STREAMS

        def function(shape: tuple[int, int, int], ahead: int = columns.STREAM_AHEAD, part: bool = False) -> Function:
            text = f"{name}_streams_{'part_' * part}{'_'.join(map(str, shape))}_{ahead}"
            return module.functions.get(text) or columns.Streams(module, e, text, shape, ahead, part).f

        def several(kind: str, terms: range, streams: int) -> str:
            """A table for each number of terms: its kernels by the number of lanes that have all terms."""
            made = []
            for count in terms:
                lanes = columns.lanes_of_streams(e, count, streams)
                functions = [function((lanes, count, full)) for full in range(lanes + 1)]
                made.append(module.table(f"{name}_{kind}_{count}", functions))
            return module.tables(f"{name}_{kind}", made) if made else "null"

        values: Values = {
            "single": module.table(f"{name}_single", [function((count, 1, count)) for count in range(1, e.chains + 1)]),
            "several": several("several", range(2, many + 1), many),
            "aliased": several("aliased", range(2, (few if many > few else 0) + 1), few),
            "streams": many,
        }
        for kind, ahead in (("parts", columns.STREAM_AHEAD), ("near_parts", 0)):
            made = [function((1, terms, 1), ahead, part=True) for terms in range(1, many + 1)]
            values[kind] = module.table(f"{name}_{kind}", made)
        return values

    def _by_vector(self, source: str, widen: str) -> str:
        """The record of the kernels of a matrix and a vector."""
        e, module, name = self.e, self.module, self.name
        by_rows = self._rows(source) if source in NARROW else self.wide_rows
        values: Values = {}
        for kind, near, wide in zip(ROWS, by_rows, self.wide_rows, strict=True):
            values |= {kind: near, f"wide_{kind}": wide}
        values |= {"short_rows": self.short_rows, "strips": columns.strips(module, e, name, source)}
        values |= {"strip_vectors": columns.strip_vectors(e), "widen": widen}
        if source not in NARROW:
            values |= self._by_columns(source)
        return _record(module, f"{name}_by_vector_{source}", VECTOR_KERNELS, values)

    def _by_columns(self, source: str) -> Values:
        """What there is for contiguous columns of elements as wide as their sums."""
        e, module, name = self.e, self.module, self.name
        narrow_rows, groups = columns.narrow_rows(e), columns.grouped_vectors(e)
        narrow = [columns.narrow(module, e, name, count + 1) for count in range(narrow_rows)]
        grouped = [columns.grouped(module, e, name, count + 1) for count in range(groups)]
        return {
            "lane_strips": columns.strips(module, e, name, source, by_lane=True) if self.machine.masks else "null",
            **self._streams(),
            "narrow": module.table(f"{name}_narrow", narrow) if narrow else "null",
            "grouped": module.table(f"{name}_grouped", grouped) if grouped else "null",
            "add_groups": f"@{columns.add_groups(module, e, name).name}",
            "put": f"@{rows.put(module, e, name).name}",
            "narrow_rows": narrow_rows,
            "grouped_vectors": groups,
        }

    def record(self, source: str) -> str:
        """The record of all kernels for elements of a dtype. Those of floats as wide as their sums are also read where
        they lie, or packed meanwhile."""
        e, module, name = self.e, self.module, self.name
        pack, terms = f"@{packing.pack(module, e, name, source).name}", self.machine.free // e.parts
        values: Values = {}
        if source in "fdFD":
            values |= {mode: tiles.tiles(module, e, name, mode) for mode in MODES}
            values |= zip(("broad", "half"), tiles.broad_tiles(module, e, name), strict=True)
        values |= {
            "height": e.height,
            "vectors": tiles.VECTORS,
            "lanes": e.width,
            "source_bytes": packing.source_bytes(e, source),
            "packed_bytes": e.item,
            "result_bytes": e.item,
            "sum_bytes": e.item * e.parts,
            "depth": 1,
            "packed": tiles.tiles(module, e, name, "packed"),
            "broad_height": tiles.broad_height(e),
            "pack": pack,
            "by_vector": self._by_vector(source, pack),
            "flops_per_ns": PEAKS[self.machine.name] / SLOWER[e.sums],
            "thin": module.table(f"{name}_thin", [tiles.thin(module, e, name, count + 1) for count in range(terms)]),
            "thin_terms": terms,
        }
        return _record(module, f"{name}_{source}", KERNELS, values)


def _add_pairs(module: Module) -> None:
    """The kernels that add products of bfloat16 in pairs: packed tiles. A vector's products are added one by one."""
    e, chains = Pairs(PAIRS), Kernels(module, PAIRS, "f")
    values: Values = {
        "height": e.height,
        "vectors": tiles.VECTORS,
        "lanes": e.width,
        "source_bytes": 2,
        "packed_bytes": 4,
        "result_bytes": 4,
        "sum_bytes": 4,
        "depth": 2,
        "packed": tiles.tiles(module, e, "pairs", "packed"),
        "pack": f"@{packing.pack_pairs(module, e, 'pairs').name}",
        "by_vector": chains._by_vector("E", f"@{packing.pack(module, chains.e, chains.name, 'E').name}"),
        "flops_per_ns": 2 * PEAKS[PAIRS.name],
    }
    _record(module, "pairs", KERNELS, values)


def units(instructions: str) -> list[str]:
    """The names of all units of an instruction set."""
    kinds = [source + sums for sums in SLOWER for source in sums + WIDER.get(sums, "")]
    return [f"{instructions}_{kind}" for kind in (*kinds, *["pairs"] * (instructions == PAIRS.name))]


def module_of(unit: str) -> tuple[str, Machine]:
    """The text of a unit's module, and what it is for."""
    module, (instructions, kind) = Module(), unit.split("_")
    machine = PAIRS if kind == "pairs" else MACHINES[instructions]
    if kind == "pairs":
        _add_pairs(module)
    else:
        source, sums = kind
        Kernels(module, machine, sums).record(source)
    module.entry()
    return module.text(ATTRIBUTES), machine
