"""Intermediate activations by the names of the parity sets, to find where a difference starts."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from model.alphafold import AlphaFold
from model.rigid import Rigid
from model.sidechains import atom14_positions
from model.structure_module import Backbone, Structure, StructureModule

# output of one module each; template rows and the template embedding only exist in networks with templates
OUTPUTS = {
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
    "template_single_embedding": "evoformer.template_rows.template_single_embedding",
    "template_projection": "evoformer.template_rows.template_projection",
    "single_activations": "evoformer.single_activations",
}
STACKS = {"extra_msa_stack": "evoformer.extra_msa_stack", "evoformer_stack": "evoformer.evoformer_iteration"}


@contextmanager
def recorded(network: AlphaFold) -> Iterator[dict[str, torch.Tensor]]:
    """While open, each pass through the network leaves its intermediate activations in the dictionary given.

    Activations are copied, since later steps change them in place.
    """
    taps: dict[str, torch.Tensor] = {}
    folds: list[tuple[torch.Tensor, Backbone]] = []
    handles = []
    modules = dict(network.named_modules())

    def output(name: str) -> Any:
        def hook(module: nn.Module, arguments: Any, result: torch.Tensor) -> None:
            taps[f"taps/{name}"] = result.clone()

        return hook

    def stack_input(name: str) -> Any:
        def hook(module: nn.Module, arguments: Any) -> None:
            taps[f"taps/{name}_in/msa"], taps[f"taps/{name}_in/pair"] = (x.clone() for x in arguments[:2])

        return hook

    def stack_output(name: str) -> Any:
        def hook(module: nn.Module, arguments: Any, result: Any) -> None:
            taps[f"taps/{name}_out/msa"], taps[f"taps/{name}_out/pair"] = (x.clone() for x in result)

        return hook

    def fold(module: nn.Module, arguments: Any, result: tuple[torch.Tensor, Backbone]) -> None:
        folds.append(result)

    def finish(module: StructureModule, arguments: Any, result: Any) -> None:
        single, _, aatype, _ = arguments
        initial = module.single_layer_norm(single)
        structures = [module.fold_iteration.place(act, initial, frames, aatype) for act, frames in folds]
        taps.update(_structure_taps(folds, structures, aatype))
        folds.clear()

    for name, path in OUTPUTS.items():
        if path in modules:
            handles.append(modules[path].register_forward_hook(output(name)))
    for name, path in STACKS.items():
        blocks = modules[path]
        assert isinstance(blocks, nn.ModuleList)
        handles.append(blocks[0].register_forward_pre_hook(stack_input(name)))
        handles.append(blocks[-1].register_forward_hook(stack_output(name)))
    handles.append(network.structure_module.fold_iteration.register_forward_hook(fold))
    handles.append(network.structure_module.register_forward_hook(finish))
    try:
        yield taps
    finally:
        for handle in handles:
            handle.remove()


def _structure_taps(
    folds: list[tuple[torch.Tensor, Backbone]], structures: list[Structure], aatype: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Of each iteration: backbone, torsion angles, frames and atoms, stacked."""
    taps = {
        "act": folds[-1][0],
        "affine": torch.stack([torch.cat([b.quaternion, b.translation], dim=-1) for _, b in folds]),
        "sc/angles_sin_cos": torch.stack([s.sin_cos for s in structures]),
        "sc/unnormalized_angles_sin_cos": torch.stack([s.unnormalised_sin_cos for s in structures]),
    }
    frames = Rigid(
        torch.stack([s.frames.rotation for s in structures]),
        torch.stack([s.frames.translation for s in structures]),
    )
    atoms = torch.stack([atom14_positions(aatype, s.frames) for s in structures])
    for i, row in enumerate("xyz"):
        taps[f"sc/atom_pos/{row}"] = atoms[..., i]
        taps[f"sc/frames/trans/{row}"] = frames.translation[..., i]
        for j, column in enumerate("xyz"):
            taps[f"sc/frames/rot/{row}{column}"] = frames.rotation[..., i, j]
    return {f"taps/sm/{name}": tap for name, tap in taps.items()}
