"""Tests of `foldcli fold` in subprocesses, with the bundled examples and tiny untrained networks."""

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gemmi
import pytest

from tests.command_process import run_foldcli

FOLDCLI = [sys.executable, "-m", "foldcli"]
QUICK = [
    "--models",
    "3,4",
    "--num-recycle",
    "1",
    "--max-msa",
    "512:64",
    "--threads",
    "2",
]
GB1 = "MTYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"


def fold(*arguments: str | Path, env: dict[str, str], **options: Any) -> subprocess.CompletedProcess[str]:
    return run_foldcli(["fold", *arguments], env=env, **options)


@pytest.fixture(scope="module")
def finished(root: Path, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out")
    result = fold(
        root / "examples/gb1.fasta", "--db", root / "examples/demo.fasta", *QUICK, "-o", out, env=environment
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    assert "UNTRAINED" in result.stderr
    (folder,) = (path for path in out.iterdir() if path.is_dir() and path.name != "viewer")
    return folder


def test_every_documented_file_is_written(finished: Path) -> None:
    name = finished.name
    expected = {f"{name}{ending}" for ending in (".a3m", ".m8", ".done.json", ".html", ".cxc", ".pml")}
    expected |= {f"{name}_{plot}.png" for plot in ("coverage", "plddt", "pae", "thumbnail")}
    ranks = json.loads((finished / f"{name}.done.json").read_text())["ranking"]
    assert [entry["rank"] for entry in ranks] == [1, 2]
    for entry in ranks:
        stem = f"rank_{entry['rank']:03d}_{entry['tag']}"
        expected |= {
            f"{name}_unrelaxed_{stem}.pdb",
            f"{name}_unrelaxed_{stem}.cif",
            f"{name}_scores_{stem}.json",
        }
    assert {path.name for path in finished.iterdir()} == expected
    assert {entry["tag"] for entry in ranks} == {f"alphafold2_ptm_model_{i}_seed_000" for i in (3, 4)}
    assert ranks[0]["plddt"] >= ranks[1]["plddt"]


def test_cache_names_the_alignment_of_the_results_as_source(
    finished: Path, environment: dict[str, str]
) -> None:
    (entry,) = json.loads(run_foldcli(["cache", "ls", "--json"], env=environment).stdout)
    assert entry["sources"] == [str(finished / f"{finished.name}.a3m")]
    pruned = run_foldcli(["cache", "prune", "--absent-source", "--dry-run", "--json"], env=environment)
    assert json.loads(pruned.stdout)["removed"] == []


def test_files_contain_the_query_and_the_warning_about_untrained_networks(finished: Path) -> None:
    for path in finished.glob("*.pdb"):
        assert "UNTRAINED" in path.read_text().splitlines()[0]
    for path in finished.glob("*.cif"):
        structure = gemmi.read_structure(str(path))
        sequence = structure.entities[0].full_sequence
        assert gemmi.one_letter_code(sequence) == GB1
        assert len(structure[0]["A"]) == len(GB1)
    for path in finished.glob("*_scores_*.json"):
        scores = json.loads(path.read_text())
        assert len(scores["plddt"]) == len(scores["pae"]) == len(GB1)
        assert scores["untrained"] is True
    a3m = (finished / f"{finished.name}.a3m").read_text().splitlines()
    assert a3m[1] == GB1
    rows = [line for line in a3m if not line.startswith(">")]
    assert len(rows) >= 3, "GB1 finds its family in demo.fasta"
    assert {sum(not c.islower() for c in row) for row in rows} == {len(GB1)}


@pytest.mark.slow
def test_cached_target_is_folded_by_name_without_a_search(
    finished: Path, root: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    database = ["--db", root / "examples/demo.fasta"]
    result = fold(finished.name, *database, *QUICK, "-o", tmp_path, env=environment)
    assert result.returncode == 0, result.stderr
    done = json.loads((tmp_path / finished.name / f"{finished.name}.done.json").read_text())
    assert [stage["stage"] for stage in done["stages"]] == ["features", "predict", "report"]
    assert done["facts"]["feature_cache_hit"] is True
    scores = [sorted(folder.glob("*_scores_*.json")) for folder in (finished, tmp_path / finished.name)]
    assert [path.read_bytes() for path in scores[0]] == [path.read_bytes() for path in scores[1]]
    unknown = fold("no_such_target", *database, *QUICK, "-o", tmp_path, env=environment)
    assert unknown.returncode == 3
    assert "no_such_target: no such file, and no target of this name in the feature cache" in unknown.stderr
    twice = fold(
        root / "examples/gb1.fasta", finished.name, *database, *QUICK, "-o", tmp_path, env=environment
    )
    assert twice.returncode == 3 and "two targets have the name" in twice.stderr


def test_done_json_has_the_cost_of_each_stage(finished: Path) -> None:
    done = json.loads((finished / f"{finished.name}.done.json").read_text())
    assert [stage["stage"] for stage in done["stages"]] == ["search", "features", "predict", "report"]
    for stage in done["stages"]:
        assert stage["seconds"] >= 0
        assert stage["peak_memory_bytes"] > 10**7
    assert done["facts"]["residues"] == len(GB1)
    assert done["facts"]["alignment_rows"] >= 3
    assert any("UNTRAINED" in warning for warning in done["warnings"])
    assert set(done["versions"]) >= {"foldcli", "python", "torch", "numpy", "numba"}


@pytest.mark.slow
def test_finished_target_is_skipped_and_replaced_only_with_overwrite(
    root: Path, environment: dict[str, str], finished: Path
) -> None:
    def again(*more: str, code: int = 0) -> tuple[str, dict[str, int], dict]:
        result = fold(
            root / "examples/gb1.fasta",
            "--db",
            root / "examples/demo.fasta",
            *QUICK,
            *more,
            "-o",
            finished.parent,
            env=environment,
        )
        assert result.returncode == code, result.stderr
        times = {path.name: path.stat().st_mtime_ns for path in finished.iterdir()}
        return result.stderr, times, json.loads((finished / f"{finished.name}.done.json").read_text())

    def results() -> dict[str, bytes]:
        # without the two files that contain times
        timed = (".done.json", ".html")
        return {path.name: path.read_bytes() for path in finished.iterdir() if not path.name.endswith(timed)}

    bytes_before = results()
    before = {path.name: path.stat().st_mtime_ns for path in finished.iterdir()}
    stderr, times, first = again()
    assert "already done" in stderr
    assert times == before

    methods = (finished.parent / "methods.txt").read_text()
    stderr, times, second = again("--num-recycle", "0", code=3)
    assert "holds 2 models made with other settings (predict.num_recycle 1, now 0)" in stderr
    assert times == before and second == first
    assert (finished.parent / "methods.txt").read_text() == methods

    *_, second = again("--num-recycle", "0", "--overwrite")
    assert second["fingerprint"] != first["fingerprint"]
    assert second["ranking"][0]["num_recycles"] == 0

    _, times, third = again("--overwrite")
    assert third["fingerprint"] == first["fingerprint"]
    assert times[f"{finished.name}.a3m"] != before[f"{finished.name}.a3m"]
    assert results() == bytes_before


@pytest.mark.slow
def test_alignment_is_folded_with_the_hits_of_its_profile(
    root: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    ubiquitin = (root / "examples/ubiquitin.fasta").read_text().partition("\n")[2].replace("\n", "")
    (tmp_path / "u.a3m").write_text(f">u\n{ubiquitin}\n>near\n{ubiquitin[:40].replace('K', 'R')}{'-' * 36}\n")
    command = [tmp_path / "u.a3m", "--db", root / "examples/demo.fasta", *QUICK, "--models", "3", "-v"]
    result = fold(*command, "-o", tmp_path / "out", env=environment)
    assert result.returncode == 0, result.stderr
    assert "u: searching with the profile of an alignment of 2 rows" in result.stderr
    assert (tmp_path / "out/u/u.a3m").read_text().startswith(f">u\n{ubiquitin}\n>")
    again = fold(*command, "-o", tmp_path / "out", env=environment)
    assert "u: already done" in again.stderr
    # the same query with another profile is another target
    (tmp_path / "u.a3m").write_text(f">u\n{ubiquitin}\n>near\n{ubiquitin[:40].replace('K', 'E')}{'-' * 36}\n")
    assert "already done" not in fold(*command, "-o", tmp_path / "out", env=environment).stderr


def test_failed_target_does_not_stop_the_others(
    root: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "three.fasta").write_text(
        f">a_short\nM\n>b_good\n{GB1}\n>c/odd|name\n{GB1[:40]}\n>d_x\nXXBZUOJ\n"
    )
    result = fold(
        tmp_path / "three.fasta",
        tmp_path / "absent.fasta",
        "--db",
        root / "examples/demo.fasta",
        *QUICK,
        "--models",
        "3",
        "-o",
        tmp_path / "out",
        env=environment,
    )
    assert result.returncode == 5, result.stderr
    failures = [json.loads(line) for line in (tmp_path / "out/failures.jsonl").read_text().splitlines()]
    assert [entry["target"] for entry in failures] == [str(tmp_path / "absent.fasta"), "d_x", "a_short"]
    assert all(entry["exit_code"] == 3 for entry in failures)
    assert (tmp_path / "out/b_good/b_good.done.json").is_file()
    assert (tmp_path / "out/c_odd_name/c_odd_name.done.json").is_file()
    assert not list(tmp_path.glob("out/a_short/*.done.json"))
    assert "Traceback" not in result.stderr
    index = (tmp_path / "out/index.html").read_text()
    assert all(name in index for name in ("absent.fasta", "a_short", "b_good/b_good.html", "c_odd_name"))


@pytest.mark.slow
def test_standard_input_is_split_into_shards(root: Path, environment: dict[str, str], tmp_path: Path) -> None:
    fasta = "".join(f">t{i}\n{GB1[:20]}\n" for i in range(3))
    for shard, names in (("1/2", {"t0", "t2"}), ("2/2", {"t1"})):
        out = tmp_path / shard.replace("/", "_")
        arguments = ("-", "--db", root / "examples/demo.fasta", *QUICK, "--models", "3", "--num-recycle", "0")
        result = fold(*arguments, "--shard", shard, "-o", out, env=environment, input=fasta)
        assert result.returncode == 0, result.stderr
        assert {path.name for path in out.iterdir() if path.is_dir()} == names | {"viewer"}
        assert (out / "index.html").is_file() == (len(names) > 1)


def ignore_interrupts() -> None:
    """Do what a shell does before it starts a job with `&`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "number", "in_background"),
    [
        pytest.param("search", signal.SIGINT, False, marks=pytest.mark.slow),
        pytest.param("features", signal.SIGINT, False, marks=pytest.mark.slow),
        ("predict", signal.SIGTERM, False),
        pytest.param("predict", signal.SIGINT, True, marks=pytest.mark.slow),
    ],
)
def test_interrupted_run_leaves_no_finished_files_and_the_next_run_continues(
    root: Path, environment: dict[str, str], tmp_path: Path, stage: str, number: int, in_background: bool
) -> None:
    command = [
        *FOLDCLI,
        "fold",
        str(root / "examples/ubiquitin.fasta"),
        "--db",
        str(root / "examples/demo.fasta"),
    ]
    command += [*QUICK, "-v", "-o", str(tmp_path / "out")]
    process = subprocess.Popen(
        command,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=ignore_interrupts if in_background else None,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.strip().endswith("searching with 1 sequence" if stage == "search" else f": {stage}"):
            process.send_signal(number)
            break
    rest = process.stderr.read()
    code, word = (130, "interrupted") if number == signal.SIGINT else (143, "terminated")
    assert process.wait() == code, rest
    assert f"{word}; run the same command again to continue" in rest
    assert "Traceback" not in rest
    assert not list((tmp_path / "out").rglob("*.done.json"))
    assert not list((tmp_path / "out").rglob("*_unrelaxed_rank_*"))
    assert not list((tmp_path / "out").rglob("*.tmp"))

    result = run_foldcli(command[len(FOLDCLI) :], env=environment)
    assert result.returncode == 0, result.stderr
    assert len(list((tmp_path / "out").rglob("*.done.json"))) == 1
    if stage == "predict":
        assert not any(line.endswith(": search") for line in result.stderr.splitlines()), (
            "search was finished"
        )


def test_missing_parameters_are_reported_with_the_remedy(
    root: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    missing = environment | {"FOLDCLI_PARAMS": str(tmp_path / "none")}
    result = fold(root / "examples/gb1.fasta", "-o", tmp_path, env=missing)
    assert result.returncode == 4
    assert "CC BY 4.0" in result.stderr
    assert "foldcli params fetch" in result.stderr
    assert "--params compact" in result.stderr


def test_network_of_earlier_versions_is_an_error_that_names_the_compact_one(
    root: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    options = ("--params", "demo", "-o", tmp_path / "out")
    result = fold(root / "examples/gb1.fasta", *options, env=environment, cwd=tmp_path)
    assert result.returncode == 4
    (error,) = (line for line in result.stderr.splitlines() if line.startswith("foldcli: error: "))
    assert "--params demo, an untrained network, is no longer part of foldcli" in error
    assert "--params compact" in result.stderr


def test_best_template_of_the_library_is_copied(
    root: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    options = ("--params", "template", "--no-report", "--no-plots")
    result = fold(root / "examples/gb1.fasta", *options, "-o", tmp_path, env=environment)
    assert result.returncode == 0
    assert "without --db" in result.stderr
    scores = json.loads(next(tmp_path.rglob("*_scores_rank_001_template_copy.json")).read_text())
    assert len(scores["plddt"]) == 56 and sum(scores["plddt"]) / 56 > 85


BAD_QUERIES = {
    "no header": (b"MKV\n", "1"),
    "binary": (bytes(range(256)), ""),
    "empty file": (b"", ""),
    "empty sequence": (b">a\n>b\nMKV\n", "1"),
    "digit": (b">a\nMKV\nMK7\n", "3:3"),
    "one residue": (b">a\nM\n", ""),
}


@pytest.mark.parametrize("kind", BAD_QUERIES)
def test_bad_query_is_one_line_and_exit_code_3(
    root: Path, environment: dict[str, str], tmp_path: Path, kind: str
) -> None:
    content, position = BAD_QUERIES[kind]
    path = tmp_path / "query.fasta"
    path.write_bytes(content)
    out = tmp_path / "out"
    result = fold(path, "--db", root / "examples/demo.fasta", *QUICK, "-o", out, env=environment)
    assert result.returncode == 3, result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("foldcli: error: ")]
    assert len(errors) == 1
    assert position in errors[0]
    assert "Traceback" not in result.stderr
    assert not list(out.rglob("*.done.json"))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["absent.fasta", "--db", "{db}", "-o", "{out}"], 3, "absent.fasta: no such file"),
        (["{query}", "--db", "absent_db", "-o", "{out}"], 4, "absent_db"),
        (["{query}", "--db", "{db}", "-o", "{file}/below"], 3, "not a directory"),
        (["{query}", "--db", "{db}", "-o", "{out}", "--params", "{empty}"], 4, "params_model_3_ptm.npz"),
        (["{query}", "--db", "{db}", "-o", "{out}", "--models", "6"], 2, "1 to 5"),
        (["{query}", "--db", "{db}", "-o", "{out}", "--gap-open", "3"], 2, "gap"),
        (["{query}", "--db", "{db}", "-o", "{file}"], 2, "is a file"),
        (["{query}", "--db", "{db}", "-o", "{out}", "--shard", "3/2"], 2, "1 ≤ I ≤ N"),
        (["{query}", "--db", "{db}", "-o", "{out}", "--device", "tpu"], 2, "cuda:N"),
    ],
)
def test_wrong_arguments_are_refused(
    root: Path, environment: dict[str, str], tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    paths = {
        "db": root / "examples/demo.fasta",
        "query": root / "examples/gb1.fasta",
        "out": tmp_path / "out",
        "file": tmp_path / "file",
        "empty": tmp_path / "empty",
    }
    filled = [argument.format(**paths) for argument in arguments]
    result = fold(*QUICK, *filled, env=environment, cwd=tmp_path)
    assert result.returncode == code, result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_failed_write_leaves_no_partial_files(environment: dict[str, str], tmp_path: Path) -> None:
    def small_files_only() -> None:
        # as on a disk that fills up: the features and the scores fit, a structure does not
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    out = tmp_path / "out"
    (tmp_path / "gb1.a3m").write_text(f">gb1\n{GB1}\n")
    quick = [*QUICK, "--models", "3", "--num-recycle", "0"]
    command = [*FOLDCLI, "predict", tmp_path / "gb1.a3m", *quick, "-o", out]
    result = subprocess.run(
        command, env=environment, preexec_fn=small_files_only, capture_output=True, text=True
    )
    assert result.returncode == 4
    assert ".pdb: file too large; a file may have 30,000 bytes (ulimit -f)" in result.stderr
    assert "Traceback" not in result.stderr
    assert not [*out.rglob("*.pdb"), *out.rglob("*.tmp"), *out.rglob("*.done.json")]
    assert json.loads((out / "failures.jsonl").read_text())["exit_code"] == 4
