"""Tests of rank 0 and the processes of the other ranks, on the CPU."""

import signal
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from torch import distributed

from features.alphafold2.deterministic import make_features
from features.alphafold2.sampling import SamplingSettings, sample_features
from foldcli.families.settings import AlphaFold2Settings, Job, NetworkOptions
from foldcli.params.parameters import ParameterSource
from foldcli.pipeline.network.processes import Processes
from foldcli.pipeline.network.rank_processes import RankProcesses
from foldcli.pipeline.network.ranks import create_first_rank_predictor
from foldcli.pipeline.network.start import start
from model.errors import OutOfMemory
from model.prediction import Prediction
from msa.alignments.files import parse_alignment
from tests.foldcli.pipeline.network.tiny_worker import TinyMemory, plan_together
from tests.networks import tiny_parameters
from tests.rank_processes import RankProcesses as ForkedRanks

SETTINGS = AlphaFold2Settings(num_recycles=2, max_seq=8, max_extra_seq=6)


def options() -> NetworkOptions:
    return NetworkOptions(
        tiny_parameters(), (1,), "auto", "cpu", None, None, "auto", SETTINGS, gpus_per_target=2
    )


@pytest.mark.slow
def test_ranks_predict_the_same_again() -> None:
    features = make_features([parse_alignment(b">a\nMKVLAAGIVWD\n>b\nMKVLSAG-VWD\n")])
    sample = sample_features(features, SamplingSettings(8, 6, 4), 3, 0)
    predictor = create_first_rank_predictor(
        options(), start(options(), processes=Processes(rank_threads=2)), 2, None
    )
    try:
        source = predictor.sources[0]

        def run() -> Prediction:
            (model,) = predictor.start("a", Job(source, 0, "tag"), sample, lambda done, total: None)()
            prediction: Prediction = model.prediction
            return prediction

        before, memory = run(), predictor.memory
        predictor.memory = TinyMemory("cpu", 1, 2, strict=True)
        with pytest.raises(OutOfMemory):
            run()
        # only that target has failed
        predictor.memory = memory
        after = run()
    finally:
        predictor.close()
        distributed.destroy_process_group()
    assert before.num_recycles == after.num_recycles == 2
    assert np.array_equal(before.atom_positions, after.atom_positions)


def test_ranks_plan_with_the_least_memory_of_any() -> None:
    features = make_features([parse_alignment(b">a\n" + b"MKVLA" * 20 + b"\n")])
    sample = sample_features(features, SamplingSettings(8, 4, 4), 1, 0)
    processes = ForkedRanks(2)
    try:
        plenty, less, little = 2**40, 25 << 20, 2**20
        (most, _), (least, _) = (
            processes.call(plan_together, [size, size], sample) for size in (plenty, less)
        )
        assert most == [2**29, 1] and least == [2**22, 0]
        for limits in ([plenty, less], [less, plenty]):
            assert processes.call(plan_together, limits, sample) == [least, least]
        for limits in ([plenty, little], [little, plenty]):
            for refusal in processes.call(plan_together, limits, sample):
                assert refusal.endswith(" of each of several devices")
    finally:
        processes.close()


def test_end_of_a_process_is_reported_with_its_rank() -> None:
    ended, ends = Event(), []

    def on_end(rank: int, code: int) -> None:
        ends.append((rank, code))
        ended.set()

    source = ParameterSource(1, "model_1_ptm", Path(tiny_parameters(), "missing.npz"))
    processes = RankProcesses(options(), 2, source)
    (service,) = processes.services
    service.process.kill()
    service.wait()
    # the process has ended before it got the port
    processes.join(1, on_end)
    assert ended.wait(30) and ends == [(1, -signal.SIGKILL)]
