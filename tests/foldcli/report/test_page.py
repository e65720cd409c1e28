"""The page of a target: complete, escaped, and of bounded size."""

import base64
import hashlib
import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foldcli.report import ReportSettings
from foldcli.report.data.alignment import read_alignment_summary
from foldcli.report.data.model_atoms import ModelAtoms
from foldcli.report.data.page_data import principal_axes, superpositions
from foldcli.report.data.result import (
    MAX_MODELS,
    MAX_PAE_CELLS,
    PAE_STEP,
    PaeMap,
    RankedModel,
    TargetResult,
    read_done,
    read_result,
    reduce_pae,
)
from foldcli.report.make import make_report, try_report
from foldcli.report.rendering import page_values
from foldcli.report.target_page import target_page
from foldcli.report.viewer import Viewer, load_viewer
from msa.base.errors import InputError
from tests.foldcli.report.outline import Outline
from tests.foldcli.report.results import HOSTILE, SEQUENCE, helix, target_files, write_result

PAGE_ONLY = ReportSettings(page=True, plots=False)


def page_of(folder: Path, name: str = "target") -> tuple[str, Outline]:
    files = target_files(folder, name)
    make_report(files, read_done(files), PAGE_ONLY)
    page = (folder / f"{name}.html").read_text()
    return page, Outline(page)


def unpack_array(text: str, dtype: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype)


def ca_of(data: dict[str, Any], model: dict[str, Any]) -> np.ndarray:
    """Return the Cα positions in a page's data, float64 [residues with coordinates, 3]."""
    positions = unpack_array(model["atoms"], "<i2").reshape(-1, 3) * data["step"]
    types = [data["residueTypes"][i][1].split() for i in unpack_array(model["types"], "<u2")]
    return positions[[name == "CA" for names in types for name in names]]


def test_page_has_every_part_once(tmp_path: Path) -> None:
    _, outline = page_of(
        write_result(tmp_path, header="target Ubiquitin, a piece", warnings=("mind the gap",))
    )
    assert len(outline.ids) == len(set(outline.ids))
    parts = {
        "models", "structure", "pae", "plddt", "coverage", "hits", "files", "provenance", "explanation",
    }  # fmt: skip
    assert parts <= set(outline.ids)
    texts = ("Ubiquitin, a piece", "mind the gap", "1 min 23 s", "1.00 GB", "predict.num_recycle", "9.8.7")
    for text in (
        *texts,
        "1.0E-20",
        "pLDDT",
        "alphafold2_ptm_model_1, seed 0",
        "Mol*",
        "prediction by the network",
    ):
        assert text in outline.text, text
    assert "ntrained" not in outline.text
    # every canvas has a description, and every button a type
    for tag, attribute in (("canvas", "aria-label"), ("button", "type")):
        assert outline.tags.count(tag) == sum(t == tag and a == attribute for t, a, _ in outline.attributes)


def test_alignment_of_a_hit_shows_its_insertions(tmp_path: Path) -> None:
    _, outline = page_of(write_result(tmp_path, hits=("near",)))
    query, target = (
        SEQUENCE[:5] + "---" + SEQUENCE[5:-10],
        SEQUENCE[:5] + "WWW" + SEQUENCE[5:-10].replace("K", "R"),
    )
    identities = "".join("|" if a == b else " " for a, b in zip(query, target, strict=True))
    expected = f"query      1 {query}\n{'':12} {identities}\ntarget     5 {target}"
    assert expected in outline.texts


def test_data_block_has_the_numbers_of_the_files(tmp_path: Path) -> None:
    folder = write_result(tmp_path, models=3)
    data = page_of(folder)[1].data()
    assert data["sequence"] == SEQUENCE
    for model in data["models"]:
        (path,) = folder.glob(f"*_scores_rank_{model['rank']:03d}_*.json")
        scores = json.loads(path.read_text())
        assert unpack_array(model["plddt"], "<u2") / 100 == pytest.approx(scores["plddt"], abs=0.005)
        cells = unpack_array(model["pae"]["cells"], "u1").reshape(len(SEQUENCE), -1) * PAE_STEP
        assert np.abs(cells - scores["pae"]).max() <= PAE_STEP / 2 + 1e-6
        # all models are the same helix, shifted: superposed, they coincide and distances are unchanged
        ca = ca_of(data, model)
        distances = np.linalg.norm(np.subtract.outer(ca, ca).diagonal(axis1=1, axis2=3), axis=-1)
        ideal = helix(len(SEQUENCE), 0)
        expected = np.linalg.norm(ideal[:, None] - ideal[None], axis=-1)
        assert np.abs(distances - expected).max() < 0.01
        assert np.abs(ca - ca_of(data, data["models"][0])).max() < 0.01


