"""The roles of dimensions in convolutions, and the shapes that follow: dimension numbers, paddings, extents.

    ("NHWC", "HWIO", "NHWC")   ->   lhs_spec=(0, 3, 1, 2), rhs_spec=(3, 2, 0, 1), out_spec=(0, 3, 1, 2)

A spec lists the dimensions of an array as (batch, feature, spatial...) or, of a kernel, (feature of the result, feature
of the operand, spatial...).
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from weft.operations.settings import ConvDimensionNumbers
from weft.operations.windowed import window_padding

__all__ = [
    "conv_dimension_numbers",
    "conv_general_permutations",
    "conv_general_shape_tuple",
    "conv_shape_tuple",
    "conv_transpose_shape_tuple",
]

Shape = Sequence[int]
Pads = Sequence[tuple[int, int]]

_LETTERS = (("lhs", "NC"), ("rhs", "OI"), ("output", "NC"))


def conv_general_permutations(dimension_numbers: Any) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The three specs of layouts in words; spatial dimensions are in the order of the kernel's.

    TypeError if a word lacks its two letters, repeats one, or if the words name different spatial dimensions.

    >>> lax.conv_general_permutations(("NWHC", "HWIO", "NHWC"))
    ((0, 3, 2, 1), (3, 2, 0, 1), (0, 3, 1, 2))
    """
    words = tuple(dimension_numbers)
    for index, ((_, letters), word) in enumerate(zip(_LETTERS, words, strict=True)):
        if any(word.count(letter) != 1 for letter in letters):
            raise TypeError(
                f"convolution dimension_numbers[{index}] must contain the characters {letters[0]!r} and {letters[1]!r} "
                f"exactly once, got {word}."
            )
        if len(set(word)) != len(word):
            raise TypeError(f"convolution dimension_numbers[{index}] cannot have duplicate characters, got {word}.")
    spatial = [set(word) - set(letters) for (_, letters), word in zip(_LETTERS, words, strict=True)]
    if spatial[0] != spatial[1] or spatial[1] != spatial[2]:
        raise TypeError(
            f"convolution dimension_numbers elements must each have the same set of spatial characters, "
            f"got {dimension_numbers}."
        )
    order = [letter for letter in words[1] if letter not in "OI"]
    lhs, rhs, out = (
        tuple([word.index(letter) for letter in (*letters, *order)])
        for (_, letters), word in zip(_LETTERS, words, strict=True)
    )
    return lhs, rhs, out


