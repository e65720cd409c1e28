"""Tests of rotations, quaternions and frames."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from model.layers.rigid import Rigid, frame_from_points, rotation_from_quaternion, update_quaternion

numbers = st.floats(-10, 10, width=32)
vectors = arrays(np.float64, (3,), elements=numbers).map(torch.from_numpy)


@st.composite
def quaternions(draw: st.DrawFn) -> torch.Tensor:
    q = draw(arrays(np.float64, (4,), elements=numbers).filter(lambda q: np.linalg.norm(q) > 0.1))
    return torch.from_numpy(q / np.linalg.norm(q))


rigids = st.builds(lambda q, t: Rigid(rotation_from_quaternion(q), t), quaternions(), vectors)


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(torch.allclose(a, b, rtol=1e-9, atol=1e-9))


@settings(deadline=None)
@given(quaternions())
def test_unit_quaternions_give_rotations(q: torch.Tensor) -> None:
    rotation = rotation_from_quaternion(q)
    assert close(rotation @ rotation.T, torch.eye(3, dtype=torch.float64))
    assert close(torch.linalg.det(rotation), torch.tensor(1.0, dtype=torch.float64))
    assert close(rotation @ q[1:], q[1:])  # the axis is invariant


def test_quarter_turn_about_z() -> None:
    half = torch.tensor(np.pi / 4)
    q = torch.stack([half.cos(), torch.zeros(()), torch.zeros(()), half.sin()])
    rotated = rotation_from_quaternion(q) @ torch.tensor([1.0, 0.0, 0.0])
    assert torch.allclose(rotated, torch.tensor([0.0, 1.0, 0.0]), atol=1e-6)


@settings(deadline=None)
@given(rigids, vectors)
def test_inverse_undoes_the_transformation(rigid: Rigid, point: torch.Tensor) -> None:
    moved = rigid.apply(point)
    assert close(rigid.invert_apply(moved), point)
    inverse = Rigid(rigid.rotation.mT, rigid.invert_apply(torch.zeros(3, dtype=torch.float64)))
    assert close(inverse.apply(moved), point)
    identity = rigid.compose(inverse)
    assert close(identity.rotation, torch.eye(3, dtype=torch.float64))
    assert close(identity.translation, torch.zeros(3, dtype=torch.float64))


@settings(deadline=None)
@given(rigids, rigids, rigids, vectors)
def test_composition_applies_both_and_is_associative(
    a: Rigid, b: Rigid, c: Rigid, point: torch.Tensor
) -> None:
    assert close(a.compose(b).apply(point), a.apply(b.apply(point)))
    left, right = a.compose(b).compose(c), a.compose(b.compose(c))
    assert close(left.rotation, right.rotation) and close(left.translation, right.translation)


@settings(deadline=None)
@given(quaternions(), vectors)
def test_quaternion_update_composes_rotations(q: torch.Tensor, vector: torch.Tensor) -> None:
    update = torch.cat([torch.ones(1, dtype=torch.float64), vector])
    composed = rotation_from_quaternion(q) @ rotation_from_quaternion(update / update.norm())
    assert close(rotation_from_quaternion(update_quaternion(q, vector)), composed)


def test_leading_axes_broadcast() -> None:
    rigid = Rigid(torch.eye(3).expand(4, 3, 3), torch.arange(12.0).view(4, 3))
    points = torch.ones(4, 5, 3)
    moved = rigid.unsqueeze(1).apply(points)
    assert torch.equal(moved, points + torch.arange(12.0).view(4, 1, 3))
    assert torch.equal(rigid[1:3].translation, rigid.translation[1:3])


@settings(deadline=None)
@given(rigids)
def test_frame_from_points_recovers_the_frame(rigid: Rigid) -> None:
    local = torch.tensor([[-2.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.7, 1.5, 0.0]], dtype=torch.float64)
    frame = frame_from_points(*rigid.apply(local))
    # norms have 1e-8 added under the root
    assert torch.allclose(frame.rotation, rigid.rotation, atol=1e-7)
    assert close(frame.translation, rigid.translation)
