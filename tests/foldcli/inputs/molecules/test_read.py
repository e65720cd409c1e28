"""The one reader of jobs: formats by content, names, and failures that stop nothing else."""

import gzip
import io
import json
from pathlib import Path

import numpy as np
import pytest

from features.assembly.atoms import build_atoms
from features.assembly.job import Ligand, MoleculeJob, Polymer
from features.chemistry.residue_classes import MoleculeKind
from features.templates.library.structure_files import read_chains
from foldcli.inputs.complexes import Complex
from foldcli.inputs.failures import Failures
from foldcli.inputs.formats.glycans import parse_glycan
from foldcli.inputs.molecules.read import read_jobs
from foldcli.inputs.queries import QuerySources, read_named_queries
from msa.base.errors import InputError

GB1 = "MTYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"
STRUCTURES = Path(__file__).parents[3] / "features" / "templates" / "data"


def read(path: Path, content: str | bytes, failures: Failures) -> list[tuple[str, MoleculeJob]]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_jobs([str(path)], failures)


def messages(failures: Failures) -> list[str]:
    return [str(error) for _, error in failures.failed]


def molecules(job: MoleculeJob) -> list[tuple[str, str, str]]:
    """Return kind, content and chains of each molecule."""
    return [
        (entity.kind.name, entity.sequence, "".join(entity.chains))
        if isinstance(entity, Polymer)
        else ("LIGAND", entity.smiles or "-".join(entity.codes), "".join(entity.chains))
        for entity in job.entities
    ]


def test_proteins_in_fasta_are_the_targets_of_fold(tmp_path: Path, failures: Failures) -> None:
    text = f">one first\n{GB1}*\n>pair\n{GB1}:MKV:{GB1}\n>one\n{GB1}\n>a/b\nMK*V\n>one\nMK\n"
    jobs = read(tmp_path / "q.fasta", text, failures)
    queries = read_named_queries(QuerySources([str(tmp_path / "q.fasta")], True, "BLOSUM62"), failures)
    assert not failures.failed
    assert [name for name, _ in jobs] == [name for name, _ in queries] == ["one", "pair", "a_b", "one_2"]
    for (_, job), (_, query) in zip(jobs, queries, strict=True):
        chains = query.chains if isinstance(query, Complex) else (query,)
        named = {name: entity.sequence for entity in job.entities for name in entity.chains}  # type: ignore[union-attr]
        assert [named[name] for name in sorted(named)] == [chain.sequence for chain in chains]
    assert molecules(jobs[1][1]) == [("PROTEIN", GB1, "AC"), ("PROTEIN", "MKV", "B")]


def test_nucleic_acids_without_a_kind_are_refused_and_named_ones_read(
    tmp_path: Path, failures: Failures
) -> None:
    rna = "ACGUACGUACGUACGUACGUACGU"
    assert read(tmp_path / "n.fa", f">gb1\n{GB1}\n>tRNA\n{rna}\n", failures)[0][0] == "gb1"
    (message,) = messages(failures)
    assert message.startswith(f"{tmp_path}/n.fa:3: ") and "tRNA" in message and ">A|rna" in message
    jobs = dict(
        read(tmp_path / "m.fa", f">x\nrna|{rna}:MKV:ccd|atp\n>y\nMKV:smiles|C(=O)N[C@@;H]\n", failures)
    )
    assert molecules(jobs["x"]) == [("RNA", rna, "A"), ("PROTEIN", "MKV", "B"), ("LIGAND", "ATP", "C")]
    assert molecules(jobs["y"])[1] == ("LIGAND", "C(=O)N[C@@:H]", "B")
    assert len(failures.failed) == 1


@pytest.mark.parametrize(
    "text", [">A|protein\nMKV\n>B|rna\nACGU\n", ">protein|name=A\nMKV\n>rna|name=B\nACGU\n"]
)
def test_headers_that_name_kinds_make_one_job(text: str, tmp_path: Path, failures: Failures) -> None:
    ((name, job),) = read(tmp_path / "my job.fasta", text, failures)
    assert name == "my_job" and not failures.failed
    assert molecules(job) == [("PROTEIN", "MKV", "A"), ("RNA", "ACGU", "B")]


