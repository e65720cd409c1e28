"""Record gradients of OpenFold3's losses by its parameters, for test_gradients.py.

Run it from the root of the repository in an environment with openfold3 0.5.0 and this folder's path:

    PYTHONPATH=. python tests/model/training/alphafold3/record_gradients.py

The network has few blocks and random parameters, which depend on their names alone, and computes in float64.
It writes data/gradients.npz next to this file: for each parameter the norm of its gradient, and the products
of the gradient with some random vectors.
"""

from pathlib import Path

import numpy as np
import torch
from openfold3.core.loss.loss_module import OpenFold3Loss
from openfold3.projects.of3_all_atom.model import OpenFold3
from openfold3.projects.of3_all_atom.project_entry import OF3ProjectEntry

from tests.model.alphafold3.drawn_parameters import parameter
from tests.model.training.alphafold3.cases import Case, gradient_case, sketch
from tests.model.training.alphafold3.record_losses import WEIGHTS, batch_of

CYCLES = 2


def make_network() -> OpenFold3:
    """Return a network of few blocks without dropout, in float64."""
    config = OF3ProjectEntry().get_model_config_with_presets(["predict"])
    parts = config.architecture
    parts.pairformer.no_blocks = parts.msa.msa_module.no_blocks = 2
    parts.diffusion_module.diffusion_transformer.no_blocks = 2
    parts.diffusion_module.atom_attn_enc.no_blocks = parts.diffusion_module.atom_attn_dec.no_blocks = 2
    parts.input_embedder.atom_attn_enc.no_blocks = 2
    parts.heads.pairformer_embedding.pairformer.no_blocks = 1
    parts.template.template_pair_stack.no_blocks = 1
    parts.pairformer.pair_dropout = parts.heads.pairformer_embedding.pairformer.pair_dropout = 0.0
    parts.msa.msa_module.pair_dropout = parts.msa.msa_module.msa_dropout = 0.0
    parts.template.template_pair_stack.dropout_rate = 0.0
    config.settings.memory.train.chunk_size = None
    network = OpenFold3(config)
    state = network.state_dict()
    drawn = {
        name: torch.from_numpy(parameter(name.removeprefix("sample_diffusion."), tuple(x.shape)))
        for name, x in state.items()
        if name != "version_tensor"
    }
    network.load_state_dict(drawn | {"version_tensor": state["version_tensor"]})
    return network.double().train()


def total_loss(network: OpenFold3, case: Case, noisy: np.ndarray) -> torch.Tensor:
    """Return the total loss of a pass with given noise and rollout."""
    batch = batch_of(case, WEIGHTS)
    without_samples = {name: x[:, 0] for name, x in batch.items() if torch.is_tensor(x)}
    indices = ("num_atoms_per_token", "start_atom_index", "atom_to_token_index", "num_paired_seqs")
    for features in (batch, without_samples):
        features.update({name: features[name].long() for name in indices if name in features})
    features, single, pair = network.run_trunk(without_samples, num_cycles=CYCLES)
    features, single, pair = (x[:, None] for x in (features, single, pair))

    def tensor(x: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(x)[None]

    output = {
        "si_trunk": single,
        "zij_trunk": pair,
        "atom_positions_predicted": tensor(case.outputs["positions"])[:, None],
        "noise_level": tensor(case.outputs["sigmas"]),
    }
    output |= network.aux_heads(batch=batch, si_input=features, output=output, use_zij_trunk_embedding=True)
    output["atom_positions_diffusion"] = network.diffusion_module(
        batch=batch,
        xl_noisy=tensor(noisy),
        token_mask=batch["token_mask"],
        atom_mask=batch["ground_truth"]["atom_resolved_mask"],
        t=output["noise_level"],
        si_input=features,
        si_trunk=single,
        zij_trunk=pair,
        use_conditioning=True,
    )
    loss = OpenFold3Loss(network.config.architecture.loss_module)
    total, terms = loss.loss(batch, output)
    print({name: value.item() for name, value in terms.items()})
    return total


if __name__ == "__main__":
    # some of its code converts to float32 by this method
    torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]
    network = make_network()
    loss = total_loss(network, *gradient_case())
    loss.backward()
    sketches = {}
    for name, weights in network.named_parameters():
        if not name.startswith("sample_diffusion."):
            gradient = torch.zeros_like(weights) if weights.grad is None else weights.grad
            sketches[name] = sketch(name, gradient.numpy())
    np.savez_compressed(
        Path(__file__).parent / "data" / "gradients.npz",
        total=loss.item(),
        names=np.frombuffer("\n".join(sketches).encode(), np.uint8),
        sketches=np.stack(list(sketches.values())),
    )
