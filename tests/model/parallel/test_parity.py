"""A test of passes by several ranks against DeepMind's JAX code on the same parameters and features."""

from types import ModuleType

import numpy as np
import pytest

from model.alphafold2.modules.config import model_config
from tests.model.parallel import cases
from tests.rank_processes import RankProcesses

RELATIVE = 3e-6


@pytest.mark.slow
def test_sampled_tensors_match_deepmind(
    ranks: RankProcesses, parity: ModuleType, parity_data: ModuleType
) -> None:
    config = model_config("model_1_ptm").with_blocks(evoformer=2, extra_msa=1)
    with np.load(parity_data.DATA / "model_1_features.npz") as archive:
        features = dict(archive)
    with np.load(parity_data.DATA / "model_1_ptm_2_blocks.npz") as archive:
        recorded = {name: archive[name] for name in archive.files}
    for results in ranks.call(cases.run_passes, config, features):
        compared = set()
        for key, theirs in recorded.items():
            iteration, _, name = key.partition("/")
            result = results[int(iteration.removeprefix("iter"))]
            if name in result:
                mine = parity_data.sample_rows(name, result[name])
                difference = parity.rms(mine.astype(np.float64) - theirs)
                assert difference <= RELATIVE * parity.rms(theirs), key
                compared.add(name)
        assert {"representations/pair", "predicted_aligned_error/logits", "representations/msa"} <= compared
