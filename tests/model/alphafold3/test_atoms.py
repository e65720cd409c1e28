"""Tests of the atom windows and of blocks in double precision."""

from dataclasses import replace

import pytest
import torch

from model.alphafold2.modules.config import PairConfig
from model.alphafold3.atoms import AtomBlock, AtomWindows
from model.alphafold3.blocks import PairformerBlock
from model.alphafold3.config import OPENBIND, AtomConfig
from model.alphafold3.layers import MASK_PENALTY
from model.layers.kernels import REFERENCE

CONFIG = AtomConfig(channels=16, pair_channels=4, heads=2, queries=4, keys=8)


def drawn(module: torch.nn.Module) -> torch.nn.Module:
    """Draw parameters of a module, in double precision."""
    generator = torch.Generator().manual_seed(3)
    for parameter in module.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data *= parameter.shape[-1] ** -0.5
    return module.requires_grad_(False)


@pytest.mark.parametrize("atoms", [1, 3, 7, 8, 9, 22, 24])
@pytest.mark.parametrize("padding", [0, 5])
def test_windows_lie_around_their_queries_and_within_the_atoms(atoms: int, padding: int) -> None:
    mask = torch.cat([torch.ones(atoms), torch.zeros(padding)])
    windows = AtomWindows.of(mask, queries=4, keys=8)
    position = torch.arange(atoms + padding)[:, None]
    for window, (keys, pairs) in enumerate(zip(windows.keys(position)[..., 0], windows.mask, strict=True)):
        queries = [atom for atom in range(4 * window, 4 * window + 4) if atom < atoms]
        seen = keys[pairs[0].bool()].tolist() if queries else []
        first = min(max(4 * window - 2, 0), max(atoms - 8, 0))
        assert seen == (list(range(first, min(first + 8, atoms))) if queries else [])
        assert pairs[len(queries) :].sum() == 0


@pytest.mark.parametrize("atoms", [5, 19])
def test_atom_block_is_attention_within_windows(atoms: int) -> None:
    block = drawn(AtomBlock(CONFIG))
    generator = torch.Generator().manual_seed(1)
    x, single = (torch.randn(atoms, 16, generator=generator, dtype=torch.float64) for _ in range(2))
    mask = torch.ones(atoms, dtype=torch.float64)
    windows = AtomWindows.of(mask, CONFIG.queries, CONFIG.keys)
    pair = torch.randn(*windows.mask.shape, 4, generator=generator, dtype=torch.float64)
    conditions = block.conditions(single, pair, MASK_PENALTY * (1 - windows.mask))
    found = block(x[None], conditions, windows, mask)[0]

    attention, mha = block.attention_pair_bias, block.attention_pair_bias.mha
    queries = attention.layer_norm_a_q(single).norm(x)
    keys = attention.layer_norm_a_k(single).norm(x)
    attended = torch.zeros_like(x)
    for atom in range(atoms):  # one query after the other
        window, row = divmod(atom, CONFIG.queries)
        first = min(max(window * 4 - 2, 0), max(atoms - 8, 0))
        seen = keys[first : first + 8]
        bias = attention.linear_z(pair[window, row, : len(seen)])  # [k, H]
        query = mha.linear_q(queries[atom]).view(2, 8)
        key, value = (layer(seen).view(-1, 2, 8) for layer in (mha.linear_k, mha.linear_v))
        weights = ((query * key).sum(dim=-1) / 8**0.5 + bias).softmax(dim=0)  # [k, H]
        attended[atom] = (weights[..., None] * value).sum(dim=0).flatten()
    gate = torch.sigmoid(attention.linear_ada_out(single))
    y = x + gate * mha.linear_o(torch.sigmoid(mha.linear_g(queries)) * attended)
    transition = block.conditioned_transition
    normed = transition.layer_norm(single).norm(y)
    wide = torch.nn.functional.silu(transition.swiglu.linear_a(normed)) * transition.swiglu.linear_b(normed)
    y = y + torch.sigmoid(transition.linear_g(single)) * transition.linear_out(wide)
    assert torch.allclose(found, y, rtol=0, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
def test_pairformer_block_in_single_precision_is_close_to_double(masked: bool) -> None:
    pair_config = PairConfig(channels=16, multiplication_channels=16, attention_heads=2, attention_channels=8)
    config = replace(OPENBIND, single_channels=32, single_heads=4, pair=pair_config)
    block = drawn(PairformerBlock(config, REFERENCE))
    generator = torch.Generator().manual_seed(2)
    single = torch.randn(11, 32, generator=generator, dtype=torch.float64)
    pair = torch.randn(11, 11, 16, generator=generator, dtype=torch.float64)
    mask = torch.ones(11, dtype=torch.float64)
    mask[9:] = 0
    masks = (mask, mask[:, None] * mask) if masked else (None, None)
    results = []
    for dtype in (torch.float64, torch.float32):
        tensors = [None if x is None else x.clone().to(dtype) for x in (single, pair, *masks)]
        fresh = PairformerBlock(config, REFERENCE)  # it keeps its operands
        fresh.load_state_dict(block.state_dict())
        fresh.requires_grad_(False).to(dtype)(*tensors)
        # values of masked tokens mean nothing
        results.append([tensors[0][:9].double(), tensors[1][:9, :9].double()])
    for exact, rounded in zip(*results, strict=True):
        assert (exact - rounded).square().mean().sqrt() < 1e-6 * exact.square().mean().sqrt()
