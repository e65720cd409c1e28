"""Template features are DeepMind's, exactly."""

from pathlib import Path

import numpy as np
import pytest

from features.templates.library.chains import TemplateChain
from features.templates.library.library import StructureLibrary
from features.templates.template_features import make_template_features, no_templates
from msa.base.residues import ATOM37, GAP, RESTYPES
from tests.features.deepmind_arrays import HHBLITS_TO_AATYPE, process_templates

CASES = ["1A7G_E", "1A8O_A", "1AS5_A", "1GBT_A", "1LCD_A", "2OFG_X", "2XHE_B", "4CUP_A", "4ZHL_U", "4ZHL_P"]


@pytest.mark.parametrize("case", CASES)
def test_library_chains_give_deepminds_features(
    structures: Path, library: StructureLibrary, case: str
) -> None:
    golden = {
        name.split("/")[1]: value
        for name, value in np.load(structures / "goldens.npz").items()
        if name.startswith(case)
    }
    mask = golden["mask"]
    raw = {
        "template_aatype": np.eye(22)[golden["template_aatype"]][None],
        "template_all_atom_positions": np.zeros((1, *mask.shape, 3)),
        "template_all_atom_masks": mask[None].astype(np.float64),
        "template_sum_probs": np.array([[12.5]]),
    }
    raw["template_all_atom_positions"][0][mask] = golden["positions"]
    index = library.find(case)
    assert index is not None
    made = make_template_features(len(mask), [(library.chain(index), golden["pairs"].astype(np.int64), 12.5)])
    assert_equal(made, process_templates(raw))


@pytest.mark.parametrize("name", ["model_1_ptm_2_blocks", "model_2_ptm_2_blocks"])
def test_parity_templates_are_reproduced(shared_dir: Path, name: str) -> None:
    raw = np.load(shared_dir / "parity/templates" / name / "raw_features.npz")
    expected = process_templates(raw)
    aatype = HHBLITS_TO_AATYPE[raw["template_aatype"].argmax(axis=-1)]
    templates = []
    for k, types in enumerate(aatype):
        aligned = np.flatnonzero(types != GAP)
        chain = TemplateChain(
            "x_A",
            "".join((RESTYPES + "X")[code] for code in types[aligned]),
            raw["template_all_atom_positions"][k, aligned],
            raw["template_all_atom_masks"][k, aligned] > 0,
            None,
            "x",
        )
        pairs = np.stack([aligned, np.arange(len(aligned))], axis=1)
        templates.append((chain, pairs, float(raw["template_sum_probs"][k, 0])))
    assert_equal(make_template_features(aatype.shape[1], templates), expected)


def assert_equal(made: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert made.keys() == expected.keys()
    for name, value in expected.items():
        assert made[name].dtype == value.dtype, name
        np.testing.assert_array_equal(made[name], value, err_msg=name)


def test_no_templates_are_templates_of_length_zero() -> None:
    assert_equal(make_template_features(9, []), no_templates(9))


def test_unaligned_residues_are_gaps_without_atoms() -> None:
    chain = TemplateChain("x_A", "ACU", np.ones((3, 37, 3), np.float32), np.ones((3, 37), bool), None, "x")
    made = make_template_features(4, [(chain, np.array([[1, 0], [3, 2]]), 2.0)])
    assert made["template_aatype"].tolist() == [[GAP, 0, GAP, RESTYPES.index("C")]]
    assert made["template_all_atom_masks"].sum(axis=-1).tolist() == [[0, 37, 0, 37]]
    assert made["template_all_atom_positions"].shape == (1, 4, len(ATOM37), 3)
