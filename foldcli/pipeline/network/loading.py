"""Networks and the settings of their passes, made from the settings of a run."""

from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import torch

from foldcli.params.parameters import ParameterSource
from foldcli.pipeline.targets.identity import Job
from foldcli.pipeline.targets.settings import PredictSettings
from model.alphafold2.modules.config import ModelConfig
from model.alphafold2.modules.embedders import RECYCLED_BINS, distance_bins
from model.alphafold2.network import AlphaFold
from model.alphafold2.parameters import load_folder, load_npz
from model.alphafold2.recycling import RecyclingSettings
from model.checkpoints.deepmind import read_arrays

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def recycling_settings(settings: PredictSettings, job: Job) -> RecyclingSettings:
    """Return the settings of a job's recycling."""
    network_settings = settings.for_network(job.source.is_multimer)
    return RecyclingSettings(
        network_settings.num_recycles,
        network_settings.recycle_early_stop_tolerance,
        frozenset(network_settings.extras),
        job.seed,
    )


def load_network(
    source: ParameterSource,
    settings: PredictSettings,
    device: str,
    preloaded: "Future[dict[str, np.ndarray]] | None" = None,
) -> AlphaFold:
    """Load the network of a parameter file.

    Args:
        source: the file.
        settings: precision and kernels.
        device: device of the network.
        preloaded: future arrays of the file, if it is being read already.

    Raises:
        ParametersError: the file lacks a key, has an unknown one, or a shape is wrong.
    """
    config = limit_rows(source.config, settings)
    plddt_shift = 0.0
    if source.folder is not None and source.manifest is not None:
        arrays, plddt_shift = load_folder(source.folder, source.manifest), source.manifest.plddt_shift
    else:
        assert source.file is not None  # copies of templates load no network
        read_file = read_arrays if preloaded is None else lambda _: preloaded.result()
        arrays = load_npz(source.file, config, read_file)
    return AlphaFold.from_parameters(
        config, arrays, device, DTYPES[settings.precision], settings.kernels, plddt_shift
    )


def load_gpu_libraries(device: str, dtype: torch.dtype) -> None:
    """Make the GPU's libraries load the kernels of the network's first operations."""
    with torch.inference_mode():
        x = torch.ones(256, 64, device=device, dtype=dtype)
        torch.addmm(x[0], x, x[:64])
        distance_bins(torch.zeros(2, 3, device=device), *RECYCLED_BINS)
        x.float() @ x[:64].float()


def limit_rows(config: ModelConfig, settings: PredictSettings) -> ModelConfig:
    """Return a network's configuration with at most as many rows as the settings allow."""
    if config.multimer is None:
        return config
    network_settings = settings.for_network(True)
    rows = replace(
        config.multimer,
        msa_rows=min(config.multimer.msa_rows, network_settings.max_seq),
        extra_rows=min(config.multimer.extra_rows, network_settings.max_extra_seq),
    )
    return replace(config, multimer=rows)
