"""Tests of the layouts of results: the files of a run and of a target, and ColabFold's messages."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from features.complexes.pairing import PairingSettings
from foldcli.families.settings import AlphaFold2Settings
from foldcli.inputs.shard import Shard
from foldcli.logs import logger
from foldcli.outputs.layout import LayoutName, TargetFiles
from foldcli.outputs.model_files import ModelResult
from foldcli.params.parameters import TEMPLATE_COPY, ParameterSource
from foldcli.pipeline.targets.layouts import RunDescription, layout_of
from foldcli.pipeline.targets.settings import OutputSettings, RelaxOptions
from foldcli.report import ReportSettings
from foldcli.version import VERSION
from msa.alignments.files import parse_alignment

COLABFOLD = layout_of("colabfold")
OTHERS: tuple[LayoutName, ...] = ("default", "single_folder")
MONOMER = (ParameterSource(4, "model_4_ptm", None), ParameterSource(2, "model_2_ptm", None))
MULTIMER = (ParameterSource(1, "model_1_multimer_v3", None),)


@pytest.fixture(autouse=True)
def restored_handlers() -> Iterator[None]:
    """Remove the handlers that a layout adds to the logger."""
    before = list(logger.handlers)
    yield
    for handler in set(logger.handlers) - set(before):
        logger.removeHandler(handler)
        handler.close()


def description(folder: Path, sources: tuple[ParameterSource, ...], **settings: Any) -> RunDescription:
    output = OutputSettings(
        folder, "default", Shard(), True, ReportSettings(False, False), relaxation=RelaxOptions(2)
    )
    pairing = PairingSettings(mode="unpaired_paired", strategy="complete")
    return RunDescription(
        output, AlphaFold2Settings(**settings), sources, 3, True, pairing, "db of 9 sequences"
    )


def model(tag: str, plddt: float, **values: Any) -> ModelResult:
    return ModelResult(tag, plddt, values.pop("ptm", 0.5), 3, 12.34, "key", **values)


@pytest.mark.parametrize("name", OTHERS)
def test_other_layouts_write_the_methods_only(name: LayoutName, tmp_path: Path) -> None:
    layout, out = layout_of(name), tmp_path / "out"
    layout.begin_run(description(out, MONOMER))
    layout.write_methods(description(out, MONOMER))
    assert sorted(path.name for path in out.iterdir()) == ["cite.bibtex", "methods.txt"]
    text = (out / "methods.txt").read_text()
    assert "model alphafold2_ptm_model_4, alphafold2_ptm_model_2" in text and "db of 9 sequences" in text
    assert "Models were ranked by plddt. The best 2 models" in text and "searched for by profile" in text
    assert "@article{Jumper2021" in (out / "cite.bibtex").read_text()
    files = TargetFiles("q", out, name)
    layout.finish_target(files, [model("a", 50.0)])
    layout.stage_alignment(files, b">q\nMKV\n", 3)
    assert layout.first_line(3) == "" and len(list(out.iterdir())) == 2


def test_the_methods_have_a_paragraph_and_a_paper_for_each_family(tmp_path: Path) -> None:
    layout_of("default").write_methods(description(tmp_path, (*MONOMER, *MULTIMER)))
    chains, complexes = (tmp_path / "methods.txt").read_text().split("\n\n")
    assert "model alphafold2_ptm_model_4, alphafold2_ptm_model_2, with at most 3 recycles" in chains
    assert "Models were ranked by plddt." in chains
    assert "model alphafold2_multimer_v3_model_1, with at most 20 recycles" in complexes
    assert "Models were ranked by 0.8 ipTM + 0.2 pTM." in complexes
    cited = (tmp_path / "cite.bibtex").read_text()
    assert "{Jumper2021," in cited and "{Evans2021," in cited and cited.count("{Altschul1997,") == 1


def test_complexes_alone_cite_both_papers_of_their_networks(tmp_path: Path) -> None:
    layout_of("default").write_methods(description(tmp_path, MULTIMER))
    cited = (tmp_path / "cite.bibtex").read_text()
    assert cited.index("{Jumper2021,") < cited.index("{Evans2021,")


def test_the_methods_of_copies_of_templates_have_no_network(tmp_path: Path) -> None:
    layout_of("default").write_methods(description(tmp_path, (TEMPLATE_COPY,)))
    text = (tmp_path / "methods.txt").read_text()
    assert text.startswith(f"Structures were copied from templates with foldcli {VERSION}, without a net")
    assert "predicted" not in text and "ranked" not in text and "db of 9 sequences" in text
    assert "{Jumper2021," not in (tmp_path / "cite.bibtex").read_text()


def test_colabfolds_config_has_the_values_of_the_run(tmp_path: Path) -> None:
    settings = {"num_recycles": 5, "recycle_early_stop_tolerance": 0.5, "max_seq": 32, "max_extra_seq": 64}
    run = description(
        tmp_path, MONOMER, **settings, num_seeds=4, random_seed=7, stop_at_score=85.0, rank="ptm",
        precision="bf16", kernels="fused", dropout=True,
    )  # fmt: skip
    COLABFOLD.begin_run(run)
    assert json.loads((tmp_path / "config.json").read_text()) == {
        "num_queries": 3, "use_templates": True, "num_relax": 2, "msa_mode": "custom",
        "model_type": "alphafold2_ptm", "num_models": 2, **settings, "num_ensemble": 1, "model_order": [4, 2],
        "keep_existing_results": False, "rank_by": "ptm", "pair_mode": "unpaired",
        "pairing_strategy": "none", "host_url": "", "stop_at_score": 85.0, "random_seed": 7, "num_seeds": 4,
        "recompile_padding": 0, "commit": None, "use_dropout": True, "use_cluster_profile": True,
        "use_fuse": True, "use_bfloat16": True, "version": f"foldcli {VERSION}",
    }  # fmt: skip
    COLABFOLD.write_methods(run)
    assert (tmp_path / "foldcli/methods.txt").is_file() and (tmp_path / "cite.bibtex").is_file()


def test_colabfolds_config_lists_the_first_family_and_the_pairing_of_any(tmp_path: Path) -> None:
    COLABFOLD.begin_run(description(tmp_path, (*MONOMER, *MULTIMER)))
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["model_type"], config["model_order"]) == ("alphafold2_ptm", [4, 2])
    assert (config["pair_mode"], config["pairing_strategy"]) == ("unpaired_paired", "complete")
    COLABFOLD.begin_run(description(tmp_path, MULTIMER))
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["model_type"], config["rank_by"]) == ("alphafold2_multimer_v3", "multimer")
    assert (config["num_recycles"], config["max_seq"]) == (20, 508)


def test_colabfolds_log_has_its_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="foldcli")
    (tmp_path / "log.txt").write_text("of another shard\n")
    COLABFOLD.begin_run(description(tmp_path, MONOMER))
    single, copy = model("m1", 91.26, ptm=0.8125), model("m2", 40.0, ptm=None, copied_from="1abc_A")
    pair = model("m3", 70.0, iptm=0.25)
    COLABFOLD.log_query("q", 2, 3, 56)
    COLABFOLD.log_model("q", single, is_only=True, untrained=False)
    COLABFOLD.log_ranking([single, copy], "auto")
    COLABFOLD.log_ranking([pair], "auto")
    COLABFOLD.log_ranking([pair], "iptm")
    first, *lines = (tmp_path / "log.txt").read_text().splitlines()
    assert first == "of another shard"
    # after date and time
    assert [line.split(" ", 2)[2] for line in lines] == [
        "Query 2/3: q (length 56)",
        "m1 took 12.3s (3 recycles)",
        "reranking models by 'plddt' metric",
        "rank_001_m1 pLDDT=91.3 pTM=0.812",
        "rank_002_m2 expected_lDDT=40",
        "reranking models by 'multimer' metric",
        "rank_001_m3 pLDDT=70 pTM=0.5 ipTM=0.25",
        "reranking models by 'iptm' metric",
        "rank_001_m3 pLDDT=70 pTM=0.5 ipTM=0.25",
    ]


def test_the_default_layout_logs_each_of_several_models(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logger, "propagate", True)
    caplog.set_level(logging.INFO, logger="foldcli")
    layout, result = layout_of("default"), model("m1", 91.26)
    layout.log_query("q", 1, 2, 56)
    layout.log_ranking([result], "auto")
    layout.log_model("q", result, is_only=True, untrained=False)
    assert caplog.messages == []
    for untrained in (False, True):
        layout.log_model("q", result, is_only=False, untrained=untrained)
    assert caplog.messages == ["q: m1: pLDDT 91.3, pTM 0.500, 12.3 s", "q: m1: UNTRAINED, no meaning, 12.3 s"]


@pytest.mark.parametrize("scores", [{"pae": [[0.5, 2.0], [1.0, 0.5]], "max_pae": 2.0}, {}])
def test_colabfold_gets_the_aligned_error_of_the_best_model(scores: dict[str, Any], tmp_path: Path) -> None:
    files = TargetFiles("q", tmp_path, "colabfold")
    for rank, (tag, content) in enumerate((("best", scores), ("other", {"pae": [[9.0]], "max_pae": 9.0})), 1):
        files.model_path("scores", rank, tag).write_text(json.dumps(content))
    aligned_error = tmp_path / "q_predicted_aligned_error_v1.json"
    # of an earlier run
    aligned_error.write_text("[]")
    COLABFOLD.finish_target(files, [model("best", 90.0), model("other", 80.0)])
    assert (tmp_path / "q.done.txt").read_text() == ""
    if not scores:
        assert not aligned_error.exists()
        return
    assert json.loads(aligned_error.read_text()) == {
        "predicted_aligned_error": scores["pae"],
        "max_predicted_aligned_error": 2.0,
    }


@pytest.mark.parametrize(
    ("content", "staged"),
    [
        (b">q\nMKV\n", b"#3\t1\n>q\nMKV\n"),
        (b"\n #3\t1\n>q\nMKV\n", b"#3\t1\n>q\nMKV\n"),
        (b"# STOCKHOLM 1.0\nq MKV\n//\n", None),
        (b"CLUSTAL W\n\nq MKV\n", None),
    ],
)
def test_colabfolds_alignment_begins_with_its_length(
    content: bytes, staged: bytes | None, tmp_path: Path
) -> None:
    files = TargetFiles("q", tmp_path, "colabfold")
    COLABFOLD.stage_alignment(files, content, 3)
    path = files.staged_path("alignment")
    assert (path.read_bytes() if path.exists() else None) == staged
    if staged is not None:
        assert parse_alignment(staged).query == "MKV"
