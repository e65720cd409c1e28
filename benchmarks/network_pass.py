"""Time and peak memory of one pass on the CPU, with random parameters.

    python benchmarks/network_pass.py [MODEL [RESIDUES [MSA_ROWS [EXTRA_ROWS [THREADS]]]]]

Compare with DeepMind's `RunModel` (jax and alphafold-colabfold installed) on the same shapes.
"""

import argparse
import resource
import time

import torch
from random_inputs import random_features

from model.alphafold2.modules.config import model_config
from model.alphafold2.recycling import feature_tensors
from model.checkpoints.alphafold2 import build_network, random_parameters


def main() -> None:
    """Time three passes and print the fastest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", nargs="?", default="model_1_ptm")
    for argument, default in {"residues": 60, "msa_rows": 16, "extra_rows": 16, "threads": 1}.items():
        parser.add_argument(argument, nargs="?", type=int, default=default, help=f"default: {default}")
    options = parser.parse_args()
    name, residues, threads = options.model, options.residues, options.threads
    msa_rows, extra_rows = options.msa_rows, options.extra_rows
    torch.set_num_threads(threads)
    config = model_config(name)
    network = build_network(config, random_parameters(config))
    features = feature_tensors(random_features(residues, msa_rows, extra_rows), 0, torch.device("cpu"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        with torch.inference_mode():
            network.run_pass(features, network.initial_state(features))
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{name}, {residues} residues, {msa_rows} + {extra_rows} rows, {threads} threads: "
        f"{min(seconds):.2f} s a pass; peak {peak / 2**20:.2f} GiB, "
        f"{before / 2**20:.2f} GiB before the first pass"
    )


if __name__ == "__main__":
    main()
