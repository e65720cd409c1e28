"""Kinds of files that hold jobs with any molecules, for inputs.py."""

import gzip
import json
from pathlib import Path

from features.assembly.atoms import build_atoms
from features.assembly.tokens import build_tokens
from foldcli.inputs.failures import Failures
from foldcli.inputs.molecules.ligands import read_ligands
from foldcli.inputs.molecules.read import read_jobs
from foldcli.inputs.shard import Shard
from msa.base.errors import InputError
from tests.fuzz.fuzzing import Kind

_MAX_ATOMS = 3000
_ALIGNMENT = b">q\nMKVS\n>a TaxID=9\nMRV-\n"
_TABLE = b"key,sequence\n,MKVS\n7,MRV-\n"
_COMPONENT = """\
data_LG1
_chem_comp.id LG1
_chem_comp.type NON-POLYMER
loop_
_chem_comp_atom.comp_id
_chem_comp_atom.atom_id
_chem_comp_atom.type_symbol
_chem_comp_atom.charge
_chem_comp_atom.pdbx_leaving_atom_flag
LG1 C1 C 0 N
LG1 O1 O 0 Y
loop_
_chem_comp_bond.comp_id
_chem_comp_bond.atom_id_1
_chem_comp_bond.atom_id_2
_chem_comp_bond.value_order
LG1 C1 O1 SING
"""
_ALPHAFOLD3 = {
    "dialect": "alphafold3", "version": 4, "name": "a job", "modelSeeds": [1, 2],
    "userCCD": _COMPONENT,
    "bondedAtomPairs": [[["A", 1, "CA"], ["D", 1, "C2"]], [["E", 1, "O4"], ["E", 2, "C1"]]],
    "sequences": [
        {"protein": {
            "id": ["A", "B"], "sequence": "MKVS", "unpairedMsa": _ALIGNMENT.decode(), "pairedMsa": "",
            "modifications": [{"ptmType": "SEP", "ptmPosition": 4}],
            "templates": [{"mmcif": "data_x\n", "queryIndices": [0, 1], "templateIndices": [1, 2]}],
        }},
        {"rna": {"id": "R", "sequence": "ACGU", "unpairedMsaPath": "r.a3m"}},
        {"dna": {"id": "C", "sequence": "ACGT"}},
        {"ligand": {"id": "D", "ccdCodes": ["ATP"]}},
        {"ligand": {"id": "E", "ccdCodes": ["NAG", "NAG"]}},
        {"ligand": {"id": "F", "smiles": "CC(=O)[O-]"}},
        {"ligand": {"id": "G", "ccdCodes": ["LG1"]}},
    ],
}  # fmt: skip
_SERVER = [{
    "name": "x", "dialect": "alphafoldserver", "version": 1, "modelSeeds": [],
    "sequences": [
        {"proteinChain": {
            "sequence": "MNST", "count": 2, "glycans": [{"residues": "NAG(NAG)(FUC)", "position": 2}],
            "modifications": [{"ptmType": "CCD_SEP", "ptmPosition": 3}],
        }},
        {"ligand": {"ligand": "CCD_ATP", "count": 1}}, {"ion": {"ion": "MG", "count": 2}},
    ],
}]  # fmt: skip
_OPENFOLD3 = {
    "seeds": [1],
    "queries": {"q": {
        "use_msas": True, "covalent_bonds": [[["A", 1, "CA"], ["B", 1, "C1"]]],
        "chains": [
            {"molecule_type": "protein", "chain_ids": ["A"], "sequence": "MKVS",
             "non_canonical_residues": {"4": "SEP"}, "main_msa_file_paths": ["a.a3m"], "cyclic": False},
            {"molecule_type": "ligand", "chain_ids": "B", "smiles": "CCO"},
        ],
    }, "r": {"chains": [{"molecule_type": "protein", "chain_ids": ["A"], "sequence": "MKVS",
             "template_cif_paths": ["t.cif"], "template_cif_chain_ids": [None]}]}},
}  # fmt: skip
_BOLTZ = """\
version: 1
sequences:
  - protein:
      id: [A, B]
      sequence: MKVS
      msa: a.csv
      cyclic: true
      modifications:
        - {position: 4, ccd: SEP}
  - dna: {id: C, sequence: ACGT}
  - ligand: {id: D, ccd: ATP}
  - ligand: {id: E, smiles: CCO}
constraints:
  - bond: {atom1: [A, 1, CA], atom2: [D, 1, C2]}
templates: []
"""
_FASTA = (
    b">A|protein|a.a3m\nMKVS\n>B|rna\nACGU\n>C|ccd\nATP\n>D|smiles\nCC(=O)O\n",
    b">protein|name=A b\nMKVS\n>ligand|name=x\nCCO\n",
    b">one x\nMKVS:MKVS:ccd|ATP\n>two\nrna|ACGU:smiles|C/C=C/C\n",
    b">one\nMKVS\n>two\nMKV:MK*V\n>three\nACGUACGUACGUACGUACGUACGU\n",
)
_LIGANDS = (
    b"id\tsmiles\na\tCCO\nb\tC1CC1\n", b"smiles,name,ccd\nCCO,x,\n", b"CCO a\nc1ccccc1 b\n",
    b"x\n     RDKit          2D\n\n  2  1  0  0  0  0  0  0  0  0999 V2000\n"
    b"    0.0000    0.0000    0.0000 C   0  0\n    1.2990    0.7500    0.0000 O   0  0\n"
    b"  1  2  1  0\nM  END\n> <ID>\ny\n\n$$$$\n",
)  # fmt: skip