def test_formats_are_recognised_by_content_compressed_and_with_byte_order_mark(
    tmp_path: Path, failures: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    entity = {"protein": {"id": "A", "sequence": "MKV"}}
    chain = {"molecule_type": "protein", "chain_ids": "A", "sequence": "MKV"}
    contents = {
        "json": json.dumps({"name": "job", "sequences": [entity], "dialect": "alphafold3", "version": 4}),
        "yaml": "version: 1\nsequences:\n  - protein: {id: A, sequence: MKV}\n",
        "queries": json.dumps({"queries": {"job": {"chains": [chain]}}}),
        "table": "id,sequence\njob,MKV\n",
        "fasta": ">job\nMKV\n",
        "a3m": ">job\nMKV\n>other\nM-V\n",
    }
    for kind, text in contents.items():
        data = gzip.compress(b"\xef\xbb\xbf" + text.encode())
        ((name, job),) = read(tmp_path / "job", data, failures)
        assert (name, molecules(job)) == ("job", [("PROTEIN", "MKV", "A")]), kind
    alignment = job.entities[0].alignment  # type: ignore[union-attr]
    assert alignment is not None and len(alignment) == 2
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(contents["yaml"].encode())))
    assert [name for name, _ in read_jobs(["-"], failures)] == ["stdin"]
    assert not failures.failed


def test_one_bad_job_and_one_bad_file_do_not_stop_the_others(tmp_path: Path, failures: Failures) -> None:
    jobs = [
        {"name": "good", "sequences": [{"proteinChain": {"sequence": "MKV", "count": 2}}]},
        {"name": "bad", "sequences": [{"proteinChain": {"sequence": "MK7", "count": 1}}]},
        {"name": "good", "sequences": [{"proteinChain": {"sequence": "MKW", "count": 1}}]},
    ]
    text = json.dumps(jobs, indent=1)
    (tmp_path / "a.json").write_text(text)
    (tmp_path / "b.yaml").write_text("version: 1\nsequences: []\n")
    (tmp_path / "c.fa").write_text(">last\nMKV\n")
    (tmp_path / "c.a3m").write_text(">not a job: an alignment\nMKV\n")
    (tmp_path / ".d.json").write_text("{")
    read_names = [name for name, _ in read_jobs([str(tmp_path)], failures)]
    assert read_names == ["good", "good_2", "last"]
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "MK7" in row)
    assert messages(failures)[0] == f"{tmp_path}/a.json:{line}: '7' is not a residue letter"
    assert messages(failures)[1].startswith(f"{tmp_path}/b.yaml:2: ") and len(failures.failed) == 2


def test_complex_alignment_becomes_a_job_with_paired_rows(tmp_path: Path, failures: Failures) -> None:
    text = "#3,2\t1,2\n>101\t102\nMKVGA\n>a\tb\nMRVGG\n>101\nMKV--\n>x\nMK---\n>102\n---GA\n"
    ((_, job),) = read(tmp_path / "pair.a3m", text, failures)
    assert molecules(job) == [("PROTEIN", "MKV", "A"), ("PROTEIN", "GA", "BC")]
    first, second = job.entities
    assert isinstance(first, Polymer) and isinstance(second, Polymer)
    assert first.paired is not None and first.paired.sequences == ["MKV", "MRV"]
    assert second.paired is not None and second.paired.sequences == ["GA", "GG"]
    assert first.alignment is not None and first.alignment.sequences == ["MKV", "MK-"]


