"""`foldcli search --structure`: the table, superposed hits, complexes, and models that cannot be searched."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from features.chemistry.residues import CA
from features.templates.library.mmcif import chains_as_mmcif
from features.templates.library.structure_files import read_chains
from foldcli.structure_search.superposition import superpose_hit
from model.comparison.scores import tm_score
from tests.command_process import run_foldcli

DATA = "tests/features/templates/data"


def search(root: Path, *arguments: str | Path) -> tuple[int, str, str]:
    result = run_foldcli(["search", "--structure", *map(str, arguments)])
    return result.returncode, result.stdout, result.stderr


def test_complex_finds_itself_chain_by_chain_and_as_a_whole(root: Path, tmp_path: Path) -> None:
    chains = {
        k: read_chains(root / DATA / f"{entry}.cif.gz")[0] for k, entry in (("A", "1a8o"), ("B", "1a7g"))
    }
    model = tmp_path / "pair.cif"
    model.write_text(chains_as_mmcif("pair", chains))
    out, superposed = tmp_path / "hits.m8", tmp_path / "superposed"
    code, _, errors = search(root, model, "--db", model, "-o", out, "--superposed", superposed)
    assert code == 0, errors
    rows = [line.split("\t") for line in out.read_text().splitlines()]
    assert [row[:2] for row in rows] == [["pair_A", "pair_A"], ["pair_B", "pair_B"]]
    for row in rows:
        assert len(row) == 17 and float(row[10]) < 1e-5 and row[12:] == ["1.000"] * 5
        (moved,) = read_chains(superposed / row[0] / f"001_{row[0]}.cif")
        original = chains[row[0][-1]]
        np.testing.assert_allclose(
            *(each.positions[each.mask[:, CA], CA] for each in (moved, original)), atol=0.02
        )
    header, line = (tmp_path / "hits_complexes.tsv").read_text().splitlines()
    hit = dict(zip(header.split("\t"), line.split("\t"), strict=True))
    assert (hit["query"], hit["entry"], hit["complextmscore"]) == ("pair", "pair", "1.000")
    assert set(hit["chains"].split(",")) == {"pair_A=pair_A", "pair_B=pair_B"}


def test_models_that_cannot_be_searched_are_named_and_do_not_stop_others(root: Path, tmp_path: Path) -> None:
    lines = gzip.decompress((root / DATA / "1a8o.cif.gz").read_bytes()).decode().splitlines(keepends=True)
    trace = tmp_path / "trace.cif"
    trace.write_text("".join(x for x in lines if not x.startswith("ATOM") or x.split()[3] == "CA"))
    code, _, errors = search(root, trace, "-o", tmp_path / "a.m8")
    assert code == 3 and "trace.cif" in errors and "only CA atoms" in errors
    assert not (tmp_path / "a.m8").exists()
    models = (trace, root / DATA / "1a8o.cif.gz")
    code, output, errors = search(
        root, *models, "--db", root / DATA, "--format-output", "target,prob", "-o", "-"
    )
    assert code == 5 and "1 of 2 models" in errors
    assert output.splitlines()[0].split("\t") == ["1a8o_A", "1.000"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["x.cif", "--num-iterations", "2", "-o", "-"], "cannot be combined with --num-iterations"),
        (["x.cif", "--format", "a3m", "-o", "-"], "cannot be combined with --format."),
        (["x.cif", "--profile", "p.npz", "-o", "-"], "cannot be combined with --profile."),
        (["-o", "-"], "takes models"),
        (["x.cif", "--format-output", "nothing", "-o", "-"], "unknown column 'nothing'"),
    ],
)
def test_options_of_other_searches_are_refused(root: Path, arguments: list[str], message: str) -> None:
    code, _, errors = search(root, *arguments)
    assert code == 2 and message in errors


def test_superposed_hits_replace_those_of_an_earlier_search(root: Path, tmp_path: Path) -> None:
    model, superposed = root / DATA / "1a8o.cif.gz", tmp_path / "superposed"
    (superposed / "1a8o").mkdir(parents=True)
    for name in ("002_other_A.cif", "notes.cif"):
        (superposed / "1a8o" / name).touch()
    code, _, errors = search(root, model, "--db", model, "-o", "-", "--superposed", superposed)
    assert code == 0, errors
    assert {file.name for file in (superposed / "1a8o").iterdir()} == {"001_1a8o_A.cif", "notes.cif"}


def test_databases_of_another_kind_are_named(root: Path, tmp_path: Path) -> None:
    (tmp_path / "t.fasta").write_text(">t\nMKVLAWQTGGHTRE\n")
    model, sequences, library = root / DATA / "1a8o.cif.gz", tmp_path / "sequences", tmp_path / "library"
    for arguments in (["--structures", model, "-o", library], [tmp_path / "t.fasta", "-o", sequences]):
        assert run_foldcli(["createdb", *map(str, arguments)]).returncode == 0
    code, _, errors = search(root, model, library, "-o", "-")
    assert code == 2 and f"{library} is a structure library, not a model: name it with --db." in errors
    code, _, errors = search(root, model, "--db", sequences, "-o", "-")
    assert code == 3 and f"{sequences}: a database of `foldcli createdb`, not a folder of struct" in errors
    result = run_foldcli(["search", str(tmp_path / "t.fasta"), str(library), "-o", "-"])
    assert result.returncode == 3
    assert "not the manifest of a target database, but of a foldcli structure library" in result.stderr


def test_tm_score_of_a_hit_is_nearly_that_of_an_exhaustive_superposition(root: Path) -> None:
    chain = read_chains(root / DATA / "1gbt.cif.gz")[0]
    generator = np.random.default_rng(2)
    moved = chain.positions + generator.normal(0, 1.5, chain.positions.shape).astype(np.float32)
    other = type(chain)("other", chain.sequence, moved[:, :, [1, 2, 0]], chain.mask, None, "")
    pairs = np.repeat(np.arange(len(chain.sequence))[:, None], 2, axis=1)
    hit = superpose_hit(chain, other, pairs)
    expected = tm_score(
        other.positions[:, CA].astype(float), chain.positions[:, CA].astype(float), len(pairs)
    )
    assert expected - 0.01 <= hit.qtmscore <= expected + 1e-6
    assert np.abs(hit.moved().positions[:, CA] - chain.positions[:, CA]).mean() < 1.5
