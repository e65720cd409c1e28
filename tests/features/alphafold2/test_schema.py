"""Tests of the feature schema: cached and sampled features are complete and do not overlap."""

import pytest

from features.alphafold2.deterministic import make_features
from features.alphafold2.sampling import SamplingSettings, sample_features
from features.alphafold2.schema import CACHED, SAMPLED, UNCHANGED, UNCHANGED_TEMPLATES
from msa.alignments.files import parse_alignment


@pytest.mark.parametrize("slots", [0, 4])
def test_features_match_the_schema(slots: int) -> None:
    features = make_features([parse_alignment(b">q\nMKVLG\n>a\nMK-LG\n>b\nMKaVLA\n")])
    inputs = sample_features(features, SamplingSettings(6, 2, slots), 2, seed=0)
    assert not CACHED.keys() & SAMPLED.keys()
    assert features.keys() == CACHED.keys()
    assert inputs.keys() <= CACHED.keys() | SAMPLED.keys()
    assert set(UNCHANGED) | set(UNCHANGED_TEMPLATES) <= CACHED.keys()
    if slots:
        assert inputs.keys() == SAMPLED.keys() | set(UNCHANGED) | set(UNCHANGED_TEMPLATES)
    sizes = {
        "R": 5,
        "M": 3,
        "P": 0,
        "T": 0,
        "S": min(3, 6 - slots),
        "E": max(1, min(2, 3 - (6 - slots))),
        "K": slots,
    }

    def axes(shape: str) -> tuple[int, ...]:
        return tuple(sizes[axis] if axis in sizes else int(axis) for axis in shape.split())

    for name, (dtype, shape) in CACHED.items():
        value = features[name]
        assert value.shape == axes(shape), name
        assert value.dtype.kind == {"uint*": "u", "bytes": "S"}.get(dtype, value.dtype.kind), name
        assert dtype in ("uint*", "bytes", value.dtype), name
    for name, (dtype, shape) in SAMPLED.items():
        if name in inputs:
            assert inputs[name].shape == (2, *axes(shape)), name
            assert inputs[name].dtype == dtype, name


def test_seed_changes_only_sampled_features() -> None:
    rows = b"".join(b">%d\nMKVLGAWW%c\n" % (number, 65 + number) for number in (0, 2, 3, 4, 5, 6))
    features = make_features([parse_alignment(rows)])
    before = {name: value.tobytes() for name, value in features.items()}
    one, other = (sample_features(features, SamplingSettings(3, 2), 1, seed) for seed in (1, 2))
    assert {name: value.tobytes() for name, value in features.items()} == before
    for name in UNCHANGED:
        assert one[name].tobytes() == other[name].tobytes() == before[name]
    for name in ("msa_feat", "extra_msa", "bert_mask"):
        assert one[name].tobytes() != other[name].tobytes()
