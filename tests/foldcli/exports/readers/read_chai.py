"""A script that prints what Chai reads of a job, from a FASTA file and a folder of alignments."""

import json
import pathlib
import sys

from chai_lab.data.dataset.inference_dataset import raw_inputs_to_entitites_data, read_inputs
from chai_lab.data.dataset.msas.preprocess import pair_and_merge_msas, prepair_ukey
from chai_lab.data.parsing.msas.aligned_pqt import expected_basename, parse_aligned_pqt_to_msa_context
from chai_lab.data.parsing.structure.entity_type import EntityType
from einops import reduce


def main():
    fasta, folder = map(pathlib.Path, sys.argv[1:])
    entities = raw_inputs_to_entitites_data(read_inputs(fasta))
    proteins = [each for each in entities if each.entity_type == EntityType.PROTEIN]
    contexts = [
        parse_aligned_pqt_to_msa_context(folder / expected_basename(each.sequence)) for each in proteins
    ]
    keys = [
        set(
            prepair_ukey(
                each.pairing_key_hash[:, 0], reduce(each.tokens[0, :] != each.tokens, "s t -> s", "sum")
            )
        )
        for each in contexts
    ]
    merged = pair_and_merge_msas(contexts)
    pairs = len(set.intersection(*keys))
    json.dump(
        {
            "entities": [each.entity_name for each in entities],
            "sequences": [each.sequence for each in proteins],
            "depths": [each.depth for each in contexts],
            "pairs": pairs,
            "paired": merged.tokens[:pairs].tolist(),
        },
        sys.stdout,
    )


main()
