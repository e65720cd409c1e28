"""The reader of structures: files as other programs write them give the residues of the plain file."""

from pathlib import Path

import gemmi
import pytest

from features.templates.library.structure_files import entry_ids, read_chains
from msa.base.errors import InputError
from msa.io.structure_chains import FORCE_FIELD_NAMES
from msa.io.structures import keep_one_conformer, read_structure

CASES = Path(__file__).parent / "structures"
REFERENCE = (CASES / "ref.pdb").read_text()
(SEQUENCE,) = (chain.sequence for chain in read_chains(CASES / "ref.pdb"))


@pytest.mark.parametrize(
    ("name", "chains", "remark"),
    [
        ("ref", [SEQUENCE], ""),
        ("cut_ter_mid_noend", [SEQUENCE[45:69]], ""),
        (
            "two_proteins_sameid",
            [SEQUENCE[:55], SEQUENCE[65:]],
            "another molecule under chain id A is chain B",
        ),
        ("waterfirst_noter", [SEQUENCE], ""),
        ("segid", [SEQUENCE], "a molecule without chain id (segment PROA) is chain A"),
        ("amber", [SEQUENCE], "replaced LYN A1860 by LYS"),
        ("mod_MLY", [SEQUENCE[45:69]], "replaced MLY A1902 by LYS"),
    ],
)
def test_cases_give_the_residues_of_the_plain_file(name: str, chains: list[str], remark: str) -> None:
    path = CASES / f"{name}.pdb"
    assert [chain.sequence for chain in read_chains(path)] == chains
    remarks = "; ".join(read_structure(path).remarks)
    assert remark in remarks if remark else not remarks


@pytest.mark.parametrize(
    ("name", "parent"), [*FORCE_FIELD_NAMES.items(), ("SME", "MET"), ("CIR", "ARG"), ("M3L", "LYS")]
)
def test_other_names_become_their_amino_acid(tmp_path: Path, name: str, parent: str) -> None:
    path = tmp_path / "x.pdb"
    path.write_text(REFERENCE.replace(" SER A1856", f" {name:4s}A1856"))
    assert read_structure(path).structure[0][0][0].name == parent
    assert (
        read_chains(path)[0].sequence == gemmi.find_tabulated_residue(parent).one_letter_code + SEQUENCE[1:]
    )


def test_homoserine_is_no_histidine(tmp_path: Path) -> None:
    path = tmp_path / "x.pdb"
    lines = REFERENCE.replace(" SER A1856", " HSE A1856").replace(" OG  HSE", " OD  HSE")
    path.write_text(lines)
    assert read_chains(path)[0].sequence == SEQUENCE


def test_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "x.cif"
    document = read_structure(CASES / "ref.pdb").structure.make_mmcif_document().as_string()
    path.write_text(document, encoding="utf-8-sig")
    assert read_chains(path)[0].sequence == SEQUENCE
    path.write_text(REFERENCE, encoding="utf-8-sig")
    assert read_chains(path)[0].sequence == SEQUENCE


ATOM_SITE = (
    "group_PDB", "id", "type_symbol", "label_atom_id", "label_alt_id", "label_comp_id", "label_asym_id",
    "label_seq_id", "Cartn_x", "Cartn_y", "Cartn_z", "occupancy", "B_iso_or_equiv", "auth_seq_id",
)  # fmt: skip


def write_atoms_alone(case: str, path: Path) -> None:
    """Write the atoms of a case as mmCIF, all in chain A and without entities, as small programs do."""
    rows = []
    for line in (CASES / f"{case}.pdb").read_text().splitlines():
        if line.startswith(("ATOM", "HETATM")):
            values = (line[:6], line[6:11], line[76:78], line[12:16], ".", line[17:20], "A", ".", line[30:38],
                      line[38:46], line[46:54], "1", "9", line[22:26])  # fmt: skip
            rows.append(" ".join(value.strip() for value in values))
    tags = "\n".join(f"_atom_site.{tag}" for tag in ATOM_SITE)
    path.write_text("data_x\nloop_\n" + tags + "\n" + "\n".join(rows) + "\n")


