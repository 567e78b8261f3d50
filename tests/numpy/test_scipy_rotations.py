"""weft.scipy.spatial.transform beside SciPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.spatial import transform

import weft
import weft.numpy as jnp
from weft.scipy.spatial.transform import Rotation, Slerp

RNG = np.random.default_rng(3)
QUATS = RNG.normal(size=(12, 4))
OURS: Any = Rotation.from_quat(QUATS)
THEIRS = transform.Rotation.from_quat(QUATS)
VECTORS = RNG.normal(size=(12, 3))


def near(ours: Any, theirs: Any, atol: float = 3e-6) -> None:
    ours = ours.as_matrix() if isinstance(ours, Rotation) else ours
    theirs = theirs.as_matrix() if isinstance(theirs, transform.Rotation) else theirs
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-5, atol=atol)


def test_forms() -> None:
    near(OURS.as_matrix(), THEIRS.as_matrix())
    near(OURS.as_quat(canonical=True), THEIRS.as_quat(canonical=True))
    near(OURS.as_quat(scalar_first=True), THEIRS.as_quat(scalar_first=True))
    near(OURS.as_rotvec(), THEIRS.as_rotvec(), 1e-5)
    near(OURS.as_rotvec(degrees=True), THEIRS.as_rotvec(degrees=True), 1e-3)
    near(OURS.as_mrp(), THEIRS.as_mrp(), 1e-5)
    near(OURS.magnitude(), THEIRS.magnitude())
    near(Rotation.from_matrix(THEIRS.as_matrix()), THEIRS)
    near(Rotation.from_rotvec(3 * VECTORS), transform.Rotation.from_rotvec(3 * VECTORS))
    near(Rotation.from_rotvec(1e-5 * VECTORS).as_rotvec(), 1e-5 * VECTORS, 1e-10)
    near(Rotation.from_mrp(VECTORS), transform.Rotation.from_mrp(VECTORS))
    half_turns = transform.Rotation.from_rotvec(np.pi * np.eye(3))
    near(Rotation.from_matrix(half_turns.as_matrix()), half_turns)


def test_operations() -> None:
    near(OURS.apply(VECTORS), THEIRS.apply(VECTORS))
    near(OURS.apply(VECTORS[0], inverse=True), THEIRS.apply(VECTORS[0], inverse=True))
    near(OURS * OURS[0], THEIRS * THEIRS[0])
    near(OURS.inv() * OURS, np.broadcast_to(np.eye(3), (12, 3, 3)))
    near(OURS.mean(), THEIRS.mean())
    near(OURS.mean(np.arange(12.0)), THEIRS.mean(np.arange(12.0)))
    near(Rotation.concatenate([OURS, OURS[3]]), transform.Rotation.concatenate([THEIRS, THEIRS[3]]))
    assert len(OURS[2:5]) == 3 and OURS[0].single and not OURS.single
    assert Rotation.identity(2).quat.tolist() == [[0, 0, 0, 1]] * 2
    near(weft.vmap(lambda r, v: r.apply(v))(OURS, jnp.array(VECTORS)), THEIRS.apply(VECTORS))


def test_euler_angles() -> None:
    angles = RNG.uniform(-3, 3, (20, 3))
    locked = np.array([[0.3, np.pi / 2, 0.0], [0.3, -np.pi / 2, 0.0], [0.3, 0.0, 0.0], [0.3, np.pi, 0.0]])
    sequences = ["xyz", "zyx", "xzx", "yxy", "ZYX", "XYZ", "ZXZ", "YXZ", "yzx", "XZX"]

    def both(angles: Any) -> list[Any]:
        made = [Rotation.from_euler(seq, angles) for seq in sequences]
        return [(r, r.as_euler(seq)) for r, seq in zip(made, sequences, strict=True)]

    with weft.enable_x64(True):
        ours, ours_locked = weft.jit(both)(angles), weft.jit(both)(locked)
    for k, seq in enumerate(sequences):
        theirs = transform.Rotation.from_euler(seq, angles)
        near(ours[k][0], theirs)
        near(ours[k][1], theirs.as_euler(seq))
        again = transform.Rotation.from_euler(seq, np.asarray(ours_locked[k][1]))  # locked: the angles are not unique
        near(again.as_matrix(), transform.Rotation.from_euler(seq, locked).as_matrix())
    near(Rotation.from_euler("z", 90, degrees=True), transform.Rotation.from_euler("z", 90, degrees=True))
    near(Rotation.from_euler("ZX", [0.1, 0.2]), transform.Rotation.from_euler("ZX", [0.1, 0.2]))
    near(OURS.as_euler("zyx", degrees=True), THEIRS.as_euler("zyx", degrees=True), 1e-3)


def test_interpolation() -> None:
    times, at = np.cumsum(RNG.uniform(0.1, 1, 12)), RNG.uniform(0.0, 1.0, 8)
    at = times[0] + at * (times[-1] - times[0])
    ours, theirs = Slerp.init(times, OURS), transform.Slerp(times, THEIRS)
    near(ours(at), theirs(at), 1e-5)
    near(weft.jit(lambda s, t: s(t))(ours, times[3]), theirs(times[3]), 1e-5)
    near(ours(99.0), THEIRS[-1], 1e-5)


def test_random_rotations_and_derivatives() -> None:
    mean = Rotation.random(weft.random.key(0), 500).as_matrix().mean(0)
    assert np.abs(np.asarray(mean)).max() < 0.15
    assert Rotation.random(weft.random.key(0)).single

    def turned(rotvec: Any) -> Any:
        return Rotation.from_rotvec(rotvec).apply(jnp.array([1.0, 2.0, 3.0])).sum()

    wanted = np.cross([1, 2, 3], np.ones(3))  # of (r x v) . 1 by r
    np.testing.assert_allclose(weft.grad(turned)(jnp.zeros(3)), wanted, atol=1e-6)
    back = weft.jacobian(lambda v: Rotation.from_rotvec(v).as_rotvec())(jnp.zeros(3))
    np.testing.assert_allclose(back, np.eye(3), atol=1e-6)


def test_bad_input() -> None:
    for call, text in (
        (lambda: Rotation.from_euler("zz", [1, 2]), "consecutive"), (lambda: Rotation.from_euler("zX", [1, 2]), "from"),
        (lambda: Rotation.from_euler("z", [1, 2]), "shape"), (lambda: OURS.as_euler("xx"), "3 axes"),
        (lambda: Rotation.from_quat(np.ones(3)), "shape"), (lambda: OURS.mean(np.ones(3)), "weights"),
        (lambda: Slerp.init(np.ones(2), OURS), "times"), (lambda: Slerp.init(np.ones(2), OURS[0]), "at least 2"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=text):
            call()
    with pytest.raises(TypeError, match="no len"):
        len(OURS[0])
