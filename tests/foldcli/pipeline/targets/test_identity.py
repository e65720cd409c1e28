"""Tests of fingerprints: a new version of foldcli must recognise the targets that an old one finished."""

from dataclasses import replace
from pathlib import Path

from foldcli.families.all_atom import AllAtomSource
from foldcli.families.settings import AlphaFold2Settings, Job
from foldcli.fingerprints import fingerprint
from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.params.openfold3 import AllAtomParameters
from foldcli.params.parameters import ParameterSource
from foldcli.pipeline.targets.alignment_request import AlignmentRequest
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from foldcli.pipeline.targets.identity import TargetIdentities
from msa.alignments.filter_settings import AlignmentFilter
from msa.engines.search_settings import SearchSettings
from msa.io.fasta import FastaRecord

QUERY = FastaRecord("q human", "MKVLAAGIV")
REQUEST = AlignmentRequest(
    {"residues.u8": "ab", "lengths.i32": "cd"}, AlignmentSettings(SearchSettings(), AlignmentFilter(cov=0.5))
)
SOURCES = [ParameterSource(3, "model_3_ptm", Path("params_model_3_ptm.npz"))]
PARAMETERS = [{"label": "alphafold2_ptm_model_3", "network": "model_3_ptm", "content": "digest"}]


def test_fingerprint_of_an_alignment_never_changes() -> None:
    assert REQUEST.fingerprint(QUERY) == "32a96dc74cd7646d561d307d7ec3c4eb05665dc8b043ab01550459f976b900cc"


def test_fingerprint_of_a_prediction_never_changes(tmp_path: Path) -> None:
    identities = TargetIdentities(SOURCES, PARAMETERS, AlphaFold2Settings(num_recycles=1), REQUEST)
    assert fingerprint(identities.identity("q", QUERY)) == (
        "9e6291af0f2f9fac5e58eed5fa5acd3ea872d07508a2552a76842d50157156fa"
    )
    (tmp_path / "g.a3m").write_text(">q\nMKVLAAGIV\n")
    aligned = AlignmentTarget("g", (str(tmp_path / "g.a3m"),))
    assert fingerprint(identities.identity("g", aligned)) == (
        "a6f9f1205354902fb2f79d9e72f3e4dfc0ca517aaf4d6ca6be329a45a4b25c84"
    )


def key_of(job: Job, target: str) -> str:
    """Return the fingerprint of a job's only model."""
    return job.fingerprints(target)[job.tag]


def test_fingerprint_of_a_job_never_changes() -> None:
    identities = TargetIdentities(
        SOURCES, PARAMETERS, AlphaFold2Settings(num_seeds=2, random_seed=7), REQUEST
    )
    first, second = identities.jobs(QUERY)
    assert (first.tag, second.tag) == tuple(f"alphafold2_ptm_model_3_seed_00{seed}" for seed in (7, 8))
    assert (
        first.fingerprints("target")[first.tag]
        == "a0c5212cc28377b759fc032ca9b20b86d22d976c293dd778c9bb59c54783bd81"
    )
    assert len({key_of(job, target) for job in (first, second) for target in "ab"}) == 4


def test_seeds_of_a_job_file_are_run_unless_options_give_others() -> None:
    query = replace(QUERY, seeds=(11, 3, 11))
    tags = {
        settings: [
            job.tag[-3:] for job in TargetIdentities(SOURCES, PARAMETERS, settings, REQUEST).jobs(query)
        ]
        for settings in (
            AlphaFold2Settings(),
            AlphaFold2Settings(num_seeds=2),
            AlphaFold2Settings(random_seed=5),
        )
    }
    assert list(tags.values()) == [["011", "003"], ["000", "001"], ["005"]]


def test_seeds_and_ranking_are_not_part_of_a_targets_identity() -> None:
    settings = (AlphaFold2Settings(), AlphaFold2Settings(num_seeds=3, random_seed=5, rank="ptm"))
    identities = [
        TargetIdentities(SOURCES, PARAMETERS, each, REQUEST).identity("q", QUERY) for each in settings
    ]
    assert identities[0] == identities[1]


def test_targets_are_sorted_by_sizes_that_their_own_family_guesses() -> None:
    all_atom = AllAtomSource(AllAtomParameters("of3", "", Path("of3.safetensors")), 1)
    both = TargetIdentities([all_atom, *SOURCES], [*PARAMETERS, *PARAMETERS], AlphaFold2Settings(), REQUEST)
    assert both.approximate_size(QUERY) == len(QUERY.sequence)
    assert replace(both, sources=[all_atom]).approximate_size(QUERY) == 0


def test_number_of_threads_is_not_part_of_an_alignments_identity() -> None:
    settings = AlignmentSettings(SearchSettings(threads=7), AlignmentFilter(cov=0.5))
    assert AlignmentRequest(REQUEST.checksums, settings).fingerprint(QUERY) == REQUEST.fingerprint(QUERY)
