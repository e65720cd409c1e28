"""The amino acids: letters, names, heavy atoms and their ideal positions, in AlphaFold2's orders.

The only table of these; every package may import it.
"""

import json
from pathlib import Path

# letters of residue codes 0 to 19, and the codes of an alignment's other positions
RESTYPES = "ARNDCQEGHILKMFPSTWYV"
UNKNOWN, GAP, MASK = 20, 21, 22
NUM_CODES = 22  # of an alignment: twenty residues, unknown, gap
NUM_MASKED_CODES = 23  # of a masked alignment: the same, and mask

Point = tuple[float, float, float]

# Rigid group and idealised position of each heavy atom, in atom14 order, from residues.json. Groups: 0
# backbone, 1 pre-omega (no heavy atom), 2 phi (none), 3 psi, 4 to 7 chi1 to chi4. Positions (Å) are relative
# to the end atom of the group's rotation axis, which is the x axis; the atom that defines the torsion is in
# the xy plane with y > 0.
# Values: Jumper et al., Nature 596, 583 (2021), supplement section 1.8.4, as published with AlphaFold2.
RIGID_GROUPS: dict[str, dict[str, tuple[int, Point]]] = {
    residue: {atom: (group, (x, y, z)) for atom, (group, x, y, z) in atoms.items()}
    for residue, atoms in json.loads(Path(__file__).with_suffix(".json").read_text()).items()
}

# residue names by code; the last is the unknown residue
RESTYPE_NAMES = [*RIGID_GROUPS, "UNK"]
LETTERS = dict(zip(RIGID_GROUPS, RESTYPES, strict=True))

# the heavy atoms of each residue, 14 at most
ATOM14_NAMES = {name: [*atoms] for name, atoms in RIGID_GROUPS.items()} | {"UNK": []}

# element of each heavy atom, and of the last one of a chain, OXT
ELEMENTS = {
    "N": "N", "CA": "C", "C": "C", "CB": "C", "O": "O", "CG": "C", "CG1": "C", "CG2": "C", "OG": "O",
    "OG1": "O", "SG": "S", "CD": "C", "CD1": "C", "CD2": "C", "ND1": "N", "ND2": "N", "OD1": "O", "OD2": "O",
    "SD": "S", "CE": "C", "CE1": "C", "CE2": "C", "CE3": "C", "NE": "N", "NE1": "N", "NE2": "N", "OE1": "O",
    "OE2": "O", "CH2": "C", "NH1": "N", "NH2": "N", "OH": "O", "CZ": "C", "CZ2": "C", "CZ3": "C", "NZ": "N",
    "OXT": "O",
}  # fmt: skip
ATOM37 = [*ELEMENTS]
ATOM_ORDER = {name: index for index, name in enumerate(ATOM37)}
