"""Record the losses of DeepMind's code on small inputs, for test_losses.py.

Run it in an environment with `alphafold-colabfold`, `jax` and `dm-haiku`:

    python tests/model/training/record_losses.py PREPARED

PREPARED is the folder of `foldcli train --unpack-only`. It writes data/deepmind_losses.npz next to this file.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from alphafold.common import residue_constants
from alphafold.model import all_atom, folding, lddt, modules, quat_affine, r3
from deepmind_labels import make_labels

SAMPLES, RESIDUES, ITERATIONS = 2, 16, 2
DISTOGRAM_EDGES = np.linspace(2.3125, 21.6875, 63)
ALIGNED_ERROR_EDGES = np.linspace(0.0, 31.0, 63)
CONFIG = ml_collections.ConfigDict(
    {
        "fape": {"clamp_distance": 10.0, "loss_unit_distance": 10.0},
        "sidechain": {"atom_clamp_distance": 10.0, "length_scale": 10.0, "weight_frac": 0.5},
        "chi_weight": 0.5,
        "angle_norm_weight": 0.01,
        "structural_violation_loss_weight": 1.0,
        "violation_tolerance_factor": 12.0,
        "clash_overlap_tolerance": 1.5,
    }
)


def crop(folder: Path, sample: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return aatype [N], atom14 positions [N, 14, 3] in Å and mask of a window with symmetric atoms."""
    aatype, atom14, bits = (np.load(folder / f"{name}.npy") for name in ("aatype", "atom14", "atom_bits"))
    symmetric = np.isin(aatype, [3, 6, 13, 18]).astype(int)
    score = np.convolve(symmetric, np.ones(RESIDUES, int), "valid")[:600000]
    start = int(np.argsort(-score, kind="stable")[sample * 50])
    window = slice(start, start + RESIDUES)
    mask = ((bits[window, None] >> np.arange(14)) & 1).astype(np.float32)
    mask[3, 4:] = 0.0  # a residue without side chain
    mask[7] = 0.0  # and one without atoms
    return aatype[window].astype(np.int32), atom14[window] * np.float32(0.01), mask


def rotations(affine: quat_affine.QuatAffine) -> np.ndarray:
    return np.moveaxis(np.array(affine.rotation), -1, 0)


def flat_rigids(rigids: r3.Rigids) -> tuple[np.ndarray, np.ndarray]:
    rotation = np.stack([np.array(x) for x in rigids.rot], axis=-1)
    translation = np.stack([np.array(x) for x in rigids.trans], axis=-1)
    return rotation.reshape(*rotation.shape[:-1], 3, 3), translation


