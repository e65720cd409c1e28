"""Tests of what done.json says of networks and inputs: untrained networks, kept models, and equal seeds."""

from dataclasses import replace
from pathlib import Path

import pytest

from features.alphafold2.deterministic import make_features
from foldcli.families.alphafold2 import AlignmentInputs
from foldcli.families.registry import check_parameters, find_family
from foldcli.families.settings import Job, NetworkOptions
from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.outputs.done import FinishedTarget
from foldcli.outputs.facts import Facts, NetworkFacts, TemplateFacts
from foldcli.outputs.layout import TargetFiles
from foldcli.outputs.target import TargetRun
from foldcli.params.parameters import UNTRAINED
from foldcli.pipeline.network.device import NetworkMemory
from foldcli.pipeline.network.predictor import Predictor
from foldcli.pipeline.runs.state import RunSettings
from foldcli.pipeline.runs.target_facts import add_facts, warn_of_equal_seeds
from foldcli.pipeline.targets.identity import TargetIdentities
from foldcli.pipeline.targets.plan import TargetPlan
from model.checkpoints.network_folder import write_manifest
from msa.alignments.files import parse_alignment
from tests.foldcli.pipeline.runs.runs import SETTINGS, Runs
from tests.networks import tiny_network, write_packaged_network

TARGET = AlignmentTarget("q", ("q.a3m",))


def inputs_of(rows: int) -> AlignmentInputs:
    letters = "ACDEFGHIKLMNPQRSTVWY"
    text = "".join(f">s{k}\nMKVLAAGI{letters[k % 20]}{letters[k // 20]}\n" for k in range(rows))
    return AlignmentInputs(make_features([parse_alignment(text.encode())]), None)


def plan_of(runs: Runs, seeds: int, finished: Facts | None = None) -> TargetPlan:
    jobs = [Job(source, seed, "") for source in runs.settings().predictor.sources for seed in range(seeds)]
    kept = None
    if finished is not None:
        read = FinishedTarget.read(runs.files.path("done"))
        assert read is not None
        kept = replace(read, facts=finished)
    return TargetPlan({}, "key", jobs, 100.0, (), kept, False)


def test_an_untrained_network_is_a_warning_once(finished_one: Runs) -> None:
    settings, target = finished_one.settings(), TargetRun(finished_one.files, TARGET)
    for _ in range(2):
        add_facts(target, plan_of(finished_one, 1), inputs_of(3), settings, with_templates=False)
    assert target.warnings == [UNTRAINED]
    assert target.facts.as_json() == {}


@pytest.mark.parametrize("with_templates", [False, True])
def test_facts_of_kept_models_stay(finished_one: Runs, with_templates: bool) -> None:
    kept = Facts(templates=[TemplateFacts(id="1abc_A")], network=NetworkFacts(note="as before"))
    plan = plan_of(finished_one, 1, kept)
    target = TargetRun(finished_one.files, TARGET)
    add_facts(target, plan, inputs_of(3), finished_one.settings(), with_templates)
    assert target.facts.templates == kept.templates
    # this network's accuracy was not measured, so that a run with templates has none to state
    assert target.facts.network == (None if with_templates else kept.network)
    found = TargetRun(finished_one.files, TARGET, facts=Facts(templates=[]))
    add_facts(found, plan, inputs_of(3), finished_one.settings(), with_templates)
    assert found.facts.templates == []


@pytest.fixture
def unmasked(tmp_path: Path) -> RunSettings:
    """Return settings with a network that was trained without masks."""
    manifest = write_packaged_network(tmp_path / "network", tiny_network())
    write_manifest(
        tmp_path / "network", replace(manifest, inputs=replace(manifest.inputs, masked_fraction=0.0))
    )
    options = NetworkOptions(str(tmp_path / "network"), (1,), "auto", "cpu", None, None, "auto", SETTINGS)
    sources = find_family(options.params).sources(options, ())
    predictor = Predictor(sources, SETTINGS, NetworkMemory("cpu"))
    return replace(
        Runs(tmp_path).settings(),
        predictor=predictor,
        identities=TargetIdentities(sources, check_parameters(sources), SETTINGS),
    )


@pytest.mark.parametrize(("rows", "seeds", "warned"), [(3, 2, True), (3, 1, False), (30, 2, False)])
def test_seeds_with_equal_inputs_are_a_warning_once(
    rows: int, seeds: int, warned: bool, unmasked: RunSettings, tmp_path: Path
) -> None:
    target = TargetRun(TargetFiles("q", tmp_path), TARGET)
    jobs = [Job(source, seed, "") for source in unmasked.predictor.sources for seed in range(seeds)]
    plan = TargetPlan({}, "key", jobs, 100.0, (), None, False)
    for _ in range(2):
        warn_of_equal_seeds(target, plan, inputs_of(rows), unmasked)
    assert len(target.warnings) == warned
    if warned:
        assert "reads all 3 rows" in target.warnings[0]
