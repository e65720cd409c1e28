"""Functions that the ranks of a test group call; see `tests.rank_processes`."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from queue import Queue
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import distributed

from benchmarks.random_parameters import random_parameters
from cuda.fused.chunking import chunk_budget
from model.alphafold2.modules.config import ModelConfig
from model.alphafold2.network import AlphaFold
from model.alphafold2.recycling import RecyclingSettings, feature_tensors, predict
from model.alphafold3.confidence import TargetScorer
from model.alphafold3.config import AlphaFold3Config
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.network import AlphaFold3, Samples, TrunkOutput
from model.alphafold3.sampling import SeededDraws
from model.checkpoints.alphafold2 import build_network
from model.errors import RankMismatch
from model.parallel import peer_copies
from model.parallel import session as session_module
from model.parallel.all_atom import ParallelAlphaFold3
from model.parallel.communication import MAX_PAIRS_AT_ONCE, Pending, RankGroup
from model.parallel.network import ParallelAlphaFold
from model.parallel.rank_assignment import RankAssignment
from model.parallel.session import RankFailure, RankSession
from model.parallel.triangle import multiply_factors
from model.prediction import Prediction
from tests.model.alphafold3.confidence_inputs import make_inputs
from tests.model.alphafold3.drawn_parameters import parameter
from tests.model.alphafold3.parity_networks import network
from tests.model.parallel.host_driver import HostDriver, HostStream
from tests.model.planning.peak import Peak

# of the pLDDT of complexes, so that a rank that forgets it is noticed
COMPLEX_SHIFT = -0.5


@cache
def _network(config: ModelConfig, max_pairs_at_once: int = MAX_PAIRS_AT_ONCE) -> AlphaFold:
    """Return a parallel network with random parameters."""
    shift = 0.0 if config.multimer is None else COMPLEX_SHIFT
    network = build_network(config, random_parameters(config), plddt_shift=shift)
    return ParallelAlphaFold(network, RankGroup(max_pairs_at_once=max_pairs_at_once))


def predict_together(
    config: ModelConfig,
    features: dict[str, np.ndarray],
    settings: RecyclingSettings,
    max_pairs_at_once: int = MAX_PAIRS_AT_ONCE,
) -> Prediction:
    """Predict with random parameters."""
    return predict(_network(config, max_pairs_at_once), features, settings)


def predict_in_bfloat16(
    config: ModelConfig, features: dict[str, np.ndarray], settings: RecyclingSettings
) -> Prediction:
    """Predict with random parameters in bfloat16."""
    network = build_network(config, random_parameters(config), dtype=torch.bfloat16)
    return predict(ParallelAlphaFold(network, RankGroup()), features, settings)


def predict_with_graphs(config: ModelConfig, samples: list[dict[str, np.ndarray]]) -> list[tuple[Any, Any]]:
    """Predict samples on GPUs with fused kernels, with and without graphs; return the positions of both.

    The last pair says whether each stack was captured.
    """
    device = torch.device("cuda", distributed.get_rank())
    torch.cuda.set_device(device)
    process_group = distributed.new_group(backend="nccl")
    groups, found = [RankGroup(process_group, most) for most in (0, MAX_PAIRS_AT_ONCE)], []
    for group in groups:
        assert group.open_copies(device) == ""
    networks = [
        ParallelAlphaFold(build_network(config, random_parameters(config), device, kernels="fused"), group)
        for group in groups
    ]
    for features in samples:
        found.append(tuple(predict(x, features, RecyclingSettings(3)).atom_positions for x in networks))
    found.append(tuple(x._graph is not None for x in networks[1].parallel_trunk.graphs))
    # a group cannot end before the graphs that communicate in it
    networks[1].parallel_trunk.release_graphs()
    distributed.destroy_process_group(process_group)
    return found


@cache
def all_atom_network(config: AlphaFold3Config) -> AlphaFold3:
    """Return an all-atom network with random parameters."""
    shapes = {name: tuple(x.shape) for name, x in AlphaFold3(config, "reference").state_dict().items()}
    return AlphaFold3.load(
        config, {name: torch.from_numpy(parameter(name, shape)) for name, shape in shapes.items()}
    )


@cache
def _parallel_all_atom_network(config: AlphaFold3Config, max_graphed_tokens: int) -> AlphaFold3:
    # modules would otherwise be replaced twice
    network = deepcopy(all_atom_network(config))
    # many tokens are exchanged in pieces
    group = RankGroup(max_pairs_at_once=max_graphed_tokens**2)
    return ParallelAlphaFold3(network, group, max_graphed_tokens)


def predict_all_atom(
    config: AlphaFold3Config,
    inputs: AlphaFold3Inputs,
    samples: int,
    max_graphed_tokens: int | None = None,
) -> tuple[Samples, TrunkOutput]:
    """Predict with random parameters, in this process alone unless `max_graphed_tokens` is given.

    Returns:
        The prediction, and the trunk's single representation and rows of the pair representation.
    """
    if max_graphed_tokens is None:
        network = all_atom_network(config)
    else:
        network = _parallel_all_atom_network(config, max_graphed_tokens)
    draws = SeededDraws(3)
    trunk = network.trunk(inputs, draws, cycles=2)
    return network.predict(inputs, draws, cycles=2, steps=2, samples=samples), trunk


def draw_in_half_precision(
    config: AlphaFold3Config, inputs: AlphaFold3Inputs, samples: int, max_graphed_tokens: int | None
) -> torch.Tensor:
    """Draw structures with half-precision operands; see `predict_all_atom`."""
    network = deepcopy(all_atom_network(config))
    network.diffusion_module.use_half_precision()
    if max_graphed_tokens is not None:
        network = ParallelAlphaFold3(network, RankGroup(), max_graphed_tokens)
    trunk = network.trunk(inputs, SeededDraws(3), cycles=1)
    return network.sample(inputs, trunk, SeededDraws(3), steps=2, samples=samples)


def all_atom_peaks(tokens: int, atoms: int, elements: int) -> list[int]:
    """Return the peaks of memory of trunk, sampler and heads, in which tokens are divided."""
    inputs = make_inputs([0] * tokens, [atoms] * tokens, rows=8, asym_id=np.ones(tokens))
    model = ParallelAlphaFold3(deepcopy(network("openbind")), RankGroup(), max_graphed_tokens=0)
    draws, scorer, peaks = SeededDraws(0), TargetScorer(inputs), []
    with torch.inference_mode(), chunk_budget(elements):
        with Peak(model) as counted:
            trunk = model.trunk(inputs, draws, cycles=1)
        peaks.append(counted.most)
        with Peak(model) as counted:
            positions = model.sample(inputs, trunk, draws, steps=1, samples=2)
        peaks.append(counted.most + trunk.pair.nbytes)
        with Peak(model) as counted:
            model.score(inputs, trunk, positions, scorer)
        peaks.append(counted.most + trunk.pair.nbytes)
    return peaks


def all_atom_results(
    config: AlphaFold3Config,
    inputs: AlphaFold3Inputs,
    dtype: torch.dtype,
    max_graphed_tokens: int | None,
    backend: str = "gloo",
) -> list[torch.Tensor]:
    """Compute a trunk, and predict, with random parameters; see `predict_all_atom`.

    Args:
        config: the network.
        inputs: of the target.
        dtype: of the trunk.
        max_graphed_tokens: None for this process alone.
        backend: "nccl" to use GPUs; in bfloat16 they run fused kernels.

    Returns:
        The trunk's single and whole pair representations, and the structures, on the CPU.
    """
    device, kernels, process_group = torch.device("cpu"), "reference", None
    if backend == "nccl":
        device = torch.device("cuda", distributed.get_rank())
        torch.cuda.set_device(device)
        process_group = distributed.new_group(backend=backend)
        kernels = "reference" if dtype == torch.float32 else "fused"
    inputs = replace(inputs, **{x.name: getattr(inputs, x.name).to(device) for x in fields(inputs)})
    network = AlphaFold3.load(config, all_atom_network(config).state_dict(), kernels, device, dtype)
    if max_graphed_tokens is not None:
        network = ParallelAlphaFold3(network, RankGroup(process_group), max_graphed_tokens)
    trunk = network.trunk(inputs, SeededDraws(3), cycles=2)
    pair = network.all_rows(trunk.pair, len(trunk.single))
    samples = network.predict(inputs, SeededDraws(3), cycles=1, steps=2, samples=3)
    results = [x.float().cpu() for x in (trunk.single, pair, samples.positions)]
    if process_group is not None:
        distributed.destroy_process_group(process_group)
    return results


def first_error(errors: list[str]) -> str:
    """Share this rank's error."""
    return RankGroup().first_error(errors[distributed.get_rank()])


