"""Tests of the registry of families."""

import pickle
from pathlib import Path

import pytest

from foldcli.families.registry import FAMILIES, family_of, find_family, sources_for
from foldcli.inputs.complexes import split_chains
from foldcli.outputs.methods import RunMethods, bibtex
from foldcli.params.parameters import TEMPLATE, TEMPLATE_COPY, ParameterSource
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord, JoinedRecord
from tests.networks import tiny_network, tiny_parameters, write_packaged_network

SINGLE = FastaRecord("q", "MKV")
PAIR = split_chains(JoinedRecord("p", "MKV:GHT", "", "", 1))


def test_parameters_name_families(tmp_path: Path) -> None:
    write_packaged_network(tmp_path / "network", tiny_network())
    values = {None: "monomer", tiny_parameters(): "monomer", TEMPLATE: "template", "compact": "native"}
    values |= {str(tmp_path / "network"): "native", str(tmp_path / "none"): "monomer"}
    assert {value: find_family(value).name for value in values} == values


def test_targets_are_predicted_by_the_first_family_that_accepts_them() -> None:
    monomer, multimer = (ParameterSource(1, f"model_1{suffix}", None) for suffix in ("_ptm", "_multimer_v3"))
    assert sources_for(SINGLE, [monomer, multimer]) == [monomer]
    assert sources_for(PAIR, [monomer, multimer]) == [multimer]
    assert sources_for(SINGLE, [multimer]) == sources_for(PAIR, [multimer]) == [multimer]
    with pytest.raises(InputError, match="needs the parameters of AlphaFold-Multimer"):
        sources_for(PAIR, [monomer])
    with pytest.raises(InputError, match="--params template copies single chains only"):
        sources_for(PAIR, [TEMPLATE_COPY])


def test_families_can_be_pickled_for_workers() -> None:
    assert [type(pickle.loads(pickle.dumps(family))) for family in FAMILIES] == [*map(type, FAMILIES)]
    assert family_of(pickle.loads(pickle.dumps(TEMPLATE_COPY))).name == TEMPLATE


def test_every_family_with_a_network_names_its_paper() -> None:
    for family in FAMILIES:
        methods = RunMethods((family.name,), None, "plddt", None, False, 0, family.papers)
        assert ("doi = {10." in bibtex([methods])) == family.has_network, family.name
