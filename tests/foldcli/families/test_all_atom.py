"""Whole runs of an all-atom network with random parameters, from files of jobs to ranked structures."""

import json
from collections.abc import Callable
from pathlib import Path

import gemmi
import pytest
from click.testing import CliRunner, Result

from tests.command_process import command_environment

pytest.importorskip("rdkit")
pytest.importorskip("biotite")

from features.assembly.atoms import build_atoms
from features.assembly.job import JobTemplate, MoleculeJob, Polymer
from features.chemistry.residue_classes import MoleculeKind
from foldcli.cli import cli
from foldcli.families.all_atom import AllAtom, AllAtomSource
from foldcli.families.all_atom_inputs import AllAtomInputs, make_sample
from foldcli.families.all_atom_networks import load_network
from foldcli.families.protocols import NetworkJob
from foldcli.families.settings import AllAtomSettings, Job
from foldcli.inputs.complexes import Complex
from foldcli.inputs.molecules.read import job_of_query
from foldcli.params.openfold3 import find_parameters
from foldcli.pipeline.network.device import NetworkMemory
from foldcli.pipeline.network.device_workers import DeviceWorker, WorkerSettings
from model.errors import OutOfMemory
from msa.alignments.files import parse_alignment
from msa.io.fasta import FastaRecord
from tests.command_process import run_foldcli

Run = Callable[..., Result]


def test_job_of_any_molecules_becomes_ranked_structures_and_is_resumed(run: Run, tmp_path: Path) -> None:
    assert run("fold", tmp_path / "job.fasta", plots=True).exit_code == 0
    folder = tmp_path / "out" / "job"
    done = json.loads((folder / "job.done.json").read_text())
    models = done["ranking"]
    assert [model["ranking_score"] for model in models] == sorted(
        (model["ranking_score"] for model in models), reverse=True
    )
    assert {model["tag"] for model in models} == {
        f"openfold3_openbind_seed_000_sample_{sample}" for sample in (0, 1)
    }
    stem = f"rank_001_{models[0]['tag']}"
    structure = gemmi.read_structure(str(folder / f"job_unrelaxed_{stem}.cif"))
    assert [chain.name for chain in structure[0]] == ["A", "B", "C", "D"]
    scores = json.loads((folder / f"job_scores_{stem}.json").read_text())
    # six residues, six atoms of each ligand, three nucleotides
    assert len(scores["plddt"]) == len(scores["pae"]) == 6 + 6 + 6 + 3
    assert scores["checks"]["summary"] == models[0]["checks"]
    assert json.loads((folder / f"job_summary_confidences_{stem}.json").read_text())["ranking_score"]
    assert (folder / "job.html").is_file() and (folder / "job.a3m").is_file()
    assert (folder / "job_plddt.png").is_file()
    rows = [line.split("\t") for line in (tmp_path / "out/summary.tsv").read_text().splitlines()]
    assert rows[0][-2:] == ["ranking_score", "checks"] and len(rows) == 3
    before = (folder / "job.done.json").read_bytes()
    assert run("fold", tmp_path / "job.fasta", plots=True).exit_code == 0
    assert (folder / "job.done.json").read_bytes() == before


@pytest.mark.slow
def test_further_samples_are_added_and_samples_do_not_depend_on_their_number(
    run: Run, tmp_path: Path
) -> None:
    assert run("fold", tmp_path / "job.fasta", samples=1).exit_code == 0
    (first,) = (tmp_path / "out/job").glob("job_unrelaxed_rank_*.cif")
    atoms = first.read_text().partition("_atom_site")[2]
    assert run("fold", tmp_path / "job.fasta", samples=2).exit_code == 0
    same = list((tmp_path / "out/job").glob("job_unrelaxed_rank_*_sample_0.cif"))
    assert len(list((tmp_path / "out/job").glob("job_unrelaxed_rank_*.cif"))) == 2
    assert [path.read_text().partition("_atom_site")[2] for path in same] == [atoms]


def test_bad_job_fails_with_its_file_and_line_and_the_others_are_predicted(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.fasta").write_text(">A|protein\nMKVSG\n>B|ccd\nNOSUCH\n")
    result = run("fold", tmp_path / "bad.fasta", tmp_path / "job.fasta", samples=1)
    failures = [json.loads(line) for line in (tmp_path / "out/failures.jsonl").read_text().splitlines()]
    assert [failure["target"] for failure in failures] == ["bad"]
    assert "bad.fasta:3" in failures[0]["error"] and "NOSUCH" in failures[0]["error"]
    assert result.exception is not None and (tmp_path / "out/job/job.done.json").is_file()


def test_protein_is_screened_with_ligands(run: Run, tmp_path: Path) -> None:
    (tmp_path / "protein.fasta").write_text(">p\nMKVSGA\n")
    (tmp_path / "ligands.smi").write_text("CCO ethanol\nnot_smiles bad\nCC(=O)O acetate\n")
    run("screen", tmp_path / "protein.fasta", tmp_path / "ligands.smi", samples=1)
    names = {path.name for path in (tmp_path / "out").iterdir() if path.is_dir()}
    assert {"p_and_ethanol", "p_and_acetate"} <= names
    assert "ligands.smi:2" in (tmp_path / "out/failures.jsonl").read_text()


def test_dry_run_counts_tokens(run: Run, tmp_path: Path) -> None:
    result = run("fold", tmp_path / "job.fasta", "--dry-run")
    assert result.exit_code == 0 and "tokens" in result.stdout
    (row,) = (line for line in result.stdout.splitlines() if line.startswith("job"))
    assert " 21 " in row and " GiB " in row and "unknown" not in row and row.endswith(" atoms")


def test_target_that_is_too_large_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "large.fasta").write_text(f">A|protein\n{'MKVLS' * 4000}\n")
    result = run("fold", tmp_path / "large.fasta", tmp_path / "job.fasta", "--dry-run")
    assert "large.fasta:1: 20,000 tokens; all-atom networks predict at most 16,384" in result.stdout


