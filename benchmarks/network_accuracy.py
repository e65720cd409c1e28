"""Accuracy of bfloat16 and of the fused kernels, relative to the float32 reference, with random parameters.

    python benchmarks/network_accuracy.py [--device cuda] [--blocks 48]

Inputs are those of the parity sets (tests/model/data): 32 residues with templates (model_1_ptm) and without
(model_3_ptm), and a complex of 22 residues with templates (model_1_multimer_v3). The last of three passes is
compared. Columns: relative RMS difference of the representations;
RMS difference of coordinates with and without superposition, of pLDDT (0 to 100), PAE and pTM.
"""

from pathlib import Path

import numpy as np
import torch
from options import parse_options
from parity import parity_network, read_arrays, rms, run_iterations

from model.alphafold2.multimer.draws import PhiloxMsaDraws
from model.comparison.superposition import rmsd, superposed_rmsd

DATA = Path(__file__).resolve().parents[1] / "tests" / "model" / "data"
NETWORKS = {
    "model_1_ptm": "model_1_features.npz",
    "model_3_ptm": "model_3_features.npz",
    "model_1_multimer_v3": "multimer_heterodimer_templates_features.npz",
}
POSITIONS, MASK = "structure_module/final_atom_positions", "structure_module/final_atom_mask"


def table_cells(results: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> list[str]:
    """Return the differences between two results as cells of one table row."""
    cells = []
    for name in ("msa", "pair", "single", "structure_module"):
        key = f"representations/{name}"
        cells.append(f"{rms(results[key].astype(np.float64) - reference[key]) / rms(reference[key]):.1e}")
    atoms = reference[MASK] > 0
    mobile, fixed = (x[POSITIONS][atoms].astype(np.float64) for x in (results, reference))
    cells += [f"{superposed_rmsd(mobile, fixed):.3f}", f"{rmsd(mobile, fixed):.3f}"]
    for key in ("confidence/plddt", "confidence/predicted_aligned_error", "confidence/ptm"):
        cells.append(f"{rms(results[key].astype(np.float64) - reference[key]):.4f}")
    return cells


def main() -> None:
    """Print a table for each network."""
    options = parse_options(__doc__, device="cuda", blocks=48)
    variants = [("reference", torch.bfloat16)]
    if options.device != "cpu":
        variants += [("fused", torch.float32), ("fused", torch.bfloat16)]
    columns = "network, kernels, dtype, MSA, pair, single, structure, Å superposed, Å, pLDDT, PAE Å, pTM"
    print(f"| {columns.replace(', ', ' | ')} |")
    draws = [PhiloxMsaDraws(0, iteration) for iteration in range(3)]
    for model, file in NETWORKS.items():
        features = read_arrays(DATA / file)
        name = f"{model}_{options.blocks}_blocks"
        reference = run_iterations(parity_network(name, device=options.device), features, draws)[-1]
        for kernels, dtype in variants:
            network = parity_network(name, device=options.device, dtype=dtype, kernels=kernels)
            cells = table_cells(run_iterations(network, features, draws)[-1], reference)
            print(f"| {name} | {kernels} | {str(dtype)[6:]} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
