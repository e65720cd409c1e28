"""The start of a worker process that predicts: it imports what its jobs need, and loads its first network."""

from contextlib import suppress

from foldcli.params.parameters import ParameterSource
from foldcli.pipeline.preloading import read_ahead, start_worker
from foldcli.pipeline.settings import NetworkOptions
from msa.gpu.process_state import without_collection


def start_predicting_worker(options: NetworkOptions, source: ParameterSource) -> None:
    """Import torch in a worker process, and load the network of its first job.

    Errors of loading are ignored here; the first job reports them.

    Args:
        options: options of the network, with the device of the worker.
        source: the network.
    """
    start_worker(options.device, source.file)
    with without_collection():
        # these import torch, and the first the rest of what jobs need
        from foldcli.pipeline import device_workers  # noqa: F401
        from foldcli.pipeline.network_loading import load_ahead
    with suppress(Exception):
        load_ahead(source, options, None if source.file is None else read_ahead(source.file))
