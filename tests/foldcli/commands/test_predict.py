"""Tests of `foldcli predict` in subprocesses: every kind of target, and unusable parameters."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from model.alphafold2.modules.config import model_config
from model.checkpoints.alphafold2 import expected_shapes
from tests.command_process import best_scores, foldcli

FOLDCLI = [sys.executable, "-m", "foldcli"]
QUICK = ["--models", "3", "--num-recycle", "0", "--threads", "1"]
A3M = ">query\nMKVLAAGIV\n>hit 1\nMKV-AAGiIV\n>hit 2\n--VLSAGIV\n"


@pytest.mark.slow
def test_every_input_format_gives_the_same_prediction(
    fresh_environment: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "alignments"
    folder.mkdir()
    (folder / "plain.a3m").write_text(A3M)
    (folder / "stockholm.sto").write_text(
        "# STOCKHOLM 1.0\nquery MKVLAAG-IV\nhit1  MKV-AAGIIV\nhit2  --VLSAG-IV\n//\n"
    )
    cached = foldcli(
        "cache-features", folder / "plain.a3m", "--cache", tmp_path / "features", env=fresh_environment
    )
    assert cached.returncode == 0, cached.stderr
    (entry,) = (tmp_path / "features").rglob("*.safetensors")

    out = tmp_path / "out"
    result = foldcli("predict", folder, entry, *QUICK, "-o", out, env=fresh_environment)
    assert result.returncode == 0, result.stderr
    piped = foldcli("predict", "-", *QUICK, "-o", out, env=fresh_environment, stdin=A3M)
    assert piped.returncode == 0, piped.stderr
    names = {path.name for path in out.iterdir() if path.is_dir()} - {"viewer"}
    assert names == {"plain", "stockholm", entry.stem, "stdin"}
    first = best_scores(out / "plain")
    assert len(first["plddt"]) == 9
    assert all(best_scores(out / name) == first for name in names)


@pytest.mark.slow
def test_precision_and_kernels_are_part_of_the_settings(
    fresh_environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "t.a3m").write_text(A3M)
    scores = []
    for precision in ("fp32", "bf16"):
        arguments = [tmp_path / "t.a3m", *QUICK, "--device", "cpu", "--precision", precision, "-v"]
        arguments += ["-o", tmp_path / precision]
        result = foldcli("predict", *arguments, env=fresh_environment)
        assert result.returncode == 0, result.stderr
        assert "already done" not in result.stderr and "the first block finished" in result.stderr
        done = json.loads((tmp_path / precision / "t/t.done.json").read_text())
        assert done["settings"]["predict"]["precision"] == precision
        assert done["settings"]["predict"]["kernels"] == "reference"
        assert done["facts"]["device"] == "cpu"
        (pdb,) = (tmp_path / precision / "t").glob("*.pdb")
        assert f"recycles, {precision}" in pdb.read_text()
        scores.append(best_scores(tmp_path / precision / "t"))
        # the memory limit does not change the results
        repeated = foldcli("predict", *arguments, "--max-memory", "1G", env=fresh_environment)
        assert "already done" in repeated.stderr
    assert scores[0] != scores[1]
    assert np.allclose(scores[0]["plddt"], scores[1]["plddt"], atol=1.0)


@pytest.mark.slow
def test_seed_determines_the_random_features(fresh_environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "t.a3m").write_text(A3M)
    seeds = ["--random-seed", "7", "--num-seeds", "2"]
    result = foldcli(
        "predict", tmp_path / "t.a3m", *QUICK, *seeds, "-o", tmp_path / "out", env=fresh_environment
    )
    assert result.returncode == 0, result.stderr
    done = json.loads((tmp_path / "out/t/t.done.json").read_text())
    assert {entry["tag"][-8:] for entry in done["ranking"]} == {"seed_007", "seed_008"}
    assert done["ranking"][0]["plddt"] != done["ranking"][1]["plddt"]


def test_damaged_cache_entry_is_reported(fresh_environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "t.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    result = foldcli(
        "predict", tmp_path / "t.safetensors", *QUICK, "-o", tmp_path / "out", env=fresh_environment
    )
    assert result.returncode == 3
    assert "t.safetensors: damaged cache entry" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.fixture
def feature_cache(fresh_environment: dict[str, str], tmp_path: Path) -> Path:
    """Return a cache of two targets."""
    for name, text in {"one": A3M, "two": ">q\nGGSWTLPEKR\n>h\nGGSWT-PEKR\n"}.items():
        (tmp_path / f"{name}.a3m").write_text(text)
    inputs = [tmp_path / "one.a3m", tmp_path / "two.a3m"]
    cached = foldcli("cache-features", *inputs, "--cache", tmp_path / "features", env=fresh_environment)
    assert cached.returncode == 0, cached.stderr
    return tmp_path / "features"


@pytest.mark.slow
def test_cached_targets_are_found_by_name_by_content_and_with_all(
    fresh_environment: dict[str, str], feature_cache: Path, tmp_path: Path
) -> None:
    (tmp_path / "other.a3m").write_text(A3M)
    (tmp_path / "two.a3m").unlink()  # cached entries do not need their source
    out = tmp_path / "out"
    arguments = [*QUICK, "--cache", feature_cache, "-o", out]
    result = foldcli("predict", "one", tmp_path / "other.a3m", "two", *arguments, env=fresh_environment)
    assert result.returncode == 0, result.stderr
    for name in ("one", "other", "two"):
        facts = json.loads((out / name / f"{name}.done.json").read_text())["facts"]
        assert facts["feature_cache_hit"] is True
    assert best_scores(out / "one") == best_scores(out / "other")
    again = foldcli("predict", "--all", *arguments, env=fresh_environment)
    assert again.returncode == 0, again.stderr
    skipped = [line for line in again.stderr.splitlines() if "already done" in line]
    assert sorted(skipped) == ["one: already done", "two: already done"]


def test_unknown_and_ambiguous_names_fail(
    fresh_environment: dict[str, str], feature_cache: Path, tmp_path: Path
) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "one.a3m").write_text(">q\nMKVLAW\n")
    assert (
        foldcli(
            "cache-features", tmp_path / "more", "--cache", feature_cache, env=fresh_environment
        ).returncode
        == 0
    )
    arguments = [*QUICK, "--cache", feature_cache, "-o", tmp_path / "out"]
    result = foldcli("predict", "one", "twos", *arguments, env=fresh_environment)
    assert result.returncode == 5, result.stderr
    ambiguous, unknown = result.stderr.splitlines()[:2]
    assert "did you mean two?" in unknown and str(feature_cache) in unknown
    assert sum(str(path) in ambiguous for path in feature_cache.glob("??/*.safetensors")) == 2
    every = foldcli("predict", "--all", *arguments, env=fresh_environment)
    assert every.returncode == 5
    assert {path.name for path in (tmp_path / "out").iterdir() if path.is_dir()} == {"two", "viewer"}


def test_all_requires_a_cache_and_excludes_targets(fresh_environment: dict[str, str], tmp_path: Path) -> None:
    out = ["-o", tmp_path / "out"]
    for arguments in ([], ["one", "--all"]):
        assert foldcli("predict", *arguments, *out, env=fresh_environment).returncode == 2
    empty = foldcli("predict", "--all", "--cache", tmp_path / "none", *out, env=fresh_environment)
    assert empty.returncode == 3 and "missing or empty feature cache" in empty.stderr


def test_damaged_entry_is_computed_again_from_its_source(
    fresh_environment: dict[str, str], feature_cache: Path, tmp_path: Path
) -> None:
    good = {path: path.read_bytes() for path in feature_cache.glob("??/*.safetensors")}
    for path, content in good.items():
        path.write_bytes(content[:-3] + b"???")
    (tmp_path / "two.a3m").write_text(">q\nGGSWTLPEKR\n")  # differs from the alignment in the entry
    arguments = [*QUICK, "--cache", feature_cache, "-o", tmp_path / "out"]
    result = foldcli("predict", "one", "two", *arguments, env=fresh_environment)
    assert result.returncode == 5
    assert "one: " in result.stderr and "computed again" in result.stderr
    assert (tmp_path / "out/one/one.done.json").is_file()
    failed = json.loads((tmp_path / "out/failures.jsonl").read_text())
    assert failed["target"] == "two" and "damaged cache entry" in failed["error"]
    assert sorted(path.read_bytes() == content for path, content in good.items()) == [False, True]


@pytest.mark.slow
def test_checksums_are_verified_unless_no_verify_is_given(
    fresh_environment: dict[str, str], feature_cache: Path, tmp_path: Path
) -> None:
    (tmp_path / "one.a3m").unlink()
    for path in feature_cache.glob("??/*.safetensors"):
        path.write_bytes(path.read_bytes().replace(b"one.a3m", b"1ne.a3m"))
    arguments = ["1ne", *QUICK, "--cache", feature_cache, "-o", tmp_path / "out"]
    checked = foldcli("predict", *arguments, env=fresh_environment)
    assert checked.returncode == 3 and "checksum" in checked.stderr
    unverified = foldcli("predict", *arguments, "--no-verify", env=fresh_environment)
    assert unverified.returncode == 0, unverified.stderr


@pytest.mark.slow
def test_error_in_the_background_fails_only_its_target(
    fresh_environment: dict[str, str], feature_cache: Path, tmp_path: Path
) -> None:
    (tmp_path / "three.a3m").write_text(">q\nMK7\n")
    files = [tmp_path / f"{name}.a3m" for name in ("one", "three", "two")]
    result = foldcli("predict", *files, *QUICK, "-o", tmp_path / "out", env=fresh_environment)
    assert result.returncode == 5
    (failed,) = map(json.loads, (tmp_path / "out/failures.jsonl").read_text().splitlines())
    assert failed["target"] == "three" and "three.a3m:2:3" in failed["error"]
    assert all((tmp_path / f"out/{name}/{name}.done.json").is_file() for name in ("one", "two"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (">q\nMKVLA\n>hit_7\nMKV\n", "t.a3m:3: row 2 (hit_7)"),
        ("", "empty file"),
        ("HELLO\n", "not an alignment"),
        (">q\nMK7LA\n", "2:3"),
        ("#3,2\t1,1\n>101\nMKV\n", "declares 5"),
    ],
)
def test_bad_alignment_is_one_line(
    fresh_environment: dict[str, str], tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / "t.a3m").write_text(content)
    result = foldcli("predict", tmp_path / "t.a3m", *QUICK, "-o", tmp_path / "out", env=fresh_environment)
    assert result.returncode == 3, result.stderr
    (error,) = (line for line in result.stderr.splitlines() if line.startswith("foldcli: error: "))
    assert "t.a3m" in error and message in error
    assert not list((tmp_path / "out").rglob("*.done.json"))


def write_parameters(folder: Path, kind: str) -> None:
    shapes = expected_shapes(model_config("model_3_ptm"))
    path = folder / "params_model_3_ptm.npz"
    if kind == "junk":
        path.write_bytes(b"no npz")
    elif kind == "missing key":
        np.savez(path, **{next(iter(shapes)): np.zeros(1, np.float32)})
    elif kind == "wrong shape":
        np.savez(path, **{key: np.zeros(1, np.float32) for key in shapes})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "code", "message"),
    [
        ("none", 4, "has no params_model_3_ptm.npz"),
        ("junk", 3, "not an npz file"),
        ("missing key", 3, "missing: alphafold/alphafold_iteration/"),
        ("wrong shape", 3, "is (1,) instead of"),
    ],
)
def test_unusable_parameters_are_reported_before_the_first_target(
    fresh_environment: dict[str, str], tmp_path: Path, kind: str, code: int, message: str
) -> None:
    (tmp_path / "t.a3m").write_text(A3M)
    params = tmp_path / "params"
    params.mkdir()
    write_parameters(params, kind)
    arguments = [tmp_path / "t.a3m", "--models", "3", "--params", params, "-o", tmp_path / "out"]
    result = foldcli("predict", *arguments, env=fresh_environment)
    assert result.returncode == code, result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out" / "t").exists()


@pytest.mark.slow
def test_signal_to_all_processes_of_a_run_is_reported_in_one_line(
    fresh_environment: dict[str, str], tmp_path: Path
) -> None:
    # enough that the network still runs
    paths = [tmp_path / f"t{k}.a3m" for k in range(60)]
    for path in paths:
        path.write_text(A3M)
    out = tmp_path / "out"
    process = subprocess.Popen(
        [*FOLDCLI, "predict", *map(str, paths), *QUICK, "--device", "cpu", "-q", "-o", str(out)],
        env=fresh_environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        # while a worker draws the plots of the first target
        deadline = time.monotonic() + 60
        while not any(out.rglob("*_plddt*")):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.001)
        os.killpg(process.pid, signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    reported = [line for line in errors.splitlines() if "error" in line]
    assert process.returncode == 143, errors
    assert reported == ["foldcli: error: terminated; run the same command again to continue"]
    assert not list(out.glob("failures*"))


@pytest.mark.slow
def test_models_are_compared_with_references(fresh_environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "t.a3m").write_text(A3M)
    (tmp_path / "references").mkdir()
    arguments = ["predict", tmp_path / "t.a3m", *QUICK, "-o", tmp_path / "out", "--no-plots"]
    assert foldcli(*arguments, env=fresh_environment).returncode == 0
    (model,) = (tmp_path / "out/t").glob("*.pdb")
    (tmp_path / "references/t.pdb").write_bytes(model.read_bytes())
    arguments += ["--reference", tmp_path / "references"]
    # a finished target is compared, and not predicted again
    result = foldcli(*arguments, env=fresh_environment)
    assert result.returncode == 0, result.stderr
    (row,) = json.loads((tmp_path / "out/t/t_comparison.json").read_text())
    assert row["lddt"] == 1 and row["chains"] == {"A": "A"}
    assert len((tmp_path / "out/comparison.tsv").read_text().splitlines()) == 2
    (tmp_path / "references/t.pdb").write_text("nothing\n")
    result = foldcli(*arguments, "--overwrite", env=fresh_environment)
    assert result.returncode == 5 and "t.pdb: neither an mmCIF nor a PDB file" in result.stderr