def conv_dimension_numbers(lhs_shape: Shape, rhs_shape: Shape, dimension_numbers: Any) -> ConvDimensionNumbers:
    """Dimension numbers in any form as ``ConvDimensionNumbers``; None stands for ("NC...", "OI...", "NC...").

    TypeError for operands of different ranks, and for words that are not as long as these ranks.

    >>> lax.conv_dimension_numbers((8, 28, 28, 3), (5, 5, 3, 16), ("NHWC", "HWIO", "NHWC")).rhs_spec
    (3, 2, 0, 1)
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    rank = len(lhs_shape)
    if rank != len(rhs_shape):
        raise TypeError(
            f"convolution requires lhs and rhs ndim to be equal, got {rank} and {len(rhs_shape)}: shapes "
            f"{tuple(lhs_shape)} and {tuple(rhs_shape)}."
        )
    if dimension_numbers is None:
        order = tuple(range(rank))
        return ConvDimensionNumbers(order, order, order)
    if not isinstance(dimension_numbers, (list, tuple)):
        raise TypeError(
            f"[conv_dimension_numbers] dimension numbers must be None, ConvDimensionNumbers or three layouts such as "
            f"('NHWC', 'HWIO', 'NHWC'), got {dimension_numbers!r}"
        )
    if len(dimension_numbers) != 3 or not all(isinstance(word, str) for word in dimension_numbers):
        raise TypeError(
            f"convolution dimension_numbers list/tuple must be length 3, such as ('NHWC', 'HWIO', 'NHWC'), got "
            f"{len(dimension_numbers)}: {tuple(dimension_numbers)}"
        )
    for index, word in enumerate(dimension_numbers):
        if len(word) != rank:
            raise TypeError(
                f"convolution dimension_numbers[{index}] must have len equal to the ndim of lhs and rhs, got "
                f"{len(word)} for lhs and rhs shapes {tuple(lhs_shape)} and {tuple(rhs_shape)}."
            )
    return ConvDimensionNumbers(*conv_general_permutations(dimension_numbers))


def dilated(extent: int, dilation: int) -> int:
    """The extent after dilation, with ``dilation - 1`` zeros between neighbouring elements."""
    return (extent - 1) * dilation + 1 if extent else 0


def conv_shape_tuple(
    lhs_shape: Shape, rhs_shape: Shape, strides: Sequence[int], pads: Any, batch_group_count: int = 1
) -> tuple[int, ...]:
    """The shape of a convolution's result, all shapes in the order of a spec, after dilation.

    TypeError for another number of pads than spatial dimensions, ValueError if a negative padding takes away more than
    there is.

    >>> lax.conv_shape_tuple((8, 3, 28, 28), (16, 3, 5, 5), (1, 1), "VALID")
    (8, 16, 24, 24)
    """
    space, windows = [int(n) for n in lhs_shape[2:]], [int(n) for n in rhs_shape[2:]]
    if isinstance(pads, str):
        pads = window_padding.padtype_to_pads(space, windows, strides, pads)
    if len(pads) != len(space):
        raise TypeError(
            f"Wrong number of explicit pads for convolution: expected {len(space)}, got {len(pads)}: {tuple(pads)}"
        )
    found = []
    for extent, window, stride, (low, high) in zip(space, windows, strides, pads, strict=True):
        padded = extent + int(low) + int(high)
        if padded < 0:
            raise ValueError(
                f"[conv_shape_tuple] negative padding ({low}, {high}) takes more than the {extent} elements there are "
                f"along a spatial dimension of shape {tuple(space)}"
            )
        found.append(builtins.max((padded - window) // int(stride) + 1, 0))
    return (int(lhs_shape[0]) // batch_group_count, int(rhs_shape[0]), *found)


def in_spec_order(shape: Shape, spec: Sequence[int]) -> tuple[int, ...]:
    """The extents of (batch, feature, spatial...)."""
    return tuple([int(shape[dim]) for dim in spec])


def from_spec_order(extents: Shape, spec: Sequence[int]) -> tuple[int, ...]:
    """The shape whose dimensions, in the order of the spec, have these extents."""
    found = [0] * len(spec)
    for dim, extent in zip(spec, extents, strict=True):
        found[dim] = int(extent)
    return tuple(found)


def conv_general_shape_tuple(
    lhs_shape: Shape, rhs_shape: Shape, window_strides: Sequence[int], padding: Any, dimension_numbers: Any
) -> tuple[int, ...]:
    """The shape of a convolution's result for layouts in words.

    >>> lax.conv_general_shape_tuple((8, 28, 28, 3), (5, 5, 3, 16), (2, 2), "SAME", ("NHWC", "HWIO", "NHWC"))
    (8, 14, 14, 16)
    """
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    found = conv_shape_tuple(in_spec_order(lhs_shape, lhs), in_spec_order(rhs_shape, rhs), window_strides, padding)
    return from_spec_order(found, out)


def transposed_padding(window: int, stride: int, padding: Any) -> tuple[int, int]:
    """The padding of a transposed convolution along one dimension, from that of the convolution it transposes.

    With "SAME" the result is ``stride`` times as long as the operand, with "VALID" as long as needed for every window.
    """
    if isinstance(padding, str) and padding == "SAME":
        total = window + stride - 2
        low = window - 1 if stride > window - 1 else -(-total // 2)
    elif isinstance(padding, str) and padding == "VALID":
        low = window - 1
        total = low + builtins.max(window, stride) - 1
    elif isinstance(padding, tuple):
        low = window - 1 - padding[0]
        total = low + window - 1 - padding[1]
    else:
        raise ValueError(f"[conv_transpose] padding must be 'SAME', 'VALID' or (low, high) pairs, got {padding!r}")
    return low, total - low


def conv_transpose_shape_tuple(
    lhs_shape: Shape, rhs_shape: Shape, window_strides: Sequence[int], padding: Any, dimension_numbers: Any
) -> tuple[int, ...]:
    """The shape of a transposed convolution's result for layouts in words.

    >>> lax.conv_transpose_shape_tuple((8, 14, 14, 16), (4, 4, 16, 3), (2, 2), "SAME", ("NHWC", "HWIO", "NHWC"))
    (8, 28, 28, 3)
    """
    specs = conv_general_permutations(dimension_numbers)
    lhs, rhs = in_spec_order(lhs_shape, specs[0]), in_spec_order(rhs_shape, specs[1])
    if isinstance(padding, str):
        padding = [transposed_padding(k, s, padding) for k, s in zip(rhs[2:], window_strides, strict=True)]
    dims = zip(lhs[2:], rhs[2:], window_strides, padding, strict=True)
    space = [(n - 1) * s - k + 2 + low + high for n, k, s, (low, high) in dims]
    return from_spec_order((lhs[0], rhs[0], *space), specs[2])
