"""Make data/: small mmCIF files, and the template features that DeepMind's code makes of them.

    python make_goldens.py FOLDER        (needs alphafold-colabfold 2.3 and gemmi)

FOLDER holds mmCIF files of the PDB: 1A7G, 1A8O, 1AS5, 1GBT, 1LCD, 2OFG, 2XHE, 4CUP and 4ZHL. Of these the
categories with sequences and coordinates are kept, and the first two models.
"""

import gzip
import sys
from pathlib import Path

import gemmi
import numpy as np
from alphafold.data import mmcif_parsing, templates
from Bio.Data import PDBData

DATA = Path(__file__).parent / "data"
CASES = ["1A7G_E", "1A8O_A", "1AS5_A", "1GBT_A", "1LCD_A", "2OFG_X", "2XHE_B", "4CUP_A", "4ZHL_U", "4ZHL_P"]
CATEGORIES = [
    "_entry.", "_exptl.", "_entity.", "_entity_poly.", "_entity_poly_seq.", "_chem_comp.", "_struct_asym.",
    "_pdbx_audit_revision_history.", "_refine.", "_atom_site.",
]  # fmt: skip
# Newer versions of Biopython moved modified residues to another table; AlphaFold2 was published with this one
PDBData.protein_letters_3to1 = PDBData.protein_letters_3to1_extended


def trim(path: Path) -> str:
    """Return an mmCIF file without the categories that are not needed, and without most models."""
    block = gemmi.cif.read(str(path)).sole_block()
    for name in block.get_mmcif_category_names():
        if name not in CATEGORIES:
            block.find_mmcif_category(name).erase()
    atoms = block.find("_atom_site.", ["pdbx_PDB_model_num"])
    for row in range(len(atoms) - 1, -1, -1):
        if int(atoms[row][0]) > 2:
            atoms.remove_row(row)
    return block.as_string()


def main() -> None:
    """Write data/*.cif.gz and data/goldens.npz."""
    rng = np.random.default_rng(0)
    goldens = {}
    for case in CASES:
        entry, chain = case.split("_")
        text = trim(Path(sys.argv[1], f"{entry}.cif"))
        (DATA / f"{entry.lower()}.cif.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        parsed = mmcif_parsing.parse(file_id=entry, mmcif_string=text).mmcif_object
        sequence = parsed.chain_to_seqres[chain]
        # a query of other length, aligned in segments with gaps on both sides
        aligned = np.sort(rng.choice(len(sequence), round(0.8 * len(sequence)), replace=False))
        length = len(sequence) + 7
        query = np.sort(rng.choice(length, len(aligned), replace=False))
        features, _ = templates._extract_template_features(
            parsed, entry, dict(zip(query, aligned, strict=True)), sequence, "A" * length, chain, "none"
        )
        mask = features["template_all_atom_masks"].astype(bool)
        goldens |= {
            f"{case}/sequence": np.array(sequence),
            f"{case}/release_date": np.array(parsed.header.get("release_date", "")),
            f"{case}/pairs": np.stack([query, aligned], axis=1).astype(np.int16),
            f"{case}/template_aatype": features["template_aatype"].argmax(axis=1).astype(np.int8),
            f"{case}/mask": mask,
            f"{case}/positions": features["template_all_atom_positions"][mask].astype(np.float32),
        }
    np.savez_compressed(DATA / "goldens.npz", **goldens)


if __name__ == "__main__":
    main()
