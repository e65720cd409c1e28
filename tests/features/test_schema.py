"""What is cached and what is drawn are two lists that never overlap and leave nothing out."""

import pytest

from features.deterministic import make_features
from features.sampling import SamplingSettings, sample_features
from features.schema import CACHED, DRAWN, PASSED, PASSED_TEMPLATES
from msa.alignments import parse_alignment


@pytest.mark.parametrize("slots", [0, 4])
def test_every_feature_is_either_cached_or_drawn(slots: int) -> None:
    features = make_features([parse_alignment(b">q\nMKVLG\n>a\nMK-LG\n>b\nMKaVLA\n")])
    inputs = sample_features(features, SamplingSettings(6, 2, slots), 2, seed=0)
    assert not CACHED.keys() & DRAWN.keys()
    assert features.keys() == CACHED.keys()
    assert inputs.keys() <= CACHED.keys() | DRAWN.keys()
    assert set(PASSED) | set(PASSED_TEMPLATES) <= CACHED.keys()
    if slots:
        assert inputs.keys() == DRAWN.keys() | set(PASSED) | set(PASSED_TEMPLATES)
    sizes = {"R": 5, "S": min(3, 6 - slots), "E": max(1, min(2, 3 - (6 - slots))), "K": slots}
    for name, (dtype, shape) in DRAWN.items():
        if name in inputs:
            axes = tuple(sizes[axis] if axis in sizes else int(axis) for axis in shape.split())
            assert inputs[name].shape == (2, *axes), name
            assert inputs[name].dtype == dtype, name
