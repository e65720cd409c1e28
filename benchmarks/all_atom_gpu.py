"""Time and peak memory of the all-atom network on a GPU, with random parameters and a made-up protein.

    python benchmarks/all_atom_gpu.py [--tokens 256,512,1024,1536,2048] [--precision bf16] [--kernels fused]
        [--peer [FOLDER]] [--short] [--profile 256,512] [--longest 7000]

Prints seconds of one cycle of the trunk, one denoising step of five samples, all scores of five samples, and
of a whole prediction (4 cycles, 200 steps, 5 samples), the first of its size and the faster of two others,
with 1,024 rows of alignment and 8 atoms per token; then the measured and the planned peak of memory.
--profile prints the slowest kernels of each phase. --longest predicts a long protein in one cycle with few
blocks and steps, which need as much memory as all.

--peer times OpenFold3 in the same process; FOLDER has its packages if they are not installed. With --short,
its whole prediction is not run, but computed from three predictions of one or two cycles and 2 or 22 steps.
"""

import argparse
import copy
import sys
import time
import types
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from cuda.fused.chunking import chunk_budget
from model.alphafold3.confidence import TargetScorer
from model.alphafold3.config import OPENBIND, P2, AlphaFold3Config
from model.alphafold3.inputs import HOST_TOKENS, AlphaFold3Inputs
from model.alphafold3.network import AlphaFold3
from model.alphafold3.sampling import SeededDraws
from model.planning.alphafold3 import GIB, PredictionSize, plan_prediction
from msa.base.network_inputs import ALL_ATOM

ATOMS_PER_TOKEN, TEMPLATES = 8, 4
CYCLES, STEPS, SAMPLES, ROWS = 4, 200, 5, 1024
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def make_inputs(tokens: int, rows: int, device: str) -> AlphaFold3Inputs:
    """Return a protein of random residues without templates."""
    arrays: dict[str, np.ndarray | torch.Tensor] = dict(make_arrays(tokens, rows))
    # made where they stay, since they take long to copy
    place = device if tokens <= HOST_TOKENS else "cpu"
    arrays["template_distogram"] = torch.zeros(TEMPLATES, tokens, tokens, 39, dtype=torch.int8, device=place)
    return AlphaFold3Inputs.from_arrays(arrays, device)


def make_arrays(tokens: int, rows: int) -> dict[str, np.ndarray]:
    """Return the arrays of `make_inputs`."""
    generator = np.random.default_rng(0)
    index = np.arange(tokens)
    token = np.repeat(index, ATOMS_PER_TOKEN)
    atoms = len(token)
    classes, elements = np.eye(32, dtype=np.float32), np.eye(119, dtype=np.int32)
    types = generator.integers(0, 20, tokens)
    zeros, ones = np.zeros(tokens, np.float32), np.ones(tokens, np.float32)
    empty = np.zeros((TEMPLATES, tokens), np.float32)
    return {
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
        "template_distogram": np.zeros((TEMPLATES, tokens, tokens, 39), np.int8),
        "template_unit_vector": np.zeros((TEMPLATES, tokens, tokens, 3), np.float32),
    }  # fmt: skip


def make_network(config: AlphaFold3Config, precision: str, kernels: str, device: str = "cuda") -> AlphaFold3:
    """Return a network with random parameters on the current GPU, or the CPU."""
    return AlphaFold3.load(config, random_tensors(config, device), kernels, device, DTYPES[precision])


