"""Where windows lie in an array, dimension by dimension, and which outputs see which elements of their window.

    n 5, window 3, stride 2, padding (1, 1)   outputs 0, 1, 2 see the elements (-1) 0 1,  1 2 3,  3 4 (5)
    runs    output 0: taps 1 2 from 0 1;  output 1: taps 0 1 2;  output 2: taps 0 1

An element of a window is a *tap*. Tap w of output o is at ``o * stride - low + w * dilation`` in the array, whose
elements are ``spacing`` apart; it exists if an element lies there. A run is a stretch of outputs for which the same
taps exist, each of them read from the array with one step.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from weft._base.record import NamedTuple, Record


class Tap(NamedTuple):
    """Tap number ``number`` of the outputs of a run: ``array[start + step * j]`` for output number j of the run."""

    number: int
    start: int
    step: int


class Run(NamedTuple):
    """The outputs ``start + step * j`` with j < ``extent``, and their taps in order."""

    start: int
    step: int
    extent: int
    taps: tuple[Tap, ...]


class Along(NamedTuple):
    """The windows along one dimension: ``spacing`` is the base dilation, ``dilation`` that of the window."""

    window: int
    stride: int = 1
    low: int = 0
    high: int = 0
    spacing: int = 1
    dilation: int = 1

    @property
    def is_trivial(self) -> bool:
        """Whether each output is the element at its own index."""
        return self == TRIVIAL

    def outputs(self, extent: int) -> int:
        """How many windows lie in the padded array."""
        return max((dilated(extent, self.spacing) + self.low + self.high - self.span) // self.stride + 1, 0)

    @property
    def span(self) -> int:
        """How many positions a window covers."""
        return dilated(self.window, self.dilation)

    def transposed(self, extent: int) -> Along:
        """The windows of outputs that see an element, in order of outputs: tap w is their tap ``window - 1 - w``."""
        low = self.span - 1 - self.low
        high = dilated(extent, self.spacing) + self.span - 1 - low - dilated(self.outputs(extent), self.stride)
        return Along(self.window, self.spacing, low, high, self.stride, self.dilation)

    def runs(self, extent: int) -> list[Run]:
        """The runs of all outputs, in order of their first one; those of a dimension that is spread come by phases."""
        count = self.outputs(extent)
        period = self.spacing // math.gcd(self.stride, self.spacing)
        return [run for phase in range(min(period, count)) for run in self._phase(extent, count, phase, period)]

    def _phase(self, extent: int, count: int, phase: int, period: int) -> list[Run]:
        """The runs of every ``period``-th output: for each of these a tap moves by the same number of elements."""
        length, step = -(-(count - phase) // period), self.stride * period // self.spacing
        spans = []  # tap, first and end of the outputs for which it exists
        for number in range(self.window):
            position = phase * self.stride - self.low + number * self.dilation
            if position % self.spacing == 0:
                start = position // self.spacing
                first, end = max(-(start // step), 0), min(-((start - extent) // step), length)
                if first < end:
                    spans.append((Tap(number, start, step), first, end))
        cuts = sorted({0, length, *[cut for _, first, end in spans for cut in (first, end)]})
        return [
            Run(phase + period * low, period, high - low,
                tuple([tap._replace(start=tap.start + step * low) for tap, first, end in spans if first <= low < end]))
            for low, high in itertools.pairwise(cuts)
        ]  # fmt: skip


TRIVIAL = Along(1)


def dilated(extent: int, dilation: int) -> int:
    """How many positions elements that are ``dilation`` apart cover."""
    return (extent - 1) * dilation + 1 if extent else 0


class WindowMap(Record):
    """Windows in an array: how they lie along each dimension."""

    along: tuple[Along, ...]

    @classmethod
    def of(
        cls,
        window_dimensions: Sequence[int],
        window_strides: Sequence[int],
        padding: Sequence[tuple[int, int]],
        base_dilation: Sequence[int] | None = None,
        window_dilation: Sequence[int] | None = None,
    ) -> WindowMap:
        """The map that parameters of this form, which all operations on windows have, describe."""
        ones = (1,) * len(window_dimensions)
        rows = zip(
            window_dimensions, window_strides, padding, base_dilation or ones, window_dilation or ones, strict=True
        )
        return cls(tuple([Along(n, stride, low, high, b, d) for n, stride, (low, high), b, d in rows]))

    @property
    def taps(self) -> int:
        """How many elements a window has."""
        return math.prod([along.window for along in self.along])

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the result."""
        return tuple([along.outputs(extent) for along, extent in zip(self.along, shape, strict=True)])

    def transposed(self, shape: Sequence[int]) -> WindowMap:
        """The windows of outputs that see an element of an array of this shape."""
        return WindowMap(tuple([along.transposed(extent) for along, extent in zip(self.along, shape, strict=True)]))

    def number(self, taps: Sequence[Tap]) -> int:
        """The position of a tap in its window, in row-major order."""
        found = 0
        for along, tap in zip(self.along, taps, strict=True):
            found = found * along.window + tap.number
        return found
