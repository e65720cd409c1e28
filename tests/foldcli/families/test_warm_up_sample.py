"""Tests of the made-up features that prepare a GPU."""

import subprocess
import sys

from features.alphafold2.deterministic import make_features
from features.alphafold2.sampling import SamplingSettings, sample_features
from foldcli.families.alphafold2_networks import warm_up_sample
from msa.alignments.files import parse_alignment


def test_made_up_features_have_the_layout_of_real_ones() -> None:
    real = sample_features(make_features([parse_alignment(b">a\nAAAAA\n")]), SamplingSettings(), 2, 0)
    made_up = warm_up_sample(5, False)
    assert made_up.keys() == real.keys()
    for name, array in real.items():
        assert (made_up[name].dtype, made_up[name].shape) == (array.dtype, array.shape), name


def test_they_need_no_compiled_kernels() -> None:
    code = (
        "import sys; from foldcli.families.alphafold2_networks import warm_up_sample; "
        "warm_up_sample(9, False); "
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
