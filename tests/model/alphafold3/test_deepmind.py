"""Tests of the all-atom network with DeepMind's parameters against its own code, on random ones.

`make_deepmind_goldens.py` records the values.
"""

import struct
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import zstandard

from features.alphafold3.templates import TokenTemplates, template_features
from foldcli.params.openfold3 import find_parameters, is_all_atom
from model.alphafold3.config import DEEPMIND, OPENBIND
from model.alphafold3.inputs import AlphaFold3Inputs, without_unknown_dna
from model.alphafold3.network import AlphaFold3, TrunkOutput
from model.alphafold3.sampling import SeededDraws
from model.checkpoints.alphafold3 import fourier_constants, to_openfold3
from model.checkpoints.openfold3 import convert_checkpoint, read_checkpoint, recognise, translate
from model.errors import ConfigError, ParametersError
from model.training.alphafold3.initialization import copy_trained
from tests.model.alphafold3.depths import shallow
from tests.model.alphafold3.drawn_parameters import deepmind_parameter, random_templates
from tests.model.alphafold3.goldens import relative_rms, sample_logits

DATA = Path(__file__).parent / "data"
KEPT, SIGMA = slice(None, None, 10), 160.0


@cache
def recorded() -> dict[str, np.ndarray]:
    """Return the values of DeepMind's code."""
    return dict(np.load(DATA / "deepmind.npz"))


