"""`foldcli training-data`: structures and a database become training data that `foldcli train` reads."""

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from features.chemistry.residues import encode_query
from features.templates.library.structure_files import read_chains
from model.training.data.data import CENTI, ChainSet, read_split
from model.training.data.prepare import SOURCES, prepare
from model.training.data.sampling import TrainingSampleSettings
from model.training.runtime.processes import TrainingProcesses
from model.training.runtime.settings import Phase, TrainingSettings
from tests.command_process import command_environment, run_foldcli
from tests.model.training.runs import chain_trainer
from tests.networks import tiny_network

MUTATED = (5, 12, 20, 31)
CPU = TrainingProcesses(0, 1, torch.device("cpu"))


def foldcli(*arguments: object, cache: Path) -> "subprocess.CompletedProcess[str]":
    result = run_foldcli(arguments, env=command_environment(cache))
    assert "Traceback" not in result.stderr
    return result


@pytest.fixture(scope="module")
def structures(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with structures, a copy under the same name, and a broken file."""
    folder = tmp_path_factory.mktemp("structures")
    for path in (root / "tests/features/templates/data").glob("*.cif.gz"):
        shutil.copy(path, folder)
    (folder / "copy").mkdir()
    shutil.copy(folder / "1a8o.cif.gz", folder / "copy")
    (folder / "broken.pdb").write_text("not a structure\n")
    return folder


@pytest.fixture(scope="module")
def database(structures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a FASTA file with a half of 1a8o_A that has four mutations, and a random sequence."""
    (chain,) = read_chains(structures / "1a8o.cif.gz")
    half = list(chain.sequence[20:60])
    for position in MUTATED:
        half[position] = "A" if half[position] == "G" else "G"
    path = tmp_path_factory.mktemp("database") / "db.fasta"
    random = "".join(np.random.default_rng(0).choice(list("ARNDCQEGHILKMFPSTWYV"), 200))
    path.write_text(f">half\n{''.join(half)}\n>random\n{random}\n")
    return path


@pytest.fixture(scope="module")
def data(structures: Path, database: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make training data."""
    out = tmp_path_factory.mktemp("own") / "data"
    result = foldcli("training-data", structures, "-o", out, "--db", database, "--device", "cpu", cache=cache)
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    assert "broken.pdb: neither an mmCIF nor a PDB file; not used" in result.stderr
    assert (
        "chains left out: 2 shorter than 40 residues, 1 longer than 512 residues; residues left out: "
        in result.stderr
    )
    assert "9 chains in 7 homology groups" in result.stderr
    assert os.listdir(out.parent) == ["data"]
    return out


@pytest.fixture(scope="module")
def chains(data: Path, tmp_path_factory: pytest.TempPathFactory) -> ChainSet:
    return prepare(data, tmp_path_factory.mktemp("prepared") / "arrays")


def test_chains_equal_the_structure_files(structures: Path, chains: ChainSet) -> None:
    assert set(chains.ids) == {
        "1a7g_E", "1a8o_A", "copy_1a8o_A", "1gbt_A", "1lcd_A", "2ofg_X", "2xhe_B", "4cup_A", "4zhl_U",
    }  # fmt: skip
    assert chains.num_full_atom == 9
    for index, name in enumerate(chains.ids):
        name = name.removeprefix("copy_")
        entry = name[:4]
        (chain,) = (each for each in read_chains(structures / f"{entry}.cif.gz") if each.id == name)
        # N, CA, C in atom37 order
        kept = chain.mask[:, :3].all(axis=1) & (encode_query(chain.sequence) < 20)
        residues = chains.residues(index)
        assert (chains.aatype[residues] == encode_query(chain.sequence)[kept]).all()
        # N, CA and C are the first atoms in both orders, O is number 3 and 4, CB number 4 and 3
        order = [0, 1, 2, 4, 3]
        mask = (chains.atom_bits[residues, None] >> np.arange(5)) & 1 > 0
        assert (mask == chain.mask[kept][:, order]).all()
        atoms = chains.atom14[residues, :5].astype(float) * CENTI
        shift = (atoms - chain.positions[kept][:, order])[mask]
        assert np.abs(shift - shift[0]).max() <= 0.0101
        # all atoms but OXT, the last of the 37
        total = np.count_nonzero(chain.mask[kept][:, :36])
        assert sum(int(bits).bit_count() for bits in chains.atom_bits[residues]) == total


def test_alignment_has_the_rows_of_the_database(chains: ChainSet, database: Path) -> None:
    half = database.read_text().splitlines()[1]
    for name in ("1a8o_A", "copy_1a8o_A"):
        alignment = chains.alignment(chains.ids.index(name))
        assert len(alignment) == 2
        aligned = alignment[1] < 21
        assert (alignment[1][aligned] == encode_query(half)).all()
        assert np.count_nonzero(alignment[0][aligned] != alignment[1][aligned]) == len(MUTATED)
    assert len(chains.alignment(chains.ids.index("2ofg_X"))) == 1


def test_relatives_are_templates_and_share_a_group(chains: ChainSet) -> None:
    index_of = {name: index for index, name in enumerate(chains.ids)}
    # two serine proteases, and the copy
    pairs = [("1gbt_A", "4zhl_U"), ("1a8o_A", "copy_1a8o_A")]
    for first, second in pairs:
        assert chains.group[index_of[first]] == chains.group[index_of[second]]
        targets = chains.hit_target[chains.hits(index_of[first])].tolist()
        assert index_of[second] in targets
    assert len(set(chains.group.tolist())) == 7
    assert chains.cluster_size[[index_of["1a8o_A"], index_of["2ofg_X"]]].tolist() == [2, 1]


@pytest.mark.slow
def test_network_trains_on_the_data(data: Path, chains: ChainSet) -> None:
    split = read_split(chains, data)
    assert len(split.without_relative) == 1
    assert len(split.train) < 9
    settings = TrainingSettings(
        network=tiny_network(),
        batch=2,
        phases=(Phase(steps=1, crop=32, micro_batch=2),),
        sampling=TrainingSampleSettings(msa_rows=6, extra_rows=3),
        validate_every=1,
        checkpoint_every=0,
        compile=False,
        workers=0,
    )
    (report,) = chain_trainer(settings, chains, split, None, CPU).train()
    assert not report.skipped and np.isfinite(report.terms["loss"])
    assert report.validation is not None and "without_relative" in report.validation
    # nothing to validate on
    everything = replace(split, without_relative=split.train[:0], distant_template=split.train[:0])
    (report,) = chain_trainer(settings, chains, everything, None, CPU).train()
    assert report.validation is None


def test_second_run_finds_the_data_finished(
    structures: Path, database: Path, data: Path, cache: Path, tmp_path: Path
) -> None:
    arguments = ["training-data", structures, "-o", data, "--db", database, "--device", "cpu"]
    before = {name: (data / name).stat().st_mtime_ns for name in os.listdir(data)}
    result = foldcli(*arguments, cache=cache)
    assert result.returncode == 0 and f"{data}: already finished" in result.stderr
    result = foldcli(*arguments, "--seed", 1, cache=cache)
    assert result.returncode == 3
    assert result.stderr.splitlines()[-1].endswith("data: already exists; --overwrite replaces it")
    assert {name: (data / name).stat().st_mtime_ns for name in os.listdir(data)} == before
    copy = shutil.copytree(data, tmp_path / "data")
    result = foldcli(
        *arguments[:3], copy, *arguments[4:], "--held-out", 0, "--overwrite", "--threads", 1, cache=cache
    )
    assert result.returncode == 0, result.stderr
    assert (copy / "heldout.tsv").read_text() == ""
    assert json.loads((copy / "manifest.json").read_text())["sets"] == {"A": 0, "B": 0, "X": 0}
    for name in SOURCES:
        assert (copy / name).read_bytes() == (data / name).read_bytes(), name
    result = foldcli(*arguments[:3], copy, *arguments[4:], "--held-out", 0, "--overwrite", cache=cache)
    assert result.returncode == 0 and "already finished" not in result.stderr


@pytest.mark.slow
def test_library_of_all_atoms_gives_the_same_data(
    structures: Path, database: Path, data: Path, cache: Path, tmp_path: Path
) -> None:
    library, out = tmp_path / "library", tmp_path / "data"
    assert foldcli("createdb", "--structures", structures, "-o", library, cache=cache).returncode == 0
    result = foldcli("training-data", library, "-o", out, "--db", database, "--device", "cpu", cache=cache)
    assert result.returncode == 0, result.stderr
    for name in set(SOURCES) - {"chains.npz.xz"}:
        assert (out / name).read_bytes() == (data / name).read_bytes(), name


def test_unusable_structures_are_refused_in_one_line(
    root: Path, structures: Path, database: Path, cache: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    embedded = root / "features/templates/embedded"
    for path, code, reason in [
        (tmp_path / "absent", 3, f"{tmp_path / 'absent'}: no such file or folder"),
        (structures / "broken.pdb", 3, "broken.pdb: neither an mmCIF nor a PDB file"),
        (structures / "1as5.cif.gz", 3, "no chain of 40 to 512 residues to train on"),
        (embedded, 2, f"{embedded} has no side chains beyond CB"),
    ]:
        result = foldcli("training-data", path, "-o", out, "--db", database, cache=cache)
        assert result.returncode == code, result.stderr
        assert reason in result.stderr.splitlines()[-1]
    assert os.listdir(tmp_path) == []
    result = foldcli("training-data", structures, "-o", out, "--db", tmp_path / "nothing", cache=cache)
    assert result.returncode == 4 and "no such database" in result.stderr
    result = foldcli("training-data", "-o", out, cache=cache)
    assert result.returncode == 2 and "STRUCTURES" in result.stderr