def test_superposition_never_mirrors() -> None:
    one = helix(30, 0)
    mirrored = one * [1, 1, -1]
    moves = superpositions([one, mirrored])
    superposed = [move.apply(ca) for move, ca in zip(moves, (one, mirrored), strict=True)]
    assert np.abs(superposed[0] - superposed[1]).max() > 1
    handedness = [
        np.linalg.det((ca[1:4] - ca[0]) @ np.eye(3)) for ca in (one, superposed[0], mirrored, superposed[1])
    ]
    assert np.sign(handedness).tolist() == [np.sign(handedness[0])] * 2 + [-np.sign(handedness[0])] * 2


def test_principal_axes_are_a_rotation_whichever_axis_may_be_reversed() -> None:
    points = helix(30, 0)
    for number, mirror in product((1, 2), ([1, 1, 1], [1, 1, -1])):
        axes = principal_axes(points * mirror, reversible=number)
        assert np.linalg.det(axes) == pytest.approx(1)
        spread = ((points - points.mean(0)) * mirror @ axes.T).std(0)
        assert spread.tolist() == sorted(spread, reverse=True)
    assert (principal_axes(points[:2], reversible=1) == np.eye(3)).all()


def test_hostile_names_headers_and_warnings_are_escaped(tmp_path: Path) -> None:
    name = HOSTILE.replace("/", "!")
    folder = write_result(
        tmp_path, name, header=HOSTILE, hits=(HOSTILE.replace("\t", ""),), warnings=(HOSTILE,)
    )
    page, outline = page_of(folder, name)
    assert "<script>alert" not in page and "</style>‮" not in page
    assert outline.tags.count("script") == 2  # data, page
    assert outline.texts.count(HOSTILE) >= 3
    assert outline.data()["name"] == name
    assert not [value for _, attribute, value in outline.attributes if attribute.startswith("on")]
    links = [value for _, attribute, value in outline.attributes if attribute == "href"]
    assert links and all(value and re.fullmatch(r"[A-Za-z0-9._~%-]+", value) for value in links)


def test_policy_allows_only_the_scripts_and_styles_of_the_page(tmp_path: Path) -> None:
    folder = write_result(tmp_path)
    result = read_result(target_files(folder), {})
    without_viewer = target_page(result, None, "", page_values(result, Viewer(missing="none")))
    # Mol* needs `new Function` and a data URL when it is loaded
    viewer_sources = {"'strict-dynamic'", "'unsafe-eval'"}
    pages = ((page_of(folder)[1], viewer_sources, "data:"), (Outline(without_viewer), set(), "'none'"))
    for outline, more_sources, connections in pages:
        (policy,) = [
            value
            for _, name, value in outline.attributes
            if name == "content" and value and "script-src" in value
        ]
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        assert rules["default-src"] == "'none'" and "unsafe-inline" not in policy and "http" not in policy
        assert rules["connect-src"] == connections
        for kind, rule, more in (("script", "script-src", more_sources), ("style", "style-src", set())):
            contents = [
                text for tag, attributes, text in outline.raw if tag == kind and "type" not in attributes
            ]
            hashes = {
                f"'sha256-{base64.b64encode(hashlib.sha256(c.encode()).digest()).decode()}'" for c in contents
            }
            assert hashes | more == set(rules[rule].split())
        assert not [value for _, name, value in outline.attributes if name in ("src", "style")]


def test_untrained_parameters_have_an_alert(tmp_path: Path) -> None:
    _, outline = page_of(write_result(tmp_path, untrained=True))
    assert "this is not a prediction" in outline.text
    assert ("div", "role", "alert") in outline.attributes


def test_missing_pae_alignment_and_record_are_explained(tmp_path: Path) -> None:
    folder = write_result(tmp_path, pae=False)
    for suffix in (".a3m", ".m8", ".done.json"):
        (folder / f"target{suffix}").unlink()
    make_report(target_files(folder), {}, PAGE_ONLY)
    outline = Outline((folder / "target.html").read_text())
    for text in ("do not predict it", "not next to the structures", "no record of settings"):
        assert text in outline.text
    assert {"canvas", "curve-canvas"} <= set(outline.ids) and "pae-canvas" not in outline.ids


def random_atoms(length: int) -> ModelAtoms:
    """Return leucines at random positions."""
    names = b"N CA C O CB CG CD1 CD2".split()
    positions = np.random.default_rng(0).normal(0, 40, (len(names) * length, 3))
    residues = np.repeat(np.arange(length), len(names))
    return ModelAtoms(positions, np.array(names * length), residues, ("LEU",) * length, (("A", length),))


def random_result(length: int, models: int) -> TargetResult:
    """Return a result of random numbers, which compress badly."""
    rng = np.random.default_rng(0)
    max_side = int((MAX_PAE_CELLS / models) ** 0.5)
    pae = reduce_pae(rng.uniform(0, 31.75, (length, length)).astype(np.float32), max_side)
    ranked = [
        RankedModel(rank, f"alphafold2_ptm_model_{rank}_seed_000", rng.uniform(0, 100, length),
                    random_atoms(length), 0.5, pae, False, (f"t_{rank}.pdb",))
        for rank in range(1, models + 1)
    ]  # fmt: skip
    return TargetResult(target_files(Path(), "t"), "L" * length, tuple(ranked), models)