def test_a_chain_of_a_screen_keeps_its_templates_and_its_copies_may_have_others() -> None:
    template = JobTemplate("data_x", (0,), (0,))
    chains = (FastaRecord("p_A", "MKVS"),) * 2
    first, second = job_of_query(Complex("p", chains, templates=((template,), ())), "p.json").entities
    assert (first.chains, first.templates) == (("A",), (template,))
    assert (second.chains, second.templates) == (("B",), ())


def test_job_that_does_not_fit_is_refused_before_it_starts(parameters: Path, tmp_path: Path) -> None:
    class FewBytes(NetworkMemory):
        def available_bytes(self) -> int:
            return 2**20

    settings = AllAtomSettings(num_samples=2)
    network = load_network(find_parameters(parameters).file, settings, "cpu")
    molecules = job_of_query(FastaRecord("p", "MKVS"), "p.fasta")
    sample = make_sample(AllAtomInputs(molecules, {}, (), tmp_path / "cache", build_atoms(molecules)), 0)
    work = NetworkJob("p", Job(None, 0, ""), sample, settings, lambda done, total: None)
    with pytest.raises(OutOfMemory, match=r"4 tokens need 0\.\d GiB, and 0\.0 GiB are free"):
        network.start(work, FewBytes("cuda:0"))


def test_plain_proteins_and_their_complexes_are_jobs(run: Run, tmp_path: Path) -> None:
    (tmp_path / "proteins.fasta").write_text(">one\nMKVSGA\n>two\nMKVS:MKVS\n")
    assert run("fold", tmp_path / "proteins.fasta", samples=1).exit_code == 0
    chains = {
        name: json.loads((tmp_path / f"out/{name}/{name}.done.json").read_text())["facts"]["chains"]
        for name in ("one", "two")
    }
    assert chains == {"one": 1, "two": 2}


@pytest.mark.slow
def test_dropout_gives_other_structures_and_protein_pairs_have_scores(run: Run, tmp_path: Path) -> None:
    (tmp_path / "two.fasta").write_text(">two\nMKVS:MKVS\n")
    assert run("fold", tmp_path / "two.fasta", "--dropout", "--num-seeds", "2", samples=1).exit_code == 0
    done = json.loads((tmp_path / "out/two/two.done.json").read_text())
    assert done["settings"]["predict"]["dropout"] is True and done["facts"]["states"]
    assert {"ipsae", "pdockq2", "ilis", "pae_min", "has_clash"} <= done["ranking"][0]["interface"].keys()
    (path,) = (tmp_path / "out/two").glob("two_scores_rank_001_*.json")
    scores = json.loads(path.read_text())
    assert list(scores["lis"]) == ["A-B"] and list(scores["ipsae"]) == ["A-B", "B-A"]
    assert "dropped updates at random" in (tmp_path / "out/methods.txt").read_text()


def test_worker_counts_cycles_and_steps(parameters: Path, tmp_path: Path) -> None:
    molecules = job_of_query(FastaRecord("p", "MKVS"), "p.fasta")
    settings = AllAtomSettings(num_recycles=1, num_steps=3, num_samples=2)
    source = AllAtomSource(find_parameters(parameters), settings.num_samples)
    sample = make_sample(AllAtomInputs(molecules, {}, (), tmp_path / "cache", build_atoms(molecules)), 0)
    worker = DeviceWorker([WorkerSettings((source,), settings, "cpu")])
    counted: list[int] = []
    for seed in (0, 1):
        worker.start("p", Job(source, seed, "tiny"), sample, lambda done, total: counted.append(done))()
    worker.close()
    assert counted == [settings.num_passes, settings.num_passes] and settings.num_passes == 5


@pytest.mark.parametrize("option", [("--num-relax", "1"), ("--models", "1"), ("--max-msa", "64:64")])
def test_options_of_other_networks_are_refused(run: Run, tmp_path: Path, option: tuple[str, str]) -> None:
    result = run("fold", tmp_path / "job.fasta", *option)
    assert result.exit_code == 2 and f"{option[0]}: all-atom networks" in result.output


