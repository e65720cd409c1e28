"""Comparison of the network with DeepMind's JAX code on the same random parameters and features.

usage: python benchmarks/parity.py PARITY_FOLDER [SET ...]

A set is a folder with features.npz (leading axis: recycling iterations) and iterK.npz (the results of
iteration K). Its name, or info.json, gives the network and the number of Evoformer blocks, as in
`model_1_ptm_2_blocks`. Parameters are drawn with seed 0; a set of 48 blocks has 4 extra MSA blocks, all
others have 1. Sets of multimer networks have features without a leading axis, and draws/* in iterK.npz, the
random numbers of the iteration; a set NAME_48_blocks has the features of the set NAME. Prints one line per
tensor: the relative RMS difference, and for coordinates and scores also the RMS difference in their unit.
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.random_parameters import random_parameters
from model.alphafold2.modules.config import MultimerConfig, model_config
from model.alphafold2.modules.embedders import Features, RecycledState
from model.alphafold2.modules.heads import AlignedError, expected_errors, expected_plddt
from model.alphafold2.modules.structure_module import (
    Backbone,
    SidechainFrames,
    StructureModule,
    frames_to_atom14_positions,
)
from model.alphafold2.multimer.draws import PhiloxMsaDraws
from model.alphafold2.multimer.inputs import MultimerInputs
from model.alphafold2.network import AlphaFold
from model.alphafold2.recycling import feature_tensors
from model.checkpoints.alphafold2 import build_network
from model.confidence.complex_scores import complex_scores
from model.layers.rigid import Rigid

# sizes of the samples of the multimer sets
MULTIMER = MultimerConfig(msa_rows=12, extra_rows=16)
# tensors of multimer sets that the network does not compute, or that follow from others
INTERNAL = ("draws/", "sampled/")
UNITS = {
    "structure_module/final_atom_positions": "Å",
    "confidence/predicted_aligned_error": "Å",
    "confidence/plddt": "",
    "confidence/ptm": "",
    "confidence/iptm": "",
    "confidence/ranking_confidence": "",
}

# Intermediate activations in the sets, each the output of one module that not all networks have.
ACTIVATIONS = {
    "preprocess_1d": "evoformer.input_embedding.preprocess_1d",
    "preprocess_msa": "evoformer.input_embedding.preprocess_msa",
    "left_single": "evoformer.input_embedding.left_single",
    "right_single": "evoformer.input_embedding.right_single",
    "pair_activiations": "evoformer.input_embedding.relative_position",
    "relative_encoding": "evoformer.input_embedding.relative_encoding",
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

    def record(*names: str) -> Any:
        def hook(module: nn.Module, arguments: Any, result: Any = None) -> None:
            tensors = arguments if result is None else result if isinstance(result, tuple) else (result,)
            taps.update((f"taps/{name}", x.clone()) for name, x in zip(names, tensors, strict=False))

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
            handles.append(modules[path].register_forward_hook(record(name)))
    for name, path in STACKS.items():
        blocks = modules[path]
        assert isinstance(blocks, nn.ModuleList)
        handles.append(blocks[0].register_forward_pre_hook(record(f"{name}_in/msa", f"{name}_in/pair")))
        handles.append(blocks[-1].register_forward_hook(record(f"{name}_out/msa", f"{name}_out/pair")))
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
    """Return backbone, torsion angles, frames and atoms of all structure module iterations, stacked.

    Monomer and multimer sets have different names for the same tensors.
    """
    taps = {
        "act": iterations[-1][0],
        "affine": torch.stack([torch.cat([b.quaternion, b.translation], dim=-1) for _, b in iterations]),
        "sc/angles_sin_cos": torch.stack([s.sin_cos for s in sidechains]),
        "sc/unnormalized_angles_sin_cos": torch.stack([s.unnormalised_sin_cos for s in sidechains]),
    }
    backbones = _stack_rigid([backbone.to_rigid() for _, backbone in iterations])
    frames = _stack_rigid([s.frames for s in sidechains])
    atoms = torch.stack([frames_to_atom14_positions(aatype, s.frames) for s in sidechains])
    for i, row in enumerate("xyz"):
        taps[f"sc/atom_pos/{row}"] = taps[f"sc/atom_pos/{i}"] = atoms[..., i]
        taps[f"sc/frames/trans/{row}"] = frames.translation[..., i]
        for j, column in enumerate("xyz"):
            taps[f"sc/frames/rot/{row}{column}"] = frames.rotation[..., i, j]
    for name, rigid in (("rigid", backbones), ("sc/frames", frames)):
        entries = [*rigid.rotation.flatten(-2).unbind(dim=-1), *rigid.translation.unbind(dim=-1)]
        taps |= {f"{name}/{index}": entry for index, entry in enumerate(entries)}
    return {f"taps/sm/{name}": tap for name, tap in taps.items()}


def _stack_rigid(rigids: list[Rigid]) -> Rigid:
    return Rigid(torch.stack([x.rotation for x in rigids]), torch.stack([x.translation for x in rigids]))


class RecordedDraws(PhiloxMsaDraws):
    """The random numbers of one iteration of a multimer set."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        names = ("uniform_rows", "uniform_mask", "uniform_residues")
        self._rows, self._positions, self._codes = (arrays[f"draws/{name}"] for name in names)

    def rows(self, count: int) -> np.ndarray:
        """Return the numbers of the first rows; those of padding are not needed."""
        return self._rows[:count]

    def positions(self, rows: int, length: int) -> np.ndarray:
        """Return the numbers of all positions."""
        assert self._positions.shape == (rows, length)
        return self._positions

    def codes(self, masked: np.ndarray) -> np.ndarray:
        """Return the numbers of the masked positions."""
        return self._codes[masked]


