"""Tests of networks of AlphaFold-Multimer: settings, and the targets that need them."""

from pathlib import Path
from typing import Any

import pytest

from features.alphafold2.deterministic import make_features
from foldcli.families.alphafold2 import AlignmentInputs
from foldcli.families.alphafold2_networks import limit_rows
from foldcli.families.registry import check_parameters, family_of
from foldcli.families.settings import AlphaFold2Settings
from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.complexes import split_chains
from foldcli.params.parameters import TEMPLATE_COPY
from foldcli.pipeline.runs.dry_run import inspect_target
from foldcli.pipeline.targets.identity import TargetIdentities
from model.alphafold2.modules.config import MultimerConfig, model_config
from msa.alignments.files import parse_alignment
from msa.base.errors import InputError
from msa.io.fasta import JoinedRecord
from tests.foldcli.pipeline.complexes import FIRST, PAIR, SECOND, SETTINGS, run_settings


@pytest.mark.slow
def test_older_networks_keep_their_file_format_with_fewer_rows() -> None:
    config = limit_rows(model_config("model_1_multimer_v2"), AlphaFold2Settings(max_seq=8).for_multimer())
    assert config.multimer == MultimerConfig(8, 1152, joined_projections=False)
    assert limit_rows(model_config("model_1_ptm"), AlphaFold2Settings()) == model_config("model_1_ptm")


def test_multimer_networks_take_the_features_of_a_single_chain(tmp_path: Path) -> None:
    settings = run_settings(tmp_path, model_type="alphafold2_multimer_v3")
    (job,) = settings.identities.jobs(AlignmentTarget("q", ("q.a3m",)))
    assert job.tag == "alphafold2_multimer_v3_model_1_seed_000"
    features = make_features([parse_alignment(f">q\n{FIRST}\n>x\nMKVLAAGIVQWD\n".encode())])
    family = family_of(job.source)
    assert family.sampling(job, SETTINGS) is None and family.uses_templates(job.source)
    sample: Any = family.sample(AlignmentInputs(features, None), job, SETTINGS)
    assert sample["asym_id"].tolist() == [1] * 12 and sample["num_alignments"] == 2


def test_complex_needs_multimer_networks(tmp_path: Path) -> None:
    target = AlignmentTarget("pair", ("pair.a3m",), PAIR.encode(), is_complex=True)
    monomer = run_settings(tmp_path, model_type="alphafold2_ptm").identities
    with pytest.raises(InputError, match="needs the parameters of AlphaFold-Multimer"):
        monomer.jobs(target)
    copies = TargetIdentities([TEMPLATE_COPY], check_parameters([TEMPLATE_COPY]), SETTINGS)
    with pytest.raises(InputError, match="--params template copies single chains only"):
        copies.jobs(target)


def test_plan_names_complexes_without_a_network_before_the_database_exists(tmp_path: Path) -> None:
    settings = run_settings(tmp_path / "out", model_type="alphafold2_ptm")
    pair = split_chains(JoinedRecord("p", f"{FIRST}:{SECOND}", "", "", 1))
    with pytest.raises(InputError, match="needs the parameters of AlphaFold-Multimer"):
        inspect_target("p", pair, settings.identities, settings.output)


def test_multimer_settings_are_deepminds() -> None:
    multimer_settings = AlphaFold2Settings().for_multimer()
    assert (multimer_settings.num_recycles, multimer_settings.recycle_early_stop_tolerance) == (20, 0.5)
    assert (multimer_settings.max_seq, multimer_settings.max_extra_seq) == (508, 2048)
