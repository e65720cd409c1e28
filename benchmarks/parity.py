"""Comparison of the network with DeepMind's JAX code on the same random parameters and features.

usage: python benchmarks/parity.py PARITY_FOLDER [SET ...]

A set is a folder with features.npz (leading axis: recycling iterations) and iterK.npz (the results of
iteration K). Its name gives the network and the number of Evoformer blocks, as in `model_1_ptm_2_blocks`.
Parameters are drawn with seed 0; a set of 48 blocks has 4 extra MSA blocks, all others have 1. Prints one
line per tensor: the relative RMS difference, and for coordinates and scores also the RMS difference in their
unit.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from model.alphafold import AlphaFold
from model.config import model_config
from model.embedders import RecycledState
from model.heads import compute_aligned_error, compute_plddt
from model.parameters import random_parameters
from model.recycling import feature_tensors
from model.rigid import Rigid
from model.structure_module import Backbone, SidechainFrames, StructureModule, frames_to_atom14_positions

UNITS = {
    "structure_module/final_atom_positions": "Å",
    "confidence/predicted_aligned_error": "Å",
    "confidence/plddt": "",
    "confidence/ptm": "",
}

# Intermediate activations in the sets, each the output of one module. Only networks with templates have
# template activations.
ACTIVATIONS = {
    "preprocess_1d": "evoformer.input_embedding.preprocess_1d",
    "preprocess_msa": "evoformer.input_embedding.preprocess_msa",
    "left_single": "evoformer.input_embedding.left_single",
    "right_single": "evoformer.input_embedding.right_single",
    "pair_activiations": "evoformer.input_embedding.pair_activiations",
    "prev_pos_linear": "evoformer.recycling_embedding.prev_pos_linear",
    "prev_msa_first_row_norm": "evoformer.recycling_embedding.prev_msa_first_row_norm",
    "prev_pair_norm": "evoformer.recycling_embedding.prev_pair_norm",
    "extra_msa_activations": "evoformer.extra_msa_embedding.extra_msa_activations",
    "template_embedding": "evoformer.template_embedding",
    "template_single_embedding": "evoformer.template_torsion_embedding.template_single_embedding",
    "template_projection": "evoformer.template_torsion_embedding.template_projection",
    "single_activations": "evoformer.single_activations",
}
STACKS = {"extra_msa_stack": "evoformer.extra_msa_stack", "evoformer_stack": "evoformer.evoformer_iteration"}


@contextmanager
def recorded_activations(network: AlphaFold) -> Iterator[dict[str, torch.Tensor]]:
    """Record intermediate activations of each pass, by their names in the sets, to locate differences.

    Activations are copied, because later steps modify them in place.

    Yields:
        A dictionary that each pass updates.
    """
    taps: dict[str, torch.Tensor] = {}
    iterations: list[tuple[torch.Tensor, Backbone]] = []
    handles = []
    modules = dict(network.named_modules())

    def record_output(name: str) -> Any:
        def hook(module: nn.Module, arguments: Any, result: torch.Tensor) -> None:
            taps[f"taps/{name}"] = result.clone()

        return hook

    def record_stack_input(name: str) -> Any:
        def hook(module: nn.Module, arguments: Any) -> None:
            taps[f"taps/{name}_in/msa"], taps[f"taps/{name}_in/pair"] = (x.clone() for x in arguments[:2])

        return hook

    def record_stack_output(name: str) -> Any:
        def hook(module: nn.Module, arguments: Any, result: Any) -> None:
            taps[f"taps/{name}_out/msa"], taps[f"taps/{name}_out/pair"] = (x.clone() for x in result)

        return hook

    def record_iteration(module: nn.Module, arguments: Any, result: tuple[torch.Tensor, Backbone]) -> None:
        iterations.append(result)

    def record_structure_module(module: StructureModule, arguments: Any, result: Any) -> None:
        single, _, aatype, _ = arguments
        initial = module.single_layer_norm(single)
        sidechains = [
            module.fold_iteration.predict_sidechains(activations, initial, backbone, aatype)
            for activations, backbone in iterations
        ]
        taps.update(_structure_taps(iterations, sidechains, aatype))
        iterations.clear()

    for name, path in ACTIVATIONS.items():
        if path in modules:
            handles.append(modules[path].register_forward_hook(record_output(name)))
    for name, path in STACKS.items():
        blocks = modules[path]
        assert isinstance(blocks, nn.ModuleList)
        handles.append(blocks[0].register_forward_pre_hook(record_stack_input(name)))
        handles.append(blocks[-1].register_forward_hook(record_stack_output(name)))
    handles.append(network.structure_module.fold_iteration.register_forward_hook(record_iteration))
    handles.append(network.structure_module.register_forward_hook(record_structure_module))
    try:
        yield taps
    finally:
        for handle in handles:
            handle.remove()


def _structure_taps(
    iterations: list[tuple[torch.Tensor, Backbone]], sidechains: list[SidechainFrames], aatype: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Return backbone, torsion angles, frames and atoms of all structure module iterations, stacked."""
    taps = {
        "act": iterations[-1][0],
        "affine": torch.stack([torch.cat([b.quaternion, b.translation], dim=-1) for _, b in iterations]),
        "sc/angles_sin_cos": torch.stack([s.sin_cos for s in sidechains]),
        "sc/unnormalized_angles_sin_cos": torch.stack([s.unnormalised_sin_cos for s in sidechains]),
    }
    frames = Rigid(
        torch.stack([s.frames.rotation for s in sidechains]),
        torch.stack([s.frames.translation for s in sidechains]),
    )
    atoms = torch.stack([frames_to_atom14_positions(aatype, s.frames) for s in sidechains])
    for i, row in enumerate("xyz"):
        taps[f"sc/atom_pos/{row}"] = atoms[..., i]
        taps[f"sc/frames/trans/{row}"] = frames.translation[..., i]
        for j, column in enumerate("xyz"):
            taps[f"sc/frames/rot/{row}{column}"] = frames.rotation[..., i, j]
    return {f"taps/sm/{name}": tap for name, tap in taps.items()}


