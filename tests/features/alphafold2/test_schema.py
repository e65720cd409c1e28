"""Tests of the feature schema: cached and sampled features are complete and do not overlap."""

import pytest

from features.alphafold2.deterministic import make_features
from features.alphafold2.sampling import SamplingSettings, sample_features
from features.alphafold2.schema import CACHED_FEATURES
from msa.alignments.files import parse_alignment
from msa.base.network_inputs import MONOMER, UNCHANGING


@pytest.mark.parametrize("slots", [0, 4])
def test_features_match_the_schema(slots: int) -> None:
    features = make_features([parse_alignment(b">q\nMKVLG\n>a\nMK-LG\n>b\nMKaVLA\n")])
    inputs = sample_features(features, SamplingSettings(6, 2, slots), 2, seed=0)
    assert features.keys() == CACHED_FEATURES.keys()
    assert CACHED_FEATURES.keys() & MONOMER.keys() == UNCHANGING.keys()
    assert inputs.keys() == {name for name in MONOMER if slots or not name.startswith("template_")}
    sizes = {
        "N": 5,
        "M": 3,
        "P": 0,
        "T": 0,
        "S": min(3, 6 - slots),
        "E": max(1, min(2, 3 - (6 - slots))),
    }

    def axes(shape: str) -> tuple[int, ...]:
        return tuple(sizes[axis] if axis in sizes else int(axis) for axis in shape.split())

    for name, (dtype, shape) in CACHED_FEATURES.items():
        value = features[name]
        assert value.shape == axes(shape), name
        assert value.dtype.kind == {"uint*": "u", "bytes": "S"}.get(dtype, value.dtype.kind), name
        assert dtype in ("uint*", "bytes", value.dtype), name
    sizes["T"] = slots
    for name, value in inputs.items():
        assert value.shape == (2, *MONOMER[name].shape(sizes)) and value.dtype == MONOMER[name].dtype, name


def test_seed_changes_only_sampled_features() -> None:
    rows = b"".join(b">%d\nMKVLGAWW%c\n" % (number, 65 + number) for number in (0, 2, 3, 4, 5, 6))
    features = make_features([parse_alignment(rows)])
    before = {name: value.tobytes() for name, value in features.items()}
    one, other = (sample_features(features, SamplingSettings(3, 2), 1, seed) for seed in (1, 2))
    assert {name: value.tobytes() for name, value in features.items()} == before
    for name in UNCHANGING.keys() & one.keys():
        assert one[name].tobytes() == other[name].tobytes() == before[name]
    for name in ("msa_feat", "extra_msa", "bert_mask"):
        assert one[name].tobytes() != other[name].tobytes()
