"""Jobs that are searched and prepared before they are predicted, without a database."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("rdkit")
pytest.importorskip("biotite")

from foldcli.cli import cli
from foldcli.errors import exit_code_of
from foldcli.inputs.failures import Failures
from foldcli.inputs.molecules.prepared import find_prepared_targets
from foldcli.inputs.shard import Shard

Run = Callable[..., Result]
# two seeds, copies, a modified residue, RNA without an alignment, and a template of the job itself
JOB = {
    "name": "two", "modelSeeds": [3, 5], "dialect": "alphafold3", "version": 2,
    "sequences": [
        {"protein": {"id": ["A", "B"], "sequence": "MKVSGARR",
                     "modifications": [{"ptmType": "SEP", "ptmPosition": 4}]}},
        {"protein": {"id": "C", "sequence": "MKVLA"}},
        {"ligand": {"id": "L", "smiles": "CC(O)C(=O)O"}},
        {"rna": {"id": "R", "sequence": "AC"}},
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    """Write the files of jobs."""
    (tmp_path / "two.json").write_text(json.dumps(JOB))
    (tmp_path / "own.a3m").write_text(">own\nMKVSGA\n>b\nMKASGA\n")


def command(name: str, *arguments: object) -> Result:
    """Run a command that predicts nothing."""
    return CliRunner().invoke(cli, [name, *map(str, arguments), "--params", "openfold3", "--threads", "1"])


def prepare(tmp_path: Path, *arguments: object) -> Result:
    """Run `cache-features` into the cache `shared`."""
    return command(
        "cache-features", *arguments, "--db", tmp_path / "db.fasta", "--cache", tmp_path / "shared",
        "--workers", 1, "--device", "cpu",
    )  # fmt: skip


def code(result: Result) -> int:
    """Return the exit code that the command would have."""
    return result.exit_code if result.exception is None else int(exit_code_of(result.exception))


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a target by name, but not those with times in them."""
    files = {path.name: path for path in folder.rglob("*") if path.is_file()}
    return {
        name: path.read_bytes()
        for name, path in files.items()
        if not name.endswith((".html", ".done.json", ".png"))
    }


