"""Passes of ColabFold's network, measured for colabfold_pass.py, which runs this script.

--json has the options of colabfold_pass.py and a length; the figures are printed as JSON. Needs
alphafold-colabfold and JAX, but neither torch nor foldcli.
"""

import argparse
import json
import time
from functools import partial
from statistics import median
from typing import Any

import jax
import numpy as np
from alphafold.model.config import model_config
from alphafold.model.model import RunModel
from alphafold.model.tf.data_transforms import make_atom14_masks
from options import parse_options
from random_inputs import EXTRA_ROWS, ROWS, Arrays, multimer_features, random_features

MONOMER, MULTIMER = "model_3_ptm", "model_1_multimer_v3"
# ColabFold computes these heads only if all results are saved
UNUSED_HEADS = ("distogram", "masked_msa", "experimentally_resolved")
# XLA's options for ColabFold's --compile-mode tuned
COMPILER_OPTIONS = {
    "xla_gpu_override_gemm_autotuner": (
        "block_m: 64 block_n: 64 block_k: 16 num_stages: 3 num_warps: 4 num_ctas: 1"
    )
}
# residues of the features from which the shapes of the parameters, which do not depend on it, are computed
SHORT = 16


def make_runner(options: argparse.Namespace) -> RunModel:
    """Return the network, configured as ColabFold does."""
    config = model_config(MULTIMER if options.network == "multimer" else MONOMER)
    if options.network == "monomer":
        config.data.eval.num_ensemble = 1
    stacks = config.model.embeddings_and_evoformer
    stacks.evoformer_num_block = options.blocks
    stacks.extra_msa_stack_num_block = min(4, options.blocks)
    for head in UNUSED_HEADS:
        config.model.heads[head].weight = 0.0
    on_gpu = options.device != "cpu"
    kernels = config.model.global_config
    kernels.use_pallas = on_gpu
    if on_gpu:
        major, minor = jax.devices()[0].compute_capability.split(".")
        kernels.compute_capability = 10 * int(major) + int(minor)
    compiler_options = COMPILER_OPTIONS if on_gpu else {}
    return RunModel(config, jit_kwargs={"compiler_options": compiler_options})


def make_batch(network: str, residues: int) -> dict[str, Any]:
    """Return random features, with a previous pass of zeros."""
    if network == "multimer":
        features = multimer_features(residues, templates=0)
        features["seq_mask"] = np.ones(residues, np.float32)
        features["msa_mask"] = np.ones(features["msa"].shape, np.float32)
        # the network runs its structure module before the confidence heads only if these are present
        features["all_atom_positions"] = np.zeros((residues, 37, 3), np.float32)
    else:
        features = random_features(residues, ROWS, EXTRA_ROWS)
        atoms: Arrays = make_atom14_masks({"aatype": features["aatype"][0]})
        del atoms["aatype"]
        features |= {name: np.asarray(array)[None] for name, array in atoms.items()}
    previous = {
        "prev_msa_first_row": np.zeros((residues, 256), np.float16),
        "prev_pair": np.zeros((residues, residues, 128), np.float16),
        "prev_pos": np.zeros((residues, 37, 3), np.float16),
    }
    return features | {"prev": previous}


def draw_parameters(shapes: dict[str, Any]) -> dict[str, Any]:
    """Draw small random parameters; scales are one."""
    random = np.random.default_rng(0)

    def draw(path: tuple[Any, ...], shape: jax.ShapeDtypeStruct) -> np.ndarray:
        if path[-1].key == "scale":
            return np.ones(shape.shape, np.float32)
        return np.float32(0.05) * random.standard_normal(shape.shape, np.float32)

    return jax.tree_util.tree_map_with_path(draw, shapes)


def seconds_of(run_pass: partial[Any]) -> float:
    """Return the seconds of a pass, until the device has finished."""
    start = time.perf_counter()
    jax.block_until_ready(run_pass())
    return time.perf_counter() - start


def main() -> None:
    """Measure passes of one length."""
    options = argparse.Namespace(**parse_options(__doc__, json=json.loads).json)
    runner = make_runner(options)
    key = jax.random.PRNGKey(0)
    shapes = jax.eval_shape(runner.init, key, make_batch(options.network, SHORT))
    arguments = jax.device_put((draw_parameters(shapes), key, make_batch(options.network, options.length)))
    start = time.perf_counter()
    compiled = runner.apply.lower(*arguments).compile()
    compile_seconds = time.perf_counter() - start
    run_pass = partial(compiled, *arguments)
    plddt = float(run_pass()["mean_plddt"])
    if not np.isfinite(plddt):
        raise ArithmeticError(f"the mean pLDDT is {plddt}")
    for _ in range(options.warm_up):
        seconds_of(run_pass)
    memory = jax.devices()[0].memory_stats() or {}
    plan = compiled.memory_analysis()
    figures = {
        "seconds": median(seconds_of(run_pass) for _ in range(options.repeats)),
        "first_seconds": compile_seconds,
        "peak_bytes": memory.get("peak_bytes_in_use", 0),
        "planned_bytes": plan.temp_size_in_bytes
        + plan.argument_size_in_bytes
        + plan.output_size_in_bytes
        - plan.alias_size_in_bytes,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