@pytest.mark.parametrize(
    ("length", "models", "max_bytes"),
    [(500, 5, 3_000_000), (4000, 5, 5_000_000), (4000, MAX_MODELS, 8_000_000)],
)
def test_size_of_a_page_is_bounded(tmp_path: Path, length: int, models: int, max_bytes: int) -> None:
    rng = np.random.default_rng(1)
    query = "".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), length))
    rows = ["".join(rng.choice(list(query), length)) for _ in range(300)]
    alignment = tmp_path / "t.a3m"
    alignment.write_text(f">t\n{query}\n" + "".join(f">hit{i}\n{row}\n" for i, row in enumerate(rows)))
    result = random_result(length, models)
    summary = read_alignment_summary(alignment, None, [query])
    page = target_page(result, summary, "", page_values(result, load_viewer()))
    assert len(page.encode()) < max_bytes
    pae = result.models[0].pae
    assert pae is not None
    assert (f"mean of {pae.block} × {pae.block} residues" in page) == (length > 547 or models > 5)


def test_pae_is_reduced_to_means_of_blocks() -> None:
    pae = np.arange(49, dtype=np.float32).reshape(7, 7) / 2
    whole = reduce_pae(pae, 7)
    assert whole.block == 1 and np.array_equal(whole.cells, pae / PAE_STEP)
    assert (whole.maximum, whole.mean) == (24.0, 12.0)
    small: PaeMap = reduce_pae(pae, 3)
    edges = (slice(0, 3), slice(3, 6), slice(6, 7))
    expected = [[round(float(pae[a, b].mean()) / PAE_STEP) for b in edges] for a in edges]
    assert small.block == 3 and small.cells.tolist() == expected


def test_best_of_many_models_are_shown(tmp_path: Path) -> None:
    folder = write_result(tmp_path, models=MAX_MODELS + 2, sequence=SEQUENCE[:12])
    _, outline = page_of(folder)
    assert f"The best {MAX_MODELS} of {MAX_MODELS + 2} models" in outline.text
    assert [model["rank"] for model in outline.data()["models"]] == list(range(1, MAX_MODELS + 1))


def test_relaxed_structure_is_shown(tmp_path: Path) -> None:
    folder = write_result(tmp_path, models=1)
    (unrelaxed,) = folder.glob("*.pdb")
    lines = unrelaxed.read_text().splitlines()
    relaxed = unrelaxed.with_name(unrelaxed.name.replace("_unrelaxed_", "_relaxed_"))
    relaxed.write_text("\n".join(line for line in lines if line[22:26].strip() != "3"))
    outline = page_of(folder)[1]
    assert outline.data()["sequence"] == SEQUENCE[:2] + "X" + SEQUENCE[3:]
    links = [value for _, name, value in outline.attributes if name == "href"][:3]
    (scores,) = folder.glob("*_scores_*.json")
    assert links == [relaxed.name, unrelaxed.name, scores.name]


def test_residues_without_atoms_leave_a_gap(tmp_path: Path) -> None:
    folder = write_result(tmp_path)
    for path in folder.glob("*.pdb"):
        lines = path.read_text().splitlines()
        path.write_text("\n".join(line for line in lines if line[22:26].strip() not in ("3", "7")))
    data = page_of(folder)[1].data()
    missing = [i for i, each in enumerate(unpack_array(data["models"][0]["types"], "<u2")) if each == 0]
    assert missing == [2, 6]
    assert data["sequence"] == SEQUENCE[:2] + "X" + SEQUENCE[3:6] + "X" + SEQUENCE[7:]
    assert len(ca_of(data, data["models"][0])) == len(SEQUENCE) - 2


def damage(folder: Path, pattern: str, old: str, new: str) -> Path:
    (path,) = folder.glob(pattern)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return path


@pytest.mark.parametrize(
    ("pattern", "old", "new", "reason"),
    [
        ("*_scores_rank_002_*.json", '{"plddt"', '{"plddt', "not the scores of a model"),
        ("*_scores_rank_002_*.json", '"plddt": [', '"plddt": [1.0, ', "have different lengths"),
        ("*_scores_rank_002_*.json", '"plddt": [', '"plddt": 1, "other": [', "pLDDT is no list of numbers"),
        (
            "*_rank_001_*.pdb",
            "ATOM      5  CA  VAL A   5",
            "ATOM      5  CA  VAL A   x",
            ":5: an atom without",
        ),
        ("*_rank_001_*.pdb", "END", "ATOM     41  CA  VAL A  41       0.000   0.000   0.000", "41 residues"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, pattern: str, old: str, new: str, reason: str) -> None:
    folder = write_result(tmp_path)
    path = damage(folder, pattern, old, new)
    with pytest.raises(InputError, match=re.escape(str(path))) as raised:
        make_report(target_files(folder), {}, PAGE_ONLY)
    assert reason in str(raised.value)
    assert not (folder / "target.html").exists()
    warning = try_report(target_files(folder), {}, PAGE_ONLY)
    assert warning is not None and reason in warning
