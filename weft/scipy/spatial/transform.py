"""weft.scipy.spatial.transform: rotations as unit quaternions, and interpolation between them.

A quaternion is (x, y, z, w), the scalar last. ``Rotation`` holds one f[4] or several f[...,4] and is a pytree::

    Rotation.from_euler("z", 90, degrees=True).apply([1, 0, 0]) -> [0, 1, 0]
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

from weft import numpy as jnp
from weft import operations as lax
from weft import random as weft_random
from weft._base import unbuilt
from weft._base.record import NamedTuple
from weft.numpy import promotion

__getattr__ = unbuilt.fallback(__name__)


def _floats(x: Any) -> Any:
    """An array of floats: integers become the default float."""
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(float)


def _square(x: Any) -> Any:
    """The sum of squares along the last axis, which stays with extent 1."""
    return jnp.sum(x * x, axis=-1, keepdims=True)


def _check_last(name: str, x: Any, shape: tuple[int, ...]) -> Any:
    x = _floats(x)
    if x.shape[-len(shape) :] != shape:
        raise ValueError(
            f"[Rotation.{name}] expected an array of shape (..., {', '.join(map(str, shape))}), got {x.shape}"
        )
    return x


def _product(p: Any, q: Any) -> Any:
    """Hamilton's product: first the rotation q, then p."""
    p, q = promotion.promote_shapes(p, q)
    pv, pw, qv, qw = p[..., :3], p[..., 3:], q[..., :3], q[..., 3:]
    vector = pw * qv + qw * pv + jnp.cross(pv, qv)
    return jnp.concatenate([vector, pw * qw - jnp.sum(pv * qv, axis=-1, keepdims=True)], axis=-1)


def _elementary(axis: str, angle: Any) -> Any:
    """The rotation about one coordinate axis."""
    half, zero = angle / 2, jnp.zeros_like(angle)
    parts = [zero, zero, zero, jnp.cos(half)]
    parts["xyz".index(axis)] = jnp.sin(half)
    return jnp.stack(parts, axis=-1)


def _axes(seq: str) -> tuple[str, bool]:
    """The axes of a sequence in small letters, and whether they stay where they are (small letters, extrinsic)."""
    if not 1 <= len(seq) <= 3:
        raise ValueError(f"Expected axis specification to be a string of 1 to 3 characters, got {seq!r}")
    extrinsic = re.fullmatch("[xyz]+", seq) is not None
    if not extrinsic and re.fullmatch("[XYZ]+", seq) is None:
        raise ValueError(f"Expected axes from `seq` to be from ['x', 'y', 'z'] or ['X', 'Y', 'Z'], got {seq}")
    if any(a == b for a, b in itertools.pairwise(seq)):
        raise ValueError(f"Expected consecutive axes to be different, got {seq}")
    return seq.lower(), extrinsic


