"""How far bfloat16 and the fused kernels are from the float32 reference: 48 blocks, random parameters.

    python benchmarks/network_accuracy.py [--device cuda] [--blocks 48]

The inputs are those of the parity sets (tests/model/data): 32 residues, three passes of which the last one is
compared, on templates (model_1_ptm) and without (model_3_ptm). Relative root mean square of representations,
root mean square of coordinates after superposition and as they lie, of pLDDT (0 to 100) and of PAE.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from parity import iterations, network_of, rms

DATA = Path(__file__).resolve().parents[1] / "tests" / "model" / "data"
POSITIONS, MASK = "structure_module/final_atom_positions", "structure_module/final_atom_mask"


def superposed(mobile: np.ndarray, fixed: np.ndarray) -> np.ndarray:
    """Points [P, 3] turned and moved onto others [P, 3] (Kabsch)."""
    centre = fixed.mean(axis=0)
    x, y = mobile - mobile.mean(axis=0), fixed - centre
    u, _, v = np.linalg.svd(x.T @ y)
    sign = np.sign(np.linalg.det(u @ v))
    return x @ (u * [1.0, 1.0, sign]) @ v + centre


def compared(found: dict[str, np.ndarray], exact: dict[str, np.ndarray]) -> list[str]:
    """The cells of one row."""
    cells = []
    for name in ("msa", "pair", "single", "structure_module"):
        key = f"representations/{name}"
        cells.append(f"{rms(found[key].astype(np.float64) - exact[key]) / rms(exact[key]):.1e}")
    atoms = exact[MASK] > 0
    ours, theirs = (x[POSITIONS][atoms].astype(np.float64) for x in (found, exact))
    for moved in (superposed(ours, theirs), ours):
        cells.append(f"{np.sqrt(np.square(moved - theirs).sum(axis=-1).mean()):.3f}")
    for key in ("confidence/plddt", "confidence/predicted_aligned_error", "confidence/ptm"):
        cells.append(f"{rms(found[key].astype(np.float64) - exact[key]):.4f}")
    return cells


def main() -> None:
    """Print a table for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--blocks", type=int, default=48)
    options = parser.parse_args()
    ways = [("reference", torch.bfloat16)]
    if options.device != "cpu":
        ways += [("fused", torch.float32), ("fused", torch.bfloat16)]
    columns = "network, kernels, dtype, MSA, pair, single, structure, Å superposed, Å, pLDDT, PAE Å, pTM"
    print(f"| {columns.replace(', ', ' | ')} |")
    for model in ("model_1", "model_3"):
        with np.load(DATA / f"{model}_features.npz") as archive:
            features = dict(archive)
        name = f"{model}_ptm_{options.blocks}_blocks"
        exact = iterations(network_of(name, device=options.device), features)[-1]
        for kernels, dtype in ways:
            network = network_of(name, device=options.device, dtype=dtype, kernels=kernels)
            cells = compared(iterations(network, features)[-1], exact)
            print(f"| {name} | {kernels} | {str(dtype)[6:]} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
