"""Readers of jobs with any molecules: the same job from each program's file, and errors with their place."""

import json
from typing import Any

import pytest

from features.assembly.job import Ligand, Modification, MoleculeJob, Polymer
from features.chemistry.residue_classes import MoleculeKind
from foldcli.inputs.formats.alphafold3 import alphafold3_jobs
from foldcli.inputs.formats.boltz import parse_boltz_job
from foldcli.inputs.formats.fasta import parse_fasta_jobs
from foldcli.inputs.formats.json_with_lines import parse_json_with_lines
from foldcli.inputs.formats.openfold3 import openfold3_jobs
from msa.base.errors import InputError

ALPHAFOLD3 = {
    "dialect": "alphafold3",
    "version": 2,
    "name": "job",
    "modelSeeds": [1, 7],
    "sequences": [
        {
            "protein": {
                "id": ["A", "B"],
                "sequence": "MKVS",
                "modifications": [{"ptmType": "SEP", "ptmPosition": 4}],
            }
        },
        {"dna": {"id": "C", "sequence": "ACGT"}},
        {"ligand": {"id": "D", "ccdCodes": ["ATP"]}},
        {"ligand": {"id": "E", "smiles": "CCO"}},
    ],
    "bondedAtomPairs": [[["A", 1, "CA"], ["D", 1, "C2"]]],
}  # fmt: skip
BOLTZ = """\
version: 1
sequences:
  - protein:
      id: [A, B]
      sequence: MKVS
      modifications:
        - {position: 4, ccd: SEP}
  - dna: {id: C, sequence: ACGT}
  - ligand: {id: D, ccd: ATP}
  - ligand: {id: E, smiles: CCO}
constraints:
  - bond: {atom1: [A, 1, CA], atom2: [D, 1, C2]}
"""
OPENFOLD3 = {
    "queries": {
        "job": {
            "chains": [
                {
                    "molecule_type": "protein",
                    "chain_ids": ["A", "B"],
                    "sequence": "MKVS",
                    "non_canonical_residues": {"4": "SEP"},
                },
                {"molecule_type": "dna", "chain_ids": ["C"], "sequence": "ACGT"},
                {"molecule_type": "ligand", "chain_ids": ["D"], "ccd_codes": ["ATP"]},
                {"molecule_type": "ligand", "chain_ids": ["E"], "smiles": "CCO"},
            ]
        }
    }
}  # fmt: skip
FASTA = ">A|protein\nMKVS\n>C|dna\nACGT\n>D|ccd\nATP\n>E|smiles\nCCO\n"


def parsed(content: object) -> Any:
    return parse_json_with_lines(json.dumps(content, indent=1).encode(), "job.json")


def check_molecules(
    job: MoleculeJob, copies: tuple[str, ...], modifications: tuple[Modification, ...]
) -> None:
    protein, dna, atp, ethanol = job.entities
    assert isinstance(protein, Polymer) and isinstance(dna, Polymer)
    assert (protein.kind, protein.sequence, protein.chains) == (MoleculeKind.PROTEIN, "MKVS", copies)
    assert protein.modifications == modifications
    assert (dna.kind, dna.sequence, dna.chains) == (MoleculeKind.DNA, "ACGT", ("C",))
    assert isinstance(atp, Ligand) and isinstance(ethanol, Ligand)
    assert (atp.codes, atp.chains, ethanol.smiles, ethanol.chains) == (("ATP",), ("D",), "CCO", ("E",))


def test_each_program_describes_the_same_molecules() -> None:
    (alphafold3,) = alphafold3_jobs(parsed(ALPHAFOLD3), "job.json")
    boltz = parse_boltz_job(BOLTZ.encode(), "job.yaml", "job")
    (openfold3,) = openfold3_jobs(parsed(OPENFOLD3), "query.json")
    (fasta,) = parse_fasta_jobs(FASTA.encode(), "job.fasta", "job")
    for job in (alphafold3, boltz, openfold3):
        check_molecules(job, ("A", "B"), (Modification(4, "SEP"),))
    check_molecules(fasta, ("A",), ())
    assert alphafold3.seeds == (1, 7) and boltz.seeds == ()
    for job in (alphafold3, boltz):
        (bond,) = job.bonds
        assert (str(bond.first), str(bond.second)) == ("A:1:CA", "D:1:C2")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sequences": [{"protein": {"id": "A", "sequence": "MK7"}}]}, "'7'"),
        ({"sequences": [{"polymer": {"id": "A"}}]}, "polymer"),
        ({"bondedAtomPairs": [[["A", 1, "CA"]]]}, "bond"),
        ({"sequences": [{"ligand": {"id": "A"}}]}, "ccdCodes"),
        ({"sequences": [{"ligand": {"id": "A", "count": 3, "ccdCodes": ["MG"]}}]}, "count is 3"),
        ({"sequences": [{"rna": {"id": "A", "sequence": "ACGU", "templates": [{}]}}]}, "templates of nucle"),
        ({"dialect": ["alphafold3"]}, "unknown dialect"),
    ],
)
def test_damaged_jobs_are_refused_with_their_line(change: dict[str, object], reason: str) -> None:
    with pytest.raises(InputError, match=reason) as error:
        alphafold3_jobs(parsed(ALPHAFOLD3 | change), "job.json")
    assert error.value.path == "job.json" and error.value.line


