"""Accuracy of the compact network, or of another one, on the held-out chains at full length.

    python benchmarks/compact.py --data FOLDER [--params compact] [--json FILE] [--device cuda] [--calibrate]

The chains are those of model/training/heldout.tsv: A, without relatives in the training data, and B, whose
best template has less than 40 % identity. Alignments are those of the training data, and inputs are made by
the same code as in predictions. Chains of A have no templates. Those of B have the best allowed ones
(E < 1e-3), without side chains beyond CB, as in the structure library that comes with foldcli and as in
training. Set C has those chains of A that have a close template, of at
least 40 % identity, among the other held-out chains, which become their templates. Set W has the chains of A
that have weak templates (E of 1e-3 to 0.01, or under 70 % covered) among all other chains; they get only
those, chosen as in predictions. Set X has the relatives of
A, which were not used for training either: choose settings on it, not on the others (--sets X).

--params is a folder that `foldcli train --package` wrote, `compact` for the one in the package, or the folder
`carried` of a run of examples/train/compact.yaml. lDDT-CA is the mean over a chain's residues. It is compared
with the best template, copied as by --params template (residues that are left out count 0), or with an ideal
helix. As in predictions, structures are refined, unless --no-refine is given. Contacts are long-range: CB
closer than 8 Å, at least 24 residues apart, the L/5 most probable. A junction is a peptide bond with its two
angles; the bonds and angles within residues are ideal. Intervals are of 95 %, by bootstrap over chains.

--calibrate fits the shift of pLDDT's log odds that `foldcli train --package --scores` puts into a network's
manifest to the lDDT-CA of the residues of the measured chains.

--data: folder of the packed training data; --masked-fraction: default: that of the network's manifest;
--recycles: default: that of the network's manifest; --chains: number of chains of each set; default all;
--threads: threads that sample features; --json: write all scores, for `foldcli train --package`.
"""

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

import numpy as np
import torch
from compact_tables import CLOSE_IDENTITY, ChainScores, calibrate, ideal_helix, regular_bonds, report
from options import parse_options

from features.alphafold2.alignment_depth import row_weights
from features.alphafold2.deterministic import make_features
from features.alphafold2.sampling import SamplingSettings, sample_features
from features.chemistry.residues import CA, atom_maps, decode_query
from features.templates.candidates import TemplateCandidate
from features.templates.homology import copy_template
from features.templates.library.chains import TemplateChain
from features.templates.library.settings import TemplateSettings
from features.templates.template_features import make_template_features
from model import residue_constants
from model.alphafold2.modules.embedders import pseudo_beta
from model.alphafold2.network import AlphaFold
from model.alphafold2.recycling import RecyclingSettings, predict
from model.checkpoints.alphafold2 import build_network, load_folder
from model.checkpoints.network_folder import (
    MAX_EVALUE,
    MIN_COVERAGE,
    InputSizes,
    NetworkManifest,
    folder_of,
    read_manifest,
)
from model.prediction import Prediction
from model.refinement.refine import refine
from model.residue_tables import residue_rows
from model.training.alphafold2.losses import lddt_ca
from model.training.alphafold2.validation import contact_precision
from model.training.alphafold2.violations import between_residue_clashes, peptide_bond_violations
from model.training.data.data import CENTI, ChainSet, Split, read_split
from model.training.data.prepare import prepare
from model.training.packaging import package_network
from model.training.runtime.checkpoint import MANIFEST
from model.training.runtime.settings import TrainingSettings, read_content, settings_of
from msa.alignments.files import Alignment
from msa.base.residues import RESTYPES

SETTINGS = Path(__file__).parents[1] / "examples" / "train" / "compact.yaml"
LETTERS = np.frombuffer((RESTYPES + "X-").encode(), np.uint8)
WEAK_EVALUE = TemplateSettings.evalue  # largest E-value of the templates of predictions


@dataclass(frozen=True)
class Template:
    """A template of a chain, with its alignment."""

    chain: TemplateChain
    candidate: TemplateCandidate


