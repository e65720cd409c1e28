"""Rigid transformations of space: rotation matrices, translations, unit quaternions.

Everything is elementwise over leading axes, in the dtype of its inputs; the structure module uses float32.
"""

from dataclasses import dataclass

import numpy as np
import torch

from model.tables import on_device


def rotate(rotation: torch.Tensor, point: torch.Tensor) -> torch.Tensor:
    """Rotations [..., 3, 3] times points [..., 3], elementwise with broadcasting."""
    # sums of three products: a batched matrix product would be slower and may use reduced precision
    return (rotation * point[..., None, :]).sum(dim=-1)


@dataclass(frozen=True)
class Rigid:
    """x → R x + t, over any leading axes.

    Args:
        rotation: [..., 3, 3].
        translation: [..., 3].
    """

    rotation: torch.Tensor
    translation: torch.Tensor

    def apply(self, points: torch.Tensor) -> torch.Tensor:
        """Local points [..., 3] to global ones."""
        return rotate(self.rotation, points) + self.translation

    def invert_apply(self, points: torch.Tensor) -> torch.Tensor:
        """Global points [..., 3] to local ones."""
        return rotate(self.rotation.transpose(-1, -2), points - self.translation)

    def inverse(self) -> "Rigid":
        """The transformation that undoes this one."""
        rotation = self.rotation.transpose(-1, -2)
        return Rigid(rotation, -rotate(rotation, self.translation))

    def compose(self, first: "Rigid") -> "Rigid":
        """The transformation x → self(first(x))."""
        columns = first.rotation.transpose(-1, -2)[..., None, :, :]
        rotation = (self.rotation[..., :, None, :] * columns).sum(dim=-1)
        return Rigid(rotation, self.apply(first.translation))

    def unsqueeze(self, axis: int) -> "Rigid":
        """A new leading axis at a non-negative position, for broadcasting."""
        return Rigid(self.rotation.unsqueeze(axis), self.translation.unsqueeze(axis))

    def __getitem__(self, index: object) -> "Rigid":
        """Index the leading axes."""
        return Rigid(self.rotation[index], self.translation[index])  # type: ignore[index]


def rotation_from_quaternion(quaternion: torch.Tensor) -> torch.Tensor:
    """Rotations [..., 3, 3] of unit quaternions [..., 4], real part first."""
    products = (quaternion[..., :, None] * quaternion[..., None, :]).flatten(-2)  # [..., 16]
    table = on_device(_rotation_table, quaternion.device).to(quaternion.dtype)
    return (products @ table).unflatten(-1, (3, 3))


def update_quaternion(quaternion: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """Turn by the not normalised quaternion (1, b, c, d) from the right: Algorithm 23.

    Args:
        quaternion: [..., 4], unit, real part first.
        vector: [..., 3], (b, c, d).

    Returns:
        [..., 4], unit.
    """
    products = (quaternion[..., :, None] * vector[..., None, :]).flatten(-2)  # [..., 12]
    table = on_device(_turn_table, quaternion.device).to(quaternion.dtype)
    updated = quaternion + products @ table
    return updated / torch.linalg.vector_norm(updated, dim=-1, keepdim=True)


# Few large launches instead of many small ones: what is linear in products of two quaternions is one product
# with a table of 0, ±1 and ±2.
def _rotation_table() -> np.ndarray:
    """[16, 9] float32: entries of a rotation by products of a quaternion's parts."""
    table = np.zeros((4, 4, 3, 3), np.float32)
    a, axes = 0, (1, 2, 3)
    for i, own in enumerate(axes):
        table[a, a, i, i] = 1
        for other in axes:
            table[other, other, i, i] = 1 if other == own else -1
        for j in range(3):
            if i != j:
                # the sign of the rest (i, j, k): R_ij = 2 (q_i q_j ∓ a q_k)
                k = 3 - i - j
                table[axes[i], axes[j], i, j] = 2
                table[a, axes[k], i, j] = -2 if (j - i) % 3 == 1 else 2
    return table.reshape(16, 9)


def _turn_table() -> np.ndarray:
    """[12, 4] float32: the quaternion product with (0, b, c, d) by products of parts."""
    table = np.zeros((4, 3, 4), np.float32)
    for i in range(3):
        table[0, i, i + 1] = 1
        table[i + 1, i, 0] = -1
        # i j = k for (i, j, k) in cyclic order, and j i = -k
        following, last = (i + 1) % 3, (i + 2) % 3
        table[following + 1, i, last + 1] = -1
        table[last + 1, i, following + 1] = 1
    return table.reshape(12, 4)


def frame_from_points(on_negative_x: torch.Tensor, origin: torch.Tensor, in_xy: torch.Tensor) -> Rigid:
    """The frame at `origin` whose x axis points away from one point and whose xy plane holds another.

    Algorithm 21, with the sign of the x axis as for torsion angles. Norms have 1e-8 added under the root, as
    DeepMind's have, so that absent atoms give finite frames.

    Args:
        on_negative_x, origin, in_xy: [..., 3], Å.
    """
    first = _normalised(origin - on_negative_x)
    towards = in_xy - origin
    second = _normalised(towards - (towards * first).sum(dim=-1, keepdim=True) * first)
    third = torch.linalg.cross(first, second)
    return Rigid(torch.stack([first, second, third], dim=-1), origin)


def _normalised(vector: torch.Tensor) -> torch.Tensor:
    return vector / torch.sqrt((vector * vector).sum(dim=-1, keepdim=True) + 1e-8)
