"""Prediction with recycling: repeated passes through the network, early stop, and confidence scores."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from cuda.fused.chunking import chunk_budget
from model import residue_constants
from model.alphafold2.modules.embedders import Features
from model.alphafold2.modules.heads import AlignedError
from model.alphafold2.multimer.draws import PhiloxMsaDraws
from model.alphafold2.multimer.inputs import MultimerInputs
from model.alphafold2.network import AlphaFold, PassOutput
from model.layers.dropout import dropout
from model.layers.graphs import MAX_GRAPH_RESIDUES
from model.layers.host_copies import HostCopies
from model.prediction import EXTRAS, Extra, PassStructure, Prediction
from model.structure import protein_structure
from msa.base.network_inputs import MONOMER
from msa.base.progress import Progress

# largest number of queued passes on a GPU: short proteins need more, because the host prepares the first pass
# of the next protein (capturing graphs) for longer than the GPU computes one
_QUEUED_PASSES = 1
_QUEUED_SHORT_PASSES = 2


@dataclass(frozen=True)
class RecyclingSettings:
    """Settings of recycling.

    Args:
        num_recycles: maximum number of passes after the first.
        early_stop_tolerance: stop when CA distances change by less than this between passes (root
            mean square over all pairs, Å), as ColabFold does; 0 never stops early. DeepMind's multimer code,
            whose tolerance is 0.5 Å, makes one more pass.
        extras: additional results that predictions contain.
        seed: seed of the samples that multimer networks draw in each pass; see
            `model.alphafold2.multimer.draws.PhiloxMsaDraws`.
        dropout: whether the network drops updates as in its training, drawn with the seed.
    """

    num_recycles: int = 3
    early_stop_tolerance: float = 0.0
    extras: frozenset[Extra] = frozenset()
    seed: int = 0
    dropout: bool = False


def ca_distance_change(before: torch.Tensor, after: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return the root mean square change of all CA distances, Å, float64, as in ColabFold's tolerance.

    Positions are [N, 37, 3], Å; the mask [N] is 1 for residues to include, None for all.
    """
    weights = before.new_ones(before.shape[0]) if mask is None else mask
    points = (x[:, residue_constants.CA].double() for x in (before, after))
    old, new = (torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist") for x in points)
    squared = (old - new).square() * (weights[:, None] * weights[None])  # [N, N]
    return (squared.sum() / weights.sum().double().square() + 1e-8).sqrt()


def feature_tensors(
    features: Mapping[str, np.ndarray], iteration: int, device: torch.device
) -> dict[str, torch.Tensor]:
    """Convert the features of one iteration into the network's input tensors, int64 and float32.

    Masks of all ones are left out. Copies to a GPU are asynchronous. Features are arrays of
    `msa.base.network_inputs.MONOMER` with a leading axis of iterations, counted from 0, and optionally
    cycle_length int64 [N], the length of the residue's chain if the chain is cyclic, else 0.
    """
    tensors = {}
    if "cycle_length" in features:
        tensors["cycle_length"] = torch.from_numpy(features["cycle_length"]).to(device)
    for name, (_, _, kind) in MONOMER.items():
        if name not in features or kind is None or (kind == "mask" and features[name][iteration].all()):
            continue
        tensor = torch.from_numpy(np.ascontiguousarray(features[name][iteration]))
        dtype = torch.int64 if kind == "index" else torch.float32
        if device.type == "cpu" or name == "template_mask":
            tensors[name] = tensor.to(dtype)
        else:
            tensors[name] = tensor.pin_memory().to(device, non_blocking=True).to(dtype)
    return tensors


class _Passes:
    """The queued passes of a prediction, with the results of those that are finished."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total, self._progress = total, progress
        self._queued: list[HostCopies] = []
        self._changes: list[float] = []

    def add(self, change: torch.Tensor) -> None:
        """Add a queued pass, given the change of the CA distances in it."""
        self._queued.append(HostCopies({"change": change}))

    def wait(self, count: int) -> tuple[float, ...]:
        """Wait until the first `count` passes are finished, and report them; return the recycles' changes."""
        while len(self._changes) < count:
            self._changes.append(float(self._queued[len(self._changes)].wait()["change"]))
            if self._progress is not None:
                self._progress(len(self._changes), self._total)
        # the first pass changes no earlier structure
        return tuple(self._changes[1:])


def predict(
    network: AlphaFold,
    features: Mapping[str, np.ndarray],
    settings: RecyclingSettings | None = None,
    progress: Progress | None = None,
    chunk_elements: int | None = None,
) -> Prediction:
    """Predict a structure; see `start_prediction`."""
    return start_prediction(network, features, settings, progress, chunk_elements)()


def start_prediction(
    network: AlphaFold,
    features: Mapping[str, np.ndarray],
    settings: RecyclingSettings | None = None,
    progress: Progress | None = None,
    chunk_elements: int | None = None,
) -> Callable[[], Prediction]:
    """Start to predict a structure; return a function that any thread may call, once, to wait for it.

    On a GPU, the last passes may not have finished when this returns, so that the first kernels of another
    prediction can be launched meanwhile. It needs no more memory on the GPU.

    Features are inputs of `AlphaFold.forward`, each with a leading axis of at least num_recycles + 1
    iterations; for multimer networks the features that `inputs.MultimerInputs` takes. Optionally there are
    start_positions, float32 [N, 37, 3] in Å with NaN for unknown atoms, which the first pass takes as those
    of a pass before it. `progress` is called after each pass; `chunk_elements` are those of `MemoryPlan`, or
    None for the device's default.

    Raises:
        ValueError: the features have too few iterations.
    """
    settings = settings or RecyclingSettings()
    passes = settings.num_recycles + 1
    device = network.evoformer.single_activations.bias.device
    queue = _Passes(passes, progress)
    structures: list[tuple[np.ndarray, np.ndarray]] = []  # positions [N, 37, 3] and pLDDT
    queued = _QUEUED_SHORT_PASSES if features["aatype"].shape[-1] <= MAX_GRAPH_RESIDUES else _QUEUED_PASSES
    if device.type == "cpu" or settings.early_stop_tolerance > 0:
        queued = 0  # the host waits for each pass
    dropping = dropout(network, settings.seed) if settings.dropout else nullcontext()
    with torch.inference_mode(), chunk_budget(chunk_elements), _current_device(device), dropping:
        inputs = _pass_inputs(network, features, settings, device)
        current = inputs(0)
        mask = current.get("seq_mask")
        previous = network.initial_state(current)
        if "start_positions" in features:
            previous.positions = torch.from_numpy(features["start_positions"]).to(device)
        for iteration in range(passes):
            output = network.run_pass(current, previous)
            network.release_cached_memory(output)
            if iteration + 1 < passes:
                # copied while the GPU still computes this pass
                current = inputs(iteration + 1)
            queue.add(ca_distance_change(previous.positions, output.positions, mask))
            if "recycles" in settings.extras:
                plddt = network.plddt(output).cpu().numpy()
                structures.append((output.positions.cpu().numpy().copy(), plddt))
            changes = queue.wait(max(0, iteration + 1 - queued))
            if not queued and changes and changes[-1] < settings.early_stop_tolerance:
                break
            if iteration + 1 < passes:
                previous = output.recycled_state()
                del output  # frees its MSA representation during the next pass
        finish = _queue_scores(network, current, output)
        results = _results(network, output, settings.extras)
    return lambda: _finish(queue.wait(iteration + 1), finish(), structures, results, settings)


def _finish(
    tolerances: tuple[float, ...],
    prediction: Prediction,
    structures: Sequence[tuple[np.ndarray, np.ndarray]],
    results: Mapping[str, np.ndarray],
    settings: RecyclingSettings,
) -> Prediction:
    """Return a prediction with the values that describe its passes."""
    tables = prediction.structure
    return replace(
        prediction,
        num_recycles=len(tolerances),
        tolerances=tolerances,
        extras=tuple(extra for extra in EXTRAS if extra in settings.extras),
        passes=tuple(
            PassStructure(positions[tables.atom_residue, tables.atom37], plddt)
            for positions, plddt in structures
        ),
        results=results,
    )


def _current_device(device: torch.device) -> AbstractContextManager[object]:
    """Return a context that makes a GPU the current one of this thread, on which Triton launches kernels."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _pass_inputs(
    network: AlphaFold, features: Mapping[str, np.ndarray], settings: RecyclingSettings, device: torch.device
) -> Callable[[int], Features]:
    """Return a function that returns the network's inputs of a pass, given its 0-based index.

    Raises:
        ValueError: the features have too few iterations.
    """
    if network.config.multimer is not None:
        return MultimerInputs(
            features, network.config.multimer, partial(PhiloxMsaDraws, settings.seed), device
        )
    passes, iterations = settings.num_recycles + 1, features["aatype"].shape[0]
    if iterations < passes:
        raise ValueError(f"{passes} passes need features of {passes} iterations, not {iterations}")
    return lambda iteration: feature_tensors(features, iteration, device)


_RESULT_NAMES: dict[Extra, str] = {"single": "representations/single", "pair": "representations/pair"}


def _results(network: AlphaFold, output: PassOutput, extras: frozenset[Extra]) -> dict[str, np.ndarray]:
    """Return the results of a pass that the extras contain, as float32 arrays on the CPU."""
    if not extras:
        return {}
    names = {_RESULT_NAMES[extra] for extra in extras if extra in _RESULT_NAMES}
    results: dict[str, np.ndarray] = {}
    for name, result in network.results(output):
        if "all" not in extras and names <= results.keys():
            # stop before further heads are computed
            break
        if "all" in extras or name in names:
            results[name] = result.cpu().float().numpy().copy()
    return results


def _queue_scores(network: AlphaFold, inputs: Features, output: PassOutput) -> Callable[[], Prediction]:
    """Queue the computation of the confidence scores after the last pass.

    Returns:
        A function that waits for the prediction and returns it, without the values that describe its passes.
    """
    asym_id = inputs["asym_id"].cpu().numpy().copy() if "asym_id" in inputs else None
    if asym_id is not None and len(np.unique(asym_id)) == 1:
        asym_id = None
    plddt = network.plddt(output)
    arrays = {
        "aatype": inputs["aatype"],
        "residue_index": inputs["residue_index"],
        "atom_positions": output.positions,
        "atom_mask": output.atom_mask,
        "plddt": plddt,
    }
    scores, complex_error = None, None
    expected: dict[str, torch.Tensor] = {}
    if asym_id is not None:
        scores, complex_error = network.complex_scores(output, asym_id, plddt.cpu().numpy())
    elif network.config.predicted_aligned_error:
        expected = network.expected_errors(output)._asdict()
    copies, names = HostCopies(arrays | expected), tuple(expected)

    def finish() -> Prediction:
        host = copies.wait()
        errors = [host[name] for name in names]
        error = AlignedError.from_expected(*errors) if errors else complex_error
        is_present = host["atom_mask"] > 0.5
        return Prediction(
            structure=protein_structure(host["aatype"], host["residue_index"], is_present, asym_id),
            positions=host["atom_positions"][is_present],
            plddt=host["plddt"],
            ptm=None if error is None else error.ptm,
            pae=None if error is None else error.pae,
            scores=scores,
        )

    return finish