@dataclass(frozen=True)
class Evaluation:
    """The network, its inputs and the chains.

    Args:
        network: the network.
        inputs: sizes of its inputs.
        chains: the data.
        split: the held-out chains.
        refine: whether to refine the structures.
        seed: seed of the sampled features.
        residue_scores: [2, residues] for each scored chain, pLDDT and lDDT-CA of its residues, 0 to 1.
    """

    network: AlphaFold
    inputs: InputSizes
    chains: ChainSet
    split: Split
    refine: bool
    seed: int
    residue_scores: list[np.ndarray] = field(default_factory=list)

    @property
    def device(self) -> torch.device:
        """The network's device."""
        return self.network.evoformer.single_activations.bias.device

    def members(self, group: str) -> list[int]:
        """Return the chains of a set: "A", "B", "C", "W" or "X"."""
        split = self.split
        if group == "W":
            return [chain for chain in self.members("A") if self.templates("W", chain)]
        if group == "X":
            used = np.concatenate([split.train, split.without_relative, split.distant_template])
            return list(map(int, np.setdiff1d(np.arange(self.chains.num_full_atom), used)))
        if group != "C":
            return list(map(int, split.without_relative if group == "A" else split.distant_template))
        first = {int(chain): self.templates("C", int(chain))[:1] for chain in self.split.without_relative}
        candidates = {chain: each[0].candidate for chain, each in first.items() if each}
        return [
            chain
            for chain, best in candidates.items()
            if best.identity >= CLOSE_IDENTITY[0] and best.query_coverage >= MIN_COVERAGE
        ]

    def templates(self, group: str, chain: int) -> list[Template]:
        """Return the allowed templates of a chain; the best of those with enough coverage is the first."""
        if group == "A":
            return []
        if group == "W":
            return self._weak_templates(chain)
        # held-out chains are templates of set C alone
        may_be_template = np.isin(self.chains.hit_target, self.split.train) == (group != "C")
        hits = [
            int(hit)
            for hit in self.chains.hits(chain)
            if may_be_template[hit] and self.chains.hit_evalue[hit] < MAX_EVALUE
        ]
        length = int(self.chains.lengths[chain])
        templates = [self._template(hit, length) for hit in hits]
        templates.sort(key=lambda template: template.candidate.query_coverage < MIN_COVERAGE)
        return templates[: self.inputs.templates]

    def _weak_templates(self, chain: int) -> list[Template]:
        """Return the templates of a chain that predictions would take if it had no better ones than these."""
        chains = self.chains
        length, limits = int(chains.lengths[chain]), TemplateSettings()
        weak = []
        for hit in map(int, chains.hits(chain)):
            if chains.hit_target[hit] == chain or chains.hit_evalue[hit] >= WEAK_EVALUE:
                continue
            template = self._template(hit, length)
            candidate = template.candidate
            is_weak = candidate.evalue > MAX_EVALUE or candidate.query_coverage < MIN_COVERAGE
            is_long = len(candidate.pairs) >= limits.min_aligned_residues
            if is_weak and is_long and candidate.query_coverage > limits.min_aligned_fraction:
                weak.append(template)
        query = decode_query(chains.aatype[chains.residues(chain)].astype(np.int32))

        def accuracy(template: Template) -> float:
            return float(copy_template(query, template.candidate, template.chain).expected_lddt.sum())

        return sorted(weak[: limits.max_hits], key=accuracy, reverse=True)[: self.inputs.templates]

    def _template(self, hit: int, length: int) -> Template:
        chains = self.chains
        pairs = chains.hit_columns(hit).astype(np.int64)
        target = int(chains.hit_target[hit])
        positions, mask = atom37(chains, target)
        residues = chains.aatype[chains.residues(target)]
        chain = TemplateChain(
            chains.ids[target], decode_query(residues), positions, mask, None, "training data"
        )
        (first, template_first), (last, template_last) = pairs[0] + 1, pairs[-1] + 1
        candidate = TemplateCandidate(
            index=target,
            id=chain.id,
            source=chain.source,
            release_date=None,
            evalue=float(chains.hit_evalue[hit]),
            identity=float(chains.hit_identity[hit]),
            query_start=int(first),
            query_end=int(last),
            template_start=int(template_first),
            template_end=int(template_last),
            pairs=pairs,
            query_coverage=len(pairs) / length,
        )
        return Template(chain.backbone(), candidate)

    def sample(self, group: str, chain: int) -> tuple[dict[str, np.ndarray], list[Template]]:
        """Return the network's inputs of all passes, and the templates."""
        tokens = self.chains.alignment(chain)
        alignment = Alignment(("query",) * len(tokens), LETTERS[tokens], np.zeros(tokens.shape, np.uint8))
        templates = self.templates(group, chain)
        rows = [(each.chain, each.candidate.pairs, 1.0) for each in templates]
        features = make_features([alignment], make_template_features(tokens.shape[1], rows))
        inputs = self.inputs
        settings = SamplingSettings(
            inputs.msa_rows, inputs.extra_rows, inputs.templates, inputs.masked_fraction, inputs.resample
        )
        return sample_features(features, settings, inputs.num_recycles + 1, self.seed), templates

    def score(
        self, group: str, chain: int, sample: dict[str, np.ndarray], templates: list[Template]
    ) -> ChainScores:
        """Predict a chain and score the structure."""
        recycling = RecyclingSettings(self.inputs.num_recycles, extras=frozenset({"pair"}))
        start = time.perf_counter()
        prediction = predict(self.network, sample, recycling)
        predicted = time.perf_counter()
        if self.refine:
            prediction = refine(prediction)
        seconds = predicted - start, time.perf_counter() - predicted
        with torch.inference_mode():
            return self._score(group, chain, prediction, templates, seconds)

    def _score(
        self,
        group: str,
        chain: int,
        prediction: Prediction,
        templates: list[Template],
        seconds: tuple[float, float],
    ) -> ChainScores:
        chains, device = self.chains, self.device
        positions, mask = (torch.from_numpy(x).to(device) for x in atom37(chains, chain))
        aatype = torch.from_numpy(prediction.aatype).to(device)
        predicted = torch.from_numpy(prediction.atom_positions).to(device)
        alpha, alpha_mask = positions[:, CA], mask[:, CA].float()

        def lddt(model: torch.Tensor) -> torch.Tensor:
            return lddt_ca(model[None], alpha[None], alpha_mask[None])[0]

        def mean(values: torch.Tensor) -> float:
            return float((values * alpha_mask).sum() / alpha_mask.sum())

        lddts = lddt(predicted[:, CA])
        plddt = torch.from_numpy(prediction.plddt).to(device).float() / 100
        self.residue_scores.append(torch.stack([plddt, lddts])[:, alpha_mask > 0].cpu().numpy())
        beta = pseudo_beta(aatype, positions)
        beta_mask = pseudo_beta(aatype, mask[..., None].float())[..., 0]
        pair = torch.from_numpy(prediction.results["representations/pair"]).to(device)
        contacts = contact_precision(
            self.network.heads["distogram_head"](pair)[None], beta[None], beta_mask[None]
        )
        tokens = np.asarray(chains.alignment(chain))
        weights = row_weights(tokens)
        if templates:
            best = templates[0]
            copy = copy_template(decode_query(prediction.aatype), best.candidate, best.chain)
            # residues that are left out get positions far from all others, so that they count 0
            copied = torch.from_numpy(copy.positions[:, CA]).to(device)
            absent = torch.from_numpy(~copy.mask[:, CA]).to(device)
            copied[absent] = 1e5 * (1 + torch.arange(int(absent.sum()), device=device))[:, None].float()
            baseline = mean(lddt(copied))
        else:
            baseline = mean(lddt(ideal_helix(len(aatype)).to(device)))
        junctions, clashes = stereochemistry(aatype, predicted)
        return ChainScores(
            name=chains.ids[chain],
            group=group,
            residues=len(aatype),
            effective=float(weights.sum()),
            identity=templates[0].candidate.identity if templates else None,
            lddt=mean(lddts),
            plddt=mean(plddt),
            residue_error=mean((lddts - plddt).abs()),
            baseline=baseline,
            contacts=float(contacts),
            junctions=junctions,
            clashes=clashes,
            seconds=seconds[0],
            refine_seconds=seconds[1],
        )


