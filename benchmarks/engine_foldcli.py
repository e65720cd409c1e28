"""Passes of our network, measured for colabfold_pass.py, which runs this script.

The argument is the options of colabfold_pass.py and a length, as JSON; the figures are printed as JSON.
"""

import argparse
import json
import sys
from functools import partial

import torch
from multimer_pass import MULTIMER, measure
from random_inputs import EXTRA_ROWS, ROWS, multimer_features, random_features

from model.alphafold import AlphaFold
from model.config import model_config
from model.multimer.draws import PhiloxMsaDraws
from model.multimer.inputs import MultimerInputs
from model.parameters import random_parameters
from model.recycling import feature_tensors

MONOMER = "model_3_ptm"


def main() -> None:
    """Measure passes of one length."""
    options = argparse.Namespace(**json.loads(sys.argv[1]))
    device = torch.device(options.device)
    multimer = options.network == "multimer"
    config = model_config(MULTIMER if multimer else MONOMER)
    config = config.with_blocks(options.blocks, min(4, options.blocks))
    kernels = "reference" if options.device == "cpu" else "fused"
    network = AlphaFold.from_parameters(config, random_parameters(config), device, torch.bfloat16, kernels)
    if config.multimer is not None:
        features = multimer_features(options.length, templates=0)
        inputs = MultimerInputs(features, config.multimer, partial(PhiloxMsaDraws, 0), device)
        measured = measure(network, features, inputs, options)
    else:
        features = random_features(options.length, ROWS, EXTRA_ROWS)
        tensors = feature_tensors(features, 0, device)
        measured = measure(network, features, lambda _: tensors, options)
    figures = {
        "seconds": measured.seconds,
        "preparation_seconds": measured.first_seconds,
        "peak_bytes": measured.peak_bytes,
        "planned_bytes": measured.planned_bytes,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
