"""Structure files: the same chains as DeepMind's parser, other formats, and damaged files."""

import bz2
import gzip
import re
from pathlib import Path

import gemmi
import numpy as np
import pytest

from features.chemistry.residues import CA
from features.templates.library.chains import TemplateChain, distinct_chains
from features.templates.library.structure_files import (
    entry_id,
    find_structure_files,
    is_structure_file,
    read_chains,
)
from msa.base.errors import InputError
from msa.base.residues import ATOM37

CASES = ["1A7G_E", "1A8O_A", "1AS5_A", "1GBT_A", "1LCD_A", "2OFG_X", "2XHE_B", "4CUP_A", "4ZHL_U", "4ZHL_P"]


def read_one(path: Path, name: str) -> TemplateChain:
    (chain,) = [chain for chain in read_chains(path) if chain.id == name]
    return chain


def cif_text(structures: Path, entry: str = "1a7g") -> str:
    return gzip.decompress((structures / f"{entry}.cif.gz").read_bytes()).decode()


@pytest.mark.parametrize("case", CASES)
def test_chains_match_deepmind(structures: Path, case: str) -> None:
    golden = np.load(structures / "goldens.npz")
    entry, name = case.split("_")
    chain = read_one(structures / f"{entry.lower()}.cif.gz", f"{entry.lower()}_{name}")
    query, template = golden[f"{case}/pairs"].astype(int).T
    assert chain.sequence == str(golden[f"{case}/sequence"])
    assert (chain.release_date or "") == str(golden[f"{case}/release_date"])
    mask = golden[f"{case}/mask"]
    np.testing.assert_array_equal(chain.mask[template], mask[query])
    np.testing.assert_array_equal(chain.positions[template][mask[query]], golden[f"{case}/positions"])


def test_byte_order_marks_are_dropped(structures: Path, tmp_path: Path) -> None:
    text = cif_text(structures, "4cup")
    pdb = gemmi.make_structure_from_block(gemmi.cif.read_string(text)[0]).make_pdb_string()
    for name, content in (("4cup.cif", text), ("4cup.pdb", pdb)):
        (tmp_path / name).write_text(f"\ufeff{content}")
        assert [chain.id for chain in read_chains(tmp_path / name)] == ["4cup_A"]


def test_pdb_file_gives_the_same_chain_under_any_name(structures: Path, tmp_path: Path) -> None:
    structure = gemmi.make_structure_from_block(gemmi.cif.read_string(cif_text(structures, "4cup"))[0])
    structure.setup_entities()
    path = tmp_path / "my model (final)"
    path.write_bytes(bz2.compress(structure.make_pdb_string().encode()))
    expected = read_one(structures / "4cup.cif.gz", "4cup_A")
    (chain,) = read_chains(path)
    assert chain.id == "my_model_(final)_A"
    assert chain.sequence == expected.sequence
    assert chain.source == "my model (final)"
    np.testing.assert_array_equal(chain.mask, expected.mask)
    np.testing.assert_array_equal(chain.positions, expected.positions)


def test_other_characters_in_pdb_files_take_one_column(structures: Path, tmp_path: Path) -> None:
    structure = gemmi.make_structure_from_block(gemmi.cif.read_string(cif_text(structures, "4cup"))[0])
    structure.setup_entities()
    lines = [line for line in structure.make_pdb_string().splitlines() if line.startswith("ATOM")]
    # an altered serial number, and the chain's letter
    lines = [f"{line[:6]}µ{line[7:21]}é{line[22:]}" for line in lines]
    path = tmp_path / "4cup.pdb"
    path.write_text("\n".join(lines), "latin-1")
    expected = read_one(structures / "4cup.cif.gz", "4cup_A")
    (chain,) = read_chains(path)
    assert chain.id == "4cup_?"
    np.testing.assert_array_equal(chain.positions, expected.positions[expected.mask[:, CA]])


def test_without_seqres_the_residues_with_coordinates_are_the_sequence(
    structures: Path, tmp_path: Path
) -> None:
    structure = gemmi.make_structure_from_block(gemmi.cif.read_string(cif_text(structures, "4cup"))[0])
    structure.setup_entities()
    atoms = [line for line in structure.make_pdb_string().splitlines() if line.startswith(("ATOM", "TER"))]
    path = tmp_path / "atoms.pdb"
    path.write_text("\n".join(atoms) + "\nEND\n")
    expected = read_one(structures / "4cup.cif.gz", "4cup_A")
    (chain,) = read_chains(path)
    resolved = expected.mask[:, CA]
    assert len(chain.sequence) == np.count_nonzero(resolved) < len(expected.sequence)
    np.testing.assert_array_equal(chain.positions, expected.positions[resolved])


def atom_line(number: int, name: str, residue: str, seqid: str, x: float, occupancy: float = 1.0) -> str:
    alternative, residue = ("B", residue[1:]) if residue[0] == "*" else (" ", residue)
    kind = "HETATM" if residue == "MSE" else "ATOM  "
    return (
        f"{kind}{number:5d}  {name:<3s}{alternative}{residue} A{seqid:>5s}   {x:8.3f}{0:8.3f}{0:8.3f}"
        f"{occupancy:6.2f}{10:6.2f}          {name[0]:>2s}\n"
    )