def atom37(chains: ChainSet, chain: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the atoms of a chain, float32 [residues, 37, 3] in Å, and bool [residues, 37]."""
    residues = chains.residues(chain)
    atom14 = chains.atom14[residues].astype(np.float32) * np.float32(CENTI)
    present = (chains.atom_bits[residues, None] >> np.arange(14)) & 1 > 0
    maps = atom_maps(chains.aatype[residues].astype(np.int32))
    slots = maps["residx_atom37_to_atom14"]
    mask = np.take_along_axis(present, slots, axis=1) & (maps["atom37_atom_exists"] > 0)
    return np.take_along_axis(atom14, slots[..., None], axis=1) * mask[..., None], mask


def stereochemistry(aatype: torch.Tensor, positions: torch.Tensor) -> tuple[float, float]:
    """Return the share of junctions within 12 standard deviations, and clashes per 100 residues."""
    slots = torch.from_numpy(atom_maps(aatype.cpu().numpy())["residx_atom14_to_atom37"]).to(aatype)
    atom14 = torch.gather(positions, 1, slots[..., None].expand(-1, -1, 3))[None]
    exists = residue_rows(residue_constants.atom14_mask, aatype)[None]
    bonded = torch.ones_like(aatype, dtype=torch.float32)[None]
    bonded[:, 0] = 0
    _, violated = peptide_bond_violations(atom14, aatype[None], exists, bonded)
    radii = residue_rows(residue_constants.vdw_radii, aatype)
    _, clashes = between_residue_clashes(atom14, exists, radii[None], bonded)
    return 1 - float(violated.mean()), 100 * float(clashes) / len(aatype)


def load(params: str, device: torch.device, dtype: torch.dtype) -> tuple[NetworkManifest, AlphaFold]:
    """Return the manifest of a network and the network; see the module's text."""
    folder = folder_of(params)
    with TemporaryDirectory() as temporary:
        if (folder / MANIFEST).exists():
            settings = settings_of(TrainingSettings, read_content(SETTINGS), SETTINGS)
            package_network(folder, settings, Path(temporary, "network"))
            folder = Path(temporary, "network")
        manifest = read_manifest(folder)
        arrays = load_folder(folder, manifest)
    shift = manifest.plddt_shift
    return manifest, build_network(manifest.config, arrays, device, dtype, "auto", shift)


def evaluate(
    evaluation: Evaluation, chains: Sequence[tuple[str, int]], threads: int
) -> Iterator[ChainScores]:
    """Yield the scores of chains; inputs are sampled in threads meanwhile."""
    with ThreadPoolExecutor(threads) as pool:
        samples = pool.map(lambda chain: evaluation.sample(*chain), chains)
        for (group, chain), (sample, templates) in zip(chains, samples, strict=True):
            yield evaluation.score(group, chain, sample, templates)


def main() -> None:
    """Evaluate a network and print the tables."""
    options = parse_options(
        __doc__, data=..., prepared=Path(gettempdir()) / "foldcli-training-data", params="compact",
        device="cuda" if torch.cuda.is_available() else "cpu", masked_fraction=float, recycles=int,
        sets="ABCW", no_refine=False, chains=int, seed=0, threads=4, calibrate=False, json=Path
    )  # fmt: skip
    begin = time.perf_counter()
    device = torch.device(options.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    manifest, network = load(options.params, device, dtype)
    if options.calibrate:
        network.plddt_shift = 0.0
    changes = {"masked_fraction": options.masked_fraction, "num_recycles": options.recycles}
    inputs = replace(manifest.inputs, **{name: value for name, value in changes.items() if value is not None})
    data = prepare(options.data, options.prepared)
    split = read_split(data, options.data)
    evaluation = Evaluation(
        network=network,
        inputs=inputs,
        chains=data,
        split=split,
        refine=not options.no_refine,
        seed=options.seed,
    )
    chains = [
        (group, chain) for group in options.sets for chain in evaluation.members(group)[: options.chains]
    ]
    # chains of the same length share captured CUDA graphs
    chains.sort(key=lambda chain: data.lengths[chain[1]])
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    kernels = "fused" if network.kernels.fused else "reference"
    print(f"{manifest.title}; {name}, {dtype}, {kernels} kernels", flush=True)
    print(inputs, flush=True)
    start = time.perf_counter()
    scores = list(evaluate(evaluation, chains, options.threads))
    seconds = time.perf_counter() - start
    print(f"{len(scores)} chains in {seconds:.1f} s, start {start - begin:.1f} s\n")
    cases = report(scores)
    if options.calibrate:
        network.plddt_shift = calibrate(evaluation.residue_scores)
        print(f"\nshift of the log odds of pLDDT / 100: {network.plddt_shift}")
    if options.json is not None:
        content = {
            "network": manifest.title,
            "cases": list(map(asdict, cases)),
            "regular_bonds": regular_bonds(scores),
            "inputs": asdict(inputs),
            "plddt_shift": network.plddt_shift,
            "chains": list(map(asdict, scores)),
        }
        options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