def multiply(left: torch.Tensor, right: torch.Tensor, outgoing: bool, by_channels: bool, pieces: int) -> Any:
    """Multiply this rank's rows of two factors [M, N, K]; return its rows of the product."""
    group = RankGroup()
    group.pieces = pieces
    residues = group.shards(left.shape[1])
    rows = residues.of(group.rank)
    return multiply_factors(
        group, residues, left[:, rows].contiguous(), right[:, rows].contiguous(),
        outgoing=outgoing, by_channels=by_channels,
    ).numpy()  # fmt: skip


class CountingGroup(RankGroup):
    """A group that counts calls and received bytes of each kind of communication."""

    def __init__(self) -> None:
        super().__init__()
        self.totals: dict[str, tuple[int, int]] = {}

    def _start_pending(
        self, wait: Callable[[], object], on_gpu: bool, received_bytes: int, kind: str
    ) -> Pending[None]:
        calls, total = self.totals.get(kind, (0, 0))
        self.totals[kind] = calls + 1, total + received_bytes
        return super()._start_pending(wait, on_gpu, received_bytes, kind)


def exchange_and_return(x: torch.Tensor, pieces: int) -> tuple[Any, Any, dict[str, tuple[int, int]]]:
    """Exchange this rank's rows of x [S, N, C] for columns in pieces, and back; return both, and traffic."""
    group = CountingGroup()
    sequences, residues = group.shards(x.shape[0]), group.shards(x.shape[1])
    rows = x[sequences.of(group.rank)]
    columns = x.new_full((x.shape[0], residues.counts[group.rank], x.shape[2]), torch.nan)
    exchanges = [
        group.to_columns(rows, columns, sequences, residues, "columns", (index, pieces))
        for index in range(pieces)
    ]
    for exchange in exchanges:
        exchange.wait()
    back = group.to_rows(columns, sequences, residues, "rows").wait()
    return columns.float().numpy(), back.float().numpy(), group.totals