def test_selenium_arginine_insertion_codes_and_alternative_locations(tmp_path: Path) -> None:
    lines = [atom_line(k, "CA", "GLY", f"{k} ", 4.0 * k) for k in range(1, 11)]
    lines.insert(5, atom_line(20, "CA", "ALA", "5A", 18.0))
    lines += [
        atom_line(30, "CA", "MSE", "11 ", 44.0),
        atom_line(31, "SE", "MSE", "11 ", 45.0),
        atom_line(32, "CA", "ARG", "12 ", 48.0),
        atom_line(33, "CD", "ARG", "12 ", 50.0),
        atom_line(34, "NH1", "ARG", "12 ", 53.0),
        atom_line(35, "NH2", "ARG", "12 ", 52.0),
        atom_line(36, "CA", "SER", "13 ", 60.0, 0.4),
        atom_line(37, "CA", "*SER", "13 ", 61.0, 0.6),
    ]
    path = tmp_path / "x.pdb"
    path.write_text("".join(lines))
    (chain,) = read_chains(path)
    assert chain.sequence == "GGGGGAGGGGGMRS"
    x = {name: chain.positions[:, ATOM37.index(name), 0] for name in ("CA", "SD", "NH1", "NH2")}
    assert x["CA"][5] == 18
    assert x["SD"][11] == 45
    assert (x["NH1"][12], x["NH2"][12]) == (52, 53)
    assert x["CA"][13] == 61


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "neither an mmCIF nor a PDB file"),
        (b"\x00\x01\x02" * 100, "neither an mmCIF nor a PDB file"),
        (b"data_x\n_a.b 'not closed\n", "cannot be read"),
        (b"data_x\n_entry.id x\n", "no coordinates"),
        (atom_line(1, "CA", "GLY", "1 ", 0.0).encode(), "no protein chain with at least 10 residues"),
        (b"\x1f\x8b\x08\x00broken", "gzip"),
    ],
)
def test_unusable_file_is_named_with_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "broken.cif"
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(reason)) as caught:
        read_chains(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_missing_coordinates_are_named(tmp_path: Path) -> None:
    lines = [atom_line(k, "CA", "GLY", f"{k} ", 4.0 * k) for k in range(1, 13)]
    structure = gemmi.read_pdb_string("".join(lines))
    structure.setup_entities()
    document = structure.make_mmcif_document()
    table = document.sole_block().find("_atom_site.", ["Cartn_x"])
    table[3][0] = "?"
    path = tmp_path / "x.cif"
    document.write_file(str(path))
    with pytest.raises(InputError, match="chain A: coordinates that are missing or too large"):
        read_chains(path)


def test_truncated_mmcif_is_an_input_error_with_its_line(structures: Path, tmp_path: Path) -> None:
    text = cif_text(structures)
    path = tmp_path / "cut.cif"
    path.write_text(text[: text.rindex("ATOM") + 30])
    with pytest.raises(InputError) as caught:
        read_chains(path)
    assert caught.value.line is not None


def test_files_are_found_in_folders_by_suffix(tmp_path: Path) -> None:
    for name in ("ab/1abc.cif.gz", "ab/pdb2abd.ent.gz", "z.pdb", "notes.txt", ".hidden.cif"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    found = find_structure_files([tmp_path, tmp_path / "notes.txt"])
    names = [str(path.relative_to(tmp_path)) for path in found]
    assert names == ["ab/1abc.cif.gz", "ab/pdb2abd.ent.gz", "z.pdb", "notes.txt"]
    with pytest.raises(InputError, match="no such file or folder"):
        find_structure_files([tmp_path / "missing"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no structure files"):
        find_structure_files([tmp_path / "empty"])


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("1abc.cif", "1abc"),
        ("1ABC.CIF.GZ", "1ABC"),
        ("pdb1abc.ent.gz", "1abc"),
        ("pdbfile.pdb", "pdbfile"),
        ("AF-P12345-F1-model_v4.cif.zst", "AF-P12345-F1-model_v4"),
    ],
)
def test_entry_of_a_file_name(name: str, entry: str) -> None:
    assert is_structure_file(name)
    assert entry_id(f"/mirror/ab/{name}") == entry


def test_identical_sequences_are_kept_once_with_most_atoms() -> None:
    def chain(name: str, sequence: str, atoms: int) -> TemplateChain:
        mask = np.zeros((3, 37), bool)
        mask[0, :atoms] = True
        return TemplateChain(name, sequence, np.zeros((3, 37, 3), np.float32), mask, None, "x")

    chains = [chain("A", "GGG", 3), chain("B", "AAA", 1), chain("C", "GGG", 5), chain("D", "GGG", 5)]
    assert [each.id for each in distinct_chains(chains)] == ["C", "B"]
