"""The tensors of one target, as the network reads them; `msa.base.network_inputs` has their types and axes.

N is the number of tokens, A of atoms, R of alignment rows, T of
templates. A token is a standard residue or nucleotide, or one atom of anything else. Atoms are ordered by
token.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

import numpy as np
import torch
import torch.nn.functional as F

from cuda.fused.dispatch import check_shapes
from model.alphafold3.config import DEEPMIND, AlphaFold3Config
from msa.base.network_inputs import ALL_ATOM

# large one-hot tensors stay bytes; layers convert the rows that they use
_UNKNOWN_RNA, _UNKNOWN_DNA = 25, 30
_DTYPES = MappingProxyType({"index": torch.int64, "flag": torch.bool, "one-hot": torch.int8})

# tensors of pairs of templates, and tokens above which they stay on the CPU: they are as large as the pair
# representation, and only rows of one template are needed at a time
TEMPLATE_PAIRS = ("template_distogram", "template_unit_vector")
HOST_TOKENS = 4096


@dataclass(frozen=True)
class AlphaFold3Inputs:
    """All that the network sees of one target. Masks and flags are 1 for yes.

    Args:
        token_index: int64 [N], 0, 1, 2, …
        residue_index: int64 [N], number of the residue in its chain; atoms of one residue share it.
        asym_id: int64 [N], number of the chain.
        entity_id: int64 [N], number of the chain's entity (distinct sequence or molecule).
        sym_id: int64 [N], number of the chain among the copies of its entity.
        restype: float [N, 32], one-hot residue type: 20 amino acids by three-letter name, UNK, A, G, C, U, N,
            DA, DG, DC, DT, DN, gap.
        is_protein: bool [N], like is_rna, is_dna and is_ligand.
        is_rna: bool [N].
        is_dna: bool [N].
        is_ligand: bool [N].
        is_atomized: bool [N], tokens of one atom.
        cyclic_mask: bool [N], tokens of cyclic chains.
        token_mask: float [N], 0 for padding, which comes last.
        token_bonds: float [N, N], symmetric, bonds within and to ligands.
        num_atoms_per_token: int64 [N].
        start_atom_index: int64 [N], first atom of each token.
        atom_to_token_index: int64 [A].
        atom_mask: float [A], 0 for padding, which comes last.
        ref_pos: float [A, 3], Å, reference conformer of the atom's residue or molecule.
        ref_mask: float [A], atoms with a reference position.
        ref_element: int8 [A, 119], one-hot atomic number − 1.
        ref_charge: float [A], formal charge.
        ref_atom_name_chars: int8 [A, 4, 64], one-hot characters of the atom's name, code − 32.
        ref_space_uid: int64 [A], number of the reference conformer.
        msa: int8 [R, N, 32], one-hot residue types; the query is the first row.
        has_deletion: float [R, N], 1 where residues of the row are left out before this position.
        deletion_value: float [R, N], 2/π · arctan(number of them / 3).
        msa_mask: float [R, N].
        profile: float [N, 32], frequencies of residue types in the alignment.
        deletion_mean: float [N], mean deletion_value of the alignment.
        template_restype: int8 [T, N, 32], one-hot.
        template_pseudo_beta_mask: float [T, N].
        template_backbone_frame_mask: float [T, N].
        template_distogram: int8 [T, N, N, 39], one-hot distances of pseudo-β atoms; maybe on the CPU.
        template_unit_vector: float [T, N, N, 3], directions between residues in their backbone frames; maybe
            on the CPU.
    """

    token_index: torch.Tensor
    residue_index: torch.Tensor
    asym_id: torch.Tensor
    entity_id: torch.Tensor
    sym_id: torch.Tensor
    restype: torch.Tensor
    is_protein: torch.Tensor
    is_rna: torch.Tensor
    is_dna: torch.Tensor
    is_ligand: torch.Tensor
    is_atomized: torch.Tensor
    cyclic_mask: torch.Tensor
    token_mask: torch.Tensor
    token_bonds: torch.Tensor
    num_atoms_per_token: torch.Tensor
    start_atom_index: torch.Tensor
    atom_to_token_index: torch.Tensor
    atom_mask: torch.Tensor
    ref_pos: torch.Tensor
    ref_mask: torch.Tensor
    ref_element: torch.Tensor
    ref_charge: torch.Tensor
    ref_atom_name_chars: torch.Tensor
    ref_space_uid: torch.Tensor
    msa: torch.Tensor
    has_deletion: torch.Tensor
    deletion_value: torch.Tensor
    msa_mask: torch.Tensor
    profile: torch.Tensor
    deletion_mean: torch.Tensor
    template_restype: torch.Tensor
    template_pseudo_beta_mask: torch.Tensor
    template_backbone_frame_mask: torch.Tensor
    template_distogram: torch.Tensor
    template_unit_vector: torch.Tensor

    @classmethod
    def from_arrays(
        cls,
        arrays: Mapping[str, np.ndarray | torch.Tensor],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> "AlphaFold3Inputs":
        """Convert arrays by name, of any numeric type, and check their shapes; other arrays are ignored.

        Each may have a leading axis of size 1. Without `cyclic_mask`, no chain is cyclic. Pairs of templates
        of more than HOST_TOKENS tokens stay on the CPU. Floating point tensors get the dtype.

        Raises:
            ValueError: an array is missing or its shape does not fit the others.
        """
        tensors: dict[str, torch.Tensor] = {}
        if "cyclic_mask" not in arrays and "token_mask" in arrays:
            arrays = {**arrays, "cyclic_mask": np.zeros(arrays["token_mask"].shape, bool)}
        if missing := [name for name in _AXES if name not in arrays]:
            raise ValueError(f"features lack {', '.join(missing)}")
        for name, axes in _AXES.items():
            tensor = torch.as_tensor(arrays[name])
            if tensor.ndim == len(axes.split()) + 1 and tensor.shape[0] == 1:
                tensor = tensor[0]
            stays = name in TEMPLATE_PAIRS and tensor.shape[1] > HOST_TOKENS
            tensors[name] = tensor.to("cpu" if stays else device, _dtype_of(name, dtype))
        _check(tensors)
        return cls(**tensors)

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "AlphaFold3Inputs":
        """Return these inputs, all on another device, with another floating point type if one is given."""
        dtype = dtype or self.ref_pos.dtype
        return AlphaFold3Inputs(
            **{
                item.name: getattr(self, item.name).to(device, _dtype_of(item.name, dtype))
                for item in fields(self)
            }
        )

    def padded(self, atoms: int) -> "AlphaFold3Inputs":
        """Return these inputs with padding up to a number of atoms."""
        more = atoms - len(self.atom_mask)
        names = [name for name, axes in _AXES.items() if axes.startswith("A")]
        padding = {name: (*(0, 0) * (getattr(self, name).ndim - 1), 0, more) for name in names}
        return replace(self, **{name: F.pad(getattr(self, name), pad) for name, pad in padding.items()})

    def for_network(self, config: AlphaFold3Config) -> "AlphaFold3Inputs":
        """Return these inputs as a network takes them, which only one changes, that of DeepMind's parameters.

        There, bonds have one direction, from the lower token to the higher; atoms without a reference
        position have no other features; chains without a template, and empty templates, are alanines.
        """
        if config.variant != DEEPMIND.variant:
            return self
        known = self.ref_mask
        covered = self.template_pseudo_beta_mask + self.template_backbone_frame_mask  # [T, N]
        same_chain = self.asym_id[:, None] == self.asym_id
        absent = covered @ same_chain.to(covered) == 0
        alanine = torch.zeros_like(self.template_restype)
        alanine[..., 0] = 1
        return replace(
            self,
            token_bonds=self.token_bonds.triu(),
            ref_charge=self.ref_charge * known,
            ref_element=self.ref_element * known[:, None].to(self.ref_element.dtype),
            ref_atom_name_chars=self.ref_atom_name_chars
            * known[:, None, None].to(self.ref_atom_name_chars.dtype),
            template_restype=torch.where(absent[..., None], alanine, self.template_restype),
        )


def without_unknown_dna(types: torch.Tensor) -> torch.Tensor:
    """Return residue types or profiles [..., 31], where unknown DNA counts as unknown RNA, from [..., 32]."""
    merged = types.clone()
    merged[..., _UNKNOWN_RNA] += merged[..., _UNKNOWN_DNA]
    return torch.cat([merged[..., :_UNKNOWN_DNA], merged[..., _UNKNOWN_DNA + 1 :]], dim=-1)


# axes of each tensor; `num_paired_seqs`, which only the features of alignments need, is no input here
_AXES = MappingProxyType({item.name: ALL_ATOM[item.name].axes for item in fields(AlphaFold3Inputs)})


def _dtype_of(name: str, dtype: torch.dtype) -> torch.dtype:
    return _DTYPES.get(ALL_ATOM[name].kind or "number", dtype)


def _check(tensors: dict[str, torch.Tensor]) -> None:
    """Check that all shapes fit together, and that axes whose size _AXES states have it."""
    for name, axes in _AXES.items():
        for axis, size in zip(axes.split(), tensors[name].shape, strict=False):
            if axis.isdigit() and int(axis) != size:
                expected = ", ".join(axes.split())
                raise ValueError(
                    f"features: {name} has shape {list(tensors[name].shape)}, expected [{expected}]"
                )
    check_shapes("features", {name: (tensors[name], axes) for name, axes in _AXES.items()})