def parity_network(name: str, **options: Any) -> AlphaFold:
    """Build a network with random parameters.

    Args:
        name: network and Evoformer blocks, as in `model_1_ptm_2_blocks`.
        options: arguments of `model.checkpoints.alphafold2.build_network`.
    """
    network, _, blocks = name.removesuffix("_blocks").rpartition("_")
    config = model_config(network).with_blocks(int(blocks), 4 if blocks == "48" else 1)
    if config.multimer is not None:
        config = replace(config, multimer=MULTIMER)
    return build_network(config, random_parameters(config, seed=0), **options)


def run_iterations(
    network: AlphaFold, features: dict[str, np.ndarray], draws: Sequence[PhiloxMsaDraws] = ()
) -> list[dict[str, np.ndarray]]:
    """Run all recycling iterations; return the results, intermediate activations and confidences of each.

    Args:
        network: the network.
        features: arrays with a leading axis of iterations, or without for multimer networks.
        draws: random numbers of each iteration, for multimer networks.
    """
    results = []
    previous: RecycledState | None = None
    with torch.inference_mode(), recorded_activations(network) as taps:
        for current in _iteration_inputs(network, features, draws):
            result = network(current, previous)
            previous = RecycledState(
                result["representations/msa_first_row"],
                result["representations/pair"],
                result["structure_module/final_atom_positions"],
            )
            if network.config.multimer is not None:
                result |= _sampled_inputs(current)
            arrays = {name: x.float().cpu().numpy() for name, x in (result | taps).items()}
            results.append(arrays | _confidences(result, current.get("asym_id")))
    return results


def _iteration_inputs(
    network: AlphaFold, features: dict[str, np.ndarray], draws: Sequence[PhiloxMsaDraws]
) -> Iterator[Features]:
    device = network.evoformer.single_activations.bias.device
    if network.config.multimer is not None:
        inputs = MultimerInputs(features, network.config.multimer, draws.__getitem__, device)
        yield from map(inputs, range(len(draws)))
    else:
        for iteration in range(features["aatype"].shape[0]):
            yield feature_tensors(features, iteration, device)


def _sampled_inputs(inputs: Features) -> dict[str, torch.Tensor]:
    """Return the inputs that a multimer network drew, by their names in the sets."""
    msa, extra = inputs["msa_feat"], inputs["extra_msa"]
    deletions = [inputs[name][..., None] for name in ("extra_has_deletion", "extra_deletion_value")]
    extra_codes = nn.functional.one_hot(extra, 23).float()
    return {
        "sampled/msa": msa[..., :23].argmax(dim=-1),
        "sampled/cluster_profile": msa[..., 25:48],
        "taps/msa_feat": msa,
        "taps/extra_msa_feat": torch.cat([extra_codes, *deletions], dim=-1),
        "taps/extra_msa_mask": inputs.get("extra_msa_mask", torch.ones_like(deletions[0][..., 0])),
    }


