"""Compare the network with numbers of DeepMind's JAX code on the same random parameters and features.

usage: python benchmarks/parity.py PARITY_FOLDER [SET ...]

A set is a folder with features.npz (leading axis: recycling iterations) and iterK.npz (what iteration K
returns). Its name tells the network and the Evoformer blocks, `model_1_ptm_2_blocks`; parameters are drawn
with seed 0, a set of 48 blocks has 4 extra MSA blocks and the others have 1. Prints one line per tensor:
relative RMS for all, and for coordinates and errors also the RMS in their own unit.
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from model.alphafold import AlphaFold
from model.confidence import aligned_error, plddt
from model.config import model_config
from model.embedders import Recycled
from model.parameters import random_parameters
from model.recycling import feature_tensors
from model.taps import recorded

UNITS = {
    "structure_module/final_atom_positions": "Å",
    "confidence/predicted_aligned_error": "Å",
    "confidence/plddt": "",
    "confidence/ptm": "",
}


def network_of(set_name: str, **how: Any) -> AlphaFold:
    """The network of a set, with its random parameters; `how` is for `AlphaFold.from_parameters`."""
    name, _, blocks = set_name.removesuffix("_blocks").rpartition("_")
    config = model_config(name).with_blocks(int(blocks), 4 if blocks == "48" else 1)
    return AlphaFold.from_parameters(config, random_parameters(config, seed=0), **how)


def iterations(network: AlphaFold, features: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """What the network gives in each iteration, taps and confidences included."""
    results = []
    previous: Recycled | None = None
    device = network.evoformer.single_activations.bias.device
    with torch.inference_mode(), recorded(network) as taps:
        for iteration in range(features["aatype"].shape[0]):
            current = feature_tensors(features, iteration, device)
            result = network(current, previous)
            previous = Recycled(
                result["representations/msa_first_row"],
                result["representations/pair"],
                result["structure_module/final_atom_positions"],
            )
            arrays = {name: x.float().cpu().numpy() for name, x in (result | taps).items()}
            arrays["confidence/plddt"] = plddt(result["predicted_lddt/logits"])
            if "predicted_aligned_error/logits" in result:
                logits = result["predicted_aligned_error/logits"]
                error = aligned_error(logits, torch.nn.Identity())
                arrays["confidence/aligned_confidence_probs"] = torch.softmax(logits, dim=-1).cpu().numpy()
                arrays["confidence/predicted_aligned_error"] = error.pae
                arrays["confidence/max_predicted_aligned_error"] = np.asarray(error.max_pae)
                arrays["confidence/ptm"] = np.asarray(error.ptm)
            results.append(arrays)
    return results


def rms(x: np.ndarray) -> float:
    """Root mean square over all elements, in float64."""
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


def compare(folder: Path) -> tuple[float, float]:
    """Print the table of one set; the largest relative RMS and the largest RMS of coordinates (Å)."""
    start = time.perf_counter()
    with np.load(folder / "features.npz") as archive:
        features = dict(archive)
    results = iterations(network_of(folder.name), features)
    print(f"{folder.name}: {time.perf_counter() - start:.1f} s, {torch.get_num_threads()} threads")
    worst, worst_position = 0.0, 0.0
    for file in sorted(folder.glob("iter*.npz")):
        ours = results[int(file.stem.removeprefix("iter"))]
        with np.load(file) as archive:
            for name in archive.files:
                theirs = archive[name]
                if name not in ours:
                    print(f"  {file.stem} {name:50s} not computed")
                    worst = float("inf")
                    continue
                if ours[name].shape != theirs.shape:
                    print(f"  {file.stem} {name:50s} {ours[name].shape} instead of {theirs.shape}")
                    worst = float("inf")
                    continue
                difference = rms(ours[name].astype(np.float64) - theirs)
                relative = difference / max(rms(theirs), 1e-30)
                own = f"{difference:9.1e} {UNITS[name]}" if name in UNITS else ""
                print(f"  {file.stem} {name:50s} {relative:9.1e} {own}")
                worst = max(worst, relative)
                if name == "structure_module/final_atom_positions":
                    worst_position = max(worst_position, difference)
    return worst, worst_position


def main() -> None:
    """Compare the sets given, or all in the folder."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    names = sys.argv[2:] or sorted(path.parent.name for path in folder.glob("*_blocks/features.npz"))
    for name in names:
        worst, position = compare(folder / name)
        print(f"{name}: largest relative RMS {worst:.1e}, coordinates {position:.1e} Å")


if __name__ == "__main__":
    main()
