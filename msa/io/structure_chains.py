"""Chain ids of structure files: one for each molecule, and one molecule for each chain id."""

import string
from collections.abc import Iterator

import gemmi

# protonation states and disulfides in the force fields Amber, CHARMM, GROMOS and OPLS
FORCE_FIELD_NAMES = {
    "HIE": "HIS", "HID": "HIS", "HIP": "HIS", "HSD": "HIS", "HSE": "HIS", "HSP": "HIS", "HISA": "HIS",
    "HISB": "HIS", "HISH": "HIS", "HISD": "HIS", "HISE": "HIS", "CYX": "CYS", "CYM": "CYS", "CYS1": "CYS",
    "CYS2": "CYS", "CYSH": "CYS", "ASH": "ASP", "ASPH": "ASP", "ASPP": "ASP", "GLH": "GLU", "GLUH": "GLU",
    "GLUP": "GLU", "LYN": "LYS", "LYSH": "LYS", "LYSN": "LYS", "LSN": "LYS", "ARN": "ARG", "ARGN": "ARG",
    "TYM": "TYR",
}  # fmt: skip
_MAX_BOND = 2.5  # Å, between C and N of bonded residues
_MAX_STEP = 4.0  # Å, between CA atoms of neighbouring residues
_MAX_NUCLEOTIDE_STEP = 7.5  # Å, between P or C1' atoms of neighbouring nucleotides
_LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits


def name_molecules(text: str) -> tuple[str, dict[str, tuple[str, str]]]:
    """Give each molecule of a PDB file a chain id of its own.

    A molecule ends at TER, where the residue numbers start again, where an atom of a residue comes again,
    and, without chain ids, where the segment id changes.

    Returns:
        The text, and for each new chain id the chain id and the segment id in the file.
    """
    lines = text.splitlines(keepends=True)
    used = {line[20:22].strip() for line in lines if line.startswith(("ATOM", "HETATM"))}
    molecules = _Molecules(used)
    for k, line in enumerate(lines):
        if line.startswith(("MODEL ", "ENDMDL")):
            molecules.begin_model()
        if line.startswith("TER"):
            molecules.end_chain()
        if not line.startswith(("ATOM", "HETATM")):
            continue
        # names of four letters, such as HISE, take the column before the chain id
        if long_name := FORCE_FIELD_NAMES.get(line[17:21].strip() if line[20] != " " else ""):
            line = f"{line[:17]}{long_name} {line[21:]}"
        chain = line[20:22].strip()
        name = molecules.add(line, chain, "" if chain else line[72:76].strip())
        lines[k] = f"{line[:20]}{name:>2s}{line[22:]}"
    return "".join(lines), molecules.names


def name_molecules_of_block(block: gemmi.cif.Block) -> dict[str, tuple[str, str]]:
    """Give each molecule of an mmCIF file without entities a chain id of its own; see `name_molecules`."""
    tags = ["group_PDB", "label_atom_id", "label_comp_id", "label_asym_id"]
    optional = ["label_alt_id", "auth_asym_id", "auth_seq_id", "label_seq_id"]
    optional += ["pdbx_PDB_ins_code", "pdbx_PDB_model_num"]
    table = block.find("_atom_site.", [*tags, *(f"?{tag}" for tag in optional)])
    values = {tag: k for k, tag in enumerate([*tags, *optional]) if table.width() and table.has_column(k)}
    chain_column = values.get("auth_asym_id", values.get("label_asym_id"))
    molecules = _Molecules({row.str(chain_column) for row in table} if chain_column is not None else set())
    model = None
    for row in table:

        def value(tag: str, row: gemmi.cif.Table.Row = row) -> str:
            text = row.str(values[tag]) if tag in values else ""
            return "" if text in (".", "?") else text

        if (number := value("pdbx_PDB_model_num")) != model:
            molecules.begin_model()
            model = number
        # the columns of a PDB file by which molecules are told apart
        position = value("auth_seq_id") or value("label_seq_id")
        line = (
            f"{value('group_PDB'):6s}      {value('label_atom_id'):4.4s}{value('label_alt_id'):1.1s}"
            f"{value('label_comp_id'):>3.3s}  {position:>4.4s}{value('pdbx_PDB_ins_code'):1.1s}"
        )
        assert chain_column is not None
        row[chain_column] = molecules.add(line, row.str(chain_column), "")
    return molecules.names


