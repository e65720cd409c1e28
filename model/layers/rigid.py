"""Rigid transformations: rotation matrices, translations and unit quaternions.

All functions broadcast over leading axes and keep the dtype of their inputs.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch


def rotate(rotation: torch.Tensor, point: torch.Tensor) -> torch.Tensor:
    """Apply rotations [..., 3, 3] to points [..., 3], with broadcasting."""
    # a batched matrix product would be slower and may use reduced precision
    return (rotation * point[..., None, :]).sum(dim=-1)


@dataclass(frozen=True)
class Rigid:
    """Rigid transformations x → R x + t with any leading axes.

    Args:
        rotation: [..., 3, 3].
        translation: [..., 3].
    """

    rotation: torch.Tensor
    translation: torch.Tensor

    def apply(self, points: torch.Tensor) -> torch.Tensor:
        """Transform local points [..., 3] to global ones."""
        return rotate(self.rotation, points) + self.translation

    def invert_apply(self, points: torch.Tensor) -> torch.Tensor:
        """Transform global points [..., 3] to local ones."""
        return rotate(self.rotation.transpose(-1, -2), points - self.translation)

    def compose(self, first: "Rigid") -> "Rigid":
        """Return the transformation x → self(first(x))."""
        columns = first.rotation.transpose(-1, -2)[..., None, :, :]
        rotation = (self.rotation[..., :, None, :] * columns).sum(dim=-1)
        return Rigid(rotation, self.apply(first.translation))

    def unsqueeze(self, axis: int) -> "Rigid":
        """Insert a leading axis at a non-negative index, for broadcasting."""
        return Rigid(self.rotation.unsqueeze(axis), self.translation.unsqueeze(axis))

    def __getitem__(self, index: object) -> "Rigid":
        """Index the leading axes."""
        return Rigid(self.rotation[index], self.translation[index])  # type: ignore[index]


def rotation_from_quaternion(quaternion: torch.Tensor) -> torch.Tensor:
    """Return rotations [..., 3, 3], given unit quaternions [..., 4] with the real part first."""
    products = (quaternion[..., :, None] * quaternion[..., None, :]).flatten(-2)  # [..., 16]
    table = _rotation_table(quaternion.device).to(quaternion.dtype)
    return (products @ table).unflatten(-1, (3, 3))


def update_quaternion(quaternion: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """Multiply by the unnormalised quaternion (1, b, c, d) from the right, then normalise (Algorithm 23).

    Unit quaternions are [..., 4] with the real part first, vectors (b, c, d) [..., 3].
    """
    products = (quaternion[..., :, None] * vector[..., None, :]).flatten(-2)  # [..., 12]
    table = _update_table(quaternion.device).to(quaternion.dtype)
    updated = quaternion + products @ table
    return updated / torch.linalg.vector_norm(updated, dim=-1, keepdim=True)


# Both functions above are linear in products of quaternion components, so one matrix product with a constant
# table replaces many small kernels. Tables are cached per device.
@cache
def _rotation_table(device: torch.device) -> torch.Tensor:
    """Return the map from products of a quaternion's components to rotation entries: [16, 9] float32."""
    table = np.zeros((4, 4, 3, 3), np.float32)
    a, axes = 0, (1, 2, 3)
    for i, axis in enumerate(axes):
        table[a, a, i, i] = 1
        for other in axes:
            table[other, other, i, i] = 1 if other == axis else -1
        for j in range(3):
            if i != j:
                # R_ij = 2 (q_i q_j ∓ a q_k)
                k = 3 - i - j
                table[axes[i], axes[j], i, j] = 2
                table[a, axes[k], i, j] = -2 if (j - i) % 3 == 1 else 2
    return torch.from_numpy(table.reshape(16, 9)).to(device)


@cache
def _update_table(device: torch.device) -> torch.Tensor:
    """Return the map from products of components to the product with (0, b, c, d): [12, 4] float32."""
    table = np.zeros((4, 3, 4), np.float32)
    for i in range(3):
        table[0, i, i + 1] = 1
        table[i + 1, i, 0] = -1
        # with the imaginary units in cyclic order, j i = -k and k i = j
        j, k = (i + 1) % 3, (i + 2) % 3
        table[j + 1, i, k + 1] = -1
        table[k + 1, i, j + 1] = 1
    return torch.from_numpy(table.reshape(12, 4)).to(device)


def clear_device_tables() -> None:
    """Forget the tables on all devices, such as those made in inference mode, which autograd cannot save."""
    _rotation_table.cache_clear()
    _update_table.cache_clear()


def frame_from_points(on_negative_x: torch.Tensor, origin: torch.Tensor, in_xy: torch.Tensor) -> Rigid:
    """Construct frames from three points (Algorithm 21, with the x axis reversed as for torsion angles).

    Points are [..., 3], Å: on the negative x axis, the origin, and in the xy plane with positive y. Norms
    have 1e-8 added under the root, as in DeepMind's code, so that absent atoms give finite frames.
    """
    x = _normalise(origin - on_negative_x)
    offset = in_xy - origin
    y = _normalise(offset - (offset * x).sum(dim=-1, keepdim=True) * x)
    z = torch.linalg.cross(x, y)
    return Rigid(torch.stack([x, y, z], dim=-1), origin)


def _normalise(vector: torch.Tensor) -> torch.Tensor:
    """Scale vectors [..., 3] to unit length."""
    return vector / torch.sqrt((vector * vector).sum(dim=-1, keepdim=True) + 1e-8)
