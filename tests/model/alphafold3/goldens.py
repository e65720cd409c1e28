"""OpenFold3's numbers on random parameters, and the same values taken from our network.

The parameters of a network depend on their names alone, so that only numbers need to be stored. `folder`
stands for a folder of OpenFold3's inputs and values of one job, which are not part of the repository.

usage: python tests/model/alphafold3/goldens.py FOLDER             (prints the differences of all values)
       python tests/model/alphafold3/goldens.py FOLDER NAMES OUT   (writes a sample of them for the tests)

NAMES lists the tensors of a whole checkpoint.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import nn

from model.alphafold3.confidence import TargetScorer, contact_map, with_disorder
from model.alphafold3.heads import ConfidenceLogits, representative_atoms
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.network import AlphaFold3, TrunkOutput
from model.alphafold3.sampling import SeededDraws, StepDraws
from model.checkpoints.openfold3 import translate
from tests.model.alphafold3.drawn_parameters import parameter

Arrays = Mapping[str, np.ndarray]
Tensors = dict[str, torch.Tensor]


def checkpoint(names: Iterable[str]) -> Tensors:
    """Draw the tensors of a checkpoint without duplicates, given the lines `name<TAB>shape` of its names."""
    tensors = {}
    for line in names:
        name, shape = line.rstrip("\n").split("\t")[:2]
        if not name.startswith("sample_diffusion.") and name != "version_tensor":
            tensors[name] = torch.from_numpy(parameter(name, tuple(map(int, shape.split("x")))))
    return tensors


def load_network(names: Iterable[str], dtype: torch.dtype = torch.float32) -> AlphaFold3:
    """Return the network of a checkpoint with these names."""
    config, tensors = translate(checkpoint(names))
    return AlphaFold3.load(config, tensors).to(dtype)


class RecordedDraws(SeededDraws):
    """The draws that OpenFold3's sampler made."""

    def __init__(self, arrays: Arrays) -> None:
        super().__init__(0)
        self._arrays = arrays

    def initial(self, samples: int, atoms: int) -> torch.Tensor:
        return torch.from_numpy(self._arrays["draws/initial"][0])

    def step(self, index: int, samples: int, atoms: int) -> StepDraws:
        names = ("quaternion", "translation", "noise")
        return StepDraws(*(torch.from_numpy(self._arrays[f"draws/step{index}/{name}"][0]) for name in names))


Listener = Callable[[nn.Module, tuple, object, tuple], None]


