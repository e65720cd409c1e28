"""Write the goldens in data/ with OpenFold3's featuriser, for the jobs of jobs.json.

    make_goldens.py data

Needs openfold3 0.5.0 in an environment of its own; the tests do not.
Each job becomes OUTPUT/NAME.npz. Arrays of
whole numbers are stored as int8 where they fit, one-hot arrays as classes, and bonds as pairs. OpenFold3
ignores
the bonds of a query, so those of `bonds` are added to the structure that it builds, before it makes
tokens, and
the atoms in `removed` are taken away.
"""

import gzip
import io
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from biotite.structure.io import pdbx
from openfold3.core.data.framework.single_datasets import inference
from openfold3.core.data.pipelines.preprocessing.template import TemplatePreprocessorSettings
from openfold3.core.data.primitives.featurization.template import (
    create_template_distogram,
    create_template_feature_precursor_of3,
    create_template_restype,
    create_template_unit_vector,
)
from openfold3.core.data.primitives.structure import query as query_module
from openfold3.core.data.primitives.structure.template import TemplateSlice, TemplateSliceCollection
from openfold3.projects.of3_all_atom.config.dataset_configs import InferenceJobConfig
from openfold3.projects.of3_all_atom.config.inference_query_format import InferenceQuerySet

ONE_HOT = ("restype", "ref_element", "ref_atom_name_chars", "msa", "template_restype")
# zero without templates
DROPPED = ("template_distogram", "template_unit_vector")
SEED = 7
TEMPLATE = "1a8o.cif.gz"


def find(array: Any, end: list) -> int:
    """Return the index of the atom [chain, residue, name]."""
    chain, residue, name = end
    rows = np.flatnonzero((array.chain_id == chain) & (array.res_id == residue) & (array.atom_name == name))
    assert len(rows) == 1, end
    return int(rows[0])


def add_bonds(job: dict) -> Any:
    """Return the package's function that builds the structure, followed by the job's bonds."""
    original = query_module.structure_with_ref_mols_from_query

    def build(query: Any) -> Any:
        array, molecules = original(query=query)
        for first, second in job.get("bonds", []):
            array.bonds.add_bond(find(array, first), find(array, second))
        removed = {find(array, end) for end in job.get("removed", [])}
        row = 0
        for molecule in molecules:
            for index in np.flatnonzero(molecule.in_crop_mask):
                molecule.in_crop_mask[index] = row not in removed
                row += 1
        assert row == len(array)
        kept = np.array([row not in removed for row in range(len(array))])
        return query_module.StructureWithReferenceMolecules(array[kept], molecules)

    return build


def features(job: dict, folder: Path) -> dict[str, np.ndarray]:
    """Return the package's features of a job."""
    chains = []
    for number, chain in enumerate(job["chains"]):
        chain = dict(chain)
        for key, name in (("main_msa", "colabfold_main"), ("paired_msa", "colabfold_paired")):
            if key in chain:
                path = folder / f"{job['name']}_{number}" / f"{name}.a3m"
                path.parent.mkdir(exist_ok=True)
                path.write_text(chain.pop(key))
                chain[f"{key}_file_paths"] = [str(path)]
        chains.append(chain)
    query = {"chains": chains}
    queries = InferenceQuerySet.model_validate({"seeds": [SEED], "queries": {job["name"]: query}})
    templates = TemplatePreprocessorSettings(mode="predict", output_directory=str(folder / "templates"))
    config = InferenceJobConfig(query_set=queries, seeds=[SEED], template_preprocessor_settings=templates)
    dataset = inference.InferenceDataset(config, world_size=None)
    inference.structure_with_ref_mols_from_query = add_bonds(job)
    torch.manual_seed(SEED)
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002
    result = dataset.create_all_features(queries.queries[job["name"]])
    names = result.pop("atom_array")
    arrays = {key: value.numpy() for key, value in result.items() if torch.is_tensor(value)}
    return arrays | {"atom_name": names.atom_name.astype("S4"), "res_name": names.res_name.astype("S5")}


