"""Time and peak memory of the all-atom network on a GPU, with random parameters and a made-up protein.

    python benchmarks/all_atom_gpu.py [--tokens 512,1024] [--precision bf16] [--kernels fused] [--profile N]

Prints seconds of one cycle of the trunk, one denoising step of five samples, the confidence heads of one
sample, and of a whole prediction with its scores (4 cycles, 200 steps, 5 samples), the first of its size and
the second, with 1,024 rows of alignment and 8 atoms per token. --agreement 256 compares the trunk with that
in float32.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch

from cuda.fused.chunking import chunk_budget
from model.alphafold3.config import OPENBIND, P2, AlphaFold3Config
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.network import AlphaFold3
from model.alphafold3.sampling import SeededDraws

ATOMS_PER_TOKEN, TEMPLATES = 8, 4
CYCLES, STEPS, SAMPLES, ROWS = 4, 200, 5, 1024
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
# Seconds of a cycle, a step, the heads and the whole, by tokens: openfold3 0.5.0 with cuEquivariance as its
# command runs it (float32 with TF32), random parameters, the same sizes, one NVIDIA H100.
OPENFOLD3 = {512: (0.774, 0.063, 0.24, 16.0), 1024: (3.668, 0.152, 1.22, 46.4)}


def make_inputs(tokens: int, rows: int) -> AlphaFold3Inputs:
    """Return a protein of random residues without templates."""
    generator = np.random.default_rng(0)
    index = np.arange(tokens)
    token = np.repeat(index, ATOMS_PER_TOKEN)
    atoms = len(token)
    classes, elements = np.eye(32, dtype=np.float32), np.eye(119, dtype=np.int32)
    types = generator.integers(0, 20, tokens)
    zeros, ones = np.zeros(tokens, np.float32), np.ones(tokens, np.float32)
    empty = np.zeros((TEMPLATES, tokens), np.float32)
    arrays: dict[str, np.ndarray] = {
        "token_index": index, "residue_index": index + 1, "asym_id": ones, "entity_id": ones, "sym_id": ones,
        "restype": classes[types], "is_protein": ones, "is_rna": zeros, "is_dna": zeros, "is_ligand": zeros,
        "is_atomized": zeros, "cyclic_mask": zeros, "token_mask": ones,
        "token_bonds": np.zeros((tokens, tokens), np.float32),
        "num_atoms_per_token": np.full(tokens, ATOMS_PER_TOKEN), "start_atom_index": index * ATOMS_PER_TOKEN,
        "atom_to_token_index": token, "atom_mask": np.ones(atoms), "ref_mask": np.ones(atoms),
        "ref_pos": generator.standard_normal((atoms, 3)), "ref_charge": np.zeros(atoms),
        "ref_element": elements[generator.integers(5, 8, atoms)], "ref_space_uid": token,
        "ref_atom_name_chars": np.eye(64, dtype=np.int32)[generator.integers(1, 60, (atoms, 4))],
        "msa": classes[generator.integers(0, 21, (rows, tokens))],
        "has_deletion": np.zeros((rows, tokens)), "deletion_value": np.zeros((rows, tokens)),
        "msa_mask": np.ones((rows, tokens)), "profile": classes[types], "deletion_mean": zeros,
        "template_restype": np.tile(classes[31], (TEMPLATES, tokens, 1)),
        "template_pseudo_beta_mask": empty, "template_backbone_frame_mask": empty,
        "template_distogram": np.zeros((TEMPLATES, tokens, tokens, 39), np.float32),
        "template_unit_vector": np.zeros((TEMPLATES, tokens, tokens, 3), np.float32),
    }  # fmt: skip
    return AlphaFold3Inputs.from_arrays(arrays)


def make_network(config: AlphaFold3Config, precision: str, kernels: str) -> AlphaFold3:
    """Return a network with random parameters on the GPU."""
    with torch.device("meta"):
        shapes = {name: x.shape for name, x in AlphaFold3(config, "reference").state_dict().items()}
    generator = torch.Generator("cuda").manual_seed(0)
    tensors = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator, device="cuda")
        is_scale = len(shape) == 1 and name.endswith(("weight", "scale"))
        tensors[name] = (
            1 + 0.1 * noise if is_scale else noise * (0.5 * shape[-1] ** -0.5 if shape[1:] else 0.1)
        )
    return AlphaFold3.load(config, tensors, kernels, "cuda", DTYPES[precision])


def seconds(function: Callable[[], object], repeats: int = 3) -> float:
    """Return the median time of some calls after a first one, or of the first one without others."""
    times = []
    for _ in range(repeats + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return median(times[1:] or times)


def measure(network: AlphaFold3, tokens: int) -> None:
    """Print a row of the table."""
    inputs = make_inputs(tokens, ROWS).to("cuda")
    torch.cuda.reset_peak_memory_stats()
    draws = SeededDraws(0)

    def predict() -> object:
        return network.predict(inputs, draws, cycles=CYCLES, steps=STEPS, samples=SAMPLES)

    first, whole = seconds(predict, 0), seconds(predict, 0)
    trunk = network.trunk(inputs, draws, cycles=1)
    cycle = seconds(lambda: network.trunk(inputs, draws, cycles=1), 2)

    def sample(steps: int) -> torch.Tensor:
        return network.sample(inputs, trunk, draws, steps=steps, samples=SAMPLES)

    few, many = seconds(lambda: sample(5), 2), seconds(lambda: sample(25), 2)
    step = (many - few) / 20
    positions = sample(5)
    heads = seconds(lambda: network.heads(inputs, trunk, positions[0]), 2)
    peak = torch.cuda.max_memory_allocated() / 2**30
    peer = "".join(f"{x:9.3f}" for x in OPENFOLD3.get(tokens, ()))
    print(f"{tokens:6} {cycle:8.3f} {step:8.4f} {heads:8.3f} {first:8.2f} {whole:8.2f} {peak:8.1f}  {peer}")


def agreement(config: AlphaFold3Config, precision: str, kernels: str, tokens: int) -> None:
    """Print the relative difference of the representations from those in float32, after one cycle."""
    inputs = make_inputs(tokens, 128).to("cuda")
    exact = make_network(config, "fp32", "reference").trunk(inputs, SeededDraws(0), cycles=1)
    for name in dict.fromkeys(("reference", kernels)):
        trunk = make_network(config, precision, name).trunk(inputs, SeededDraws(0), cycles=1)
        pair, single = (
            float((x - y).norm() / y.norm())
            for x, y in ((trunk.pair, exact.pair), (trunk.single, exact.single))
        )
        print(f"{config.name}, {tokens} tokens, {precision}, {name}: pair {pair:.2e}, single {single:.2e}")


def show_profile(network: AlphaFold3, tokens: int) -> None:
    """Print the kernels that take most of a cycle, and of some steps."""
    from torch.profiler import ProfilerActivity, profile

    inputs, draws = make_inputs(tokens, ROWS).to("cuda"), SeededDraws(0)
    trunk = network.trunk(inputs, draws, cycles=1)
    for function in (
        lambda: network.trunk(inputs, draws, cycles=1),
        lambda: network.sample(inputs, trunk, draws, steps=10, samples=SAMPLES),
    ):
        function()
        with profile(activities=[ProfilerActivity.CUDA]) as result:
            function()
            torch.cuda.synchronize()
        table = result.key_averages().table(
            sort_by="self_cuda_time_total", row_limit=14, max_name_column_width=70
        )
        print("\n".join(line[:72] + line[-90:] for line in table.splitlines()))


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", default="512,1024")
    parser.add_argument("--precision", choices=DTYPES, default="bf16")
    parser.add_argument("--kernels", default="fused")
    parser.add_argument("--parameters", choices=("openbind", "p2"), default="openbind")
    parser.add_argument("--chunks", type=int, default=2**28, help="elements of intermediates held at once")
    parser.add_argument("--agreement", type=int)
    parser.add_argument("--profile", type=int)
    options = parser.parse_args()
    config = {"openbind": OPENBIND, "p2": P2}[options.parameters]
    torch.backends.cuda.matmul.allow_tf32 = options.precision == "bf16"
    print(torch.cuda.get_device_name(), options.parameters, options.precision, options.kernels)
    if options.agreement:
        agreement(config, options.precision, options.kernels, options.agreement)
    network = make_network(config, options.precision, options.kernels)
    print(
        "tokens    cycle     step    heads    first    whole      GiB"
        "   OpenFold3 on an H100: cycle, step, heads, whole"
    )
    with chunk_budget(options.chunks):
        for tokens in map(int, options.tokens.split(",")):
            measure(network, tokens)
    if options.profile:
        show_profile(network, options.profile)


if __name__ == "__main__":
    main()
