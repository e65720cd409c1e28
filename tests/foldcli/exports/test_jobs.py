"""Exported jobs: what is filled in, what stays as it was, and what is refused."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from foldcli.exports.json_documents import JsonText
from foldcli.inputs.formats.json_with_lines import parse_json_with_lines
from tests.command_process import command_environment, run_foldcli
from tests.foldcli.exports.conftest import GB1, JOBS, UBIQUITIN, Family

Export = Callable[..., Path]
Search = Callable[..., "subprocess.CompletedProcess[str]"]


def without_edits(text: str, original: str) -> bool:
    """Return whether a text becomes the original one if parts of it are left out."""
    position = 0
    for character in original:
        position = text.find(character, position) + 1
        if position == 0:
            return False
    return True


def test_alphafold3_job_keeps_all_but_the_inserted_values(export: Export) -> None:
    path = export("af3", "complex.json")
    original = (JOBS / "af3" / "complex.json").read_text()
    text = path.read_text()
    found, expected = json.loads(text), json.loads(original)
    assert '"description": "two copies, \\u00e9"' in text and '{"note": 1.50, "empty": []}' in text
    for entity, place in ((0, '"unpairedMsa": "'), (2, ',\n        "pairedMsa": "')):
        protein = found["sequences"][entity]["protein"]
        unpaired, paired = protein.pop("unpairedMsa"), protein.pop("pairedMsa")
        assert unpaired.startswith(f">query\n{protein['sequence']}\n") and unpaired.count(">") == 7
        assert paired.count(">") == 7 and "tr|PAIR00001|PAIR00001_00001 " in paired
        assert place in text
        assert list(protein) == [
            key for key in expected["sequences"][entity]["protein"] if key != "unpairedMsa"
        ]
    expected["sequences"][2]["protein"].pop("unpairedMsa")
    assert found == expected
    assert without_edits(text, original.replace("null", ""))


def test_a_paired_row_names_the_species_of_its_pair(export: Export) -> None:
    job = json.loads(export("af3", "complex.json").read_text())
    rows = [job["sequences"][number]["protein"]["pairedMsa"].split(">")[2:] for number in (0, 2)]
    species = [[row.partition("\n")[0].split("_")[-1].split("\t")[0] for row in chain] for chain in rows]
    assert set(species[1]) == {"HUMAN", "MOUSE", "YEAST", "BOVIN", "ECOLI", "TWICE"}
    assert species[0] == species[1]


def test_boltz_job_keeps_its_text(export: Export) -> None:
    path = export("boltz", "complex.yaml")
    folder = path.with_suffix(".msa")
    lines = path.read_text().splitlines()
    original = (JOBS / "boltz" / "complex.yaml").read_text().splitlines()
    added = [line for line in lines if line not in original]
    assert added == [f"      msa: {folder}/A.csv", f"      msa: {folder}/C.csv"]
    assert [line for line in lines if line not in added] == [
        line for line in original if line != "      msa:"
    ]
    assert set(yaml.safe_load(path.read_text())["sequences"][0]["protein"]) == {
        "id", "sequence", "msa", "modifications",
    }  # fmt: skip
    table = (folder / "A.csv").read_text().splitlines()
    assert table[:2] == ["key,sequence", f"0,{UBIQUITIN}"]
    assert [row.partition(",")[0] for row in table[1:8]] == [str(number) for number in range(7)]


def test_boltz_flow_mapping_and_line_ends(export: Export) -> None:
    data = export("boltz", "flow.yml").read_bytes()
    path = Path(data.split(b"msa: ")[1].split(b",")[0].decode())
    assert path.name == "A.csv" and path.is_file()
    original = (JOBS / "boltz" / "flow.yml").read_bytes()
    assert data.replace(f"msa: {path}, ".encode(), b"") == original


def test_chai_file_stays_and_columns_are_chais(export: Export) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = export("chai", "complex.fasta")
    assert path.read_bytes() == (JOBS / "chai" / "complex.fasta").read_bytes()
    tables = [parquet.read_table(file).to_pydict() for file in path.with_suffix(".msa").iterdir()]
    assert len(tables) == 2
    for table in tables:
        assert list(table) == ["sequence", "source_database", "pairing_key", "comment"]
        assert table["source_database"][0] == "query" and table["pairing_key"][0] == ""
        assert sorted(filter(None, table["pairing_key"])) == list("123456")


def test_finished_jobs_are_not_searched_again(
    export: Export, family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = export("protenix", "jobs.json")
    arguments = ["search", tmp_path / "jobs", family.path, "-o", path.parent]
    arguments += ["--format", "protenix", "-e", "1e-6"]
    again = run_foldcli(arguments)
    assert again.returncode == 0 and "jobs.json: already done" in again.stderr
    time = path.stat().st_mtime_ns
    assert "already done" not in run_foldcli([*arguments, "--overwrite"]).stderr
    assert path.stat().st_mtime_ns > time
    # a changed file is written again
    table = next(path.parent.rglob("pairing.a3m"))
    content = table.read_text()
    table.write_text("")
    assert "already done" not in run_foldcli(arguments).stderr
    assert table.read_text() == content


def test_bad_jobs_do_not_stop_the_others(search: Search, tmp_path: Path) -> None:
    bad, listed = tmp_path / "bad.json", JOBS / "af3" / "list.json"
    bad.write_text('{"name": "x",\n "sequences": 1}')
    result = search("af3", bad, listed, tmp_path / "absent.json")
    assert result.returncode == 5, result.stderr
    errors = [line for line in result.stderr.splitlines() if "error" in line]
    assert f"{bad}:2: 'sequences' is not a list of chains" in errors[0]
    assert f"{listed}:2: '7' is not a residue letter" in errors[1]
    assert "absent.json" in errors[2] and "3 of 4 targets failed" in errors[3]
    first, second = json.loads((tmp_path / "out" / "list.json").read_text())
    assert "unpairedMsa" in first["sequences"][0]["protein"]
    assert second == json.loads(listed.read_text())[1]
    assert not (tmp_path / "out" / "bad.json").exists()


@pytest.mark.parametrize(
    "tool, name, text, reason",
    [
        ("af3", "a.json", '{"queries": {}}', "a file of OpenFold3"),
        ("af3", "a.json", '{"name": "a", "dialect": "alphafoldserver"}', "only jobs of the dialect"),
        ("protenix", "a.json", '{"name": "a", "sequences": [{"protein": {}}]}', "a job of AlphaFold 3"),
        ("openfold3", "a.json", '{"name": "a"}', "no 'queries'"),
        (
            "openfold3", "a.json", '{"queries": {"a": {"chains": [\n{"molecule_type": "ligand", '
            '"chain_ids": "A", "smiles": "CCO"},\n{"molecule_type": "protein", "chain_ids": ["A"], '
            '"sequence": "' + GB1 + '"}]}}}',
            ":3: two chains are called 'A'",
        ),
        ("af3", "a.yaml", "sequences: []\n", "a job of Boltz"),
        (
            "af3", "a.json", '{"name": "a", "sequences": [{"ligand": {"id": "A", "ccdCodes": ["ATP"]}},\n'
            '{"protein": {"id": ["B", "A"], "sequence": "' + GB1 + '"}}]}',
            ":2: two chains are called 'A'",
        ),
        ("boltz", "a.yaml", '{"dialect": "alphafold3", "sequences": []}', "a job of AlphaFold 3"),
        (
            "boltz", "a.yaml",
            f"sequences:\n- protein: {{id: A, sequence: {GB1}}}\n- ligand: {{id: A, ccd: ATP}}\n",
            ":3: two chains are called 'A'",
        ),
        (
            "boltz", "a.yaml",
            f"sequences:\n- protein: {{id: A, sequence: {GB1}}}\n"
            f"- protein: {{id: B, sequence: {GB1}, msa: b.a3m}}\n",
            ":2: chain A has the sequence of another chain",
        ),
        ("boltz", "a.yaml", ">A|protein\nMKV\n", "give a YAML file"),
        ("boltz", "a.yaml", "sequences:\n- protein:\n    id: A\n    ? sequence\n    : MKVLA\n", "one key"),
        ("chai", "a.fasta", ">A\nMKV\n", ":1: header 'A' is not Chai's"),
        ("chai", "a.fasta", ">protein|A\nMK(SEPV\n", ":1: expected letters, and modified residues"),
        ("af3", "a.json", '{"name": "a", "sequences": [{"protein": {"id": "A",\n"sequence": "M"}}]}', ":2:"),
    ],
)  # fmt: skip
def test_refused_jobs(search: Search, tmp_path: Path, tool: str, name: str, text: str, reason: str) -> None:
    if tool == "chai":
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_text(text)
    result = search(tool, tmp_path / name)
    assert result.returncode == 3, result.stderr
    line = next(line for line in result.stderr.splitlines() if "error" in line)
    assert str(tmp_path / name) in line and reason in line


def test_what_is_not_known_is_named(search: Search, tmp_path: Path) -> None:
    job = tmp_path / "a.yaml"
    job.write_text(
        f"sequences:\n- protein: {{id: A, sequence: {GB1}}}\n"
        "- ligand: {id: B, ccdCodes: [ATP]}\n- glycan: {id: C}\n"
    )
    result = search("boltz", job)
    assert result.returncode == 0, result.stderr
    assert f"{job}:3: passed through: unknown key 'ccdCodes'" in result.stderr
    assert f"{job}:4: passed through: unknown entity 'glycan'" in result.stderr


@pytest.mark.parametrize(
    ("tool", "name", "text"),
    [
        ("protenix", "a.json", '[{"name": "a", "sequences": [{"protien":\n {"count": 1}}]}]'),
        (
            "openfold3", "a.json",
            '{"queries": {"a": {"chains": [\n{"chain_ids": "A", "molecule_type": "protien"}]}}}',
        ),
        ("chai", "a.fasta", "\n>protien|name=A\nMKV\n"),
    ],
)  # fmt: skip
def test_unknown_kinds_of_chains_are_named(
    tool: str, name: str, text: str, search: Search, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    result = search(tool, tmp_path / name)
    assert f"{tmp_path / name}:2: passed through: unknown entity 'protien'" in result.stderr


def test_own_alignments_are_kept(search: Search, tmp_path: Path) -> None:
    proteins = [
        {"protein": {"id": "A", "sequence": UBIQUITIN, "unpairedMsa": ""}},
        {"protein": {"id": "B", "sequence": GB1}},
    ]
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"name": "job", "sequences": proteins}))
    result = search("af3", path)
    assert result.returncode == 0 and "chain A keeps its alignment (unpairedMsa)" in result.stderr
    first, second = json.loads((tmp_path / "out" / "job.json").read_text())["sequences"]
    assert first == proteins[0] and second["protein"]["pairedMsa"] == ""
    assert second["protein"]["unpairedMsa"].count(">") == 7


def test_alphafold3_query_has_the_parents_of_modified_residues(search: Search, tmp_path: Path) -> None:
    modifications = [{"ptmType": "MSE", "ptmPosition": 6}, {"ptmType": "P1L", "ptmPosition": 7}]
    protein = {"id": "A", "sequence": UBIQUITIN, "modifications": modifications}
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"name": "job", "sequences": [{"protein": protein}]}))
    result = search("af3", path)
    assert "residue 6 is searched as M, the parent of MSE, not as K" in result.stderr
    written = json.loads((tmp_path / "out" / "job.json").read_text())["sequences"][0]["protein"]
    assert written["sequence"] == UBIQUITIN
    assert written["unpairedMsa"].splitlines()[1] == f"{UBIQUITIN[:5]}M{UBIQUITIN[6:]}"


def test_templates_of_a_job_are_kept(search: Search, structures: Path, tmp_path: Path) -> None:
    proteins = [
        {"protein": {"id": "A", "sequence": UBIQUITIN, "templates": []}},
        {"protein": {"id": "B", "sequence": UBIQUITIN, "templates": None}},
    ]
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"name": "job", "sequences": proteins}))
    result = search("af3", path, "--templates", structures)
    assert result.returncode == 0, result.stderr
    first, second = json.loads((tmp_path / "out" / "job.json").read_text())["sequences"]
    assert first["protein"]["templates"] == []
    (template,) = second["protein"]["templates"]
    assert template["queryIndices"] == template["templateIndices"] == list(range(73))
    assert "already done" in search("af3", path, "--templates", structures).stderr
    assert "already done" not in search("af3", path).stderr


def test_a_job_is_never_overwritten(search: Search, tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text((JOBS / "af3" / "list.json").read_text())
    result = search("af3", path, out=tmp_path)
    assert result.returncode == 3 and "which would be overwritten" in result.stderr


@pytest.mark.parametrize(
    "options, reason",
    [
        (["--format", "boltz", "--msa-files"], "--msa-files is for --format af3"),
        (["--format", "boltz", "--strand", "both"], "--strand is for --molecule rna"),
        (["--format", "af3", "--partial"], "--format af3 cannot be combined with --partial"),
        (["--format", "af3", "--exact"], "--exact cannot be combined with --format af3"),
    ],
)
def test_options_that_do_not_go_together(tmp_path: Path, options: list[str], reason: str) -> None:
    result = run_foldcli(["search", tmp_path, tmp_path, "-o", tmp_path / "out", *options])
    assert result.returncode == 2 and reason in result.stderr


RNA = "GGCUAAGCCAUUGCGAUCGGAUAACGCUUGACGGCAUUACGGCUAUGC"
RNA_JOBS = {
    "af3": {
        "name": "mixed", "modelSeeds": [1], "dialect": "alphafold3", "version": 2,
        "sequences": [
            {"rna": {"id": ["R", "S"], "sequence": RNA}},
            {"rna": {"id": "T", "sequence": "ACGU", "unpairedMsa": ""}},
            {"protein": {"id": "A", "sequence": GB1}},
        ],
    },
    "openfold3": {
        "queries": {"mixed": {"chains": [{"molecule_type": "RNA", "chain_ids": ["R"], "sequence": RNA}]}}
    },
    "protenix": [{"name": "mixed", "sequences": [{"rnaSequence": {"sequence": RNA, "count": 2}}]}],
}  # fmt: skip


@pytest.mark.parametrize("tool", RNA_JOBS)
def test_rna_gets_alignments(tool: str, family: Family, export_cache: Path, tmp_path: Path) -> None:
    targets = [RNA[:k] + "ACGU"[k % 4] + RNA[k + 1 :] for k in range(5, 45, 5)]
    text = "".join(f">r{k}\n{sequence.replace('U', 'T')}\n" for k, sequence in enumerate(targets))
    (tmp_path / "rna.fasta").write_text(text)
    (tmp_path / "job.json").write_text(json.dumps(RNA_JOBS[tool]))
    command = ["search", tmp_path / "job.json", family.path, "--rna-db", tmp_path / "rna.fasta"]
    command += ["--format", tool, "-o", tmp_path / "out"]
    environment = command_environment(export_cache)
    result = run_foldcli(command, environment)
    assert result.returncode == 0, result.stderr
    found = json.loads((tmp_path / "out" / "job.json").read_text())
    if tool == "af3":
        first, second, protein = found["sequences"]
        alignment = first["rna"]["unpairedMsa"]
        assert second["rna"]["unpairedMsa"] == "" and "unpairedMsa" in protein["protein"]
        assert list(first["rna"]) == ["id", "sequence", "unpairedMsa"]
    elif tool == "openfold3":
        (path,) = found["queries"]["mixed"]["chains"][0]["main_msa_file_paths"]
        assert Path(path).name == "rnacentral_hits.a3m"
        alignment = Path(path).read_text()
    else:
        alignment = Path(found[0]["sequences"][0]["rnaSequence"]["unpairedMsaPath"]).read_text()
    lines = alignment.splitlines()
    assert lines[:2] == [">query", RNA] and sorted(lines[3::2]) == sorted(set(targets) - {RNA})
    assert "already done" in run_foldcli(command, environment).stderr


def test_rna_and_proteins_are_not_mixed(family: Family, export_cache: Path, tmp_path: Path) -> None:
    (tmp_path / "rna.fasta").write_text(f">r\n{RNA}\n")
    (tmp_path / "protein.fasta").write_text(f">p\n{GB1}\n")
    database, environment = tmp_path / "db", command_environment(export_cache)
    built = run_foldcli(
        ["createdb", "--molecule", "rna", tmp_path / "rna.fasta", "-o", database], environment
    )
    assert built.returncode == 0, built.stderr
    for queries, targets, options, reason in (
        ("protein.fasta", database, [], "a database of RNA, and this search is for proteins"),
        ("protein.fasta", database, ["--molecule", "rna"], "'L' is not a letter of a nucleic acid"),
        ("rna.fasta", family.path, ["--molecule", "rna"], "is not a letter of a nucleic acid"),
        ("rna.fasta", family.path, [], "a nucleic acid"),
    ):
        command = ["search", tmp_path / queries, targets, "-o", "-", *options]
        result = run_foldcli(command, environment)
        assert result.returncode == 3 and reason in result.stderr and result.stderr.count("error") == 1


def test_json_text_is_edited_in_place() -> None:
    content = '{ "a" : [ {"x":1e5,"y":null}, {} ],"b":{"c":"}"} }'
    text, parsed = JsonText(content), parse_json_with_lines(content.encode(), "job.json")
    assert [content[each.start] for each in (parsed, *parsed["a"], parsed["b"])] == ["{"] * 4
    text.set(parsed["a"][0].start, {"y": "é", "z": [1]})
    text.set(parsed["b"].start, {"d": 2})
    assert text.edited() == '{ "a" : [ {"x":1e5,"y":"\\u00e9", "z": [1]}, {} ],"b":{"c":"}", "d": 2} }'