def compact(name: str, array: np.ndarray) -> np.ndarray:
    """Return an array in fewer bytes; see the top of this file."""
    if name == "token_bonds":
        return np.argwhere(array).astype(np.int16)
    if name in ONE_HOT:
        assert (array.sum(-1) == 1).all()
        array = array.argmax(-1)
    if array.dtype.kind in "iub" and array.size and np.abs(array.astype(int)).max() < 128:
        return array.astype(np.int8)
    return array


def templates() -> dict[str, np.ndarray]:
    """Return the package's template features of random coordinates, and those coordinates."""
    source = np.random.default_rng(SEED)
    frames = source.normal(scale=8, size=(2, 6, 3, 3))
    beta = source.normal(scale=12, size=(2, 6, 3))
    frames[0, 1, 2] = np.nan
    beta[1, 3:] = np.nan
    frames[1, 5] = np.nan
    frame_mask = torch.tensor(~np.isnan(frames).any((-2, -1)), dtype=torch.float)
    beta_mask = torch.tensor(~np.isnan(beta).any(-1), dtype=torch.float)
    chain = torch.tensor([1, 1, 1, 1, 2, 2])
    same = (chain[:, None] == chain)[None, :, :, None]
    return {
        "chain": chain.numpy(),
        "frames": frames,
        "pseudo_beta": beta,
        "template_distogram": create_template_distogram(beta, beta_mask, same).numpy(),
        "template_unit_vector": create_template_unit_vector(frames, frame_mask, same).numpy(),
    }


def laid_templates() -> dict[str, np.ndarray]:
    """Return the package's template features of a chain laid over a sequence twice.

    The query has the residues from 3 to 22 of the template, and a phosphoserine of ten atoms at its end. The
    first template covers all of them, the second one every other.
    """
    path = Path(__file__).parents[1] / "templates" / "data" / TEMPLATE
    file = pdbx.CIFFile.read(io.StringIO(gzip.decompress(path.read_bytes()).decode()))
    array = pdbx.get_structure(file, model=1, use_author_fields=False)
    array = array[(array.chain_id == "A") & np.isin(array.res_id, np.arange(3, 24))]
    tokens = [*range(20), *[20] * 10]
    slices = []
    for step in (1, 2):
        residues = np.arange(3, 24)[::step]
        part = array[np.isin(array.res_id, residues)]
        positions = np.flatnonzero(np.isin(np.array(tokens) + 3, residues))
        repeats = np.unique(np.array(tokens)[positions], return_counts=True)[1]
        slices.append(TemplateSlice(part, positions, repeats))
    rows = create_template_feature_precursor_of3(TemplateSliceCollection({"A": slices}), 4, len(tokens))
    beta_mask = torch.tensor(~np.isnan(rows.pseudo_beta_atom_coords).any(-1), dtype=torch.float)
    frame_mask = torch.tensor(~np.isnan(rows.frame_atom_coords).any((-2, -1)), dtype=torch.float)
    same = torch.ones(1, len(tokens), len(tokens), 1)
    return {
        "template_restype": create_template_restype(rows.res_names, beta_mask).argmax(-1).numpy(),
        "template_pseudo_beta_mask": beta_mask.numpy(),
        "template_backbone_frame_mask": frame_mask.numpy(),
        "template_distogram": create_template_distogram(rows.pseudo_beta_atom_coords, beta_mask, same)
        .numpy()
        .astype(np.int8),
        "template_unit_vector": create_template_unit_vector(rows.frame_atom_coords, frame_mask, same).numpy(),
    }


def main() -> None:
    """Write all goldens."""
    output = Path(sys.argv[1])
    output.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(output / "templates.npz", **templates())
    np.savez_compressed(output / "laid_templates.npz", **laid_templates())
    jobs = json.loads((Path(__file__).parent / "jobs.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        for job in jobs:
            arrays = features(job, Path(folder))
            for name in DROPPED:
                assert not arrays.pop(name).any()
            packed = {name: compact(name, array) for name, array in arrays.items()}
            np.savez_compressed(output / f"{job['name']}.npz", **packed)
            print(job["name"], len(arrays["token_index"]), "tokens", len(arrays["atom_mask"]), "atoms")


if __name__ == "__main__":
    main()