def paired_job(*paired: str | None) -> MoleculeJob:
    """Return a job of two proteins with these paired alignments."""
    sequences = [
        {"protein": {"id": chain, "sequence": query, "unpairedMsa": f">q\n{query}\n", "pairedMsa": rows}}
        for chain, query, rows in zip("AB", ("MKVS", "GATW"), paired, strict=True)
    ]
    (job,) = alphafold3_jobs(parsed(ALPHAFOLD3 | {"sequences": sequences, "bondedAtomPairs": []}), "job.json")
    return job


def uniprot(query: str, *rows: tuple[str, str]) -> str:
    named = (f">tr|A0A{n:03}|A0A{n:03}_{species}\n{row}\n" for n, (species, row) in enumerate(rows))
    return f">q\n{query}\n" + "".join(named)


def test_paired_alignments_of_alphafold3_are_paired_by_species() -> None:
    first = uniprot("MKVS", ("HUMAN", "MKVA"), ("MOUSE", "MKAA"), ("YEAST", "MAAA"))
    # as many rows, in another order
    second = uniprot("GATW", ("YEAST", "GAAA"), ("PIG", "GATA"), ("HUMAN", "AATW"))
    rows = [each.paired and each.paired.sequences for each in paired_job(first, second).polymers()]
    assert rows == [["MKVS", "MKVA", "MAAA"], ["GATW", "AATW", "GAAA"]]


def test_chains_of_one_sequence_keep_their_own_paired_rows() -> None:
    given = [("A", "MKVS", "HUMAN"), ("B", "MKVS", "MOUSE"), ("C", "GATW", "MOUSE"), ("D", "GATW", "HUMAN")]
    sequences = [
        {"protein": {"id": chain, "sequence": query, "unpairedMsa": f">q\n{query}\n",
                     "pairedMsa": uniprot(query, (species, query))}}
        for chain, query, species in given
    ]  # fmt: skip
    (job,) = alphafold3_jobs(parsed(ALPHAFOLD3 | {"sequences": sequences, "bondedAtomPairs": []}), "job.json")
    species = [each.paired and [name[-5:] for name in each.paired.names[1:]] for each in job.polymers()]
    assert sorted(map(sorted, species)) == [["", "HUMAN"]] * 2 + [["", "MOUSE"]] * 2


def test_rows_without_species_are_paired_as_they_are() -> None:
    rows = [
        each.paired and each.paired.sequences
        for each in paired_job(">q\nMKVS\n>a\nMKVA\n", ">q\nGATW\n>b\nGATA\n").polymers()
    ]
    assert rows == [["MKVS", "MKVA"], ["GATW", "GATA"]]


def test_empty_paired_alignment_means_no_pairs_and_null_that_rows_are_paired() -> None:
    assert [each.paired and len(each.paired) for each in paired_job("", None).polymers()] == [1, None]


def test_empty_paired_alignment_of_a_searched_protein_is_said_to_be_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sequences = [
        {"protein": {"id": "A", "sequence": "MKVS", "pairedMsa": ""}},
        {"protein": {"id": "B", "sequence": "GATW"}},
    ]
    (job,) = alphafold3_jobs(parsed(ALPHAFOLD3 | {"sequences": sequences, "bondedAtomPairs": []}), "job.json")
    assert len(job.proteins_to_search()) == 2
    assert "an empty pairedMsa without unpairedMsa is ignored" in caplog.text


def test_species_without_partner_are_said(caplog: pytest.LogCaptureFixture) -> None:
    job = paired_job(uniprot("MKVS", ("HUMAN", "MKVA")), uniprot("GATW", ("MOUSE", "GATA")))
    assert [each.paired and len(each.paired) for each in job.polymers()] == [1, 1]
    assert "pairedMsa: no species has rows of several chains" in caplog.text


@pytest.mark.parametrize("key", ["smiles", "ccd_codes"])
def test_keys_of_another_kind_of_chain_are_refused(key: str) -> None:
    chain = {"molecule_type": "protein", "chain_ids": "A", "sequence": "MKVS", key: "CO"}
    with pytest.raises(InputError, match=f"a chain of molecule_type protein has no '{key}'"):
        openfold3_jobs(parsed({"queries": {"job": {"chains": [chain]}}}), "query.json")
    chain = {"molecule_type": "ligand", "chain_ids": "A", "ccd_codes": "CO", "sequence": "MKVS"}
    with pytest.raises(InputError, match="a chain of molecule_type ligand has no 'sequence'"):
        openfold3_jobs(parsed({"queries": {"job": {"chains": [chain]}}}), "query.json")


def test_codes_are_read_in_any_case_and_with_the_prefix_of_alphafold_server() -> None:
    (alphafold3,) = alphafold3_jobs(parsed(lower_case(ALPHAFOLD3)), "job.json")
    changed = BOLTZ.replace("ATP", "CCD_ATP").replace("SEP", "sep").replace("- protein", "- Protein")
    boltz = parse_boltz_job(changed.encode(), "job.yaml", "job")
    (openfold3,) = openfold3_jobs(parsed(lower_case(OPENFOLD3)), "query.json")
    for job in (alphafold3, boltz, openfold3):
        check_molecules(job, ("A", "B"), (Modification(4, "SEP"),))