@contextmanager
def listening(listeners: Mapping[nn.Module, Listener]) -> Iterator[None]:
    """Call a listener after each call of its module; it also gets copies of the arguments before the call."""
    before: dict[nn.Module, list[tuple]] = {module: [] for module in listeners}
    handles = []

    def remember(module: nn.Module, arguments: tuple) -> None:
        before[module].append(tuple(x.clone() if isinstance(x, torch.Tensor) else x for x in arguments))

    def report(module: nn.Module, arguments: tuple, result: object) -> None:
        listeners[module](module, arguments, result, before[module].pop())

    for module in listeners:
        handles += [module.register_forward_pre_hook(remember), module.register_forward_hook(report)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def trunk_taps(network: AlphaFold3, inputs: AlphaFold3Inputs, cycles: int) -> tuple[TrunkOutput, Tensors]:
    """Run the trunk, and return intermediate results by OpenFold3's names."""
    taps: Tensors = {}
    cycle = [-1]

    def keep(name: str, value: torch.Tensor, per_cycle: bool = True) -> None:
        taps[f"cycle{cycle[0]}/{name}" if per_cycle else name] = value.detach().clone()[None]

    def on_input(module: nn.Module, arguments: tuple, result: object, before: tuple) -> None:
        for name, value in zip(("s_input", "s_init", "z_init"), result, strict=True):
            keep(f"input_embedder/{name}", value, False)

    def on_atoms(module: nn.Module, arguments: tuple, result: object, before: tuple) -> None:
        keep("input_embedder/atom_attn_enc/a", result[0][0], False)
        keep("input_embedder/atom_attn_enc/q", result[1][0], False)
        keep("input_embedder/atom_attn_enc/c", arguments[1].single, False)
        keep("input_embedder/atom_attn_enc/p", arguments[1].pair, False)

    def on_template(module: nn.Module, arguments: tuple, result: object, before: tuple) -> None:
        cycle[0] += 1
        keep("template_embedder", result)

    def block(name: str, first: str) -> Listener:
        def listener(module: nn.Module, arguments: tuple, result: object, before: tuple) -> None:
            keep(f"{name}/{first}", arguments[0])
            keep(f"{name}/z", arguments[1])

        return listener

    def update(name: str, flip: bool = False) -> Listener:
        def listener(module: nn.Module, arguments: tuple, result: object, before: tuple) -> None:
            change = arguments[0] - before[0]
            keep(name, change.transpose(0, 1) if flip else change)

        return listener

    def output(name: str) -> Listener:
        return lambda module, arguments, result, before: keep(name, result)

    msa, pairformer = network.msa_module.blocks, network.pairformer_stack.blocks
    stack = pairformer[0].pair_stack
    listeners: dict[nn.Module, Listener] = {
        network.input_embedder: on_input,
        network.input_embedder.atom_attn_enc: on_atoms,
        network.template_embedder: on_template,
        network.msa_module_embedder: lambda m, a, result, b: keep("msa_module_embedder/m", result),
        msa[0].outer_product_mean: update("msa_module/block0/outer_product_mean"),
        msa[0].msa_att_row: update("msa_module/block0/msa_att_row"),
        msa[0].msa_transition: update("msa_module/block0/msa_transition"),
        network.msa_module: lambda m, arguments, r, b: keep("msa_module/z", arguments[1]),
        pairformer[0].attn_pair_bias: output("pairformer/block0/attn_pair_bias"),
        pairformer[0].single_transition: update("pairformer/block0/single_transition"),
    }
    for name in ("tri_mul_out", "tri_mul_in", "tri_att_start", "tri_att_end", "pair_transition"):
        listener = update(f"pairformer/block0/pair_stack.{name}", flip=name == "tri_att_end")
        listeners[getattr(stack, name)] = listener
    listeners |= {module: block(f"msa_module/block{i}", "m") for i, module in enumerate(msa)}
    listeners |= {module: block(f"pairformer/block{i}", "s") for i, module in enumerate(pairformer)}
    with listening(listeners):
        trunk = network.trunk(inputs, SeededDraws(0), cycles=cycles)
    taps |= {
        "trunk/s_input": trunk.features[None],
        "trunk/s": trunk.single[None],
        "trunk/z": trunk.pair[None],
    }
    return trunk, taps


def recorded_trunk(network: AlphaFold3, inputs: AlphaFold3Inputs, taps: Arrays) -> TrunkOutput:
    """Return OpenFold3's trunk, so that differences of ours do not add up."""
    trunk = network.trunk(inputs, SeededDraws(0), cycles=0)
    tensors = (torch.from_numpy(taps[f"trunk/{name}"][0]).to(trunk.pair) for name in ("s_input", "s", "z"))
    return TrunkOutput(*tensors, trunk.relative)


@torch.no_grad()
def denoise_taps(
    network: AlphaFold3, inputs: AlphaFold3Inputs, trunk: TrunkOutput, expected: Arrays
) -> Tensors:
    """Run denoising steps, and return results by OpenFold3's names; intermediate ones at the level 16."""
    module = network.diffusion_module
    conditions = module.conditions(inputs, trunk.features, trunk.single, trunk.pair, trunk.relative)
    taps: Tensors = {}
    for key in expected:
        if not key.endswith("/in"):
            continue
        level = key.removesuffix("/in")
        noisy = torch.from_numpy(expected[key][0]).to(trunk.pair)
        sigma = torch.tensor(float(level.removeprefix("sigma"))).to(trunk.pair)
        with listening(_denoising_listeners(module, taps, level) if level == "sigma16" else {}):
            taps[f"{level}/out"] = module(inputs, conditions, noisy, sigma)[None]
    pair_mask = conditions.token_mask and conditions.token_mask[:, None] * conditions.token_mask
    conditioning = module.diffusion_conditioning
    taps["sigma16/conditioning/z"] = conditioning.pair(trunk.pair, trunk.relative, pair_mask)[None, None]
    single = conditioning.at_noise(
        conditions.single, torch.tensor(16.0).to(trunk.pair), conditions.token_mask
    )
    taps["sigma16/conditioning/s"] = single[None, None]
    return taps


def _denoising_listeners(module: nn.Module, taps: Tensors, level: str) -> dict[nn.Module, Listener]:
    def keep(name: str, value: torch.Tensor) -> None:
        taps[f"{level}/{name}"] = value.clone()[None]

    def output(name: str) -> Listener:
        return lambda module, arguments, result, before: keep(name, result)

    def update(name: str) -> Listener:
        return lambda module, arguments, result, before: keep(name, result - before[0])

    def on_encoder(module: nn.Module, arguments: tuple, result: object, before: tuple) -> None:
        keep("atom_attn_enc/a", result[0])
        keep("atom_attn_enc/q", result[1])
        keep("atom_attn_enc/c", arguments[1].single[None])
        keep("atom_attn_enc/p", arguments[1].pair[None])

    first = module.diffusion_transformer.blocks[0]
    listeners: dict[nn.Module, Listener] = {
        module.atom_attn_enc: on_encoder,
        module.diffusion_transformer: output("transformer"),
        module.layer_norm_a: output("layer_norm_a"),
        module.atom_attn_dec: output("atom_attn_dec"),
        first.attention_pair_bias: output("transformer/block0/attention_pair_bias"),
        first.conditioned_transition: update("transformer/block0/conditioned_transition"),
    }
    for prefix, blocks in (
        ("transformer", module.diffusion_transformer.blocks),
        ("atom_attn_enc", module.atom_attn_enc.atom_transformer.blocks),
    ):
        listeners |= {block: output(f"{prefix}/block{i}") for i, block in enumerate(blocks)}
    return listeners


@torch.inference_mode()
def sample_logits(
    network: AlphaFold3, inputs: AlphaFold3Inputs, trunk: TrunkOutput, positions: torch.Tensor
) -> ConfidenceLogits:
    """Return the confidence logits of one structure [A, 3], Å."""
    heads, mask = network.aux_heads, None if bool(inputs.token_mask.all()) else inputs.token_mask
    places = positions[representative_atoms(inputs)]
    return heads.logits(
        inputs, *heads.pairformer_embedding(trunk.features, trunk.single, trunk.pair, places, mask)
    )


@torch.no_grad()
def sample_taps(
    network: AlphaFold3, inputs: AlphaFold3Inputs, trunk: TrunkOutput, expected: Arrays
) -> Tensors:
    """Run sampler and heads with OpenFold3's draws, and return results by its names."""
    samples = expected["draws/initial"].shape[1]
    steps = sum(key.endswith("/quaternion") for key in expected)
    positions = network.sample(inputs, trunk, RecordedDraws(expected), steps=steps, samples=samples)
    taps = {"coordinates": positions[None]}
    distogram = network.aux_heads.distogram(trunk.pair)
    taps["heads/distogram_logits"] = distogram[None, None]
    # the heads see OpenFold3's coordinates, since a distance that crosses an edge of a bin changes everything
    recorded = torch.from_numpy(expected["coordinates"][0]).to(positions)
    logits = [sample_logits(network, inputs, trunk, sample) for sample in recorded]
    for theirs, ours in (
        ("plddt", "plddt"),
        ("experimentally_resolved", "resolved"),
        ("pae", "pae"),
        ("pde", "pde"),
    ):
        taps[f"heads/{theirs}_logits"] = torch.stack([getattr(x, ours) for x in logits])[None]
    return taps | score_taps(inputs, recorded, logits, distogram)


def score_taps(
    inputs: AlphaFold3Inputs,
    positions: torch.Tensor,
    logits: list[ConfidenceLogits],
    distogram: torch.Tensor,
) -> Tensors:
    """Return the confidence scores by OpenFold3's names."""
    scorer, contacts = TargetScorer(inputs), contact_map([distogram])
    scores = []
    for x, y in zip(positions, logits, strict=True):
        without_disorder = scorer(x, y.plddt, iter([(slice(None), y.pae, y.pde)]), contacts)
        scores.append(with_disorder(without_disorder, scorer.surface.disorder(x)))
    taps = {
        f"confidence/{theirs}": torch.stack([getattr(score, ours) for score in scores])[None]
        for theirs, ours in (
            ("plddt", "plddt"),
            ("pae", "pae"),
            ("pde", "pde"),
            ("gpde", "gpde"),
            ("ptm", "ptm"),
            ("iptm", "iptm"),
            ("disorder", "disorder"),
            ("has_clash", "has_clash"),
            ("sample_ranking_score", "ranking_score"),
        )
    }
    chains = scores[0].chains
    for i, first in enumerate(chains):
        taps[f"confidence/chain_ptm/{first}"] = torch.stack([x.chain_ptm[i] for x in scores])[None]
        for j, second in enumerate(chains[i + 1 :], i + 1):
            for name in ("chain_pair_iptm", "bespoke_iptm"):
                values = torch.stack([getattr(x, name)[i, j] for x in scores])[None]
                taps[f"confidence/{name}/({first},{second})"] = values
    return taps


def relative_rms(value: torch.Tensor, expected: np.ndarray) -> float:
    """Return the root mean square of the difference, relative to that of the expected values."""
    difference = value.double().cpu().numpy() - expected.astype(np.float64)
    scale = np.sqrt(np.mean(np.square(expected.astype(np.float64))))
    return float(np.sqrt(np.mean(np.square(difference))) / (scale or 1.0))


def all_taps(network: AlphaFold3, inputs: AlphaFold3Inputs, expected: Arrays) -> Tensors:
    """Run the whole network with the draws among the expected values, and return results by name.

    Trunk, denoising and sampler each start from OpenFold3's values if all of them are given.
    """
    trunk, taps = trunk_taps(network, inputs, cycles=2)
    if expected["trunk/z"].shape == tuple(taps["trunk/z"].shape):
        trunk = recorded_trunk(network, inputs, expected)
    for prefix, function in (("denoise/", denoise_taps), ("sample/", sample_taps)):
        part = {name.removeprefix(prefix): x for name, x in expected.items() if name.startswith(prefix)}
        taps |= {prefix + name: x for name, x in function(network, inputs, trunk, part).items()}
    return taps


def read_folder(folder: Path) -> dict[str, np.ndarray]:
    """Read all values of a folder."""
    expected = dict(np.load(folder / "taps.npz"))
    if "taps/trunk/z" in expected:  # one file with a part of all values
        return {name.removeprefix("taps/"): value for name, value in expected.items()}
    for part in ("denoise", "sample"):
        expected |= {f"{part}/{name}": value for name, value in np.load(folder / f"{part}.npz").items()}
    return expected


def compare(found: Tensors, expected: Arrays) -> dict[str, float]:
    """Return the relative difference of each value, and the largest of coordinates, Å."""
    differences = {
        name: relative_rms(sample_rows(value), expected[name])
        if value.shape != expected[name].shape
        else relative_rms(value, expected[name])
        for name, value in found.items()
        if name in expected
    }
    coordinates = torch.from_numpy(expected["sample/coordinates"])
    differences["Å"] = float((found["sample/coordinates"] - coordinates).abs().max())
    return differences


def sample_rows(x: torch.Tensor) -> torch.Tensor:
    """Select some rows of a large tensor [..., N, N, C]."""
    return x[..., ::10, :, :] if x.numel() > 100_000 else x


SAMPLED = (
    "input_embedder/z_init",
    "cycle0/template_embedder",
    "cycle0/msa_module/block0/m",
    "cycle0/msa_module/z",
    "trunk/",
    "denoise/",
    "sample/draws/",
    "sample/coordinates",
    "sample/heads/",
    "sample/confidence/",
)


def write_sample(folder: Path, names: Path, target: Path) -> None:
    """Write a sample of the values of a folder, its features, and the names in a whole checkpoint."""
    arrays: dict[str, np.ndarray] = {
        name: sample_rows(torch.from_numpy(value)).numpy()
        for name, value in read_folder(folder).items()
        if name.startswith(SAMPLED) and (not name.startswith("denoise/") or name.endswith(("/in", "/out")))
    }
    arrays |= {f"features/{name}": value for name, value in np.load(folder / "features.npz").items()}
    lines = names.read_text().splitlines()
    kept = [line for line in lines if not line.startswith("sample_diffusion.")]
    arrays["names"] = np.frombuffer("\n".join(kept).encode(), np.uint8)
    np.savez_compressed(target, **arrays)


if __name__ == "__main__":
    folder, *rest = map(Path, sys.argv[1:])
    if rest:
        write_sample(folder, *rest)
    else:
        network = load_network((folder / "names.txt").read_text().splitlines())
        inputs = AlphaFold3Inputs.from_arrays(np.load(folder / "features.npz"))
        expected = read_folder(folder)
        for name, value in compare(all_taps(network, inputs, expected), expected).items():
            print(f"{name}\t{value:.3g}")