def random_tensors(config: AlphaFold3Config, device: str) -> dict[str, torch.Tensor]:
    """Return random parameters of a network by their names."""
    with torch.device("meta"):
        shapes = {name: x.shape for name, x in AlphaFold3(config, "reference").state_dict().items()}
    generator = torch.Generator(device).manual_seed(0)
    tensors = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator, device=device)
        is_scale = len(shape) == 1 and name.endswith(("weight", "scale"))
        tensors[name] = (
            1 + 0.1 * noise if is_scale else noise * (0.5 * shape[-1] ** -0.5 if shape[1:] else 0.1)
        )
    return tensors


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
    inputs = make_inputs(tokens, ROWS, "cuda")
    torch.cuda.reset_peak_memory_stats()
    draws, scorer = SeededDraws(0), TargetScorer(inputs)

    def predict() -> object:
        return network.predict(inputs, draws, cycles=CYCLES, steps=STEPS, samples=SAMPLES)

    first, whole = seconds(predict, 0), min(seconds(predict, 0) for _ in range(2))
    peak = torch.cuda.max_memory_allocated() / GIB
    trunk = network.trunk(inputs, draws, cycles=1)
    once, twice = (seconds(lambda n=n: network.trunk(inputs, draws, cycles=n), 3) for n in (1, 3))
    few, many = (
        seconds(lambda n=n: network.sample(inputs, trunk, draws, steps=n, samples=SAMPLES), 2)
        for n in (5, 45)
    )
    positions = network.sample(inputs, trunk, draws, steps=5, samples=SAMPLES)
    scores = seconds(lambda: network.score(inputs, trunk, positions, scorer), 2)
    plan = plan_prediction(network.config, prediction_size(tokens, network), torch.cuda.mem_get_info()[0])
    planned = (plan.needed + plan.loaded) / GIB
    step = (many - few) / 40
    print(
        f"{tokens:6} {(twice - once) / 2:8.4f} {step:8.5f} {scores:8.3f} {first:8.2f} {whole:8.3f}"
        f" {peak:8.2f} {planned:8.2f}",
        flush=True,
    )


def prediction_size(tokens: int, network: AlphaFold3) -> PredictionSize:
    """Return the size of the made-up protein."""
    half = network.linear_z.weight.dtype == torch.bfloat16
    return PredictionSize(tokens, ATOMS_PER_TOKEN * tokens, ROWS, SAMPLES, TEMPLATES, half)


def longest(config: AlphaFold3Config, tokens: int, blocks: int, steps: int) -> None:
    """Predict a long protein in one cycle with few blocks, and compare its peak with the plan."""
    confidence = replace(config.confidence, blocks=1)
    config = replace(config, pairformer_blocks=blocks, confidence=confidence)
    network = make_network(config, "bf16", "fused")
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    plan = plan_prediction(config, prediction_size(tokens, network), torch.cuda.mem_get_info()[0])
    phases = ", ".join(f"{name} {size / GIB:.1f}" for name, size in plan.phases.items())
    print(
        f"{tokens} tokens planned, GiB: parameters {(plan.loaded + plan.copies) / GIB:.1f}, {phases}",
        flush=True,
    )
    inputs = make_inputs(tokens, ROWS, "cuda")
    start, phase = time.perf_counter(), torch.cuda.max_memory_allocated

    def lap(name: str) -> None:
        torch.cuda.synchronize()
        print(f"  {name}: {time.perf_counter() - start:.1f} s, peak {phase() / GIB:.1f} GiB", flush=True)
        torch.cuda.reset_peak_memory_stats()

    draws, scorer = SeededDraws(0), TargetScorer(inputs)
    with chunk_budget(plan.chunk_elements):
        trunk = network.trunk(inputs, draws, cycles=1)
        lap("trunk")
        samples_at_once = plan.samples_at_once
        positions = network.sample(
            inputs, trunk, draws, steps=steps, samples=SAMPLES, samples_at_once=samples_at_once
        )
        lap(f"{steps} steps, {samples_at_once} samples at once")
        prediction = network.score(inputs, trunk, positions, scorer)
        lap("heads and scores")
    is_finite = all(bool(x.isfinite().all()) for x in (prediction.positions, prediction.contacts))
    print(f"{tokens} tokens: finite {is_finite}, planned {(plan.needed + plan.loaded) / GIB:.1f} GiB")