@pytest.mark.slow
def test_search_then_preparation_then_prediction_equal_fold(run: Run, tmp_path: Path) -> None:
    shared, jobs = tmp_path / "shared", [tmp_path / "two.json", tmp_path / "job.fasta", tmp_path / "own.a3m"]
    result = command(
        "search", *jobs, tmp_path / "db.fasta", "-o", tmp_path / "alignments", "--format", "a3m",
        "--cache", shared, "--device", "cpu",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    found = {path: path.read_bytes() for path in (shared / "alignments").rglob("chain.a3m.gz")}
    times = {path: path.stat().st_mtime_ns for path in found}
    assert len(found) == 3
    assert prepare(tmp_path, *jobs).exit_code == 0
    # the alignments of the search were used
    assert {path: path.stat().st_mtime_ns for path in (shared / "alignments").rglob("chain.a3m.gz")} == times
    (tmp_path / "db.fasta").rename(tmp_path / "elsewhere.fasta")
    # as on a machine without the database
    assert run("predict", *jobs, "--cache", shared, out="predicted", templates=()).exit_code == 0
    (tmp_path / "elsewhere.fasta").rename(tmp_path / "db.fasta")
    assert run("fold", *jobs, templates=()).exit_code == 0
    for name in ("two", "job", "own"):
        folded, predicted = contents(tmp_path / "out" / name), contents(tmp_path / "predicted" / name)
        assert predicted == folded and len(folded) > 5
        before, after = (
            json.loads((tmp_path / out / name / f"{name}.done.json").read_text())
            for out in ("out", "predicted")
        )
        assert before["fingerprint"] == after["fingerprint"] and before["warnings"] == after["warnings"]
    assert (tmp_path / "alignments/two.a3m").read_bytes() == (tmp_path / "out/two/two.a3m").read_bytes()
    assert (tmp_path / "alignments/job.a3m").read_bytes() == (tmp_path / "out/job/job.a3m").read_bytes()


@pytest.mark.slow
def test_preparation_is_resumed_and_adds_seeds(run: Run, tmp_path: Path) -> None:
    job = tmp_path / "job.fasta"
    assert prepare(tmp_path, job, "--no-templates").exit_code == 0
    (entry,) = (tmp_path / "shared/jobs").rglob("job.json")
    before = entry.stat().st_mtime_ns
    plan = prepare(tmp_path, job, "--no-templates", "--dry-run")
    assert "already done" in plan.stdout
    assert prepare(tmp_path, job, "--no-templates").exit_code == 0
    assert entry.stat().st_mtime_ns == before
    arguments = ("predict", "job", "--cache", tmp_path / "shared")
    assert code(run(*arguments, "--num-seeds", 2, samples=1)) == 3
    failure = (tmp_path / "out/failures.jsonl").read_text()
    assert "for the seeds 0, and not for 1" in failure and "--random-seed 1" in failure
    assert prepare(tmp_path, job, "--no-templates", "--num-seeds", 2).exit_code == 0
    assert run(*arguments, samples=1).exit_code == 0  # all prepared seeds
    assert len(list((tmp_path / "out/job").glob("job_scores_rank_*.json"))) == 2


def test_all_databases_are_searched(run: Run, tmp_path: Path) -> None:
    query = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
    job, second = tmp_path / "ubiquitin.fasta", tmp_path / "second.fasta"
    job.write_text(f">A|protein\n{query}\n")
    (tmp_path / "db.fasta").write_text(f">in_first\n{query.replace('IQDK', 'VQEK')}\n")
    second.write_text(f">in_second\n{query.replace('LEDG', 'MDDG')}\n")

    def rows(cache: str) -> list[str]:
        (path,) = (tmp_path / cache / "alignments").rglob("chain.a3m.gz")
        return gzip.decompress(path.read_bytes()).decode().splitlines()

    result = prepare(tmp_path, job, "--db", second, "--no-templates")
    assert result.exit_code == 0, result.output
    names = [line.split()[0] for line in rows("shared") if line.startswith(">")]
    assert names[1:] == [">in_second", ">in_first"]
    # `fold` and `search` would use this alignment as it is
    result = command(
        "search", job, "--db", second, "--db", tmp_path / "db.fasta", "-o", tmp_path / "alignments",
        "--format", "a3m", "--cache", tmp_path / "own", "--device", "cpu",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert rows("own") == rows("shared")


def test_shards_fill_one_cache_and_all_jobs_are_predicted(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    for name in ("one", "other"):
        shutil.copy(tmp_path / "job.fasta", folder / f"{name}.fasta")
    for shard in ("1/2", "2/2"):
        assert prepare(tmp_path, folder, "--no-templates", "--shard", shard).exit_code == 0
        assert len(list((tmp_path / "shared/jobs").rglob("job.json"))) == int(shard[0])
    assert run("predict", "--all", "--cache", tmp_path / "shared", samples=1).exit_code == 0
    assert all((tmp_path / f"out/{name}/{name}.done.json").is_file() for name in ("one", "other"))


def test_jobs_without_preparation_are_named(run: Run, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    assert code(run("predict", tmp_path / "job.fasta", "--cache", shared)) == 4
    assert "foldcli cache-features JOB" in (tmp_path / "out/failures.jsonl").read_text()
    # nothing is searched for this one
    assert run("predict", tmp_path / "own.a3m", "--cache", shared, samples=1).exit_code == 0
    assert prepare(tmp_path, tmp_path / "job.fasta", "--no-templates").exit_code == 0
    assert code(run("predict", "job", "--cache", shared, templates=())) == 3
    assert "other templates" in (tmp_path / "out/failures.jsonl").read_text()
    assert code(run("predict", "jib", "--cache", shared)) == 3
    assert "did you mean job?" in (tmp_path / "out/failures.jsonl").read_text()


def test_bad_job_is_named_and_the_others_are_prepared(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.fasta").write_text(">A|protein\nMKVSG\n>B|ccd\nNOSUCH\n")
    assert code(prepare(tmp_path, tmp_path / "bad.fasta", tmp_path / "job.fasta")) == 5
    (failure,) = (tmp_path / "shared/failures.jsonl").read_text().splitlines()
    assert "bad.fasta:3" in failure and "NOSUCH" in failure
    assert len(list((tmp_path / "shared/jobs").rglob("job.json"))) == 1


def test_damaged_entry_is_named(run: Run, tmp_path: Path) -> None:
    assert prepare(tmp_path, tmp_path / "job.fasta").exit_code == 0
    (entry,) = (tmp_path / "shared/jobs").rglob("job.json")
    entry.write_text(entry.read_text()[:-20])
    failures = Failures(tmp_path, Shard(1, 1))
    shared = tmp_path / "shared"
    assert find_prepared_targets([], True, shared, failures, lambda _: {}, bool) == []
    assert f"{entry}: damaged" in str(failures.failed[0][1])
    # `cache-features` makes it again, and samples too
    assert prepare(tmp_path, tmp_path / "job.fasta").exit_code == 0
    assert code(run("predict", "job", "--cache", shared, templates=(), samples=1)) == 0
    (sample,) = (tmp_path / "shared/samples").rglob("*.safetensors")
    whole = sample.read_bytes()
    sample.write_bytes(whole[:-10])
    assert code(run("predict", "job", "--cache", shared, templates=(), out="other")) == 3
    assert "run `foldcli cache-features` again" in (tmp_path / "other/failures.jsonl").read_text()
    assert prepare(tmp_path, tmp_path / "job.fasta").exit_code == 0
    assert sample.read_bytes() == whole


def test_options_of_jobs_and_searches_without_a_database_are_refused(tmp_path: Path) -> None:
    (tmp_path / "job.fasta").write_text(">A|protein\nMKV\n>B|ccd\nGOL\n")
    result = command("cache-features", tmp_path / "job.fasta", "--cache", tmp_path / "shared")
    assert result.exit_code == 2 and "give a database with --db" in result.output
    arguments = ["cache-features", str(tmp_path / "own.a3m"), "--cache", str(tmp_path / "shared")]
    result = CliRunner().invoke(cli, [*arguments, "--no-templates"])
    assert result.exit_code == 2 and "--no-templates is for jobs of molecules" in result.output
    result = command("search", tmp_path / "job.fasta", tmp_path / "own.a3m", "-o", "-")
    assert result.exit_code == 2 and "--format a3m" in result.output