def _confidences(result: Mapping[str, torch.Tensor], asym_id: torch.Tensor | None) -> dict[str, np.ndarray]:
    scores: dict[str, Any] = {"plddt": expected_plddt(result["predicted_lddt/logits"]).cpu().numpy()}
    if "predicted_aligned_error/logits" in result:
        logits = result["predicted_aligned_error/logits"]
        expected = expected_errors(logits, torch.nn.Identity())
        error = AlignedError.from_expected(*(x.cpu().numpy() for x in expected))
        scores["aligned_confidence_probs"] = torch.softmax(logits, dim=-1).cpu().numpy()
        scores["predicted_aligned_error"] = error.pae
        scores["max_predicted_aligned_error"] = error.max_pae
        scores["ptm"] = error.ptm
        if asym_id is not None:
            of_complex, _ = complex_scores(
                logits,
                result["predicted_aligned_error/breaks"],
                result["distogram/logits"],
                result["distogram/bin_edges"],
                asym_id.cpu().numpy(),
                result["structure_module/final_atom_positions"],
                result["structure_module/final_atom_mask"],
                scores["plddt"],
            )
            scores["iptm"] = of_complex.iptm
            scores["ranking_confidence"] = 0.8 * of_complex.iptm + 0.2 * of_complex.ptm
    return {f"confidence/{name}": np.asarray(score) for name, score in scores.items()}


def rms(x: np.ndarray) -> float:
    """Return the root mean square of all elements, computed in float64."""
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


def read_set(folder: Path) -> tuple[str, dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    """Read a set.

    Returns:
        Network and blocks as in `parity_network`, the features, and the results of the iterations by K, empty
        where iterK.npz does not exist.
    """
    name = folder.name
    if (folder / "info.json").is_file():
        info = json.loads((folder / "info.json").read_text())
        name = f"{info['model']}_{info['blocks']}_blocks"
    file = folder / "features.npz"
    if not file.exists():
        file = folder.with_name(folder.name.removesuffix("_48_blocks")) / "features.npz"
    iterations: list[dict[str, np.ndarray]] = []
    for path in sorted(folder.glob("iter*.npz")):
        while len(iterations) < int(path.stem.removeprefix("iter")):
            iterations.append({})
        iterations.append(read_arrays(path))
    return name, read_arrays(file), iterations


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return all arrays of an npz file."""
    with np.load(path) as archive:
        return dict(archive)


def compare(folder: Path) -> tuple[float, float]:
    """Print the table of one set; return its largest relative RMS and largest RMS of coordinates (Å)."""
    start = time.perf_counter()
    name, features, iterations = read_set(folder)
    network = parity_network(name)
    is_multimer = network.config.multimer is not None
    draws = [RecordedDraws(theirs) for theirs in iterations] if is_multimer else []
    results = run_iterations(network, features, draws)
    print(f"{folder.name}: {time.perf_counter() - start:.1f} s, {torch.get_num_threads()} threads")
    relative_encoding = folder / "relative_encoding.npz"
    if relative_encoding.exists():
        arrays = read_arrays(relative_encoding)
        iterations[0]["taps/relative_encoding"] = arrays["relative_encoding"]
        results[0]["taps/relative_encoding"] = results[0]["taps/relative_encoding"][arrays["rows"]]
    max_relative, max_position = 0.0, 0.0
    # the features may have more iterations than the results
    for index, (ours, theirs) in enumerate(zip(results, iterations, strict=False)):
        for tensor, expected in theirs.items():
            if tensor not in ours and tensor.startswith(INTERNAL):
                continue
            mine = ours.get(tensor)
            if mine is None or (expected := present_rows(tensor, mine, expected)).shape != mine.shape:
                shape = "not computed" if mine is None else f"{mine.shape} instead of {expected.shape}"
                print(f"  iter{index} {tensor:50s} {shape}")
                max_relative = float("inf")
                continue
            difference = rms(mine.astype(np.float64) - expected)
            relative = difference / max(rms(expected), 1e-30)
            absolute = f"{difference:9.1e} {UNITS[tensor]}" if tensor in UNITS else ""
            print(f"  iter{index} {tensor:50s} {relative:9.1e} {absolute}")
            max_relative = max(max_relative, relative)
            if tensor == "structure_module/final_atom_positions":
                max_position = max(max_position, difference)
    return max_relative, max_position


def present_rows(name: str, ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Return the rows of an MSA representation that foldcli has, too: it leaves out empty template slots."""
    return theirs[: len(ours)] if name.startswith("taps/evoformer_stack_") else theirs


def main() -> None:
    """Compare the given sets, or all sets in the folder."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    names = sys.argv[2:] or sorted({path.parent.name for path in folder.glob("*/iter*.npz")})
    for name in names:
        relative, position = compare(folder / name)
        print(f"{name}: largest relative RMS {relative:.1e}, coordinates {position:.1e} Å")


if __name__ == "__main__":
    main()