def show_profile(network: AlphaFold3, tokens: int) -> None:
    """Print the idle time of the GPU and the slowest kernels of each phase."""
    inputs, draws = make_inputs(tokens, ROWS, "cuda"), SeededDraws(0)
    scorer, trunk = TargetScorer(inputs), network.trunk(inputs, draws, cycles=1)
    module = network.diffusion_module
    positions = network.sample(inputs, trunk, draws, steps=2, samples=SAMPLES)

    @torch.inference_mode()
    def conditions() -> object:
        return module.conditions(inputs, trunk.features, trunk.single, trunk.pair, trunk.relative)

    phases: dict[str, Callable[[], object]] = {
        "trunk of 2 cycles": lambda: network.trunk(inputs, draws, cycles=2),
        "conditions": conditions,
        "20 steps": lambda: network.sample(inputs, trunk, draws, steps=20, samples=SAMPLES),
        "scores": lambda: network.score(inputs, trunk, positions, scorer),
    }
    for name, function in phases.items():
        function()
        function()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as result:
            function()
            torch.cuda.synchronize()
        print_kernels(f"{tokens} tokens, {name}", result)


def print_kernels(title: str, result: profile, most: int = 25) -> None:
    """Print how long the GPU was busy, and the kernels that took longest."""
    events = [x for x in result.events() if x.device_type == torch.autograd.DeviceType.CUDA]
    spans = sorted((x.time_range.start, x.time_range.end) for x in events)
    busy, last = 0.0, spans[0][0]
    for start, end in spans:
        busy += max(0.0, end - max(start, last))
        last = max(last, end)
    span = last - spans[0][0]
    idle = 1 - busy / span
    print(f"== {title}: {span / 1000:.2f} ms, idle {idle:.0%}, {len(events)} kernels")
    times: dict[str, list[float]] = {}
    for event in events:
        times.setdefault(event.name, []).append(event.time_range.end - event.time_range.start)
    for name, values in sorted(times.items(), key=lambda item: -sum(item[1]))[:most]:
        total = sum(values)
        print(
            f"{total:9.0f} us {total / span:5.1%} {len(values):5} x {total / len(values):7.1f}  {name[:85]}"
        )