def test_options_of_all_atom_networks_are_refused_by_others(tmp_path: Path) -> None:
    (tmp_path / "a.fasta").write_text(">a\nMKVSGA\n")
    arguments = ["fold", str(tmp_path / "a.fasta"), "-o", str(tmp_path / "out"), "--params", "compact"]
    result = CliRunner().invoke(cli, [*arguments, "--num-diffusion-steps", "5"])
    assert result.exit_code == 2 and "only all-atom networks" in result.output


@pytest.mark.slow
def test_two_ranks_predict_what_one_predicts(run: Run, parameters: Path, tmp_path: Path) -> None:
    assert run("fold", tmp_path / "job.fasta", samples=3, out="one").exit_code == 0
    options = ["--params", parameters, "--device", "cpu", "--num-recycle", "0", "--num-diffusion-steps", "2"]
    options += ["--num-diffusion-samples", "3", "--no-templates", "--db", tmp_path / "db.fasta"]
    result = run_foldcli(
        ["fold", tmp_path / "job.fasta", *options, "--gpus-per-target", "2", "-o", tmp_path / "two"],
        env=command_environment(tmp_path / "cache"),
    )
    assert result.returncode == 0, result.stderr
    one, two = (json.loads((tmp_path / out / "job/job.done.json").read_text()) for out in ("one", "two"))
    assert two["facts"]["gpus_per_target"] == 2
    assert [model["tag"] for model in one["ranking"]] == [model["tag"] for model in two["ranking"]]
    for path in (tmp_path / "one/job").glob("job_unrelaxed_rank_*.cif"):
        structures = [gemmi.read_structure(str(x)) for x in (path, tmp_path / "two/job" / path.name)]
        first, second = ([atom.pos for chain in x[0] for res in chain for atom in res] for x in structures)
        assert max(a.dist(b) for a, b in zip(first, second, strict=True)) < 0.01


def test_templates_of_a_job_are_recorded_without_a_search(run: Run, tmp_path: Path) -> None:
    file = Path(__file__).parents[2] / "features/templates/data/1a8o.cif.gz"
    used = {"mmcifPath": str(file), "queryIndices": [0, 1, 2], "templateIndices": [0, 1, 2]}
    protein = {"id": "A", "sequence": "MDIRQG", "unpairedMsa": "", "pairedMsa": ""}
    protein["templates"] = [used, used | {"queryIndices": [], "templateIndices": []}]
    (tmp_path / "t.json").write_text(json.dumps({"name": "t", "sequences": [{"protein": protein}]}))
    assert run("predict", tmp_path / "t.json", samples=1).exit_code == 0
    folder = tmp_path / "out" / "t"
    (fact,) = json.loads((folder / "t.done.json").read_text())["facts"]["templates"]
    assert (fact["chain"], fact["id"], fact["identity"]) == ("A", "1_A", 1.0)
    rows = [line.split("\t") for line in (folder / "t_templates.tsv").read_text().splitlines()]
    assert [row[1:3] for row in rows[1:]] == [["1_A", "1"], ["2_A", "no"]]
    (model,) = folder.glob("t_unrelaxed_rank_*.cif")
    assert "_ma_template_details." in model.read_text()


@pytest.mark.parametrize(
    ("options", "seeds"),
    [
        ((), [7, 9]),
        (("--random-seed", "0"), [0]),
        (("--num-seeds", "1"), [0]),
        (("--num-seeds", "2"), [0, 1]),
    ],
)
def test_seeds_that_are_given_replace_those_of_a_job_even_if_they_are_the_default(
    options: tuple[str, ...], seeds: list[int], run: Run, tmp_path: Path
) -> None:
    ion = {"name": "i", "modelSeeds": [7, 9], "sequences": [{"ligand": {"id": "A", "ccdCodes": ["MG"]}}]}
    (tmp_path / "i.json").write_text(json.dumps(ion))
    assert run("predict", tmp_path / "i.json", *options, samples=1).exit_code == 0
    ranking = json.loads((tmp_path / "out/i/i.done.json").read_text())["ranking"]
    assert sorted(int(model["tag"].split("_")[3]) for model in ranking) == seeds


def test_results_depend_on_the_place_and_the_species_of_given_rows() -> None:
    def identity(rows: str, key: str = "alignment") -> object:
        given = {key: parse_alignment(f">q\nMKV\n{rows}".encode())}
        first = Polymer(MoleculeKind.PROTEIN, "MKV", ("A",), **given)
        other = Polymer(MoleculeKind.PROTEIN, "GAT", ("B",))
        return AllAtom().target_identity(MoleculeJob("x", (first, other)), None)

    own = identity(">a TaxID=1\nMKA\n")
    assert own == identity(">b TaxID=1\nMKA\n")
    assert own != identity(">a TaxID=2\nMKA\n") and own != identity(">a TaxID=1\nMKA\n", "paired")


@pytest.mark.parametrize(
    "options", [("--random-seed", "4294967296"), ("--random-seed", "4294967295", "--num-seeds", "2")]
)
def test_seeds_that_are_too_large_are_usage_errors(
    options: tuple[str, ...], run: Run, tmp_path: Path
) -> None:
    result = run("predict", tmp_path / "job.fasta", *options)
    assert result.exit_code == 2 and options[-2] in result.output