def record(folder: Path, sample: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(sample)
    aatype, atom14, mask = crop(folder, sample)
    clamped = np.float32(sample % 2)
    labels = make_labels(aatype, atom14, mask, clamped)
    batch, true, torsions, atom37, mask37 = (
        labels.features,
        labels.backbone,
        labels.torsions,
        labels.atom37,
        labels.mask37,
    )
    clean = batch["atom14_gt_positions"]
    sin_cos = np.array(torsions["torsion_angles_sin_cos"])[0]
    # predictions: the truth, moved
    trajectory = [
        true.pre_compose(
            np.concatenate(
                [0.3 * random.standard_normal((RESIDUES, 3)), 2.0 * random.standard_normal((RESIDUES, 3))],
                axis=1,
            ).astype(np.float32)
        )
        for _ in range(ITERATIONS)
    ]
    raw = random.standard_normal((ITERATIONS, RESIDUES, 7, 2)).astype(np.float32)
    angles = raw / np.linalg.norm(raw, axis=-1, keepdims=True)
    all_frames = all_atom.torsion_angles_to_frames(
        aatype=aatype,
        backb_to_global=r3.rigids_from_quataffine(trajectory[-1]),
        torsion_angles_sin_cos=angles[-1],
    )
    positions = all_atom.frames_and_literature_positions_to_atom14_pos(
        aatype=aatype, all_frames_to_global=all_frames
    )
    predicted = np.stack([np.array(x) for x in positions], axis=-1)  # [N, 14, 3]
    value = {
        "traj": np.stack([np.array(x.to_tensor()) for x in trajectory]),
        "sidechains": {
            "frames": jax.tree_util.tree_map(lambda x: x[None], all_frames),
            "atom_pos": jax.tree_util.tree_map(lambda x: x[None], positions),
            "angles_sin_cos": angles,
            "unnormalized_angles_sin_cos": raw,
        },
    }
    value |= folding.compute_renamed_ground_truth(batch, jnp.array(predicted))
    losses = {}
    result = {"loss": 0.0}
    folding.backbone_loss(result, batch, value, CONFIG)
    losses["backbone"] = result["loss"]
    losses["side_chain"] = folding.sidechain_loss(batch, value, CONFIG)["loss"]
    result = {"loss": 0.0}
    folding.supervised_chi_loss(result, batch, value, CONFIG)
    losses["torsion"] = result["loss"]
    violations = folding.find_structural_violations(batch, jnp.array(predicted), CONFIG)
    between = violations["between_residues"]
    losses["bonds"] = sum(
        between[name]
        for name in ("bonds_c_n_loss_mean", "angles_ca_c_n_loss_mean", "angles_c_n_ca_loss_mean")
    )
    losses["clashes"] = between["clashes_per_atom_loss_sum"].sum()
    losses["within"] = violations["within_residues"]["per_atom_loss_sum"].sum()
    logits = {
        "distogram": random.standard_normal((RESIDUES, RESIDUES, 64)),
        "predicted_aligned_error": random.standard_normal((RESIDUES, RESIDUES, 64)),
        "predicted_lddt": random.standard_normal((RESIDUES, 50)),
        "experimentally_resolved": random.standard_normal((RESIDUES, 37)),
        "masked_msa": random.standard_normal((3, RESIDUES, 23)),
    }
    logits = {name: x.astype(np.float16).astype(np.float32) for name, x in logits.items()}
    glycine = aatype == 7
    beta = np.where(glycine[:, None], clean[:, 1], clean[:, 4])
    beta_mask = np.where(glycine, mask[:, 1], mask[:, 4])
    losses["distogram"] = modules._distogram_log_loss(
        logits["distogram"], DISTOGRAM_EDGES, {"pseudo_beta": beta, "pseudo_beta_mask": beta_mask}, 64
    )["loss"]
    no_filter = {"filter_by_resolution": False}
    head = SimpleNamespace(config=SimpleNamespace(num_bins=64, **no_filter))
    losses["predicted_aligned_error"] = modules.PredictedAlignedErrorHead.loss.__wrapped__(
        head,
        {
            "structure_module": {"final_affines": trajectory[-1].to_tensor()},
            "predicted_aligned_error": {
                "breaks": ALIGNED_ERROR_EDGES,
                "logits": logits["predicted_aligned_error"],
            },
        },
        batch,
    )["loss"]
    final = np.zeros((RESIDUES, 37, 3), np.float32)
    final[:, 1] = predicted[:, 1]
    head = SimpleNamespace(config=SimpleNamespace(num_bins=50, **no_filter))
    losses["predicted_lddt"] = modules.PredictedLDDTHead.loss.__wrapped__(
        head,
        {
            "structure_module": {"final_atom_positions": final},
            "predicted_lddt": {"logits": logits["predicted_lddt"]},
        },
        {"all_atom_positions": atom37, "all_atom_mask": mask37},
    )["loss"]
    lddt_ca = lddt.lddt(final[None, :, 1], atom37[None, :, 1], mask37[None, :, 1:2], per_residue=True)[0]
    head = SimpleNamespace(config=SimpleNamespace(**no_filter))
    exists37 = residue_constants.restype_atom37_mask[aatype]
    losses["experimentally_resolved"] = modules.ExperimentallyResolvedHead.loss.__wrapped__(
        head,
        {"logits": logits["experimentally_resolved"]},
        {"atom37_atom_exists": exists37, "all_atom_mask": mask37},
    )["loss"]
    true_msa = random.integers(0, 22, (3, RESIDUES))
    bert_mask = (random.random((3, RESIDUES)) < 0.3).astype(np.float32)
    losses["masked_msa"] = modules.MaskedMsaHead.loss.__wrapped__(
        SimpleNamespace(num_output=23),
        {"logits": logits["masked_msa"]},
        {"true_msa": true_msa, "bert_mask": bert_mask},
    )["loss"]
    bounds = residue_constants.make_atom14_dists_bounds(
        overlap_tolerance=1.5, bond_length_tolerance_factor=12.0
    )
    frame_rotation, frame_translation = flat_rigids(all_frames)
    truth = np.array(batch["rigidgroups_gt_frames"])
    other = np.array(batch["rigidgroups_alt_gt_frames"])
    arrays = {
        "aatype": aatype.astype(np.uint8),
        "atom14": np.round(atom14 * 100).astype(np.int16),
        "atom_bits": (mask.astype(np.int16) << np.arange(14, dtype=np.int16)).sum(axis=1, dtype=np.int16),
        "clamped": np.uint8(clamped),
        "true_msa": true_msa.astype(np.uint8),
        "bert_mask": bert_mask.astype(np.uint8),
        "backbone_rotation": np.stack(
            [np.moveaxis(np.array(x.rotation), (0, 1), (-2, -1)) for x in trajectory]
        ),
        "backbone_translation": np.stack(
            [np.stack([np.array(y) for y in x.translation], -1) for x in trajectory]
        ),
        "sin_cos": angles,
        "unnormalised_sin_cos": raw,
        "frame_rotation": frame_rotation,
        "frame_translation": frame_translation,
        "predicted_atom14": predicted,
        "renamed": np.array(value["alt_naming_is_better"]),
        "lddt_ca": np.array(lddt_ca),
        "true_frames": truth,
        "alternative_frames": other,
        "frames_mask": np.array(batch["rigidgroups_gt_exists"]),
        "chi_sin_cos": sin_cos[:, 3:],
        "chi_mask": batch["chi_mask"],
        "lower_bound": bounds["lower_bound"][aatype].astype(np.float32),
        "upper_bound": bounds["upper_bound"][aatype].astype(np.float32),
    }
    arrays |= {f"logits/{name}": x.astype(np.float16) for name, x in logits.items()}
    return arrays | {f"loss/{name}": np.float64(x) for name, x in losses.items()}


def main() -> None:
    folder = Path(sys.argv[1])
    json.loads((folder / "manifest.json").read_text())
    samples = [record(folder, sample) for sample in range(SAMPLES)]
    stacked = {name: np.stack([sample[name] for sample in samples]) for name in samples[0]}
    out = Path(__file__).parent / "data" / "deepmind_losses.npz"
    out.parent.mkdir(exist_ok=True)
    np.savez_compressed(out, **stacked)
    print(out, out.stat().st_size, {name: x for name, x in stacked.items() if name.startswith("loss/")})


if __name__ == "__main__":
    main()