def check_failures(failures: Failures, path: Path) -> None:
    """Raise errors that are not one line naming the file, or a file next to it."""
    for _, error in failures.failed:
        if not isinstance(error, InputError) or "\n" in str(error) or str(path.parent) not in str(error):
            raise error


def check_jobs(path: Path) -> int:
    """Read jobs, name their atoms and tokens, and return the number of jobs."""
    neighbours = {"a.a3m": _ALIGNMENT, "r.a3m": b">r\nACGU\n", "a.csv": _TABLE, "t.cif": b"data_x\n"}
    for name, content in neighbours.items():
        path.with_name(name).write_bytes(content)
    failures = Failures(path.parent, Shard())
    jobs = read_jobs([str(path)], failures)
    check_failures(failures, path)
    for name, job in jobs:
        if "/" in name or not name.isascii() or not name.isprintable() or name.startswith((".", "-")):
            raise AssertionError(f"the name {name!r} is not file-safe")
        if sum(len(getattr(entity, "sequence", "")) for entity in job.entities) < _MAX_ATOMS:
            build_tokens(build_atoms(job))
    return len(jobs)


def check_ligands(path: Path) -> int:
    """Read the ligands of a screen, and return their number."""
    failures = Failures(path.parent, Shard())
    ligands = read_ligands(path, failures)
    check_failures(failures, path)
    return len(ligands)


def molecule_kinds() -> list[Kind]:
    """Return the kinds of files that hold jobs with any molecules."""
    documents = [json.dumps(job, indent=1).encode() for job in (_ALPHAFOLD3, _SERVER, _OPENFOLD3)]
    component = json.dumps({**_ALPHAFOLD3, "userCCD": "", "userCCDPath": "c.cif"}).encode()

    def check_components(path: Path) -> int:
        path.with_name("job.json").write_bytes(component)
        return check_jobs(path.with_name("job.json"))

    return [
        Kind("jobs json", "job.json", documents, check_jobs, "json"),
        Kind("jobs yaml", "job.yaml", [_BOLTZ.encode()], check_jobs),
        Kind("jobs fasta", "job.fasta", _FASTA, check_jobs),
        Kind("jobs compressed", "job.json", list(map(gzip.compress, documents)), check_jobs),
        Kind("user components", "c.cif", [_COMPONENT.encode()], check_components),
        Kind("ligands", "ligands.smi", _LIGANDS, check_ligands),
    ]