def shapes(key: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of arrays by scope and name."""
    lines = (line.split("\t") for line in bytes(recorded()[key]).decode().splitlines())
    return {f"{scope}/{name}": tuple(map(int, shape.split("x"))) for scope, name, shape in lines}


def inputs() -> AlphaFold3Inputs:
    """Return the inputs of the recorded values."""
    stored = np.load(DATA / "openbind.npz")
    arrays = {key.removeprefix("features/"): stored[key][0] for key in stored if key.startswith("features/")}
    drawn = random_templates(arrays)
    atoms = np.where(drawn["mask"][..., None], drawn["positions"], np.nan)
    glycine = drawn["classes"] == 7
    beta = np.where(glycine[..., None], atoms[:, :, 1], atoms[:, :, 4])
    rows = TokenTemplates(drawn["classes"], beta, atoms[:, :, :3])
    tokens = SimpleNamespace(chain=arrays["asym_id"])
    arrays |= template_features(tokens, rows, len(drawn["classes"]))  # type: ignore[arg-type]
    return AlphaFold3Inputs.from_arrays(arrays).for_network(DEEPMIND)


@cache
def network() -> AlphaFold3:
    """Return the network with the parameters of the recorded values."""
    arrays = {
        name: torch.from_numpy(deepmind_parameter(name, shape))
        for name, shape in shapes("shallow_names").items()
    }
    return AlphaFold3.load(*translate(to_openfold3(arrays)))


@pytest.mark.slow
@torch.inference_mode()
def test_network_matches_deepminds() -> None:
    target, model = inputs(), network()
    trunk: TrunkOutput = model.trunk(target, SeededDraws(0), cycles=2)
    noisy = 10 * np.random.default_rng(0).standard_normal((len(target.atom_mask), 3)).astype(np.float32)
    positions = torch.from_numpy(noisy)
    module = model.diffusion_module
    conditions = module.conditions(target, trunk.features, trunk.single, trunk.pair, trunk.relative)
    logits = sample_logits(model, target, trunk, positions)
    # theirs has residue types in another order
    atoms = trunk.features[KEPT, :384]
    found = {
        "target_feat": (atoms, recorded()["target_feat"][:, 63:]),
        "single": (trunk.single[KEPT], recorded()["single"]),
        "pair": (trunk.pair[KEPT, KEPT], recorded()["pair"]),
        "distogram": (model.aux_heads.distogram(trunk.pair)[KEPT, KEPT], recorded()["distogram"]),
        "denoised": (
            module(target, conditions, positions[None], torch.tensor(SIGMA))[0],
            recorded()["denoised"],
        ),
    }
    for theirs, ours in (
        ("predicted_lddt", logits.plddt[KEPT]),
        ("experimentally_resolved", logits.resolved[KEPT]),
        ("predicted_aligned_error", logits.pae[KEPT, KEPT]),
        ("predicted_distance_error", logits.pde[KEPT, KEPT]),
    ):
        found[theirs] = ours, recorded()[f"heads/{theirs}_logits"]
    differences = {name: relative_rms(x, expected) for name, (x, expected) in found.items()}
    assert {name: x for name, x in differences.items() if not x <= 3e-6} == {}


def record(scope: str, name: str, dtype: str, shape: tuple[int, ...], content: bytes) -> bytes:
    """Return an array as DeepMind's files hold it."""
    texts = [x.encode() for x in (scope, name, dtype)]
    header = struct.pack("<5i", *map(len, texts), len(shape), len(content))
    return header + b"".join(texts) + struct.pack(f"<{len(shape)}i", *shape) + content


def single_blocks() -> dict[str, tuple[int, ...]]:
    """Return the shapes of arrays of a network with one block of each kind, and two of the MSA module."""
    result = {}
    for name, shape in shapes("shallow_names").items():
        if name.endswith("pair_logits_projection/weights"):
            shape = tuple(1 if x == 2 else x for x in shape)
        stacked = 0 if "msa_stack" in name else name.count("__layer_stack")
        result[name] = (1,) * stacked + shape[stacked:]
    return result


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of a network of single blocks, whose arrays have one value each."""
    parts = [record("__meta__", "__identifier__", "uint8", (3,), b"\1\2\3")]
    # an array that the network does not read
    unread = "diffuser/~/diffusion_head/diffusion_single_to_pair_cond_row/weights"
    for number, (key, shape) in enumerate((single_blocks() | {unread: (128, 16)}).items()):
        dtype = ("bfloat16", "float32")[number % 2]
        value = torch.full((1,), number, dtype=getattr(torch, dtype)).view(torch.uint8).numpy().tobytes()
        scope, _, name = key.rpartition("/")
        parts.append(record(scope, name, dtype, shape, value * int(np.prod(shape))))
    path = tmp_path_factory.mktemp("deepmind") / "af3.bin.zst"
    path.write_bytes(zstandard.compress(b"".join(parts)))
    return path


def test_file_is_recognised_and_read(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "af3.safetensors"
    config = convert_checkpoint(file, target)
    again, tensors = read_checkpoint(target)
    assert config == again == shallow(DEEPMIND) and config.variant == "deepmind"
    number = list(single_blocks()).index("diffuser/evoformer/prev_embedding/weights")
    assert tensors["linear_z.weight"].unique().tolist() == [torch.tensor(number).bfloat16().item()]
    # training starts from them
    trained = AlphaFold3(config, "reference")
    copy_trained(trained, file)
    assert torch.equal(trained.linear_z.weight, tensors["linear_z.weight"])
    assert (find_parameters(file).name, find_parameters(file).variant) == ("af3", "deepmind")
    assert is_all_atom(file) and not is_all_atom(DATA / "deepmind.npz")
    with pytest.raises(ConfigError, match=r"another shape than `network`: .*unknown_dna is False$"):
        copy_trained(AlphaFold3(shallow(OPENBIND), "reference"), file)


def test_damaged_and_other_files_are_refused_in_one_line(file: Path, tmp_path: Path) -> None:
    content = zstandard.decompress(file.read_bytes())
    first = record("diffuser", "weights", "float32", (1,), bytes(4))
    cases = {
        "truncated after": content[: len(content) // 2],
        "truncated": file.read_bytes()[:-100],
        "damaged zstd file": file.read_bytes()[:5000] + bytes(1000),
        "arrays of another network": content + first,
        "evoformer_conditioning_embed_ref_pos/weights is missing": first,
        "damaged after 1 arrays": first + bytes(20),
        "another version, after 0": record("diffuser", "weights", "float8", (1,), b"1"),
        "is not floating point": record("diffuser", "weights", "int32", (1,), bytes(4)),
        "neither a checkpoint nor": zstandard.compress(b"something else"),
    }
    for reason, data in cases.items():
        path = tmp_path / "af3.bin"
        path.write_bytes(data)
        with pytest.raises(ParametersError, match=reason) as caught:
            read_checkpoint(path)
        assert "\n" not in str(caught.value) and str(caught.value).startswith(str(path))


def test_whole_network_has_the_arrays_of_deepminds() -> None:
    empty = {name: torch.empty(shape, device="meta") for name, shape in shapes("names").items()}
    assert recognise(to_openfold3(empty)) == DEEPMIND


def test_noise_embedding_has_deepminds_constants() -> None:
    weights, offsets = fourier_constants()
    # from the authors' code, rounded
    assert weights[:4].tolist() == pytest.approx([0.45873642, 0.06516238, -0.07278306, -0.26992258], abs=1e-6)
    assert offsets[:3].tolist() == pytest.approx([0.00465965, 0.21738243, 0.22277749], abs=1e-8)


def test_inputs_of_other_networks_are_left_alone() -> None:
    target = inputs()
    assert target.for_network(OPENBIND) is target
    unknown = torch.zeros(2, 32)
    unknown[0, 25] = unknown[1, 30] = 1
    merged = without_unknown_dna(unknown)
    assert merged.shape == (2, 31) and torch.equal(merged[0], merged[1])