class Rotation(NamedTuple):
    """One rotation or an array of them; made by ``from_quat``, ``from_matrix``, ``from_euler`` and their kin.

    >>> from weft.scipy.spatial.transform import Rotation
    >>> turn = Rotation.from_euler("z", 90, degrees=True)
    >>> print(turn.apply(jnp.array([1.0, 0.0, 0.0])).round(3))
    [0. 1. 0.]
    """

    quat: Any

    @classmethod
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """The rotations of several objects, one after the other."""
        return cls(jnp.concatenate([jnp.atleast_2d(rotation.quat) for rotation in rotations]))

    @classmethod
    def from_euler(cls, seq: str, angles: Any, degrees: bool = False) -> Rotation:
        """Rotations about coordinate axes, one after the other: ``angles`` f[..., len(seq)], a scalar for one axis.

        Small letters in ``seq`` are axes that stay (extrinsic), capitals those that turn along (intrinsic). ValueError
        for other letters or equal neighbours.
        """
        axes, extrinsic = _axes(seq)
        angles = _floats(angles)
        if angles.ndim == 0:
            angles = angles[None]
        if angles.shape[-1] != len(axes):
            raise ValueError(
                f"[Rotation.from_euler] {seq!r} needs angles of shape (..., {len(seq)}), got {angles.shape}"
            )
        angles = jnp.deg2rad(angles) if degrees else angles
        quat = _elementary(axes[0], angles[..., 0])
        for number, axis in enumerate(axes[1:], 1):
            turn = _elementary(axis, angles[..., number])
            quat = _product(turn, quat) if extrinsic else _product(quat, turn)
        return cls(quat)

    @classmethod
    def from_matrix(cls, matrix: Any) -> Rotation:
        """From rotation matrices f[..., 3, 3], which are taken to be orthogonal.

        There are four formulas; the one that divides by the largest component is used (S. Shepperd, "Quaternion from
        rotation matrix", 1978).
        """
        m = _check_last("from_matrix", matrix, (3, 3))
        d = [m[..., k, k] for k in range(3)]
        trace = d[0] + d[1] + d[2]
        candidates = []
        for i in range(3):
            j, k = (i + 1) % 3, (i + 2) % 3
            parts = [trace] * 4
            parts[i] = 1 - trace + 2 * d[i]
            parts[j] = m[..., j, i] + m[..., i, j]
            parts[k] = m[..., k, i] + m[..., i, k]
            parts[3] = m[..., k, j] - m[..., j, k]
            candidates.append(jnp.stack(parts, axis=-1))
        last = [m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1], 1 + trace]
        candidates.append(jnp.stack(last, axis=-1))
        best = jnp.argmax(jnp.stack([*d, trace], axis=-1), axis=-1)[..., None]
        quat = candidates[3]
        for number in range(3):
            quat = jnp.where(best == number, candidates[number], quat)
        return cls.from_quat(quat)

    @classmethod
    def from_mrp(cls, mrp: Any) -> Rotation:
        """From modified Rodrigues parameters f[..., 3]: the axis times the tangent of a quarter of the angle."""
        mrp = _check_last("from_mrp", mrp, (3,))
        square = _square(mrp)
        return cls(jnp.concatenate([2 * mrp, 1 - square], axis=-1) / (1 + square))

    @classmethod
    def from_quat(cls, quat: Any) -> Rotation:
        """From quaternions f[..., 4], of any length; NaN for zero."""
        quat = _check_last("from_quat", quat, (4,))
        return cls(quat / jnp.sqrt(_square(quat)))

    @classmethod
    def from_rotvec(cls, rotvec: Any, degrees: bool = False) -> Rotation:
        """From rotation vectors f[..., 3]: the axis times the angle."""
        rotvec = _check_last("from_rotvec", rotvec, (3,))
        rotvec = jnp.deg2rad(rotvec) if degrees else rotvec
        square = _square(rotvec)
        small = square < 1e-6
        angle = jnp.sqrt(jnp.where(small, 1.0, square))
        series = 0.5 - square / 48 + square * square / 3840
        scale = jnp.where(small, series, jnp.sin(angle / 2) / angle)
        cosine = jnp.where(small, 1 - square / 8 + square * square / 384, jnp.cos(angle / 2))
        return cls(jnp.concatenate([scale * rotvec, cosine], axis=-1))

    @classmethod
    def identity(cls, num: int | None = None, dtype: Any = float) -> Rotation:
        """The rotation that changes nothing, or ``num`` of them."""
        quat = jnp.array([0, 0, 0, 1], dtype)
        return cls(quat if num is None else jnp.tile(quat, (num, 1)))

    @classmethod
    def random(cls, random_key: Any, num: int | None = None) -> Rotation:
        """A rotation, or ``num`` of them, equally likely to be any: normal quaternions of length 1."""
        return cls.from_quat(weft_random.normal(random_key, (4,) if num is None else (num, 4)))

    def __getitem__(self, index: Any) -> Rotation:  # type: ignore[override]
        """Some of several rotations; TypeError for a single one."""
        if self.single:
            raise TypeError("Single rotation is not subscriptable.")
        return Rotation(self.quat[index])

    def __len__(self) -> int:
        if self.single:
            raise TypeError("Single rotation has no len().")
        return self.quat.shape[0]

    def __mul__(self, other: Any) -> Rotation:  # type: ignore[override]
        """First the rotation ``other``, then this one."""
        return Rotation.from_quat(_product(self.quat, other.quat))

    def apply(self, vectors: Any, inverse: bool = False) -> Any:
        """The vectors f[..., 3] turned by the rotations, or by their inverses."""
        vectors = _check_last("apply", vectors, (3,))
        axis, w = self.quat[..., :3], self.quat[..., 3:]
        axis = -axis if inverse else axis
        axis, vectors = jnp.broadcast_arrays(axis, vectors)
        w = promotion.with_rank(w, vectors.ndim)
        once = 2 * jnp.cross(axis, vectors)
        return vectors + w * once + jnp.cross(axis, once)

    def as_euler(self, seq: str, degrees: bool = False) -> Any:
        """Angles f[..., 3] about three axes, in -pi..pi, the middle one in 0..pi or -pi/2..pi/2.

        Where the first and the third axis fall together the third angle is 0. The formula is that of E. Bernardes and
        S. Viollet, "Quaternion to Euler angles conversion" (PLOS ONE 17, 2022).
        """
        if len(seq) != 3:
            raise ValueError(f"Expected 3 axes, got {seq}.")
        axes, extrinsic = _axes(seq)
        i, j, k = ("xyz".index(axis) for axis in (axes if extrinsic else axes[::-1]))
        symmetric = i == k
        k = 3 - i - j if symmetric else k
        sign = (i - j) * (j - k) * (k - i) // 2
        x, w = [self.quat[..., number] for number in range(3)], self.quat[..., 3]
        if symmetric:
            a, b, c, d = w, x[i], x[j], x[k] * sign
        else:
            a, b, c, d = w - x[j], x[i] + x[k] * sign, x[j] + w, x[k] * sign - x[i]
        middle = 2 * jnp.arctan2(jnp.hypot(c, d), jnp.hypot(a, b))
        total, difference = jnp.arctan2(b, a), jnp.arctan2(d, c)
        near = 1e-7 if self.quat.dtype.itemsize == 8 else 1e-3
        low, high = jnp.abs(middle) <= near, jnp.abs(middle - math.pi) <= near
        first, third = total - difference, total + difference
        if not symmetric:
            third, middle = third * sign, middle - math.pi / 2
        if not extrinsic:
            first, third = third, first
        locked = jnp.where(low, 2 * total, 2 * difference * (-1 if extrinsic else 1))
        if not (extrinsic or symmetric):
            locked = locked * sign
        first = jnp.where(low | high, locked, first)
        third = jnp.where(low | high, 0.0, third)
        angles = jnp.stack([first, middle, third], axis=-1)
        angles = jnp.where(angles < -math.pi, angles + 2 * math.pi, angles)
        angles = jnp.where(angles > math.pi, angles - 2 * math.pi, angles)
        return jnp.rad2deg(angles) if degrees else angles

    def as_matrix(self) -> Any:
        """Rotation matrices f[..., 3, 3]."""
        x, y, z, w = (self.quat[..., number] for number in range(4))
        rows = [
            [x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), -x * x + y * y - z * z + w * w, 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), -x * x - y * y + z * z + w * w],
        ]
        return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)

    def as_mrp(self) -> Any:
        """Modified Rodrigues parameters f[..., 3], of length at most 1."""
        quat = self.as_quat(canonical=True)
        return quat[..., :3] / (1 + quat[..., 3:])

    def as_rotvec(self, degrees: bool = False) -> Any:
        """Rotation vectors f[..., 3], of length at most pi."""
        quat = self.as_quat(canonical=True)
        vector, w = quat[..., :3], quat[..., 3:]
        square = _square(vector)
        small = square < 1e-6
        sine = jnp.sqrt(jnp.where(small, 1.0, square))
        series = 2 + square / 3 + 3 * square * square / 20  # 2 asin(s) / s, where w > 0
        rotvec = jnp.where(small, series, 2 * jnp.arctan2(sine, w) / sine) * vector
        return jnp.rad2deg(rotvec) if degrees else rotvec

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Any:
        """Quaternions f[..., 4]; ``canonical`` ones have no negative scalar; ``scalar_first`` gives (w, x, y, z)."""
        quat = self.quat
        if canonical:
            x, y, z, w = (quat[..., number : number + 1] for number in range(4))
            turned = (w < 0) | ((w == 0) & ((x < 0) | ((x == 0) & ((y < 0) | ((y == 0) & (z < 0))))))
            quat = jnp.where(turned, -quat, quat)
        return jnp.roll(quat, 1, axis=-1) if scalar_first else quat

    def inv(self) -> Rotation:
        """The rotations back."""
        turned = [-self.quat[..., :3], self.quat[..., 3:]]
        return Rotation(jnp.concatenate(turned, axis=-1))

    def magnitude(self) -> Any:
        """The angles, in 0..pi."""
        return 2 * jnp.arctan2(jnp.sqrt(_square(self.quat[..., :3]))[..., 0], jnp.abs(self.quat[..., 3]))

    def mean(self, weights: Any = None) -> Rotation:
        """The rotation that is nearest to all, weighted: the eigenvector of their quaternions' largest eigenvalue."""
        quat = jnp.atleast_2d(self.quat)
        weights = jnp.ones(quat.shape[0], quat.dtype) if weights is None else _floats(weights)
        if weights.shape != (quat.shape[0],):
            raise ValueError(f"[Rotation.mean] expected {quat.shape[0]} weights, got an array of shape {weights.shape}")
        _, vectors = jnp.linalg.eigh((weights[:, None] * quat).T @ quat)
        return Rotation(vectors[:, -1])

    @property
    def single(self) -> bool:
        """Whether this is one rotation and no array of them."""
        return self.quat.ndim == 1


