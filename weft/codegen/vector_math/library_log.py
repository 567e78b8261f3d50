"""The logarithm of float64 that the C library has, to the bit: random normal values are made with it.

Its algorithm and constants are those of Arm's optimized routines (S. Nagy, 2018; MIT licence), as in glibc from 2.28.
x = 2**k z; of 128 intervals of z, each has a c near its middle, whose logarithm is within 2**-66 of a multiple of
2**-43, so that k log 2 + log c is exact; a polynomial in z / c - 1 gives the rest.
"""

from __future__ import annotations

import functools
import math
import struct

from weft.codegen.arithmetic.lanes import V

# The inverse of each c, in units of its last place from the inverse of the middle of its interval.
MOVED = (
    -23142382, -57643754, -234334839, -124664804, 19045012, -123323398, -501163255, 342479926, -234593306, 57421184,
    513617488, -240891478, 85169741, 28659150, 284053799, 342563057, -68420459, -346144712, -90113766, -464022980,
    285342708, -489548825, 376054848, 47397812, -423637851, -260988534, 336107021, 448241578, 154177355, 447893384,
    241227555, -420636714, -218426730, -96876684, -205835218, -368178198, -345128710, -510284502, 481763731, 209336112,
    429336310, 15489329, 442353177, -417834330, 73183371, 515232680, 507984536, 83787275, 330409952, 151596684,
    377744204, 198302857, 214798271, -345957716, 356163107, 215510022, -229897960, -131709726, 215213618, -464519207,
    -332821996, 385780520, -400344786, 256208139, 478356527, 345720337, 128466877, 217515751, -162048343, 295127580,
    -235892775, -69369347, 93666841, -272860130, 91915174, 29018059, 258893229, 386009280, -241633007, 68399381,
    386341370, 408940642, 65060217, -120872168, 189498853, -32395328, -49955913, 154042178, -346113480, 148348366,
    -396488327, -427431396, 107119491, -500798201, 212184347, 305888811, -330297730, -91422864, 6707636, 273897542,
    -512931067, -500150233, 485589437, -280752730, 106848032, 30953893, -291342514, -408884927, 149302919, -107851081,
    225432558, 460497078, -452391632, -490679353, 508304210, 493208081, 336502878, 526975298, -457361038, -312310462,
    -365194252, -421357131, 362015322, 310793228, -441535439, -69145545, -528727990, 433364383,
)  # fmt: skip
LEAST = 0x3FE6000000000000  # the bits of the least z, 0.6875
LN2_HIGH, LN2_LOW = 0.6931471805598903, 5.497923018708371e-14
POLYNOMIAL = (-0.5000000000000001, 0.33333333331825593, -0.2499999999622955, 0.20000304511814496, -0.16667054827627667)


def _bits(value: float) -> int:
    return struct.unpack("<q", struct.pack("<d", value))[0]


def _float(bits: int) -> float:
    return struct.unpack("<d", struct.pack("<q", bits))[0]


@functools.cache
def _words() -> tuple[int, ...]:
    """The bits of 1 / c and log c, interval by interval."""
    words: list[int] = []
    for k, moved in enumerate(MOVED):
        inverse = _bits(1.0 / _float(LEAST + (2 * k + 1 << 44))) + moved
        words += inverse, _bits(round(-math.log(_float(inverse)) * 2.0**43) * 2.0**-43)
    return tuple(words)


def log_f64(x: V) -> V:
    """log x for a normal x > 0 that differs from 1 by a sixteenth or more, in one lane."""
    lanes, bits = x.lanes, x.bits()
    beyond = bits - LEAST
    offset = (beyond.lshr(45) & 127) << 4
    inverse, log = (lanes.looked_up("library_log_words", _words(), offset, "double", k) for k in (0, 8))
    k = (beyond >> 52).to_float("double")
    r = (bits - (beyond & -(1 << 52))).as_float().fma(inverse, -1.0)
    log = k.fma(LN2_HIGH, log)
    head = log + r
    square = r * r
    a, b, c, d, e = POLYNOMIAL
    rest = square.fma(a, k.fma(LN2_LOW, (log - head) + r))
    return (r * square).fma(square.fma(r.fma(e, d), r.fma(c, b)), rest) + head