def lower_case(content: object) -> Any:
    return json.loads(json.dumps(content).replace("ATP", "atp").replace("SEP", "CCD_sep"))


def test_ids_with_commas_are_refused_in_headers() -> None:
    with pytest.raises(InputError, match=r"job\.fasta:1: chain id 'A,B' has a comma: give each chain a rec"):
        parse_fasta_jobs(FASTA.replace(">A|", ">A,B|").encode(), "job.fasta", "job")


def test_names_of_chains_for_chai_may_have_commas() -> None:
    (job,) = parse_fasta_jobs(b">protein|name=kinase, catalytic\nMKVS\n", "job.fasta", "job")
    assert job.entities[0].chains == ("kinase,_catalytic",)


@pytest.mark.parametrize(
    "section",
    [
        "properties:\n  - affinity: {binder: D}\n",
        "templates:\n  - cif: x.cif\n    force: true\n",
        "templates:\n  - cif: x.cif\n    pdb: x.pdb\n",
    ],
)
def test_what_does_not_work_yet_is_refused_by_name(section: str) -> None:
    with pytest.raises(InputError, match=section.split(":")[0] + "|affinity|both 'cif' and 'pdb'"):
        parse_boltz_job((BOLTZ + section).encode(), "job.yaml", "job")


@pytest.mark.parametrize(("text", "is_cyclic"), [("Yes", True), ("'true'", True), ("False", False)])
def test_flags_are_true_or_false_and_nothing_else(text: str, is_cyclic: bool) -> None:
    sequence = "      sequence: MKVS\n"
    changed = BOLTZ.replace(sequence, f"{sequence}      cyclic: {text}\n")
    (protein, *_) = parse_boltz_job(changed.encode(), "job.yaml", "job").entities
    assert isinstance(protein, Polymer) and protein.is_cyclic is is_cyclic
    with pytest.raises(InputError, match="'cyclic' is '1': expected true or false"):
        parse_boltz_job(changed.replace(text, "1").encode(), "job.yaml", "job")
    with pytest.raises(InputError, match="only version 1"):
        parse_boltz_job(BOLTZ.replace("version: 1", "version: 2").encode(), "job.yaml", "job")


@pytest.mark.parametrize("switch", ["use_msas", "use_main_msas"])
def test_queries_without_alignments_are_not_searched(switch: str) -> None:
    query = OPENFOLD3["queries"]["job"] | {switch: False}
    (job,) = openfold3_jobs(parsed({"queries": {"job": query}}), "query.json")
    assert not job.proteins_to_search()
    protein = job.entities[0]
    assert isinstance(protein, Polymer) and protein.alignment is not None and len(protein.alignment) == 1
    with pytest.raises(InputError, match=f"'{switch}' is 'no way'"):
        openfold3_jobs(parsed({"queries": {"job": query | {switch: "no way"}}}), "query.json")


def test_ligands_of_two_descriptions_are_refused() -> None:
    chain = {"molecule_type": "ligand", "chain_ids": "A", "smiles": "CCO", "ccd_codes": ["ATP"]}
    with pytest.raises(InputError, match="both 'smiles' and 'ccd_codes'"):
        openfold3_jobs(parsed({"queries": {"job": {"chains": [chain]}}}), "query.json")


def test_chains_of_templates_without_files_are_refused() -> None:
    chain = {
        "molecule_type": "protein",
        "chain_ids": "A",
        "sequence": "MKVS",
        "template_cif_chain_ids": ["A"],
    }
    with pytest.raises(InputError, match="chains of templates without template_cif_paths"):
        openfold3_jobs(parsed({"queries": {"job": {"chains": [chain]}}}), "query.json")


def test_smiles_in_brackets_are_to_be_quoted_in_yaml() -> None:
    with pytest.raises(InputError, match="'smiles' is not text; in YAML, quote text"):
        parse_boltz_job(BOLTZ.replace("smiles: CCO", "smiles: [Na+]").encode(), "job.yaml", "job")
    quoted = parse_boltz_job(BOLTZ.replace("smiles: CCO", "smiles: '[Na+]'").encode(), "job.yaml", "job")
    assert isinstance(quoted.entities[-1], Ligand) and quoted.entities[-1].smiles == "[Na+]"


@pytest.mark.parametrize("null", ["", "null", "~"])
def test_null_alignment_of_boltz_is_absent_and_chains_need_no_ids(null: str) -> None:
    text = f"sequences:\n- protein: {{sequence: MKVS, msa: {null}}}\n- ligand: {{id: A, ccd: ATP}}\n"
    text = text.replace("ccd: ATP", f"ccd: ATP, smiles: {null}")
    protein, _ = parse_boltz_job(text.encode(), "job.yaml", "job").entities
    assert isinstance(protein, Polymer) and protein.alignment is None and protein.chains == ("B",)
