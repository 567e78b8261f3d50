"""Complex arithmetic on pairs of registers, for the emitter. (Complex functions are defined by their operations.)"""

from __future__ import annotations

from weft.codegen.arithmetic.lanes import V

Pair = tuple[V, ...]


def multiply(x: Pair, y: Pair) -> Pair:
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


def divide(x: Pair, y: Pair) -> Pair:
    """Smith's division (CACM 1962): scaled by the larger part of the divisor."""
    lanes = x[0].lanes
    steep = y[1].abs() > y[0].abs()
    big, small = lanes.select(steep, y[1], y[0]), lanes.select(steep, y[0], y[1])
    ratio = small / big
    scale = small.fma(ratio, big)
    first, second = lanes.select(steep, x[1], x[0]), lanes.select(steep, x[0], x[1])
    re = (second * ratio + first) / scale
    product = first * ratio
    im = lanes.select(steep, product - second, second - product)  # a negated difference would have the other zero
    return re, im / scale


def magnitude(re: V, im: V) -> V:
    """sqrt(re**2 + im**2) without overflow; an infinite part gives infinity whatever the other."""
    lanes = re.lanes
    a, b = re.abs(), im.abs()
    infinite = a.eq(float("inf")) | b.eq(float("inf"))
    if re.element == "float":
        d, e = a.f64(), b.f64()
        result = d.fma(d, e * e).sqrt().f32()
        return lanes.select(infinite, float("inf"), result)
    big = lanes.select(a > b, a, b)
    small = lanes.select(a > b, b, a)
    ratio = lanes.select(big.eq(0.0), 0.0, small / big)
    result = big * ratio.fma(ratio, 1.0).sqrt()
    return lanes.select(infinite, float("inf"), lanes.select(a.compare("uno", b), a + b, result))


def sign(re: V, im: V) -> Pair:
    """z / |z|, 0 at 0."""
    lanes, size = re.lanes, magnitude(re, im)
    zero = size.eq(0.0)
    return lanes.select(zero, re, re / size), lanes.select(zero, im, im / size)


def compare(direction: str, x: Pair, y: Pair) -> V:
    """Compare for equality by parts, for order lexicographically."""
    if direction == "eq":
        return x[0].eq(y[0]) & x[1].eq(y[1])
    if direction == "ne":
        return x[0].ne(y[0]) | x[1].ne(y[1])
    return lexicographic(x, y, direction)


def lexicographic(x: Pair, y: Pair, direction: str) -> V:
    """Compare by real part, and where these are equal by imaginary part."""
    strict = direction[:2].replace("le", "lt").replace("ge", "gt")
    return x[0].compare("o" + strict, y[0]) | (x[0].eq(y[0]) & x[1].compare("o" + direction, y[1]))