def test_glycans_of_the_server_are_ligands_with_assumed_bonds(
    tmp_path: Path, failures: Failures, caplog: pytest.LogCaptureFixture
) -> None:
    chain = {
        "sequence": "MNGT",
        "count": 2,
        "glycans": [{"residues": "NAG(NAG(BMA(MAN)(MAN)))(FUC)", "position": 2}],
    }
    text = json.dumps(
        {"name": "g", "dialect": "alphafoldserver", "version": 1, "sequences": [{"proteinChain": chain}]}
    )
    ((_, job),) = read(tmp_path / "g.json", text, failures)
    assert not failures.failed
    assert molecules(job)[1:] == [("LIGAND", "NAG-NAG-BMA-MAN-MAN-FUC", name) for name in "CD"]
    bonds = [f"{bond.first}-{bond.second}" for bond in job.bonds[:6]]
    assert bonds == [
        "A:2:ND2-C:1:C1", "C:1:O4-C:2:C1", "C:2:O4-C:3:C1", "C:3:O3-C:4:C1", "C:3:O6-C:5:C1", "C:1:O6-C:6:C1",
    ]  # fmt: skip
    assert "assumed" in caplog.text and "A:2:ND2" in caplog.text
    atoms = build_atoms(job)  # every atom exists, and anomeric oxygens leave
    assert not np.any((atoms.name == "O1") & (atoms.kind == MoleculeKind.LIGAND))


@pytest.mark.parametrize("text", ["", "(NAG)", "NAG(", "NAG)", "NAG()", "NAG NAG", "NAG((FUC))", "N+G"])
def test_damaged_glycans_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"x\.json:3: glycan"):
        parse_glycan(text, 1, "x.json", 3)


def test_tables_of_boltz_have_the_species_of_their_keys(tmp_path: Path, failures: Failures) -> None:
    (tmp_path / "a.csv").write_text("key,sequence\n,MKV\n7,MRV\n7,M-V\n-1,MKL\n")
    text = "version: 1\nsequences:\n  - protein: {id: A, sequence: MKV, msa: a.csv}\n"
    ((_, job),) = read(tmp_path / "job.yaml", text, failures)
    alignment = job.entities[0].alignment  # type: ignore[union-attr]
    assert alignment is not None
    assert alignment.sequences == ["MKV", "MRV", "M-V", "MKL"] and alignment.species == ("", "7", "7", "")
    # as pandas writes keys of which some are missing
    (tmp_path / "a.csv").write_text("key,sequence\nNaN,MKV\n7.0,MRV\n7.0,M-V\n-1.0,MKL\n")
    ((_, other),) = read(tmp_path / "job.yaml", text, failures)
    assert other.entities[0].alignment.species == alignment.species  # type: ignore[union-attr]
    (tmp_path / "a.csv").write_text("sequence\nMKV\n")
    assert not read(tmp_path / "job.yaml", text, failures)
    assert messages(failures) == [
        f"{tmp_path}/a.csv:1: no column 'key': the first line must name `key` and `sequence`"
    ]


def test_rows_of_a_table_name_molecules(tmp_path: Path, failures: Failures) -> None:
    text = "id,sequence\nfirst,MKVSG:ccd|ATP\nsecond,MKV:rna|ACGU\nthird,MKV:glycan|X\n"
    jobs = read(tmp_path / "table.csv", text, failures)
    assert [(name, len(job.entities)) for name, job in jobs] == [("first", 2), ("second", 2)]
    assert len(messages(failures)) == 1 and f"{tmp_path}/table.csv:4: " in messages(failures)[0]


def test_rows_of_molecules_have_the_names_of_protein_rows_and_name_no_files(
    tmp_path: Path, failures: Failures
) -> None:
    text = "id,sequence,a3mpath\nmy first,MKVSG:ccd|ATP,\nmy second,MKV:ccd|ATP,x.a3m\n,MKV,\n"
    jobs = read(tmp_path / "table.csv", text, failures)
    assert [name for name, _ in jobs] == ["my_first"]
    assert [message.partition("csv:")[2] for message in messages(failures)] == [
        "3: a3mpath names an alignment: not supported in a table",
        "4: no id",
    ]