@pytest.mark.parametrize(
    ("case", "chains"),
    [
        ("ref", [SEQUENCE]),
        ("two_proteins_sameid", [SEQUENCE[:55], SEQUENCE[65:]]),
        ("waterfirst_noter", [SEQUENCE]),
        ("amber", [SEQUENCE]),
    ],
)
def test_mmcif_without_entities_gives_the_same_chains(tmp_path: Path, case: str, chains: list[str]) -> None:
    write_atoms_alone(case, tmp_path / "x.cif")
    assert [chain.sequence for chain in read_chains(tmp_path / "x.cif")] == chains


@pytest.mark.parametrize("tag", ["group_PDB", "label_atom_id", "label_comp_id", "label_asym_id"])
def test_missing_column_of_atoms_is_named(tmp_path: Path, tag: str) -> None:
    path = tmp_path / "x.cif"
    write_atoms_alone("ref", path)
    path.write_text(path.read_text().replace(f"_atom_site.{tag}", "_atom_site.other"))
    with pytest.raises(InputError, match=rf"x\.cif: its atoms lack _atom_site\.{tag}$"):
        read_structure(path)


def test_alternative_locations_in_mmcif_without_entities_are_of_one_molecule(tmp_path: Path) -> None:
    path = tmp_path / "x.cif"
    write_atoms_alone("ref", path)
    lines = path.read_text().splitlines()
    rows = [line.replace(" . ", " A ", 1) for line in lines if " 1860" in line]
    k = lines.index(next(line for line in lines if " 1860" in line))
    other = [row.replace(" A ", " B ", 1) for row in rows]
    lines[k : k + len(rows)] = [row for pair in zip(rows, other, strict=True) for row in pair]
    path.write_text("\n".join(lines) + "\n")
    (chain,) = read_chains(path)
    assert chain.sequence == SEQUENCE and chain.resolved == len(SEQUENCE)
    assert not read_structure(path).remarks


@pytest.mark.parametrize("coordinates", ["*" * 24, " " * 24, "     nan" * 3, "   1.000   2.000"])
def test_atoms_of_pdb_files_without_coordinates_are_named(tmp_path: Path, coordinates: str) -> None:
    lines = REFERENCE.splitlines(keepends=True)
    k = next(k for k, line in enumerate(lines) if line.startswith("ATOM")) + 5
    lines[k] = lines[k][:30] + coordinates + (lines[k][54:] if len(coordinates) == 24 else "\n")
    path = tmp_path / "x.pdb"
    path.write_text("".join(lines))
    with pytest.raises(InputError, match=rf"x\.pdb:{k + 1}: an atom without numbers in columns 31 to 54"):
        read_structure(path)


def test_atoms_after_end_are_counted(tmp_path: Path) -> None:
    lines = [line + "\n" for line in REFERENCE.splitlines() if line.startswith("ATOM")]
    path = tmp_path / "x.pdb"
    path.write_text("".join([*lines, "END\nATOMS 50\n", *lines[:6], "END\n"]))
    assert f"left out: 7 atoms after END in line {len(lines) + 1}" in read_structure(path).remarks
    path.write_text("".join(["MODEL        1\n", *lines, "ENDMDL\n", "END   \n"]))
    assert not read_structure(path).remarks


def test_chains_after_the_hundred_thousandth_atom_are_read(tmp_path: Path) -> None:
    lines = [line for line in REFERENCE.splitlines() if line.startswith("ATOM")]
    others = [f"ATOM {100_000 + k}{line[11:21]}B{line[22:]}" for k, line in enumerate(lines)]
    path = tmp_path / "x.pdb"
    path.write_text("\n".join([*lines, *others, "END\n"]))
    assert [chain.sequence for chain in read_chains(path)] == [SEQUENCE, SEQUENCE]


