"""The network: the order of a prediction (Algorithm 1), from the tensors of a target to scored structures.

Algorithm numbers are those of the supplement of Abramson et al., Nature 630, 493 (2024).
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from cuda.fused.chunking import chunk_budget, row_slices
from model.alphafold3.blocks import MsaModule, Pairformer
from model.alphafold3.confidence import Confidence, TargetScorer, contact_map, with_disorder
from model.alphafold3.config import AlphaFold3Config
from model.alphafold3.diffusion import DiffusionModule
from model.alphafold3.embedding import (
    InputEmbedder,
    MsaEmbedder,
    RelativePositions,
    TemplateEmbedder,
    alignment_mask,
    distinct_templates,
)
from model.alphafold3.heads import ConfidenceHeads, representative_atoms
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.layers import Norm, linear
from model.alphafold3.sampling import SeededDraws, sample_positions, upload
from model.layers.graphs import GraphedFunction, KeptGraphs
from model.layers.host_copies import HostCopies
from model.layers.kernels import select_kernels

# beginnings of the names of parameters in the trunk's dtype
TRUNK_SCOPES = (
    "layer_norm_z.",
    "linear_z.",
    "template_embedder.",
    "msa_module.",
    "layer_norm_s.",
    "linear_s.",
    "pairformer_stack.",
    "aux_heads.pairformer_embedding.pairformer_stack.",
)


# more tokens keep a GPU busy without graphs, whose memory would stay reserved
MAX_GRAPHED_TOKENS = 2048


@dataclass(frozen=True)
class TrunkOutput:
    """The representations of a target.

    Args:
        features: [N, I], the input representation.
        single: [N, S].
        pair: [n, N, Z], in the dtype of the trunk.
        relative: relative positions of the tokens.
        rows: tokens of the rows of `pair`, all but with several ranks.
    """

    features: torch.Tensor
    single: torch.Tensor
    pair: torch.Tensor
    relative: RelativePositions
    rows: slice = field(default_factory=lambda: slice(None))


@dataclass(frozen=True)
class Samples:
    """Structures of one target.

    Args:
        positions: [S, A, 3], Å.
        confidences: scores of each sample.
        contacts: [N, N], probability that tokens are within 8 Å.
    """

    positions: torch.Tensor
    confidences: tuple[Confidence, ...]
    contacts: torch.Tensor


class AlphaFold3(nn.Module):
    """An all-atom network with the parameters of OpenFold3.

    Args:
        config: the architecture.
        kernels: implementation of the heavy operations; see `model.layers.kernels.select_kernels`.
        device: where the network runs.
    """

    def __init__(
        self, config: AlphaFold3Config, kernels: str = "auto", device: torch.device | str = "cpu"
    ) -> None:
        super().__init__()
        operations = select_kernels(kernels, device)
        self.config = config
        self.input_embedder = InputEmbedder(config)
        self.layer_norm_z = Norm(config.pair.channels)
        self.linear_z = linear(config.pair.channels, config.pair.channels)
        self.template_embedder = TemplateEmbedder(config, operations)
        self.msa_module_embedder = MsaEmbedder(config)
        self.msa_module = MsaModule(config, operations)
        self.layer_norm_s = Norm(config.single_channels)
        self.linear_s = linear(config.single_channels, config.single_channels)
        self.pairformer_stack = Pairformer(config, config.pairformer_blocks, operations)
        self.diffusion_module = DiffusionModule(config)
        self.aux_heads = ConfidenceHeads(config, operations)
        self.max_graphed_tokens = MAX_GRAPHED_TOKENS
        # the error of a failed capture of a CUDA graph since it was last set to ""
        self.graph_error = ""
        # whether the kernels of the diffusion module were loaded
        self._has_sampled = False

    @classmethod
    def load(
        cls,
        config: AlphaFold3Config,
        tensors: Mapping[str, torch.Tensor],
        kernels: str = "auto",
        device: torch.device | str = "cpu",
        trunk_dtype: torch.dtype = torch.float32,
    ) -> "AlphaFold3":
        """Return a network with the tensors that a reader of `model.checkpoints` returns, on a device.

        Parameters and activations of the blocks that update the pair representation get `trunk_dtype`.
        Embeddings, diffusion module and heads use float32; with another dtype on a GPU, the diffusion module
        takes half-precision operands.
        """
        with torch.device("meta"):
            network = cls(config, kernels, device)
        placed = {
            name: x.to(device, trunk_dtype if name.startswith(TRUNK_SCOPES) else torch.float32)
            for name, x in tensors.items()
        }
        network.load_state_dict(placed, assign=True)
        if trunk_dtype != torch.float32 and torch.device(device).type == "cuda":
            network.diffusion_module.use_half_precision()
        return network.requires_grad_(False).eval()

    @torch.inference_mode()
    def predict(
        self,
        inputs: AlphaFold3Inputs,
        draws: SeededDraws,
        *,
        cycles: int = 4,
        steps: int = 200,
        samples: int = 5,
        progress: Callable[[int], None] | None = None,
        chunk_elements: int | None = None,
        samples_at_once: int | None = None,
    ) -> Samples:
        """Predict structures of a target and score them.

        `cycles` are passes of the trunk, `steps` those of denoising. `progress` is called after each step
        with the number of steps done. At most `chunk_elements` of intermediates are held at once, None for a
        default by device, and `samples_at_once` are the samples that the diffusion module sees together, None
        for all.
        """
        with chunk_budget(chunk_elements):
            scorer = TargetScorer(inputs)
            trunk = self.trunk(inputs, draws, cycles=cycles)
            positions = self.sample(
                inputs,
                trunk,
                draws,
                steps=steps,
                samples=samples,
                progress=progress,
                samples_at_once=samples_at_once,
            )
            return self.score(inputs, trunk, positions, scorer)

    @torch.inference_mode()
    def score(
        self, inputs: AlphaFold3Inputs, trunk: TrunkOutput, positions: torch.Tensor, scorer: TargetScorer
    ) -> Samples:
        """Score structures [S, A, 3], Å (line 16 and section 5.9)."""
        heads, rows = self.aux_heads, trunk.rows
        tokens, columns = len(trunk.single), self.own_columns(trunk.pair)
        contacts = self.all_rows(contact_map(heads.distogram.rows(trunk.pair, columns)), tokens)
        del columns
        mask = None if bool(inputs.token_mask.all()) else inputs.token_mask
        atoms, confidences = representative_atoms(inputs), []
        copies = HostCopies({"positions": positions[self.own_samples(len(positions))]})

        def disorder() -> list[float]:
            return [scorer.surface.disorder(torch.from_numpy(x)) for x in copies.wait()["positions"]]

        with ThreadPoolExecutor(1) as pool:
            # on the CPU, while a GPU runs the heads, which are launched before the positions are known
            shares = pool.submit(disorder)
            for sample in positions:
                single, pair = heads.pairformer_embedding(
                    trunk.features, trunk.single, trunk.pair, sample[atoms], mask, rows
                )
                plddt = heads.of_atoms(heads.plddt(single), inputs)
                errors = heads.error_rows(pair, self.own_columns(pair), rows)
                confidences.append(
                    scorer(sample, plddt, errors, contacts, lambda x: self.all_rows(x[rows], tokens))
                )
                del pair, errors
            share = self.all_samples(upload(torch.tensor(shares.result()), positions), len(positions))
            return Samples(positions, tuple(map(with_disorder, confidences, share)), contacts)

    @torch.inference_mode()
    def trunk(self, inputs: AlphaFold3Inputs, draws: SeededDraws, *, cycles: int) -> TrunkOutput:
        """Compute the representations of a target (lines 1 to 14)."""
        relative, own = RelativePositions.of(inputs, self.config), self.own_rows(len(inputs.token_mask))
        features, initial_single, initial_pair = self.input_embedder(inputs, relative, own)
        dtype = self.linear_z.weight.dtype
        initial_single, initial_pair = initial_single.to(dtype), initial_pair.to(dtype)
        # decided before the first cycle, so that no cycle waits for a GPU
        templates = distinct_templates(inputs)
        rows = [alignment_rows(inputs, draws, cycle, self.config.msa.rows) for cycle in range(cycles)]
        msa_masks = [alignment_mask(inputs, x, dtype) for x in rows]
        mask = None if bool(inputs.token_mask.all()) else inputs.token_mask.to(dtype)
        pair_mask = None if mask is None else mask[:, None] * mask
        single, pair = torch.zeros_like(initial_single), torch.zeros_like(initial_pair)
        for cycle_rows, msa_mask in zip(rows, msa_masks, strict=True):
            for part in row_slices(pair, 3 * pair.shape[1] * pair.shape[-1]):
                pair[part] = initial_pair[part] + self.linear_z(self.layer_norm_z(pair[part]))
            pair += self.template_embedder(inputs, pair, pair_mask, templates, own)
            msa = self.msa_module_embedder(inputs, features, cycle_rows, dtype)
            pair = self.msa_module(msa, pair, msa_mask, pair_mask)
            del msa
            single = initial_single + self.linear_s(self.layer_norm_s(single))
            single, pair = self.pairformer_stack(single, pair, mask, pair_mask)
        return TrunkOutput(features, single.to(features), pair, relative, own)

    def own_rows(self, tokens: int) -> slice:
        """Return the rows of the pair representation that this process has."""
        return slice(None)

    def all_rows(self, x: torch.Tensor, tokens: int) -> torch.Tensor:
        """Return the rows of all tokens [N, ...], given those of this process [n, ...]."""
        return x

    def own_samples(self, samples: int) -> slice:
        """Return the samples that this process draws."""
        return slice(None)

    def all_samples(self, x: torch.Tensor, samples: int) -> torch.Tensor:
        """Return values of all samples [S, ...], given those of this process [s, ...]."""
        return x

    def own_columns(self, pair: torch.Tensor) -> torch.Tensor:
        """Return those columns [N, n, Z] of pairs whose rows [n, N, Z] this process has."""
        return pair

    @torch.inference_mode()
    def sample(
        self,
        inputs: AlphaFold3Inputs,
        trunk: TrunkOutput,
        draws: SeededDraws,
        *,
        steps: int,
        samples: int,
        progress: Callable[[int], None] | None = None,
        samples_at_once: int | None = None,
        graphs: KeptGraphs | None = None,
    ) -> torch.Tensor:
        """Draw structures [S, A, 3], Å (line 15); see `predict`. Graphs are kept for changing parameters."""
        module, size = self.diffusion_module, samples_at_once or samples
        conditions = module.conditions(
            inputs, trunk.features, trunk.single, trunk.pair, trunk.relative, trunk.rows
        )
        if graphs is not None:
            read = graphs.hold((conditions, inputs.atom_mask, inputs.atom_to_token_index))
            conditions, inputs = read[0], replace(inputs, atom_mask=read[1], atom_to_token_index=read[2])

        def denoise(noisy: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
            return torch.cat([module(inputs, conditions, part, sigma) for part in noisy.split(size)])

        steps_as_graph: list[GraphedFunction] = []

        def as_graph(step: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
            if graphs is not None:
                return graphs(step, self._has_sampled)
            steps_as_graph.append(GraphedFunction(step, self._has_sampled))
            return steps_as_graph[0]

        # the second prediction needs no call before the capture
        graphed = size >= samples and len(trunk.single) <= self.max_graphed_tokens
        positions = sample_positions(
            denoise,
            inputs.atom_mask,
            draws,
            self.config.diffusion,
            samples=samples,
            steps=steps,
            progress=progress,
            graphed=as_graph if graphed else None,
        )
        self.graph_error = next((step.error for step in steps_as_graph if step.error), self.graph_error)
        self._has_sampled = self._has_sampled or steps > 1
        return positions


def alignment_rows(inputs: AlphaFold3Inputs, draws: SeededDraws, cycle: int, most: int) -> torch.Tensor:
    """Return the rows of the alignment that a cycle sees: those that are not empty, or a sample of them."""
    rows = inputs.msa_mask.any(dim=-1).nonzero()[:, 0]
    if len(rows) <= most:
        return rows
    return rows[draws.rows(cycle, len(rows)).to(rows.device)[:most]]