def test_templates_of_boltz_and_openfold3_are_aligned(tmp_path: Path, failures: Failures) -> None:
    file = min(STRUCTURES.glob("*.cif.gz"), key=lambda path: path.stat().st_size)
    chain = read_chains(file)[0]
    name, sequence = chain.id.rpartition("_")[2], chain.sequence[2:18]
    yaml = (
        f"version: 1\nsequences:\n  - protein: {{id: A, sequence: {sequence}}}\n"
        f"templates:\n  - cif: {file}\n    chain_id: A\n    template_id: {name}\n"
    )
    query = {
        "molecule_type": "protein",
        "chain_ids": ["A"],
        "sequence": sequence,
        "template_cif_paths": [str(file)],
    }
    jobs = read(tmp_path / "job.yaml", yaml, failures)
    jobs += read(tmp_path / "job.json", json.dumps({"queries": {"q": {"chains": [query]}}}), failures)
    assert not failures.failed and len(jobs) == 2
    for _, job in jobs:
        (template,) = job.entities[0].templates or ()  # type: ignore[union-attr]
        assert template.query_positions == tuple(range(16))
        assert template.template_positions == tuple(range(2, 18))
        assert "_atom_site" in template.text and template.chain
    assert not read(tmp_path / "bad.yaml", yaml.replace(f"template_id: {name}", "template_id: zz"), failures)
    assert f"{tmp_path}/bad.yaml:5: template" in messages(failures)[0]


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ("constraints:\n  - pocket: {binder: A}\n", "constraints of kind 'pocket'"),
        ("properties:\n  - affinity: {binder: A}\n", "affinity"),
    ],
)
def test_constraints_and_affinity_are_refused_by_name(
    section: str, reason: str, tmp_path: Path, failures: Failures
) -> None:
    text = "version: 1\nsequences:\n  - protein: {id: A, sequence: MKV}\n" + section
    assert not read(tmp_path / "job.yaml", text, failures)
    (message,) = messages(failures)
    assert reason in message and message.startswith(f"{tmp_path}/job.yaml:")


def test_folders_of_alignments_and_switches_of_templates_are_followed(
    tmp_path: Path, failures: Failures, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "msas").mkdir()
    (tmp_path / "msas" / "a.a3m").write_text(">q\nMKV\n>a\nMRV\n")
    (tmp_path / "msas" / "b.a3m").write_text(">q\nMKV\n>b\nM-V\n")
    chain = {"molecule_type": "protein", "chain_ids": "A", "sequence": "MKV", "main_msa_file_paths": "msas"}
    ((_, job),) = read(tmp_path / "q.json", json.dumps({"queries": {"q": {"chains": [chain]}}}), failures)
    alignment = job.entities[0].alignment  # type: ignore[union-attr]
    assert alignment is not None and alignment.sequences == ["MKV", "MRV", "MKV", "M-V"]
    server = {"sequence": "MKV", "count": 1, "useStructureTemplate": False, "maxTemplateDate": "2020-01-01"}
    text = json.dumps([{"name": "a\x1bb c", "modelSeeds": ["7"], "sequences": [{"proteinChain": server}]}])
    ((name, job),) = read(tmp_path / "s.json", text, failures)
    assert (name, job.name, job.seeds) == ("a_b_c", "a_b_c", (7,))
    assert job.entities[0].templates == ()  # type: ignore[union-attr]
    assert "maxTemplateDate is ignored" in caplog.text and not failures.failed


def test_unusual_ligand_is_kept(tmp_path: Path, failures: Failures) -> None:
    ((_, job),) = read(tmp_path / "l.fasta", ">L|ccd\nhem\n", failures)
    assert job.entities == (Ligand(("L",), ("HEM",), line=1),)


@pytest.mark.parametrize("header", ["g|glycan", "B|lignad", "chain B"])
def test_first_record_of_no_kind_is_no_protein_among_records_of_kinds(
    header: str, tmp_path: Path, failures: Failures
) -> None:
    assert not read(tmp_path / "job.fasta", f">{header}\nNAG\n>A|protein\nMKV\n", failures)
    (message,) = messages(failures)
    assert message.startswith(f"{tmp_path}/job.fasta:1: header '{header}' names no kind of chain")
