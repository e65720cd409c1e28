"""A script that prints what Protenix reads of jobs, from the path of their file."""

import json
import pathlib
import sys

import numpy as np
from biotite.structure import AtomArray
from protenix.data.msa.msa_featurizer import InferenceMSAFeaturizer
from runner.msa_search import need_msa_search


def atoms_of(entities):
    """Return one atom for each residue, ligand and ion, with the annotations that the alignments need."""
    sizes = []
    for entity in entities:
        ((_, content),) = entity.items()
        sizes += [len(content.get("sequence", "X"))] * content["count"]
    atoms = AtomArray(sum(sizes))
    asym = np.repeat(np.arange(len(sizes)), sizes)
    atoms.set_annotation("asym_id_int", asym)
    atoms.chain_id = np.array([chr(65 + number) for number in asym])
    atoms.res_id = np.concatenate([np.arange(size) + 1 for size in sizes])
    atoms.set_annotation("centre_atom_mask", np.ones(len(asym), bool))
    return atoms


def main():
    jobs = json.loads(pathlib.Path(sys.argv[1]).read_text())
    result = []
    for job in jobs:
        entities = [
            {"ligand": {"ligand": "X", "count": each["ion"]["count"]}} if "ion" in each else each
            for each in job["sequences"]
        ]
        features = InferenceMSAFeaturizer.make_msa_feature(entities, atoms_of(entities))
        pairs = int(features["prot_paired_num_alignments"])
        result.append(
            {
                "name": job["name"], "needs_search": need_msa_search(job), "pairs": pairs,
                "paired": features["msa"][:pairs].tolist(),
                "unpaired": int(features["prot_unpaired_num_alignments"]),
            }
        )  # fmt: skip
    json.dump(result, sys.stdout)


main()
