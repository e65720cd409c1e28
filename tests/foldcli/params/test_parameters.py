"""Tests of parameters: the networks that targets need, and the names of their families."""

from pathlib import Path

import pytest

from foldcli.options.predict import ModelTypeChoice
from foldcli.params.parameters import find_parameters, needed_families
from msa.base.errors import MissingError


def test_networks_are_found_by_what_the_targets_need(tmp_path: Path) -> None:
    assert needed_families("auto", single_chains=True, complexes=False) == ("monomer",)
    assert needed_families("auto", single_chains=False, complexes=True) == ("multimer",)
    assert needed_families("auto", single_chains=True, complexes=True) == ("monomer", "multimer")
    assert needed_families("alphafold2", single_chains=True, complexes=True) == ("monomer",)
    assert needed_families("alphafold2_multimer_v3", single_chains=True, complexes=False) == ("multimer",)
    for name in ("model_2", "model_2_multimer_v3"):
        (tmp_path / f"params_{name}.npz").touch()
    both = find_parameters(str(tmp_path), (2,), "auto", ("monomer", "multimer"))
    assert [source.label for source in both] == ["alphafold2_model_2", "alphafold2_multimer_v3_model_2"]
    with pytest.raises(MissingError, match=r"has no params_model_1_multimer_v3\.npz") as missing:
        find_parameters(str(tmp_path), (1,), "auto", ("multimer",))
    assert "params fetch --which multimer" in missing.value.remedy


def test_single_chains_of_a_mixed_list_need_no_multimer_networks(tmp_path: Path) -> None:
    (tmp_path / "params_model_1_ptm.npz").touch()
    (source,) = find_parameters(str(tmp_path), (1,), "auto", ("monomer", "multimer"))
    assert source.label == "alphafold2_ptm_model_1"
    with pytest.raises(MissingError, match=r"has no params_model_2_ptm\.npz or params_model_2\.npz"):
        find_parameters(str(tmp_path), (2,), "auto", ("monomer", "multimer"))


def test_model_types_have_short_names() -> None:
    convert = ModelTypeChoice().convert
    names = [convert(name, None, None) for name in ("monomer", "ptm", "multimer_v3", "alphafold2_ptm")]
    assert names == ["alphafold2", "alphafold2_ptm", "alphafold2_multimer_v3", "alphafold2_ptm"]
