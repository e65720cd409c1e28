"""Functions that the tests of `rank_server` call in each of several ranks."""

import json
import logging
from dataclasses import asdict

import numpy as np
from torch import distributed

from foldcli.logs import logger
from foldcli.pipeline.network.rank_server import RankJob, end_run
from model.parallel.communication import RankGroup
from model.parallel.session import RankFailure


def receive(features: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the features that this rank has after rank 0, the only one that has them, sent a job."""
    arrays = {name: (x.shape, x.dtype.str) for name, x in features.items()}
    # as rank 0 announces it
    job = RankJob(**json.loads(json.dumps(asdict(RankJob(2, 7, arrays)))))
    assert (job.source, job.seed) == (2, 7)
    return job.broadcast(RankGroup(), features if distributed.get_rank() == 0 else None)


def end(log: str) -> None:
    """End this rank because rank 1 has failed; rank 0 reports it into a file."""
    logger.addHandler(logging.FileHandler(f"{log}{distributed.get_rank()}"))
    end_run(RankFailure(1, "a host", "it has failed"), distributed.get_rank() == 0)
