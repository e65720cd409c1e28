"""Train the structure module alone on true distances, with different losses of the backbone.

    python benchmarks/structure_training.py --data FOLDER [--steps 400] [--losses 0.9:0 0:0 0:1]

Each of --losses is CLAMPED:DISTANCE: the share of samples whose FAPE is clamped at 10 Å, and the weight of
the loss of CA distances. The pair representation is a learned projection of the true CB distances, blurred by
1 Å, and of relative positions, so that differences are those of the structure module's training, not of the
trunk's. All variants start from the same parameters and see the same samples. Scores are means over held-out
chains without relatives: lDDT-CA, the unclamped FAPE of the last iteration in Å, and the radius of gyration
relative to the experimental one.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F

from foldcli.commands.train import _prepare
from model.alphafold import AlphaFold
from model.embedders import MAX_RELATIVE_POSITION
from model.heads import distogram_edges
from model.kernels import select_kernels
from model.residue_constants import RESTYPES
from model.rigid import Rigid
from model.training.data import read_split
from model.training.features import Targets, load_tables, make_targets
from model.training.initialization import initialize
from model.training.losses import backbone_fape, distance_loss, lddt_ca, torsion_loss
from model.training.sampling import Sampler
from model.training.settings import read_settings
from model.training.structure import FoldedStructure, fold

CONFIG = Path(__file__).parents[1] / "examples" / "train" / "compact.yaml"
BLUR = 1.0  # Å
CLIP_NORM = 0.1


class Model(torch.nn.Module):
    """The structure module of the compact network with projections of the true distances as its input."""

    def __init__(self) -> None:
        super().__init__()
        config = read_settings(CONFIG).network
        network = AlphaFold(config, select_kernels("reference", torch.device("cpu")))
        initialize(network, seed=0)
        torch.manual_seed(0)
        self.module = network.structure_module.requires_grad_(True)
        self.edges = distogram_edges(torch.device("cpu"))
        bins = len(self.edges) + 1 + 2 * MAX_RELATIVE_POSITION + 1
        self.pair = torch.nn.Linear(bins, config.evoformer.pair.channels)
        self.single = torch.nn.Linear(len(RESTYPES) + 1, len(self.module.single_layer_norm.scale))

    def forward(self, targets: Targets, dropout: bool) -> FoldedStructure:
        """Fold a batch of [B, N] residues."""
        distance = (targets.beta[:, :, None] - targets.beta[:, None]).norm(
            dim=-1, keepdim=True
        )  # [B, N, N, 1]
        below = 0.5 * (1.0 + torch.erf((self.edges - distance) / (BLUR * 2**0.5)))  # [B, N, N, 63]
        known = (targets.beta_mask[:, :, None] * targets.beta_mask[:, None])[..., None]
        bins = known * torch.diff(F.pad(F.pad(below, (0, 1), value=1.0), (1, 0)), dim=-1)  # [B, N, N, 64]
        index = torch.arange(distance.shape[1])
        offset = (index[:, None] - index).clip(-MAX_RELATIVE_POSITION, MAX_RELATIVE_POSITION)
        relative = F.one_hot(offset + MAX_RELATIVE_POSITION, 2 * MAX_RELATIVE_POSITION + 1).float()
        pair = self.pair(torch.cat([bins, relative.expand(*bins.shape[:3], -1)], dim=-1))
        single = self.single(F.one_hot(targets.aatype, len(RESTYPES) + 1).float())
        flag = torch.tensor(float(dropout))
        return fold(self.module, single, pair, targets.aatype, targets.seq_mask, flag)


def main() -> None:
    """Train each variant and print its scores."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--losses", nargs="+", default=["0.9:0", "0:0", "0:1"])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--crop", type=int, default=40)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--held-out", type=int, default=48, help="number of held-out chains")
    options = parser.parse_args()
    torch.set_num_threads(1)
    load_tables(torch.device("cpu"))
    chains = _prepare(options.data, None)
    split = read_split(chains, options.data)
    settings = replace(read_settings(CONFIG).sampling, msa_rows=3, extra_rows=1, backbone_rate=0.0)
    sampler = Sampler(chains, split, settings, seed=0)
    arrays = sampler.held_out_batch(split.without_relative[: options.held_out], options.crop)
    held_out = make_targets({name: torch.from_numpy(array) for name, array in arrays.items()})
    print("clamped  distance weight  samples  lDDT-CA  FAPE, A  relative radius of gyration")
    for variant in options.losses:
        clamped, weight = (float(text) for text in variant.split(":"))
        train(variant, clamped, weight, sampler, held_out, options)


def train(
    variant: str,
    clamped: float,
    weight: float,
    sampler: Sampler,
    held_out: Targets,
    options: argparse.Namespace,
) -> None:
    """Train one variant, and print its scores eight times."""
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), eps=1e-6)
    start = time.monotonic()
    for step in range(1, options.steps + 1):
        arrays = sampler.batch(step * options.batch, options.batch, options.crop, clamped)
        targets = make_targets({name: torch.from_numpy(array) for name, array in arrays.items()})
        structure = model(targets, dropout=True)
        loss = backbone_fape(structure.backbone, targets) + torsion_loss(structure, targets)
        if weight:
            loss = loss + weight * distance_loss(structure.backbone, targets)
        optimizer.zero_grad()
        loss.mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        for group in optimizer.param_groups:
            group["lr"] = options.learning_rate * min(1.0, step / 100)
        optimizer.step()
        if step % max(1, options.steps // 8) == 0:
            scores = "  ".join(f"{score:.3f}" for score in evaluate(model, held_out))
            print(
                f"{variant}  {step * options.batch}  {scores}  ({time.monotonic() - start:.0f} s)", flush=True
            )


@torch.no_grad()
def evaluate(model: Model, targets: Targets) -> tuple[float, float, float]:
    """Return mean lDDT of CA, mean unclamped FAPE (Å), and the mean relative radius of gyration."""
    structure = model(targets, dropout=False)
    mask, true = targets.atom14_mask[:, :, 1], targets.atom14[:, :, 1]
    count = mask.sum(dim=1)
    predicted = structure.atom14[:, :, 1]
    lddt = (lddt_ca(predicted, true, mask) * mask).sum(dim=1) / count
    last = Rigid(structure.backbone.rotation[-1:], structure.backbone.translation[-1:])
    fape = backbone_fape(last, replace(targets, clamped=torch.zeros_like(count)))
    radii = [radius_of_gyration(points, mask) for points in (predicted, true)]
    return float(lddt.mean()), 10.0 * float(fape.mean()), float((radii[0] / radii[1]).mean())


def radius_of_gyration(points: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the radius of gyration [B] in Å of points [B, N, 3]."""
    count = mask.sum(dim=1)
    center = (points * mask[..., None]).sum(dim=1, keepdim=True) / count[:, None, None]
    return torch.sqrt(((points - center).square().sum(dim=-1) * mask).sum(dim=1) / count)


if __name__ == "__main__":
    main()