def name_polymers(block: gemmi.cif.Block) -> list[str]:
    """Give the polymers of an mmCIF file chain ids of their own, if several have the same; return remarks."""
    table = block.find("_atom_site.", ["auth_asym_id", "label_asym_id", "group_PDB"])
    first: dict[str, str] = {}
    renamed: dict[tuple[str, str], str] = {}
    free = _free_names({row.str(0) for row in table})
    for row in table:
        chain, polymer = row.str(0), row.str(1)
        if row.str(2) == "ATOM" and first.setdefault(chain, polymer) != polymer:
            renamed.setdefault((chain, polymer), next(free))
    if renamed:
        for row in table:
            row[0] = renamed.get((row.str(0), row.str(1)), row.str(0))
    return [_another_molecule(chain, new) for (chain, _), new in renamed.items()]


class _Molecules:
    """The molecules of a file, while its atoms are read."""

    def __init__(self, used: set[str]) -> None:
        self.names: dict[str, tuple[str, str]] = {}
        self._free = _free_names(used)
        self._pieces: dict[tuple[str, str], _Piece] = {}
        self._last: _Piece | None = None

    def begin_model(self) -> None:
        """Begin another model of the same molecules."""
        self._pieces = {key: _Piece(piece.name) for key, piece in self._pieces.items()}

    def end_chain(self) -> None:
        """End the molecule of the last atom."""
        if self._last is not None:
            self._last.has_ended = True

    def add(self, line: str, chain: str, segment: str) -> str:
        """Add an atom, and return the chain id of its molecule.

        Args:
            line: its record in a PDB file.
            chain: its chain id.
            segment: its segment id, if it has no chain id.
        """
        source = chain, segment
        piece = self._pieces.get(source)
        if piece is None or piece.ends_before(line):
            name = chain if piece is None and chain else next(self._free)
            if piece is not None and piece.following is not None:  # as in the model before
                name = piece.following
            self.names[name] = source
            following = _Piece(name)
            if piece is not None:
                piece.following = name
            piece = self._pieces[source] = following
        piece.add(line)
        self._last = piece
        return piece.name