def build_network(set_name: str, **options: Any) -> AlphaFold:
    """Build the network of a set with its random parameters.

    Args:
        set_name: name of the set's folder.
        options: passed to `AlphaFold.from_parameters`.
    """
    name, _, blocks = set_name.removesuffix("_blocks").rpartition("_")
    config = model_config(name).with_blocks(int(blocks), 4 if blocks == "48" else 1)
    return AlphaFold.from_parameters(config, random_parameters(config, seed=0), **options)


def run_iterations(network: AlphaFold, features: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Run all recycling iterations; return the results, intermediate activations and confidences of each."""
    results = []
    previous: RecycledState | None = None
    device = network.evoformer.single_activations.bias.device
    with torch.inference_mode(), recorded_activations(network) as taps:
        for iteration in range(features["aatype"].shape[0]):
            current = feature_tensors(features, iteration, device)
            result = network(current, previous)
            previous = RecycledState(
                result["representations/msa_first_row"],
                result["representations/pair"],
                result["structure_module/final_atom_positions"],
            )
            arrays = {name: x.float().cpu().numpy() for name, x in (result | taps).items()}
            arrays["confidence/plddt"] = compute_plddt(result["predicted_lddt/logits"])
            if "predicted_aligned_error/logits" in result:
                logits = result["predicted_aligned_error/logits"]
                error = compute_aligned_error(logits, torch.nn.Identity())
                arrays["confidence/aligned_confidence_probs"] = torch.softmax(logits, dim=-1).cpu().numpy()
                arrays["confidence/predicted_aligned_error"] = error.pae
                arrays["confidence/max_predicted_aligned_error"] = np.asarray(error.max_pae)
                arrays["confidence/ptm"] = np.asarray(error.ptm)
            results.append(arrays)
    return results


def rms(x: np.ndarray) -> float:
    """Return the root mean square of all elements, computed in float64."""
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


def compare(folder: Path) -> tuple[float, float]:
    """Print the table of one set; return its largest relative RMS and largest RMS of coordinates (Å)."""
    start = time.perf_counter()
    with np.load(folder / "features.npz") as archive:
        features = dict(archive)
    results = run_iterations(build_network(folder.name), features)
    print(f"{folder.name}: {time.perf_counter() - start:.1f} s, {torch.get_num_threads()} threads")
    max_relative, max_position = 0.0, 0.0
    for file in sorted(folder.glob("iter*.npz")):
        ours = results[int(file.stem.removeprefix("iter"))]
        with np.load(file) as archive:
            for name in archive.files:
                theirs = archive[name]
                if name not in ours:
                    print(f"  {file.stem} {name:50s} not computed")
                    max_relative = float("inf")
                    continue
                if ours[name].shape != theirs.shape:
                    print(f"  {file.stem} {name:50s} {ours[name].shape} instead of {theirs.shape}")
                    max_relative = float("inf")
                    continue
                difference = rms(ours[name].astype(np.float64) - theirs)
                relative = difference / max(rms(theirs), 1e-30)
                absolute = f"{difference:9.1e} {UNITS[name]}" if name in UNITS else ""
                print(f"  {file.stem} {name:50s} {relative:9.1e} {absolute}")
                max_relative = max(max_relative, relative)
                if name == "structure_module/final_atom_positions":
                    max_position = max(max_position, difference)
    return max_relative, max_position


def main() -> None:
    """Compare the given sets, or all sets in the folder."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    names = sys.argv[2:] or sorted(path.parent.name for path in folder.glob("*_blocks/features.npz"))
    for name in names:
        relative, position = compare(folder / name)
        print(f"{name}: largest relative RMS {relative:.1e}, coordinates {position:.1e} Å")


if __name__ == "__main__":
    main()
