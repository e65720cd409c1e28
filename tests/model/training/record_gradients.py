"""Record the gradients of DeepMind's code on the parity sets, for test_gradients.py.

Run it in an environment with `alphafold-colabfold`, `jax` and `dm-haiku`:

    python tests/model/training/record_gradients.py ../shared/parity

It writes data/deepmind_gradients.npz next to this file: for the second pass of each network, the total loss
without dropout and a sample of its gradient with respect to every parameter. The network with templates is
computed in float32, because the values of torsion angles without atoms depend on the precision.
"""

import subprocess
import sys
import tempfile
import unittest.mock
from pathlib import Path

import haiku as hk
import jax
import jax.numpy
import numpy as np
from alphafold.common import residue_constants
from alphafold.model import config as configurations
from alphafold.model import modules, utils
from deepmind_labels import make_labels

from tests.model.parity_data import sample_rows

# networks, and whether to compute in float64
NETWORKS = {"model_1_ptm": False, "model_3_ptm": True}
PASS = 1
# elements of each gradient that are kept, as whole rows
SAMPLE = 128


def structure(aatype: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return atom14 positions [N, 14, 3] int16 in 0.01 Å, a helix of CA atoms and others near them; mask."""
    angle = np.deg2rad(100.0) * np.arange(len(aatype))
    alpha = np.stack([2.3 * np.cos(angle), 2.3 * np.sin(angle), 1.5 * np.arange(len(aatype))], axis=1)
    spread = np.random.default_rng(0).standard_normal((len(aatype), 14, 3))
    spread *= 1.5 / np.linalg.norm(spread, axis=-1, keepdims=True)
    spread[:, 1] = 0.0
    mask = np.concatenate([residue_constants.restype_atom14_mask, np.zeros((1, 14))])[aatype]
    mask[3, 4:] = 0.0  # a residue without side chain
    mask[7] = 0.0  # and one without atoms
    return np.round((alpha[:, None] + spread) * 100).astype(np.int16), mask.astype(np.float32)


def batch_of_pass(
    folder: Path, labels: dict[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the features and labels with a leading axis of one, and the results of the pass before."""
    with np.load(folder / "features.npz") as archive:
        features = {name: archive[name][PASS : PASS + 1] for name in archive.files}
    with np.load(folder / f"iter{PASS - 1}.npz") as archive:
        previous = {
            "prev_pos": archive["structure_module/final_atom_positions"],
            "prev_msa_first_row": archive["representations/msa_first_row"],
            "prev_pair": archive["representations/pair"],
        }
    given = {name: np.asarray(value)[None] for name, value in labels.items() if name not in features}
    return features | given | {"resolution": np.full(1, 2.0, np.float32)}, previous


def record(parity: Path, network: str, parameters: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    folder = parity / f"{network}_2_blocks"
    config = configurations.model_config(network).model
    config.embeddings_and_evoformer.evoformer_num_block = 2
    config.embeddings_and_evoformer.extra_msa_stack_num_block = 1
    config.heads.structure_module.structural_violation_loss_weight = 1.0
    config.heads.structure_module.compute_in_graph_metrics = False
    embedding = config.embeddings_and_evoformer
    for stack in (embedding.evoformer, embedding.template.template_pair_stack):
        for direction in ("outgoing", "incoming"):
            stack[f"triangle_multiplication_{direction}"].fuse_projection_weights = False
    config.global_config.bfloat16 = False
    config.global_config.use_remat = False
    config.global_config.deterministic = True
    config.global_config.subbatch_size = 4096
    with np.load(folder / "features.npz") as archive:
        aatype = archive["aatype"][PASS]
    atom14, mask = structure(aatype)
    labels = make_labels(aatype, atom14 * np.float32(0.01), mask, np.float32(1.0)).features
    batch, previous = batch_of_pass(folder, labels)

    class Network(hk.Module):
        """The modules of one pass, in the scope that names their parameters."""

        def __call__(self) -> tuple[dict[str, dict[str, jax.Array]], jax.Array]:
            iteration = modules.AlphaFoldIteration(config, config.global_config)
            return iteration(batch, previous, is_training=False, compute_loss=True)

    transformed = hk.transform(lambda: Network("alphafold")())

    def loss(parameters: hk.Params) -> tuple[jax.Array, dict[str, jax.Array]]:
        result, total = transformed.apply(parameters, jax.random.PRNGKey(0))
        return total, {name: value["loss"] for name, value in result.items() if "loss" in value}

    (total, terms), gradient = jax.value_and_grad(loss, has_aux=True)(
        utils.flat_params_to_haiku(parameters, fuse=False)
    )
    arrays = {"loss": np.float64(total), "aatype": aatype, "atom14": atom14, "mask": mask}
    arrays |= {f"loss/{name}": np.float64(value) for name, value in terms.items()}
    for scope, values in gradient.items():
        for name, value in values.items():
            key = f"{scope}//{name}"
            arrays[f"gradient/{key}"] = sample_rows(key, np.asarray(value), SAMPLE)
            arrays[f"rms/{key}"] = np.sqrt(np.square(np.asarray(value, np.float64)).mean())
    return {f"{network}/{name}": value for name, value in arrays.items()}


def main() -> None:
    parity = Path(sys.argv[1])
    bounds = residue_constants.make_atom14_dists_bounds(
        overlap_tolerance=1.5, bond_length_tolerance_factor=12.0
    )
    arrays = {"bounds": np.stack([bounds["lower_bound"], bounds["upper_bound"]], 1).astype(np.float32)}
    for network, in_float64 in NETWORKS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "parameters.npz"
            names = parity / "names" / f"params_{network}.txt"
            blocks = ("--evoformer-blocks", "2", "--extra-blocks", "1")
            subprocess.run([sys.executable, parity / "make_params.py", names, path, *blocks], check=True)
            with np.load(path) as archive:
                parameters = dict(archive)
            with (
                jax.enable_x64(in_float64),
                unittest.mock.patch.object(
                    jax.numpy, "float32", jax.numpy.float64 if in_float64 else jax.numpy.float32
                ),
            ):
                arrays |= record(parity, network, parameters)
    out = Path(__file__).parent / "data" / "deepmind_gradients.npz"
    np.savez_compressed(out, **arrays)
    print(out, out.stat().st_size, {name: x for name, x in arrays.items() if "/loss" in name})


if __name__ == "__main__":
    main()