class Slerp(NamedTuple):
    """Interpolation of rotations at increasing times, at a constant speed between neighbours; see ``Slerp.init``.

    >>> from weft.scipy.spatial.transform import Rotation, Slerp
    >>> ends = Rotation.from_euler("z", jnp.array([[0.0], [90.0]]), degrees=True)
    >>> print(Slerp.init(jnp.array([0.0, 1.0]), ends)(0.5).magnitude().round(4))
    0.7854
    """

    times: Any
    timedelta: Any
    rotations: Rotation
    rotvecs: Any

    @classmethod
    def init(cls, times: Any, rotations: Rotation) -> Slerp:
        """The interpolation of at least two rotations, at as many increasing times (not looked at)."""
        times = _floats(times)
        if not isinstance(rotations, Rotation):
            raise TypeError(f"`rotations` must be a `Rotation` instance, got {type(rotations)}")
        if rotations.single or len(rotations) < 2:
            raise ValueError("`rotations` must be a sequence of at least 2 rotations.")
        if times.shape != (len(rotations),):
            raise ValueError(f"Expected {len(rotations)} times, one for each rotation, got an array of {times.shape}")
        starts, ends = Rotation(rotations.quat[:-1]), Rotation(rotations.quat[1:])
        return cls(times, jnp.diff(times), starts, (starts.inv() * ends).as_rotvec())

    def __call__(self, times: Any) -> Rotation:
        """The rotations at these times; before the first and behind the last time those at the ends."""
        times = jnp.clip(_floats(times), self.times[0], self.times[-1])
        index = jnp.clip(jnp.searchsorted(self.times, times, side="right") - 1, 0, self.rotvecs.shape[0] - 1)
        part = (times - self.times[index]) / self.timedelta[index]
        part = lax.convert_element_type(part, self.rotvecs.dtype)[..., None]
        return Rotation(self.rotations.quat[index]) * Rotation.from_rotvec(part * self.rotvecs[index])
