"""Templates laid over the tokens of a job: against OpenFold3's features and a computation by hand."""

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from features.alphafold3.inputs import InputSettings, build_sample
from features.alphafold3.templates import TokenTemplates, map_templates_to_tokens, template_features
from features.assembly.atoms import Atoms, build_atoms
from features.assembly.job import JobTemplate, Ligand, Modification, MoleculeJob, Polymer
from features.assembly.tokens import Tokens, build_tokens
from features.chemistry.residue_classes import GAP, STANDARD_CODES, MoleculeKind
from features.templates.library.structure_files import read_chains
from features.templates.template_features import make_template_features
from msa.base.errors import InputError
from msa.base.residues import ATOM37

FILE = Path(__file__).parents[1] / "templates" / "data" / "1a8o.cif.gz"
GOLDEN = Path(__file__).parent / "data" / "laid_templates.npz"
SEQUENCE = read_chains(FILE)[0].sequence


def rows_of(
    job: MoleculeJob, found: dict[str, dict[str, np.ndarray]] | None = None
) -> tuple[Atoms, Tokens, TokenTemplates | None]:
    atoms = build_atoms(job)
    tokens = build_tokens(atoms)
    return atoms, tokens, map_templates_to_tokens(atoms, tokens, found or {})


def own(query: range, template: range, chain: str | None = "A") -> JobTemplate:
    return JobTemplate(gzip.decompress(FILE.read_bytes()).decode(), tuple(query), tuple(template), chain)


def test_laid_templates_equal_those_of_openfold3() -> None:
    templates = (own(range(21), range(2, 23)), own(range(0, 21, 2), range(2, 23, 2)))
    sequence = SEQUENCE[2:22] + "S"
    job = MoleculeJob(
        "job",
        (Polymer(MoleculeKind.PROTEIN, sequence, ("A",), (Modification(21, "SEP"),), templates=templates),),
    )
    _, tokens, rows = rows_of(job)
    made = template_features(tokens, rows, 4)
    with np.load(GOLDEN) as file:
        golden = dict(file)
    assert len(tokens) == golden["template_restype"].shape[1] == 30
    np.testing.assert_array_equal(made["template_restype"].argmax(-1), golden["template_restype"])
    for name in ("template_pseudo_beta_mask", "template_backbone_frame_mask", "template_distogram"):
        np.testing.assert_array_equal(made[name], golden[name], err_msg=name)
    np.testing.assert_allclose(made["template_unit_vector"], golden["template_unit_vector"], atol=3e-6)


def test_all_copies_have_the_template_and_nothing_else_has() -> None:
    """Compare every value with one computed by hand, residue by residue."""
    chain = read_chains(FILE)[0]
    pairs = np.array([[0, 5], [1, 6], [3, 9], [4, 10]])
    found = {"GKVLG": make_template_features(5, [(chain, pairs, 1.0)])}
    job = MoleculeJob(
        "job",
        (
            Ligand(("L",), ("GOL",)),
            Polymer(MoleculeKind.PROTEIN, "GKVLG", ("A", "B")),
            Polymer(MoleculeKind.PROTEIN, "MKV", ("C",)),
            Polymer(MoleculeKind.RNA, "GAAAG", ("R",)),
        ),
    )
    atoms, tokens, rows = rows_of(job, found)
    assert rows is not None
    names = [atoms.chains[index].name for index in atoms.chain[tokens.start]]
    template_of = dict(pairs.tolist())
    classes = np.full((4, len(tokens)), GAP)
    for token, (name, number) in enumerate(zip(names, atoms.residue[tokens.start] - 1, strict=True)):
        residue = template_of.get(int(number)) if name in "AB" else None
        if residue is None:
            assert np.isnan(rows.pseudo_beta[:, token]).all() and np.isnan(rows.frames[:, token]).all()
            continue
        code = "ARNDCQEGHILKMFPSTWYV".index(chain.sequence[residue])
        classes[0, token] = code
        beta = "CA" if STANDARD_CODES[code] == "GLY" else "CB"
        place = {atom: chain.positions[residue, ATOM37.index(atom)] for atom in ("N", "CA", "C", beta)}
        np.testing.assert_array_equal(rows.pseudo_beta[0, token], place[beta])
        np.testing.assert_array_equal(rows.frames[0, token], [place["N"], place["CA"], place["C"]])
    np.testing.assert_array_equal(rows.classes, classes)
    assert {chain.sequence[residue] for residue in template_of.values()} >= {"G"}
    features = template_features(tokens, rows, 4)
    copies = np.array([names.index("A"), names.index("B")])
    assert features["template_distogram"][0, copies[0], copies[0] + 1].any()
    assert not features["template_distogram"][0, copies[0], copies[1] + 1].any()


def test_an_empty_list_means_no_templates_and_none_means_the_search() -> None:
    found = {"MKV": make_template_features(3, [(read_chains(FILE)[0], np.array([[0, 0]]), 1)])}
    for templates, expected in ((None, True), ((), False)):
        job = MoleculeJob("job", (Polymer(MoleculeKind.PROTEIN, "MKV", ("A",), templates=templates),))
        assert (rows_of(job, found)[2] is not None) == expected


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (own(range(2), range(98, 100)), "beyond the last residue"),
        (own(range(2), range(2), "Q"), "no protein chain 'Q'"),
        (JobTemplate("nonsense", (), ()), "neither an mmCIF nor a PDB file"),
    ],
)
def test_damaged_templates_name_the_job(template: JobTemplate, reason: str) -> None:
    template = replace(template, path="job.json", line=7)
    polymer = Polymer(MoleculeKind.PROTEIN, "MKV", ("A",), templates=(template,))
    with pytest.raises(InputError, match=rf"job\.json:7: template 1 of chain A: .*{reason}"):
        rows_of(MoleculeJob("job", (polymer,), path="job.json"))


def test_templates_become_features_of_a_sample() -> None:
    job = MoleculeJob(
        "job", (Polymer(MoleculeKind.PROTEIN, "GKVLG", ("A",), templates=(own(range(5), range(5)),)),)
    )
    _, _, rows = rows_of(job)
    sample = build_sample(job, InputSettings(), rows)
    assert sample.features["template_pseudo_beta_mask"].sum() == 5
    assert sample.features["template_distogram"].shape == (4, 5, 5, 39)