class Peer:
    """OpenFold3's network with random parameters, run as its command runs it: float32 with TF32.

    Its triangle operations are cuEquivariance's if that is installed, otherwise its own Triton kernels.
    """

    def __init__(self, device: str = "cuda", blocks: int | None = None) -> None:
        for name in ("gemmi", "biotite", "biotite.structure"):
            if find_spec(name.partition(".")[0]) is None:  # only data pipelines call them
                module = types.ModuleType(name)
                module.__version__, module.set_leak_warnings, module.AtomArray = "0", lambda _: None, object
                sys.modules[name] = module
        from openfold3.core.model.primitives import initialization
        from openfold3.projects.of3_all_atom.config.model_config import model_config
        from openfold3.projects.of3_all_atom.model import OpenFold3

        config, self.device = copy.deepcopy(model_config), device
        self.kernels = self.configure(config)
        architecture = config.architecture
        if blocks is not None:
            architecture.pairformer.no_blocks = architecture.msa.msa_module.no_blocks = blocks
            architecture.diffusion_module.diffusion_transformer.no_blocks = blocks
            architecture.heads.pairformer_embedding.pairformer.no_blocks = blocks
        self.diffusion = architecture.shared.diffusion
        # its draws of initial parameters take a minute
        zeros = types.SimpleNamespace(std=lambda **_: 1.0, rvs=lambda size, **_: np.zeros(size, np.float32))
        initialization.truncnorm = zeros
        self.network = OpenFold3(config)
        self.draw_parameters()

    def configure(self, config: Any) -> str:
        """Set what its preset "predict" sets, and return the name of the kernels."""
        config.architecture.shared.diffusion.no_full_rollout_samples = SAMPLES
        memory = config.settings.memory.eval
        memory.chunk_size, memory.offload_inference.confidence_heads = 1024, True
        memory.offload_inference.token_cutoff = 2800
        if self.device == "cpu":
            memory.use_triton_triangle_kernels = False
            return "openfold3, no kernels"
        if find_spec("cuequivariance_torch") is not None:
            memory.use_cueq_triangle_kernels, memory.use_triton_triangle_kernels = True, False
            return "openfold3, cuEquivariance"
        return "openfold3, its Triton kernels"

    def draw_parameters(self) -> None:
        """Move the network to its device, and draw its parameters."""
        self.network.eval().requires_grad_(False).to(self.device)
        with torch.no_grad():
            for parameter in self.network.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(std=0.5 * parameter.shape[-1] ** -0.5)

    def batch(self, tokens: int) -> dict[str, Any]:
        """Return the features of a made-up protein."""
        arrays = make_arrays(tokens, ROWS) | {"num_paired_seqs": np.zeros(1)}
        index = {name for name, x in ALL_ATOM.items() if x.kind == "index"}
        tensors = {name: torch.as_tensor(x)[None].to(self.device) for name, x in arrays.items()}
        return {name: x.long() if name in index else x.float() for name, x in tensors.items()}

    def predict(self, batch: dict[str, torch.Tensor], cycles: int, steps: int) -> object:
        """Predict the samples of a batch."""
        self.network.shared.num_recycles = cycles - 1
        self.diffusion.no_full_rollout_steps = steps
        return self.network(dict(batch))

    def measure(self, tokens: int, short: bool) -> str:
        """Return seconds of a cycle and of whole predictions as text."""
        batch = self.batch(tokens)
        torch.set_float32_matmul_precision("high")

        def time_calls(*calls: tuple[int, int]) -> list[float]:
            return [seconds(lambda n=n, m=m: self.predict(batch, n, m), 0) for n, m in calls]

        try:
            with torch.no_grad():
                # the later calls of a size are without compilation and capture
                first, once, twice, more_steps = time_calls((1, 2), (1, 2), (2, 2), (1, 22))
                cycle, step = twice - once, (more_steps - once) / 20
                whole = once + (CYCLES - 1) * cycle + (STEPS - 2) * step
                if not short:
                    (whole,) = time_calls((CYCLES, STEPS))
        except torch.OutOfMemoryError:
            return f"out of memory, {self.kernels}"
        times = f"first short call {first:.1f}, whole{' (computed)' * short} {whole:.2f} s"
        return f"{cycle:8.4f} {step:8.5f}  {self.kernels}: {times}"


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", default="256,512,1024,1536,2048")
    parser.add_argument("--precision", choices=DTYPES, default="bf16")
    parser.add_argument("--kernels", default="fused")
    parser.add_argument("--parameters", choices=("openbind", "p2"), default="openbind")
    parser.add_argument("--chunks", type=int, default=2**28, help="elements of intermediates held at once")
    parser.add_argument("--peer", nargs="?", const="", metavar="FOLDER")
    parser.add_argument("--short", action="store_true", help="compute the peer's whole predictions")
    parser.add_argument("--profile", help="numbers of tokens")
    parser.add_argument("--longest", help="numbers of tokens")
    parser.add_argument("--blocks", type=int, default=2, help="of the pairformer, with --longest")
    parser.add_argument("--steps", type=int, default=3, help="with --longest")
    options = parser.parse_args()
    config = {"openbind": OPENBIND, "p2": P2}[options.parameters]
    torch.backends.cuda.matmul.allow_tf32 = options.precision == "bf16"
    print(torch.cuda.get_device_name(), options.parameters, options.precision, options.kernels, flush=True)
    for tokens in sizes(options.longest):
        longest(config, tokens, options.blocks, options.steps)
    network = make_network(config, options.precision, options.kernels)
    print("tokens    cycle     step   scores    first    whole      GiB  planned")
    with chunk_budget(options.chunks):
        for tokens in sizes(options.tokens):
            measure(network, tokens)
        for tokens in sizes(options.profile):
            show_profile(network, tokens)
    if options.peer is not None:
        # after all others, so that it adds packages and replaces none
        sys.path.extend([options.peer] if options.peer else [])
        torch.cuda.empty_cache()
        peer = Peer()
        for tokens in sizes(options.tokens):
            print(f"{tokens:6} {peer.measure(tokens, options.short)}", flush=True)


def sizes(text: str | None) -> list[int]:
    """Return the numbers of a list."""
    return [int(part) for part in (text or "").split(",") if part]


if __name__ == "__main__":
    main()