class _Piece:
    """The atoms of one molecule, while the atoms of a file are read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.has_ended = False
        self.following: str | None = None
        self._atoms: set[str] = set()
        self._number: int | None = None

    def ends_before(self, line: str) -> bool:
        """Return True if an atom belongs to another molecule."""
        number = _number(line)
        falls = line.startswith("ATOM") and None not in (number, self._number) and number < self._number  # type: ignore[operator]
        return self.has_ended or falls or line[12:20] + line[22:27] in self._atoms

    def add(self, line: str) -> None:
        """Add an atom."""
        self._atoms.add(line[12:20] + line[22:27])
        if line.startswith("ATOM"):
            self._number = _number(line)


def _number(line: str) -> int | None:
    try:
        return int(line[22:26])
    except ValueError:
        return None


def _free_names(used: set[str]) -> Iterator[str]:
    """Return chain ids that are not used: letters and digits, then pairs of these."""
    for name in [*_LETTERS, *(a + b for a in _LETTERS for b in _LETTERS)]:
        if name not in used:
            yield name
    raise ValueError("more molecules than there are chain ids")


def divide_molecules(structure: gemmi.Structure, names: dict[str, tuple[str, str]]) -> list[str]:
    """Join the pieces of each molecule of a structure, and return remarks about those with other names."""
    used = set(names)
    for model in structure:
        _join_pieces(model, names, _free_names(used))
    remarks = []
    for chain in structure[0] if len(structure) else ():
        name, segment = names[chain.name]
        if not any(residue.entity_type == gemmi.EntityType.Polymer for residue in chain):
            continue
        if not name:
            origin = f" (segment {segment})" if segment else ""
            remarks.append(f"a molecule without chain id{origin} is chain {chain.name}")
        elif name != chain.name:
            remarks.append(_another_molecule(name, chain.name))
    return remarks


def _another_molecule(name: str, new: str) -> str:
    return f"another molecule under chain id {name} is chain {new}"


def _join_pieces(model: gemmi.Model, names: dict[str, tuple[str, str]], free: Iterator[str]) -> None:
    """Join the pieces of one molecule, and what is no polymer to the first piece of its chain.

    In each chain, the residues of the polymer come first. A piece of protein and nucleic acid becomes two
    chains, the second with a free name.
    """
    joined: dict[tuple[str, str], tuple[str, list[gemmi.Residue], list[gemmi.Residue]]] = {}
    chains: list[tuple[str, list[gemmi.Residue], list[gemmi.Residue]]] = []
    for chain in model:
        source = names[chain.name]
        protein, nucleotides, others = _divide([residue.clone() for residue in chain])
        pieces = [(protein, others), (nucleotides, [])] if protein and nucleotides else []
        for polymer, rest in pieces or [(protein or nucleotides, others)]:
            before = joined.get(source)
            if before is not None and (not polymer or not before[1] or _continues(before[1][-1], polymer[0])):
                before[1].extend(polymer)
                before[2].extend(rest)
                continue
            name = chain.name if polymer is not nucleotides or not protein else next(free)
            names[name] = source
            joined[source] = (name, polymer, rest)
            chains.append(joined[source])
    while len(model):
        del model[0]
    for name, polymer, others in chains:
        chain = gemmi.Chain(name)
        for residue in polymer:
            residue.entity_type = gemmi.EntityType.Polymer
            chain.add_residue(residue)
        for residue in others:
            is_water = gemmi.find_tabulated_residue(residue.name).is_water()
            residue.entity_type = gemmi.EntityType.Water if is_water else gemmi.EntityType.NonPolymer
            chain.add_residue(residue)
        model.add_chain(chain)


def _divide(
    residues: list[gemmi.Residue],
) -> tuple[list[gemmi.Residue], list[gemmi.Residue], list[gemmi.Residue]]:
    """Divide residues into protein, nucleic acid and others; single amino acids at the ends are ligands."""
    protein = [residue for residue in residues if is_amino_acid(residue)]
    while protein and protein[-1].het_flag == "H" and not _has_neighbour(protein, -1):
        protein.pop()
    while protein and protein[0].het_flag == "H" and not _has_neighbour(protein, 0):
        protein.pop(0)
    nucleotides = [
        residue for residue in residues if gemmi.find_tabulated_residue(residue.name).is_nucleic_acid()
    ]
    if nucleotides:
        protein = [residue for residue in protein if residue.het_flag != "H"]
    is_bonded = any(map(_is_next, nucleotides, nucleotides[1:]))
    if not is_bonded and all(residue.het_flag == "H" for residue in nucleotides):  # ligands
        nucleotides = []
    kept = {(str(residue.seqid), residue.name) for residue in (*protein, *nucleotides)}
    others = [residue for residue in residues if (str(residue.seqid), residue.name) not in kept]
    return protein, nucleotides, others


def _has_neighbour(protein: list[gemmi.Residue], end: int) -> bool:
    pair = protein[-2:] if end else protein[:2]
    return len(pair) == 2 and _is_next(*pair)


def is_amino_acid(residue: gemmi.Residue) -> bool:
    """Return True for amino acids, modified ones included, that are not ligands without a CA atom."""
    if residue.name in FORCE_FIELD_NAMES or gemmi.find_tabulated_residue(residue.name).is_amino_acid():
        return residue.find_atom("CA", "*", gemmi.Element("C")) is not None or residue.het_flag != "H"
    return all(residue.find_atom(name, "*") is not None for name in ("N", "CA", "C"))


def _is_next(residue: gemmi.Residue, following: gemmi.Residue) -> bool:
    """Return True if two residues are bonded; without C or N, by the distance of their CA atoms."""
    for first, second, limit in (
        ("C", "N", _MAX_BOND),
        ("CA", "CA", _MAX_STEP + 0.5),
        ("O3'", "P", _MAX_BOND),
    ):
        a, b = residue.find_atom(first, "*"), following.find_atom(second, "*")
        if a is not None and b is not None:
            return bool(a.pos.dist(b.pos) <= limit)
    return False


def _continues(residue: gemmi.Residue, following: gemmi.Residue) -> bool:
    """Return True if a piece continues a chain: bonded, or after a gap that its missing residues can span."""
    if _is_next(residue, following):
        return True
    if residue.seqid.num is None or following.seqid.num is None:
        return False
    step = following.seqid.num - residue.seqid.num
    for name, limit in (("CA", _MAX_STEP), ("P", _MAX_NUCLEOTIDE_STEP), ("C1'", _MAX_NUCLEOTIDE_STEP)):
        a, b = residue.find_atom(name, "*"), following.find_atom(name, "*")
        if a is not None and b is not None:
            return step > 1 and bool(a.pos.dist(b.pos) <= limit * step)
    return False