@contextmanager
def copying_group(folder: Path) -> Iterator[tuple[RankGroup, HostDriver]]:
    """Yield the group of all ranks, which copies through the host's memory in a folder.

    Results of up to 99 residues are exchanged at once.
    """
    driver = HostDriver(folder / f"memory of {distributed.get_rank()}")
    with (
        mock.patch.object(peer_copies, "Driver", lambda: driver),
        mock.patch.multiple(
            torch.cuda, Stream=HostStream, current_stream=HostStream, synchronize=id,
            is_current_stream_capturing=bool,
        ),
        mock.patch.object(torch, "zeros", lambda *shape, dtype, device: driver.allocate(*shape, dtype=dtype)),
    ):  # fmt: skip
        group = RankGroup(max_pairs_at_once=99 * -(-99 // distributed.get_world_size()))
        assert group.open_copies(torch.device("cpu")) == ""
        yield group, driver


def _tensors_to_copy(
    driver: HostDriver, sizes: list[list[int]], factor: int
) -> tuple[dict[int, torch.Tensor], dict[int, torch.Tensor]]:
    """Return random tensors to send, and tensors to receive, by rank; see `copy_between_ranks`."""
    rank = distributed.get_rank()
    others = [other for other in range(len(sizes)) if other != rank]
    sent = {r: torch.randn(factor * sizes[rank][r]) for r in others}
    received = {r: driver.allocate(factor * sizes[r][rank], dtype=torch.float32) for r in others}
    return sent, received


def _as_arrays(*transfers: dict[int, torch.Tensor]) -> tuple[Any, ...]:
    return tuple({rank: x.numpy().copy() for rank, x in tensors.items()} for tensors in transfers)


def copy_between_ranks(folder: Path, sizes: list[list[int]]) -> list[tuple[Any, ...]]:
    """Copy tensors between ranks, several transfers at a time.

    Args:
        folder: where ranks share memory.
        sizes: elements from each rank to each rank, multiplied by the number of the transfer.

    Returns:
        What was sent and received by rank in each transfer.
    """
    with copying_group(folder) as (group, driver):
        used = []
        for residues, scarce in ((101, False), (99, False), (99, True)):
            group.begin(residues, scarce_memory=scarce)
            used.append((group.pieces, group.can_be_captured))
        assert used == [(4, False), (1, True), (1, False)]
        copies = group.copies
        assert copies is not None
        waits, results = [], []
        for number in range(4):
            sent, received = _tensors_to_copy(driver, sizes, number)
            waits.append(copies.start(sent, received))
            results.append((sent, received))
            if number == 1:
                for wait in waits:
                    wait()
                waits.clear()
                copies.release()
        for wait in waits:
            wait()
        return [_as_arrays(*pair) for pair in results]


def replay_copies(folder: Path, sizes: list[list[int]], replays: int) -> list[tuple[Any, ...]]:
    """Replay two overlapping transfers between ranks as a graph; see `copy_between_ranks`.

    The last rank fails to capture them at first, and later prepares each replay more slowly than the others.
    """
    results, is_last = [], distributed.get_rank() == len(sizes) - 1
    capturing = mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: True)
    with copying_group(folder) as (group, driver), capturing:
        copies = group.copies
        assert copies is not None
        pairs = [_tensors_to_copy(driver, sizes, 1) for _ in range(2)]
        error = "no capture" if is_last else ""
        if not is_last:
            try:
                with mock.patch.object(peer_copies, "CAPTURE_SECONDS", 0.1):
                    copies.start(*pairs[0])
            except peer_copies.PeerCopyError as failure:
                error = str(failure)
        last = len(sizes) - 1
        assert is_last or error == f"rank {last} has not captured the same transfers"
        assert group.first_error(error) == f"rank {last}: no capture"
        driver.recorded = []
        waits = [copies.start(*pair) for pair in pairs]
        for wait in waits:
            wait()
        works, driver.recorded = driver.recorded, None
        for _ in range(replays):
            time.sleep(0.05 * is_last)
            for sent, received in pairs:
                for x in sent.values():
                    x.normal_()
                for x in received.values():
                    x.fill_(torch.nan)
            for work in works:
                work()
            results += [_as_arrays(*pair) for pair in pairs]
    return results


def fail_in_session(port: int, way: str) -> tuple[str, bool] | str:
    """Join a session of all ranks, in which rank 1 fails; return the failure and whether to tell it.

    Args:
        port: a free port.
        way: "report", "stop" (no sign of life for a while), "stall" (no progress), or "mismatch", in which
            case the error's message is returned.
    """
    rank, size = distributed.get_rank(), distributed.get_world_size()
    distributed.destroy_process_group()
    session_module.BEAT_SECONDS, session_module.DEAD_SECONDS = 0.05, 0.6
    failures: Queue[tuple[str, bool]] = Queue()
    assignment = RankAssignment(rank, size, rank, size, "127.0.0.1", port)
    if way == "mismatch" and rank == 2:
        # the others have noticed by then
        time.sleep(1.5)
    store = session_module.connect(assignment)
    identity = {"foldcli": "2" if way == "mismatch" and rank == 1 else "1"}

    def fail(failure: RankFailure, is_reporter: bool) -> None:
        failures.put((str(failure), is_reporter))

    try:
        session = RankSession(store, assignment, identity, fail, stall_seconds=0.6)
    except RankMismatch as error:
        return str(error)
    group = session.open_group("cpu")
    with session.predicting():
        if rank == 1 and way == "report":
            session.report("it has failed")
        elif rank == 1 and way == "stop":
            subprocess.Popen(["sh", "-c", f"sleep 1.2; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
        elif rank == 1:
            time.sleep(1)
        pending = group.gather(torch.ones(1), group.shards(size), "test")
        failure = failures.get(timeout=60)
        pending.wait()
    return failure


def run_passes(config: ModelConfig, features: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Run a pass for each iteration of the features; return all results of each."""
    network, results, previous = _network(config), [], None
    with torch.inference_mode():
        for iteration in range(len(features["aatype"])):
            current = feature_tensors(features, iteration, torch.device("cpu"))
            previous = network.initial_state(current) if previous is None else previous
            output = network.run_pass(current, previous)
            previous = output.recycled_state()
            results.append({name: x.numpy().copy() for name, x in network.results(output)})
    return results