def test_one_location_of_each_atom_and_molecules_of_the_same_number_are_kept(tmp_path: Path) -> None:
    def atom(
        name: str, residue: str, number: int, x: float, occupancy: float = 1.0, kind: str = "ATOM"
    ) -> str:
        return (
            f"{kind:6s}    1  {name:3s}{residue:>4s} A{number:4d}    {x:8.3f}{0:8.3f}{0:8.3f}{occupancy:6.2f}"
            f"{10:6.2f}           C\n"
        )

    path = tmp_path / "x.pdb"
    lines = [atom("CA", "GLY", 1, 0), atom("CA", "ASER", 2, 3.8, 0.4), atom("CA", "BSER", 2, 3.9, 0.6)]
    lines += [atom("CA", "ATHR", 3, 7.6, 0.5), atom("CA", "BVAL", 3, 7.7, 0.5)]
    path.write_text("".join([*lines, "TER\n", atom("C1", "LIG", 1, 20, kind="HETATM")]))
    structure = read_structure(path).structure
    keep_one_conformer(structure)
    found = [(residue.name, atom.pos.x) for residue in structure[0]["A"] for atom in residue]
    assert found == [("GLY", 0), ("SER", 3.9), ("THR", 7.6), ("LIG", 20)]


def test_polymers_of_an_mmcif_file_with_one_chain_id_are_told_apart(tmp_path: Path) -> None:
    document = read_structure(CASES / "two_proteins_sameid.pdb").structure.make_mmcif_document()
    for row in document[0].find("_atom_site.", ["auth_asym_id"]):
        row[0] = "A"
    document.write_file(str(tmp_path / "x.cif"))
    assert [chain.id for chain in read_chains(tmp_path / "x.cif")] == ["x_A", "x_B"]
    assert "another molecule under chain id A is chain B" in read_structure(tmp_path / "x.cif").remarks


@pytest.mark.parametrize(("chain", "has_ter"), [(" ", True), ("A", True), ("A", False)])
def test_nucleic_acids_without_chain_ids_are_chains_of_their_own(
    root: Path, tmp_path: Path, chain: str, has_ter: bool
) -> None:
    structure = gemmi.read_structure(str(root / "tests/features/templates/data/1lcd.cif.gz"))
    structure.setup_entities()
    strands = [structure[0][name].get_polymer() for name in "ABC"]
    sequence = strands[0].make_one_letter_sequence()
    lines = []
    for number, residue in enumerate((residue for strand in strands for residue in strand), 1):
        if has_ter and number in (52, 63):
            lines.append("TER\n")
        for atom in residue:
            lines.append(
                f"ATOM  {1:5d} {atom.padded_name():4s} {residue.name:>3s} {chain}{number:4d}    "
                f"{atom.pos.x:8.3f}{atom.pos.y:8.3f}{atom.pos.z:8.3f}{1:6.2f}{9:6.2f}          "
                f"{atom.element.name.upper():>2s}\n"
            )
    path = tmp_path / "x.pdb"
    path.write_text("".join(lines))
    (template,) = read_chains(path)
    assert (template.id, template.sequence) == ("x_A", sequence)
    counts = [len(chain.get_polymer()) for chain in read_structure(path).structure[0]]
    assert counts == ([51, 11, 11] if has_ter else [51, 22])


@pytest.mark.parametrize("record", ["ATOM", "HETATM"])
def test_nucleic_acids_with_gaps_and_of_hetatm_records_are_one_polymer(
    root: Path, tmp_path: Path, record: str
) -> None:
    structure = gemmi.read_structure(str(root / "tests/features/templates/data/1lcd.cif.gz"))
    structure.setup_entities()
    strand = list(structure[0]["B"].get_polymer())
    lines = []
    for number, residue in enumerate(strand, 1):
        if number in (5, 6):
            lines.append("TER\n")
            continue
        lines += [
            f"{record:6s}{1:5d} {atom.padded_name():4s} {residue.name:>3s} B{number:4d}    "
            f"{atom.pos.x:8.3f}{atom.pos.y:8.3f}{atom.pos.z:8.3f}{1:6.2f}{9:6.2f}          "
            f"{atom.element.name.upper():>2s}\n"
            for atom in residue
        ]
    path = tmp_path / "x.pdb"
    path.write_text("".join(lines))
    counts = [(chain.name, len(chain.get_polymer())) for chain in read_structure(path).structure[0]]
    assert counts == [("B", len(strand) - 2)]


def test_files_of_one_name_have_distinct_entries() -> None:
    paths = [Path(name) for name in ("a/m.pdb", "b/m.pdb", "b/m.cif", "c.pdb")]
    assert entry_ids(paths) == ["a_m", "b_m.pdb", "b_m.cif", "c"]
