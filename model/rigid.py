"""Rigid transformations of space: rotation matrices, translations, unit quaternions.

Everything is elementwise over leading axes, in the dtype of its inputs; the structure module uses float32.
"""

from dataclasses import dataclass

import torch


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
    a, b, c, d = quaternion.unbind(dim=-1)
    rows = [
        [a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)],
        [2 * (b * c + a * d), a * a - b * b + c * c - d * d, 2 * (c * d - a * b)],
        [2 * (b * d - a * c), 2 * (c * d + a * b), a * a - b * b - c * c + d * d],
    ]
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)


def update_quaternion(quaternion: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """Turn by the not normalised quaternion (1, b, c, d) from the right: Algorithm 23.

    Args:
        quaternion: [..., 4], unit, real part first.
        vector: [..., 3], (b, c, d).

    Returns:
        [..., 4], unit.
    """
    a1, b1, c1, d1 = quaternion.unbind(dim=-1)
    b2, c2, d2 = vector.unbind(dim=-1)
    product = torch.stack(
        [
            -b1 * b2 - c1 * c2 - d1 * d2,
            a1 * b2 + c1 * d2 - d1 * c2,
            a1 * c2 - b1 * d2 + d1 * b2,
            a1 * d2 + b1 * c2 - c1 * b2,
        ],
        dim=-1,
    )
    updated = quaternion + product
    return updated / torch.linalg.vector_norm(updated, dim=-1, keepdim=True)


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
