"""A script that prints what OpenFold3 reads of queries, from the path of their file."""

import json
import pathlib
import sys

from openfold3.core.config.msa_pipeline_configs import MsaSampleProcessorInputInference
from openfold3.core.data.pipelines.sample_processing.msa import MsaSampleProcessorInference
from openfold3.projects.of3_all_atom.config.dataset_config_components import MSASettings
from openfold3.projects.of3_all_atom.config.inference_query_format import InferenceQuerySet


def main():
    queries = InferenceQuerySet.from_json(pathlib.Path(sys.argv[1]))
    settings = MSASettings(subsample_main=False)
    result = {"seeds": queries.seeds}
    for name, query in queries.queries.items():
        read = MsaSampleProcessorInputInference.create_from_inference_query_entry(query)
        found = MsaSampleProcessorInference(config=settings)(read)
        paired = found.chain_id_to_paired_msa or {}
        result[name] = {
            "chains": [chain.chain_ids for chain in query.chains],
            "bonds": query.covalent_bonds,
            "main": {key: len(each.msa) for key, each in found.chain_id_to_main_msa.items()},
            "paired": {key: ["".join(row) for row in each.msa] for key, each in paired.items()},
        }
    json.dump(result, sys.stdout)


main()
