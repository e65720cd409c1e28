"""Tests of the methods paragraph, the papers to cite, and the scripts for viewers."""

import re
from pathlib import Path

from foldcli.families.all_atom import AllAtom
from foldcli.families.settings import AllAtomSettings, AlphaFold2Settings
from foldcli.outputs.layout import TargetFiles
from foldcli.outputs.methods import RunMethods, bibtex
from foldcli.outputs.model_files import ModelResult
from foldcli.outputs.viewer_scripts import write_viewer_scripts


def methods(settings: AlphaFold2Settings, database: str | None = None) -> RunMethods:
    return RunMethods(("alphafold2_ptm_model_3",), settings, "plddt", database, False, 0, ("Jumper2021",))


def test_the_paragraph_names_what_was_used_and_bibtex_its_papers() -> None:
    plain = methods(AlphaFold2Settings())
    text = plain.paragraph()
    assert (
        "alphafold2_ptm_model_3, with at most 3 recycles" in text
        and "random seed 0 or those of a job's file." in text
    )
    assert "Alignments were given. Templates were not used. Models were ranked by plddt." in text
    assert re.findall(r"@\w+{(\w+),", bibtex([plain])) == ["Jumper2021", "foldcli"]
    settings = AlphaFold2Settings(
        num_seeds=4, random_seed=7, initial_guess=Path("x"), cyclic=("B",), msa_mask=0.15
    )
    rich = methods(settings, "uniref50 of 9 sequences")
    for words in (
        "random seed 7 and the 3 after it", "searching uniref50 of 9 sequences", "masked 15% of",
        "Chain B was cyclic", "started from the positions",
    ):  # fmt: skip
        assert words in rich.paragraph()
    names = re.findall(r"@\w+{(\w+),", bibtex([rich]))
    assert names == ["Jumper2021", "Altschul1997", "Bennett2023", "Kalakoti2025", "Rettie2025", "foldcli"]
    assert bibtex([plain, rich]) == bibtex([rich])
    for text in (bibtex([plain]), bibtex([rich])):
        assert text.count("{") == text.count("}")


def test_the_paragraph_of_an_all_atom_network_has_samples_and_the_score_that_ranks() -> None:
    settings = AllAtomSettings(num_samples=3, num_steps=50)
    text = RunMethods(("openfold3",), settings, AllAtom.rank_score, None, False, 0, ()).paragraph()
    assert "Each seed gave 3 samples of 50 denoising steps." in text
    assert "Models were ranked by AlphaFold 3's ranking score." in text


def test_scripts_open_the_models_that_exist(tmp_path: Path) -> None:
    for layout in ("default", "colabfold"):
        files = TargetFiles("t", tmp_path / layout, layout)
        ranked = [ModelResult(f"m_{n}_seed_000", 90.0, None, 0, 1.0, "x") for n in range(2)]
        for rank, result in enumerate(ranked, 1):
            for kind in ("pdb", "cif"):
                path = files.model_path(kind, rank, result.tag)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
        files.folder.mkdir(parents=True, exist_ok=True)
        write_viewer_scripts(files, ranked)
        chimerax = (files.folder / "t.cxc").read_text().splitlines()
        opened = [line.removeprefix("open ") for line in chimerax if line.startswith("open ")]
        assert [(files.folder / name).resolve().is_file() for name in opened] == [True, True]
        assert chimerax[2:4] == ["matchmaker #2 to #1", "color bfactor palette alphafold"]
        pymol = (files.folder / "t.pml").read_text().splitlines()
        assert pymol[1] == f"load {opened[1]}, rank_002" and "color 0x0053D6, b > 90" in pymol
