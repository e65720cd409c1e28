"""AlphaFold 3's JSON and Boltz's YAML as queries: valid, unsupported and invalid."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from features.templates.library.structure_files import read_chains
from foldcli.inputs.complexes import pair_all
from foldcli.inputs.queries import Query, name_queries, read_queries
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord, UnsupportedRecord
from msa.profile.pssm import ProfileRecord
from msa.search.database_search import check_query

GB1 = "MTYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"
UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
STRUCTURES = Path(__file__).parents[2] / "features" / "templates" / "data"
FAMILY = f">first\n{GB1}\n>second\n{GB1[:30].replace('K', 'R')}{'-' * 26}\n>third\n{GB1.replace('T', 'S')}\n"


def read(path: Path, content: str | bytes | dict | list) -> list[Query]:
    if isinstance(content, dict | list):
        content = json.dumps(content, indent=1)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_queries(path)


def as_pairs(records: list[Query]) -> list[tuple[str, str]]:
    return [(record.header, record.sequence) for record in records if isinstance(record, FastaRecord)]


def unsupported_error(record: Query) -> str:
    assert isinstance(record, UnsupportedRecord)
    with pytest.raises(InputError) as caught:
        check_query(record)
    assert "only protein chains are supported, without ligands, nucleic acids or modifications" in str(
        caught.value
    )
    return str(caught.value)


def program_job(*entities: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "name": "job 1",
        "modelSeeds": [1],
        "sequences": list(entities),
        "dialect": "alphafold3",
        "version": 3,
    } | fields


def protein(**fields: Any) -> dict[str, Any]:
    return {"protein": {"id": "A", "sequence": GB1} | fields}


def server_protein(**fields: Any) -> dict[str, Any]:
    return {"proteinChain": {"sequence": GB1, "count": 1} | fields}


# --- all formats


def test_names_have_no_control_characters_and_stop_codons_become_x(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = {
        "q.csv": "id,sequence\na\x1b[31m\0b,MK*V*\n",
        "q.json": json.dumps({"name": "a\x1b[31m\0b", "sequences": [server_protein(sequence="MK*V*")]}),
    }
    for name, text in texts.items():
        caplog.clear()
        ((_, record),) = name_queries(read(tmp_path / name, text))
        assert (record.id, record.sequence) == ("a_[31m_b", "MKXV")
        assert "stop codons ('*') read as X" in caplog.text


def test_empty_chain_is_unsupported_and_other_records_are_read(tmp_path: Path) -> None:
    for name, text in (
        ("q.csv", f"id,sequence\none,{GB1}\ntwo,{GB1}::{UBIQUITIN}\nthree,{UBIQUITIN}\n"),
        ("q.fasta", f">one\n{GB1}\n>two\n{GB1}:\n*:{UBIQUITIN}\n>three\n{UBIQUITIN}\n"),
    ):
        one, two, three = read(tmp_path / name, text)
        assert as_pairs([one, three]) == [("one", GB1), ("three", UBIQUITIN)]
        check_query(one)
        assert unsupported_error(two).startswith(f"{tmp_path / name}:3: 'two' has an empty chain")


# --- AlphaFold 3


def test_both_alphafold3_dialects_are_read(tmp_path: Path) -> None:
    empty_fields = {"modifications": [], "templates": [], "unpairedMsa": None, "pairedMsa": None}
    assert as_pairs(read(tmp_path / "q.json", program_job(protein(**empty_fields)))) == [("job_1", GB1)]
    assert as_pairs(read(tmp_path / "q.json", program_job(protein(id=["A"])))) == [("job_1", GB1)]
    server = [
        {"name": name, "modelSeeds": [], "sequences": [server_protein(glycans=[], useStructureTemplate=True)]}
        for name in ("a", "b")
    ]
    assert as_pairs(read(tmp_path / "q.json", server)) == [("a", GB1), ("b", GB1)]
    # recognised without a suffix
    assert as_pairs(read(tmp_path / "job", program_job(protein()))) == [("job_1", GB1)]


def test_alignment_of_a_job_becomes_a_profile_query(tmp_path: Path) -> None:
    (query,) = read(tmp_path / "q.json", program_job(protein(unpairedMsa=FAMILY, templates=[])))
    assert isinstance(query, ProfileRecord) and query.header == "job_1"
    (tmp_path / "family.a3m").write_text(FAMILY)
    (named,) = read(tmp_path / "q.json", program_job(protein(unpairedMsaPath="family.a3m")))
    assert isinstance(named, ProfileRecord) and (named.profile == query.profile).all()
    (boltz,) = read(
        tmp_path / "b.yaml", f"sequences:\n- protein: {{id: A, sequence: {GB1}, msa: family.a3m}}\n"
    )
    assert isinstance(boltz, ProfileRecord) and (boltz.profile == query.profile).all()
    with pytest.raises(InputError, match="differs from its sequence"):
        read(tmp_path / "q.json", program_job(protein(sequence=UBIQUITIN, unpairedMsa=FAMILY)))


@pytest.mark.parametrize(
    ("job", "content"),
    [
        (program_job(protein(), protein(id="B"), {"ligand": {"id": "L", "ccdCodes": ["ATP"]}}), "a ligand"),
        (program_job(protein(), protein(id="B", pairedMsa=FAMILY)), "a paired alignment (pairedMsa)"),
        (program_job(protein(sequence=f"{GB1}:{GB1}")), "a sequence of several chains (':')"),
        (program_job(protein(), {"ligand": {"id": "L", "ccdCodes": ["ATP"]}}), "a ligand"),
        (program_job(protein(), {"rna": {"id": "R", "sequence": "ACGU"}}), "RNA"),
        (program_job({"dna": {"id": "R", "sequence": "ACGT"}}), "no protein chain, DNA"),
        ([{"name": "j", "sequences": [server_protein(), {"ion": {"ion": "MG", "count": 2}}]}], "an ion"),
        (program_job(protein(modifications=[{"ptmType": "SEP", "ptmPosition": 5}])), "modified residues"),
        (
            [{"name": "j", "sequences": [server_protein(glycans=[{"residues": "NAG", "position": 3}])]}],
            "glycans",
        ),
        (
            program_job(protein(), bondedAtomPairs=[[["A", 1, "SG"], ["A", 9, "SG"]]]),
            "bonds (bondedAtomPairs)",
        ),
        (program_job(protein(unpairedMsa="")), "an empty unpairedMsa, which means no alignment"),
    ],
)
def test_unsupported_alphafold3_job_describes_its_content(tmp_path: Path, job: Any, content: str) -> None:
    (record,) = read(tmp_path / "q.json", job)
    assert f" has {content}" in unsupported_error(record)


@pytest.mark.parametrize("seeds", [[3, 1, 3], ["3", "1"], [], None])
def test_seeds_of_a_job_are_read(tmp_path: Path, seeds: list[Any] | None) -> None:
    expected = (3, 1, 3)[: len(seeds)] if seeds else ()
    family = {"unpairedMsa": FAMILY}
    for job in ([protein()], [protein(), protein(id="B")], [protein(**family)]):
        (query,) = read(tmp_path / "q.json", program_job(*job, modelSeeds=seeds))
        assert query.seeds == expected


def test_nucleic_acid_as_a_protein_is_unsupported(tmp_path: Path) -> None:
    (record,) = read(tmp_path / "q.json", program_job(protein(sequence="ATGGCGAACTTCGGATCTTGGAAC")))
    assert "has a nucleic acid (its letters are A, C, G, T, U or N) as protein" in unsupported_error(record)


@pytest.mark.parametrize("null", ["", "null", "~", "Null"])
def test_null_in_yaml_is_absent(tmp_path: Path, null: str) -> None:
    text = f"version: 1\nsequences:\n- protein:\n    id: A\n    sequence: {GB1}\n    msa: {null}\n"
    for section in ("", f"constraints: {null}\ntemplates: {null}\n"):
        assert as_pairs(read(tmp_path / "q.yaml", text + section)) == [("q", GB1)]


def test_quoted_null_in_yaml_is_text(tmp_path: Path) -> None:
    text = f"sequences:\n- protein:\n    id: A\n    sequence: {GB1}\n    msa: 'null'\n"
    with pytest.raises(InputError, match="alignment file not found: null"):
        read(tmp_path / "q.yaml", text)


AF3 = '{"name": "a", "sequences": ['


@pytest.mark.parametrize(
    ("text", "location", "reason"),
    [
        ("", "", "empty file"),
        ('{"name": "a",\n "sequences": [}', ":2:16", "not valid JSON"),
        ('{"name": "a",\n "name": "b"}', ":2", "the key 'name' occurs twice"),
        ("[]", ":1", "no job"),
        ("[3]", ":1", "a job is not a mapping"),
        ("[" * 100_000, "", "nested too deeply"),
        ('{"sequences": []}', ":1", "no 'name'"),
        ('{"name": "a",\n "sequences": {}}', ":2", "not a list of chains"),
        ('{"name": "a"}', ":1", "no list 'sequences'"),
        ('{"name": "a", "sequences": [\n{"protein": {}, "dna": {}}]}', ":2", "must have one key"),
        ('{"name": "a", "sequences": [\n{"peptide": {}}]}', ":2", "unknown kind of chain 'peptide'"),
        ('{"name": "a", "sequences": [\n{"protein":\n {"id": "A"}}]}', ":3", "no 'sequence'"),
        (AF3 + '\n{"protein":\n {"id": "A",\n"sequence": "MK1"}}]}', ":4", "'1' is not a residue"),
        (AF3 + '\n{"protein":\n {"sequence": "MKV",\n"ptms": []}}]}', ":4", "unknown key 'ptms'"),
        (AF3 + '{"proteinChain":\n {"sequence": "MKV", "count": "2"}}]}', ":2", "count is '2'"),
        ('{"name": "a", "dialect": "af4"}', ":1", "unknown dialect 'af4'"),
        (AF3 + '{"protein":\n {"sequence": "MKV", "unpairedMsa": "MKV"}}]}', ":2", "unpairedMsa: not an"),
        (AF3 + '{"protein":\n {"sequence": "MKV", "unpairedMsa": ">q\\ud8001"}}]}', ":2", "ud800 is half of"),
        (AF3 + '{"protein":\n {"sequence": "MK\\udfffV"}}]}', ":2", "\\udfff is half of a surrogate pair"),
        ('{"name":\n "\\ud800"}', ":2", "\\ud800 is half of a surrogate pair"),
        ('{"name": "a",\n "modelSeeds": [1, -1], "sequences": []}', ":2", "modelSeeds has -1: expected"),
        ('{"name": "a",\n "modelSeeds": ["x"], "sequences": []}', ":2", "modelSeeds has 'x': expected"),
        (
            AF3 + '{"protein":\n {"sequence": "MKV", "unpairedMsa": ">q\\nMKV",\n"unpairedMsaPath": "x"}}]}',
            ":3",
            "both 'unpairedMsa' and 'unpairedMsaPath'",
        ),
        (
            AF3 + '{"protein":\n {"sequence": "MKV", "pairedMsaPath": "x",\n"pairedMsa": ">q\\nMKV"}}]}',
            ":2",
            "both 'pairedMsa' and 'pairedMsaPath'",
        ),
        (
            AF3 + '{"protein":\n {"sequence": "MKV", "templates": [\n{"mmcif": "d", "mmcifPath": "x"}]}}]}',
            ":3",
            "both 'mmcif' and 'mmcifPath'",
        ),
        (
            AF3 + '{"protein": {"id": ["A", "B"], "sequence": "MKV"}},\n{"dna": {"id": "B"}}]}',
            ":2",
            "two chains are called 'B'",
        ),
        (AF3 + '{"protein":\n {"id": ["A", "A"], "sequence": "MKV"}}]}', ":2", "two chains are called 'A'"),
        ('{"name": "a",\n "modelSeeds": [' + "9" * 5000 + "]}", ":2", "a number of more than 4300 digits"),
        (AF3 + '{"proteinChain":\n {"sequence": "MKV", "count": 1000000000000}}]}', ":2", "from 1 to 10,000"),
        (AF3 + '{"protein":\n {"sequence": "MKV", "unpairedMsaPath": "x.a3m"}}]}', ":2", "file not found: x"),
    ],
)  # fmt: skip
def test_invalid_json_is_reported_with_its_line(
    tmp_path: Path, text: str, location: str, reason: str
) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path / "q.json", text)
    assert str(caught.value).startswith(f"{tmp_path / 'q.json'}{location}: ")
    assert reason in str(caught.value)


def test_punctuation_in_json_strings_does_not_shift_lines(tmp_path: Path) -> None:
    text = (
        '{"name": "a \\" } {\\\\",\n"sequences": [{"protein": {"description": "[{:",\n"sequence": "MK1"}}]}'
    )
    with pytest.raises(InputError, match=r"q\.json:3: '1' is not a residue"):
        read(tmp_path / "q.json", text)


TEMPLATE = {"mmcif": "data_x", "queryIndices": [0, 2], "templateIndices": [5, 4]}


def test_templates_belong_to_their_chains(tmp_path: Path) -> None:
    two, none = protein(id=["A", "B"], templates=[TEMPLATE, TEMPLATE]), protein(id="C", templates=[])
    (query,) = read(tmp_path / "q.json", program_job(two, none, protein(id="D")))
    first, second, third, fourth = query.templates
    assert first == second and len(first) == 2 and third == () and fourth is None
    assert first[0].content == ("data_x", None, (0, 2), (5, 4)) and first[0].line > 1
    (plain,) = read(tmp_path / "q.json", program_job(protein(), protein(id="B")))
    assert plain.templates == ()
    # a profile keeps them, and a screen gives them to the chain of the pair
    (single,) = read(tmp_path / "q.json", program_job(protein(unpairedMsa=FAMILY, templates=[TEMPLATE])))
    assert isinstance(single, ProfileRecord) and len(single.templates[0]) == 1
    (pair,) = pair_all([FastaRecord("x", GB1)], [single])
    assert pair.templates == (None, single.templates[0])


def test_equal_jobs_with_other_templates_are_other_queries(tmp_path: Path) -> None:
    jobs = [program_job(protein(templates=each)) for each in ([], [TEMPLATE], [TEMPLATE])]
    named = name_queries(read(tmp_path / "q.json", jobs))
    assert [name for name, _ in named] == ["job_1", "job_1_2"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"queryIndices": [0]}, "1 queryIndices and 2 templateIndices"),
        ({"queryIndices": [0, 56]}, "queryIndices go up to 56: the last residue is 55"),
        ({"templateIndices": [0, -1]}, "'templateIndices' has a negative position"),
        ({"templateIndices": "all"}, "'templateIndices' is not a list of positions"),
        ({"mmcif": None, "mmcifPath": "x.cif"}, "mmcifPath not found: x.cif"),
    ],
)
def test_invalid_template_is_reported_with_its_line(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError, match=rf"q\.json:\d+: {reason}"):
        read(tmp_path / "q.json", program_job(protein(templates=[TEMPLATE | change])))


# --- Boltz

BOLTZ_START = "# a comment\nversion: 1\nsequences:\n"


def test_boltz_job_is_named_after_its_file(tmp_path: Path) -> None:
    lines = ["id: N", "sequence: >", f"  {GB1[:30]}", f"  {GB1[30:]}", "cyclic: false", ""]
    text = f"{BOLTZ_START}  - protein:\n      " + "\n      ".join(lines)
    assert as_pairs(read(tmp_path / "my job.yaml", text)) == [("my_job", GB1)]
    assert as_pairs(read(tmp_path / "job", text)) == [("job", GB1)]
    assert as_pairs(read(tmp_path / "q.yml.gz", gzip.compress(text.encode()))) == [("q", GB1)]
    # YAML would parse NO as a boolean
    assert as_pairs(read(tmp_path / "q.yml", f"{BOLTZ_START}  - protein: {{id: [A], sequence: NO}}\n")) == [
        ("q", "NO")
    ]


def test_boltz_names_cyclic_chains(tmp_path: Path) -> None:
    ring = f"  - protein: {{id: [B, C], sequence: {GB1}, cyclic: true}}\n"
    (single,) = read(tmp_path / "a.yaml", BOLTZ_START + ring.replace("[B, C]", "B"))
    (several,) = read(tmp_path / "b.yaml", f"{BOLTZ_START}  - protein: {{id: A, sequence: {GB1}}}\n{ring}")
    assert single.cyclic == ("A",) and several.cyclic == ("B", "C")
    (tmp_path / "family.a3m").write_text(FAMILY)
    (aligned,) = read(tmp_path / "c.yaml", BOLTZ_START + ring.replace("[B, C]", "B, msa: family.a3m"))
    assert isinstance(aligned, ProfileRecord) and aligned.cyclic == ("A",)


def test_boltz_templates_belong_to_the_named_chains(tmp_path: Path) -> None:
    file = STRUCTURES / "1a8o.cif.gz"
    sequence = read_chains(file)[0].sequence[3:40]
    text = (
        f"{BOLTZ_START}  - protein: {{id: [B, C], sequence: {sequence}}}\n"
        f"  - protein: {{id: D, sequence: {sequence}}}\ntemplates:\n  - cif: {file}\n"
    )
    (every,) = read(tmp_path / "a.yaml", text)
    assert [len(templates) for templates in every.templates] == [1, 1, 1]
    (some,) = read(tmp_path / "a.yaml", text + "    chain_id: C\n    template_id: A\n")
    (template,) = some.templates[0]
    assert some.templates == ((template,), (template,), None) and template.chain == "A"
    assert template.query_positions[:2] == (0, 1) and template.template_positions[:2] == (3, 4)
    for rest, reason in (
        ("    chain_id: A\n", "template of 'A': no such protein"),
        ("    chain_id: B\n    template_id: X\n", "has no protein chain 'X', only A"),
        ("    force: true\n    threshold: 2\n", r"enforced by a potential \(threshold\) are not supported"),
    ):
        with pytest.raises(InputError, match=rf"a\.yaml:\d+: .*{reason}"):
            read(tmp_path / "a.yaml", text + rest)


@pytest.mark.parametrize(
    ("rest", "content"),
    [
        (f"  - protein: {{id: A, sequence: {GB1}}}\n  - ligand: {{id: B, smiles: C}}\n", "a ligand"),
        (f"  - protein: {{id: A, sequence: {GB1}}}\n  - rna: {{id: B, sequence: ACGU}}\n", "RNA"),
        (f"  - protein: {{id: A, sequence: {GB1}, msa: empty}}\n", "msa: empty"),
        (f"  - protein: {{id: A, sequence: {GB1}, msa: x.csv}}\n", "an alignment as a table"),
        (f"  - protein:\n      sequence: {GB1}\n      modifications: [{{ccd: SEP}}]\n", "modified residues"),
        (f"  - protein: {{sequence: {GB1}}}\nproperties:\n  - affinity: {{}}\n", "properties (affinity)"),
        (
            f"  - protein: {{id: A, sequence: {GB1}}}\nconstraints:\n  - pocket: {{binder: A}}\n"
            "  - contact: {}\n",
            "constraints (pocket, contact)",
        ),
    ],
)  # fmt: skip
def test_unsupported_boltz_job_describes_its_content(tmp_path: Path, rest: str, content: str) -> None:
    (record,) = read(tmp_path / "q.yaml", BOLTZ_START + rest)
    assert f" has {content}" in unsupported_error(record)


@pytest.mark.parametrize(
    ("text", "location", "reason"),
    [
        ("", "", "empty file"),
        ("just text\n", ":1", "the file is not a mapping"),
        ("version: 1\nsequences: " + "[" * 100_000, ":2", "nested too deeply"),
        ('version: 1\nsequences: "\\ud800"\n', ":2", "half of a surrogate pair"),
        ('version: 1\nsequences: "\\UFFFFFFFF"\n', "", "not valid YAML"),
        (f"{BOLTZ_START}  - protein: {{id: A\n", ":5", "not valid YAML"),
        (
            f"{BOLTZ_START}  - protein:\n      sequence: MK\n      sequence: MV\n",
            ":6",
            "the key 'sequence' occurs twice",
        ),
        (f"{BOLTZ_START}  - protein:\n      sequence: MK1\n", ":5", "'1' is not a residue"),
        (f"{BOLTZ_START}  - protein:\n      sequenze: MK\n", ":5", "unknown key 'sequenze'"),
        (f"{BOLTZ_START}  - protein:\n      id: A\n", ":5", "no 'sequence'"),
        (f"{BOLTZ_START}  - protein: &a\n      x: *a\n", ":4", "not valid YAML"),
        (
            f"{BOLTZ_START}  - protein: {{sequence: MKV, msa: no.a3m}}\n",
            ":4",
            "alignment file not found: no.a3m",
        ),
        (
            f"{BOLTZ_START}  - protein: {{sequence: MKV, msa: {'a' * 5000}}}\n",
            ":4",
            f"alignment file not found: {'a' * 200}",
        ),
        (f"{BOLTZ_START}---\nversion: 1\n", ":4", "not valid YAML"),
        ("version: 1\nsequences:\n\t- protein:\n", ":3", "indented with spaces, not with tabs"),
        ("version: 1\nsequences: []\n", ":2", "'sequences' is empty"),
        ("sequences: " + "[" * 5000, "", "nested too deeply"),
    ],
)
def test_invalid_yaml_is_reported_with_its_line(
    tmp_path: Path, text: str, location: str, reason: str
) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path / "q.yaml", text)
    assert str(caught.value).startswith(f"{tmp_path / 'q.yaml'}{location}")
    assert reason in str(caught.value) and "\n" not in str(caught.value)


def test_yaml_tags_do_not_create_objects(tmp_path: Path) -> None:
    created = tmp_path / "created"
    text = f"{BOLTZ_START}  - protein:\n      sequence: !!python/object/apply:os.mkdir ['{created}']\n"
    with pytest.raises(InputError, match="'sequence' is not text"):
        read(tmp_path / "q.yaml", text)
    assert not created.exists()
