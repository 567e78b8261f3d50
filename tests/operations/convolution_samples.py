"""Samples of convolutions for the table of samples: programs that run, and calls that must raise."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

X = np.arange(2 * 4 * 7, dtype=np.float32).reshape(2, 4, 7) % 11 - 5
K = np.arange(6 * 4 * 3, dtype=np.float32).reshape(6, 4, 3) % 7 - 3
IMAGE = np.arange(2 * 5 * 6 * 4, dtype=np.float32).reshape(2, 5, 6, 4) % 9 - 4
KERNEL = np.arange(3 * 2 * 4 * 6, dtype=np.float32).reshape(3, 2, 4, 6) % 5 - 2
H = IMAGE.astype(ml_dtypes.bfloat16), KERNEL.astype(ml_dtypes.bfloat16)
B = X > 0, K > 0
IMAGES = ("NHWC", "HWIO", "NHWC")


def _dilated(lax: Any, x: Any, y: Any) -> Any:
    return lax.conv_general_dilated(x, y, (2, 1), ((1, 2), (-1, 3)), (1, 2), (2, 1), IMAGES)


PROGRAMS: dict[str, list[Any]] = {
    "conv_general_dilated": [
        (lambda lax, x, y: lax.conv(x, y, (1,), "SAME"), (X, K)),
        (lambda lax, x, y: lax.conv(x, y, (2,), "VALID", "highest"), (X, K)),
        (lambda lax, x, y: lax.conv(x, y, (), "VALID"), (X[..., 0], K[..., 0])),
        (
            lambda lax, x, y: lax.conv(x, y, (3,), "SAME_LOWER", None, np.float32),
            (X.astype(ml_dtypes.bfloat16), K.astype(ml_dtypes.bfloat16)),
        ),
        (lambda lax, x, y: lax.conv_with_general_padding(x, y, (1,), ((2, -1),), (2,), (3,)), (X, K)),
        (lambda lax, x, y: lax.conv_general_dilated(x, y, (1, 1), "SAME", None, None, IMAGES), (IMAGE, KERNEL)),
        (_dilated, (IMAGE, KERNEL)),
        (_dilated, H),
        (_dilated, (IMAGE.astype(np.int8), KERNEL.astype(np.int8))),
        (_dilated, (IMAGE + 1j * IMAGE[::-1], KERNEL - 1j * KERNEL[::-1])),
        (lambda lax, x, y: lax.conv(x, y, (1,), "SAME"), B),
        (lambda lax, x, y: lax.conv_general_dilated(x, y, (1,), "SAME", feature_group_count=2), (X, K[:, :2])),
        (lambda lax, x, y: lax.conv_general_dilated(x, y, (1,), "SAME", feature_group_count=4), (X, K[:4, :1])),
        (lambda lax, x, y: lax.conv_general_dilated(x, y, (2,), "SAME", batch_group_count=2), (X, K)),
        (lambda lax, x, y: lax.conv(x, y, (1,), "VALID"), (X[..., :2], K)),
        (lambda lax, x, y: lax.conv(x, y, (1,), "VALID"), (X[:0], K)),
        (lambda lax, x, y: lax.conv_transpose(x, y, (2, 3), "SAME", dimension_numbers=IMAGES), (IMAGE, KERNEL)),
        (
            lambda lax, x, y: lax.conv_transpose(x, y, (2, 2), "VALID", transpose_kernel=True),
            (IMAGE, KERNEL.swapaxes(2, 3)),
        ),
        (
            lambda lax, x, y: lax.conv_transpose(x, y, (1, 2), ((0, 1), (1, 0)), (2, 1), use_consistent_padding=True),
            (IMAGE, KERNEL),
        ),
        (lambda lax, x: lax.conv_general_dilated_patches(x, (2,), (2,), "SAME"), (X,)),
        (lambda lax, x: lax.conv_general_dilated_patches(x, (2, 2), (1, 2), "VALID", None, (1, 2), IMAGES), (IMAGE,)),
        (
            lambda lax, x, y: lax.conv_general_dilated_local(x, y, (2,), "VALID", (3,)),
            (X, np.arange(5 * 12 * 3, dtype=np.float32).reshape(5, 12, 3) % 4),
        ),
    ],
}

ERRORS: list[Any] = [
    (lambda lax, x, y: lax.conv(x, y, (1,), "FOO"), (X, K)),
    (lambda lax, x, y: lax.conv(x, y, (1, 1), ((0, 0),)), (X, K)),
    (lambda lax, x, y: lax.conv(x, y, (1,), ((0, 0), (0, 0))), (X, K)),
    (lambda lax, x, y: lax.conv(x, y, (1,), 3), (X, K)),
    (lambda lax, x, y: lax.conv(x, y, (1,), ((-4, -4),)), (X, K)),
    (lambda lax, x, y: lax.conv(x, y, (1,), "SAME"), (X, K[..., 0])),
    (lambda lax, x, y: lax.conv(x, y, (1,), "SAME"), (X, K[:, :3])),
    (lambda lax, x, y: lax.conv(x, y, (1,), "SAME"), (X, K.astype(np.int32))),
    (lambda lax, x, y: lax.conv(x, y, (1,), "SAME", None, np.int32), (X, K)),
    (lambda lax, x, y: lax.conv(x, y, (1,), "SAME", None, np.float16), (X, K)),
    (lambda lax, x, y: lax.conv_general_dilated(x, y, (1,), "SAME", (2,)), (X, K)),
    (lambda lax, x, y: lax.conv_general_dilated(x, y, (1,), ((0, 0),), (0,)), (X, K)),
    (lambda lax, x, y: lax.conv_general_dilated(x, y, (1,), ((0, 0),), None, (0,)), (X, K)),
    (lambda lax, x, y: lax.conv_general_dilated(x, y, (1,), "SAME", feature_group_count=0), (X, K)),
    (lambda lax, x, y: lax.conv_general_dilated(x, y, (1,), "SAME", feature_group_count=3), (X, K)),
    (lambda lax, x, y: lax.conv_general_dilated(x, y, (1,), "SAME", feature_group_count=4), (X, K[:, :1])),
    (lambda lax, x, y: lax.conv_general_dilated(x, y, (1,), "SAME", batch_group_count=3), (X, K)),
    (lambda lax, x, y: lax.conv_general_dilated(x, y, (1,), "SAME", batch_group_count=-1), (X, K)),
    (lambda lax, x, y: lax.conv_general_dilated(x, y, (1,), "SAME", dimension_numbers=("NCH", "OIH")), (X, K)),
    (lambda lax, x, y: lax.conv_general_dilated(x, y, (1,), "SAME", dimension_numbers=("NCH", "OIW", "NCH")), (X, K)),
    (lambda lax, x, y: lax.conv_general_dilated(x, y, (1,), "SAME", dimension_numbers=("NCC", "OIH", "NCH")), (X, K)),
    (lambda lax, x, y: lax.conv_general_dilated(x, y, (1,), "SAME", dimension_numbers=("NC", "OI", "NC")), (X, K)),
    (lambda lax, x, y: lax.conv_general_dilated(x, y, (1,), "SAME", dimension_numbers=3), (X, K)),
    (lambda lax, x, y: lax.conv_transpose(x, y, (1,), "FOO"), (X, K)),
]
