"""A script that prints what AlphaFold 3 reads of jobs, from their paths."""

import json
import pathlib
import sys

from alphafold3 import structure
from alphafold3.common import folding_input
from alphafold3.data import msa, templates
from alphafold3.model import msa_pairing


def rows_of(chains):
    """Return the numbers of unpaired rows, and the paired rows as AlphaFold 3 makes them."""
    features, depths = [], {}
    for chain in chains:
        unpaired, paired = (
            msa.Msa.from_a3m(
                query_sequence=chain.sequence, chain_poly_type="polypeptide(L)", a3m=text, deduplicate=dedup
            )
            if text
            else msa.Msa.from_empty(query_sequence=chain.sequence, chain_poly_type="polypeptide(L)")
            for text, dedup in ((chain.unpaired_msa, True), (chain.paired_msa, False))
        )
        depths[chain.id] = unpaired.depth
        own = unpaired.featurize()
        own |= {f"{key}_all_seq": value for key, value in paired.featurize().items()}
        own["chain_id"] = chain.id
        features.append(own)
    if len({chain.sequence for chain in chains}) > 1:
        features = msa_pairing.create_paired_features(
            chains=features, max_paired_sequences=8191,
            nonempty_chain_ids={chain.id for chain in chains}, max_hits_per_species=600,
        )  # fmt: skip
    return depths, {each["chain_id"]: each["msa_all_seq"].tolist() for each in features}


def templates_of(chain):
    """Return the sequences of a chain's templates as AlphaFold 3 lays them over the query."""
    found = []
    for template in chain.templates or ():
        read = structure.from_mmcif(
            template.mmcif, fix_mse_residues=True, fix_arginines=True, include_bonds=False,
            include_water=False, include_other=True,
        )  # fmt: skip
        features = templates.get_polymer_features(
            chain=read, chain_poly_type="polypeptide(L)", query_sequence_length=len(chain.sequence),
            query_to_hit_mapping=dict(template.query_to_template_map),
        )  # fmt: skip
        atoms = int(features["template_all_atom_masks"].sum())
        found.append([features["template_sequence"].decode(), atoms])
    return found


def main():
    result = []
    for path in map(pathlib.Path, sys.argv[1:]):
        jobs = list(folding_input.load_fold_inputs_from_path(path))
        for job in jobs:
            depths, paired = rows_of(job.protein_chains)
            result.append(
                {
                    "name": job.name, "seeds": list(job.rng_seeds), "depths": depths, "paired": paired,
                    "templates": {chain.id: templates_of(chain) for chain in job.protein_chains},
                    "chains": [chain.id for chain in job.chains], "bonds": job.bonded_atom_pairs,
                }
            )  # fmt: skip
    json.dump(result, sys.stdout)


main()
