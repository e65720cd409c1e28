"""DeepMind's AlphaFold 3 parameters, as tensors by OpenFold3's names.

Names and shapes are those of Haiku's modules; stacked blocks are slices of one array. Algorithm numbers are
those of the supplement of Abramson et al., Nature 630, 493 (2024).
"""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from model.checkpoints.records import read_records
from model.errors import ParametersError

Tensors = dict[str, torch.Tensor]
_Change = Callable[[torch.Tensor], torch.Tensor]
_ROOT, _STACK, _LAYERS = "diffuser/", "__layer_stack_no_per_layer", "__layer_stack_with_per_layer"
# arrays that the network does not read: a discarded pair embedding, and the identifier
_UNREAD = re.compile(r"__meta__/.*|.*(single_to_pair_cond_(row|col)|embed_pair_(offsets|distances))/weights")
_DTYPES = {
    "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64,
}  # fmt: skip
# our residue types in DeepMind's order: amino acids and UNK, A G C U N, DA DG DC DT DN, gap; DN is N there
_CLASSES = (*range(21), 22, 23, 24, 25, 30, 26, 27, 28, 29, 30, 21)
_KINDS = tuple(kind for kind in range(32) if kind != 30)
_TYPES = [_CLASSES[kind] for kind in _KINDS]
# input representation: residue types, profile, deletions, atoms; ours has the atoms first
_FEATURES = [*range(63, 447), *_TYPES, *(31 + x for x in _TYPES), 62]
_FOURIER_CHANNELS, _FOURIER_SEED = 256, 42


class _Rule(NamedTuple):
    """The origin of a tensor: our name, DeepMind's scope and name, and the change of layout."""

    ours: str
    scope: str
    name: str
    change: _Change


def _same(x: torch.Tensor) -> torch.Tensor:
    return x.flatten()


def _transposed(x: torch.Tensor) -> torch.Tensor:
    """Return weights [inputs, outputs...] as [outputs, inputs]."""
    return x.flatten(1).T


def _kept(x: torch.Tensor) -> torch.Tensor:
    """Return weights [outputs..., inputs] as [outputs, inputs]."""
    return x.flatten(0, -2)


def _column(x: torch.Tensor) -> torch.Tensor:
    return x[:, None]


def _rows(indices: list[int]) -> _Change:
    """Return a change that selects inputs, and then transposes."""
    return lambda x: x[indices].flatten(1).T


def _part(start: int, step: int) -> _Change:
    """Return a change that selects every `step`th output, and then transposes."""
    return lambda x: x[:, start::step].T


def _half(index: int) -> _Change:
    return lambda x: x.chunk(2, dim=1)[index].T


def _linear(ours: str, scope: str, change: _Change = _transposed, *, bias: bool = False) -> list[_Rule]:
    rules = [_Rule(f"{ours}.weight", scope, "weights", change)]
    return rules + ([_Rule(f"{ours}.bias", scope, "bias", _same)] if bias else [])


def _norm(ours: str, scope: str, *, offset: bool = True) -> list[_Rule]:
    rules = [_Rule(f"{ours}.weight", scope, "scale", _same)]
    return rules + ([_Rule(f"{ours}.bias", scope, "offset", _same)] if offset else [])


def _transition(ours: str, prefix: str, norm: str) -> list[_Rule]:
    return [*_norm(f"{ours}.layer_norm", f"{prefix}{norm}"), *_swiglu(ours, prefix)]


def _swiglu(ours: str, prefix: str) -> list[_Rule]:
    return [
        *_linear(f"{ours}.swiglu.linear_a", f"{prefix}transition1", _half(0)),
        *_linear(f"{ours}.swiglu.linear_b", f"{prefix}transition1", _half(1)),
        *_linear(f"{ours}.linear_out", f"{prefix}transition2"),
    ]


def _pair_block(ours: str) -> list[_Rule]:
    """Return the rules of triangle updates and transition (Algorithms 11 to 15)."""
    rules = _transition(f"{ours}pair_transition", "pair_transition/", "input_layer_norm")
    # factors are interleaved; OpenFold3 has those of the incoming multiplication the other way round
    for name, direction, first in (("tri_mul_out", "outgoing", 0), ("tri_mul_in", "incoming", 1)):
        path, scope = f"{ours}{name}", f"triangle_multiplication_{direction}"
        rules += _norm(f"{path}.layer_norm_in", f"{scope}/left_norm_input")
        rules += _norm(f"{path}.layer_norm_out", f"{scope}/center_norm")
        rules += _linear(f"{path}.linear_z", f"{scope}/output_projection")
        rules += _linear(f"{path}.linear_g", f"{scope}/gating_linear")
        for factor, start in (("a", first), ("b", 1 - first)):
            rules += _linear(f"{path}.linear_{factor}_p", f"{scope}/projection", _part(start, 2))
            rules += _linear(f"{path}.linear_{factor}_g", f"{scope}/gate", _part(start, 2))
    for name, scope in (("tri_att_start", "pair_attention1"), ("tri_att_end", "pair_attention2")):
        path = f"{ours}{name}"
        rules += _norm(f"{path}.layer_norm", f"{scope}/act_norm")
        rules += _linear(f"{path}.linear_z", f"{scope}/pair_bias_projection")
        rules += _linear(f"{path}.mha.linear_q", f"{scope}/q_projection", _kept)
        rules += _linear(f"{path}.mha.linear_k", f"{scope}/k_projection", _kept)
        rules += _linear(f"{path}.mha.linear_v", f"{scope}/v_projection")
        rules += _linear(f"{path}.mha.linear_g", f"{scope}/gating_query", _kept)
        rules += _linear(f"{path}.mha.linear_o", f"{scope}/output_projection")
    return rules


def _attention(ours: str, prefix: str) -> list[_Rule]:
    return [
        *_linear(f"{ours}.linear_q", f"{prefix}q_projection", bias=True),
        *_linear(f"{ours}.linear_k", f"{prefix}k_projection"),
        *_linear(f"{ours}.linear_v", f"{prefix}v_projection"),
        *_linear(f"{ours}.linear_g", f"{prefix}gating_query"),
        *_linear(f"{ours}.linear_o", f"{prefix}transition2"),
    ]


def _pairformer_block() -> list[_Rule]:
    """Return the rules of a pairformer block (Algorithm 17)."""
    return [
        *_pair_block("pair_stack."),
        *_norm("attn_pair_bias.layer_norm_a", "single_attention_layer_norm"),
        *_norm("attn_pair_bias.layer_norm_z", "single_pair_logits_norm"),
        *_linear("attn_pair_bias.linear_z", "single_pair_logits_projection"),
        *_attention("attn_pair_bias.mha", "single_attention_"),
        *_transition("single_transition", "single_transition/", "input_layer_norm"),
    ]


def _msa_block() -> list[_Rule]:
    """Return the rules of an MSA block (Algorithm 8)."""
    row, mean = "msa_att_row", "outer_product_mean"
    return [
        *_pair_block("pair_stack."),
        *_norm(f"{row}.layer_norm_m", "msa_attention1/act_norm"),
        *_norm(f"{row}.layer_norm_z", "msa_attention1/pair_norm"),
        *_linear(f"{row}.linear_z", "msa_attention1/pair_logits"),
        *_linear(f"{row}.linear_v", "msa_attention1/v_projection"),
        *_linear(f"{row}.linear_g", "msa_attention1/gating_query"),
        *_linear(f"{row}.linear_o", "msa_attention1/output_projection"),
        *_transition("msa_transition", "msa_transition/", "input_layer_norm"),
        *_norm(f"{mean}.layer_norm", f"{mean}/layer_norm_input"),
        *_linear(f"{mean}.linear_1", f"{mean}/left_projection"),
        *_linear(f"{mean}.linear_2", f"{mean}/right_projection"),
        _Rule(f"{mean}.linear_out.weight", mean, "output_w", lambda x: x.flatten(0, 1).T),
        _Rule(f"{mean}.linear_out.bias", mean, "output_b", _same),
    ]


def _conditioned_block(prefix: str, norms: dict[str, str]) -> list[_Rule]:
    """Return the rules of a block of a transformer of tokens or atoms (Algorithms 23 to 26)."""
    attention, transition = "attention_pair_bias", "conditioned_transition"
    modulations = {f"{attention}.{ours}": theirs for ours, theirs in norms.items()}
    rules = _attention(f"{attention}.mha", prefix) + _swiglu(transition, f"{prefix}ffw_")
    rules += _linear(f"{attention}.linear_ada_out", f"{prefix}adaptive_zero_cond", bias=True)
    rules += _linear(f"{transition}.linear_g", f"{prefix}ffw_adaptive_zero_cond", bias=True)
    for path, theirs in (modulations | {f"{transition}.layer_norm": "ffw_"}).items():
        scope = f"{prefix}{theirs}single_cond"
        rules += _norm(f"{path}.layer_norm_s", f"{scope}_layer_norm", offset=False)
        rules += _linear(f"{path}.linear_g", f"{scope}_scale", bias=True)
        rules += _linear(f"{path}.linear_s", f"{scope}_bias")
    return rules


def _atom_encoder(ours: str, prefix: str) -> list[_Rule]:
    """Return the rules of an encoder of atoms but its blocks (Algorithm 5)."""
    embedder = f"{ours}.ref_atom_feature_embedder"
    return [
        *_linear(f"{embedder}.linear_ref_pos", f"{prefix}_embed_ref_pos"),
        *_linear(f"{embedder}.linear_ref_charge", f"{prefix}_embed_ref_charge"),
        *_linear(f"{embedder}.linear_ref_mask", f"{prefix}_embed_ref_mask"),
        # by atomic number, of which we have 1 to 119
        *_linear(f"{embedder}.linear_ref_element", f"{prefix}_embed_ref_element", _rows([*range(1, 120)])),
        *_linear(f"{embedder}.linear_ref_atom_chars", f"{prefix}_embed_ref_atom_name"),
        *_linear(f"{embedder}.linear_ref_offset", f"{prefix}_embed_pair_offsets_1"),
        *_linear(f"{embedder}.linear_inv_sq_dists", f"{prefix}_embed_pair_distances_1"),
        *_linear(f"{embedder}.linear_valid_mask", f"{prefix}_embed_pair_offsets_valid"),
        *_linear(f"{ours}.linear_l", f"{prefix}_single_to_pair_cond_row_1"),
        *_linear(f"{ours}.linear_m", f"{prefix}_single_to_pair_cond_col_1"),
        *_linear(f"{ours}.pair_mlp.1", f"{prefix}_pair_mlp_1"),
        *_linear(f"{ours}.pair_mlp.3", f"{prefix}_pair_mlp_2"),
        *_linear(f"{ours}.pair_mlp.5", f"{prefix}_pair_mlp_3"),
        *_linear(f"{ours}.linear_q.0", f"{prefix}_project_atom_features_for_aggr"),
    ]


def _trunk() -> list[_Rule]:
    """Return the rules of the embeddings of the inputs (Algorithms 1, 8 and 16)."""
    scope, embedder = "evoformer", "template_embedder.template_pair_embedder"
    single = f"{scope}/template_embedding/single_template_embedding"
    template = f"{single}/template_pair_embedding"
    columns = ("x_linear", "y_linear", "z_linear", "backbone_mask_linear")
    rules = [
        *_atom_encoder("input_embedder.atom_attn_enc", "evoformer_conditioning"),
        *_linear("input_embedder.linear_s", f"{scope}/single_activations", _rows(_FEATURES)),
        *_linear("input_embedder.linear_z_i", f"{scope}/left_single", _rows(_FEATURES)),
        *_linear("input_embedder.linear_z_j", f"{scope}/right_single", _rows(_FEATURES)),
        *_linear("input_embedder.linear_relpos", f"{scope}/~_relative_encoding/position_activations"),
        *_linear("input_embedder.linear_token_bonds", f"{scope}/bond_embedding"),
        *_norm("layer_norm_z", f"{scope}/prev_embedding_layer_norm"),
        *_linear("linear_z", f"{scope}/prev_embedding"),
        *_norm("layer_norm_s", f"{scope}/prev_single_embedding_layer_norm"),
        *_linear("linear_s", f"{scope}/prev_single_embedding"),
        # the class 31 of alignments never occurs
        *_linear("msa_module_embedder.linear_m", f"{scope}/msa_activations", _rows([*_CLASSES, 32, 33])),
        *_linear("msa_module_embedder.linear_s_input", f"{scope}/extra_msa_target_feat", _rows(_FEATURES)),
        *_linear(f"{embedder}.dgram_linear", f"{template}_0"),
        *_linear(f"{embedder}.pseudo_beta_mask_linear", f"{template}_1", _column),
        *_linear(f"{embedder}.aatype_linear_2", f"{template}_2", _rows([*_CLASSES])),
        *_linear(f"{embedder}.aatype_linear_1", f"{template}_3", _rows([*_CLASSES])),
        *_norm(f"{embedder}.layer_norm_z", f"{single}/query_embedding_norm"),
        *_linear(f"{embedder}.linear_z", f"{template}_8"),
        *_norm("template_embedder.template_pair_stack.layer_norm", f"{single}/output_layer_norm"),
        *_linear("template_embedder.linear_t", f"{scope}/template_embedding/output_linear"),
    ]
    for index, name in enumerate(columns, 4):
        rules += _linear(f"{embedder}.{name}", f"{template}_{index}", _column)
    return rules


def _diffusion() -> list[_Rule]:
    """Return the rules of the diffusion module but its blocks (Algorithms 5, 6, 20 and 21)."""
    ours, scope = "diffusion_module", "~/diffusion_head"
    conditioning, encoder = f"{ours}.diffusion_conditioning", f"{ours}.atom_attn_enc"
    embedder, decoder = f"{encoder}.noisy_position_embedder", f"{ours}.atom_attn_dec"
    atoms = f"{scope}/diffusion"
    inputs = [*range(384), *(384 + x for x in _FEATURES)]
    rules = [
        *_atom_encoder(encoder, atoms),
        *_norm(f"{embedder}.layer_norm_s", f"{atoms}_lnorm_trunk_single_cond", offset=False),
        *_linear(f"{embedder}.linear_s", f"{atoms}_embed_trunk_single_cond"),
        *_norm(f"{embedder}.layer_norm_z", f"{atoms}_lnorm_trunk_pair_cond", offset=False),
        *_linear(f"{embedder}.linear_z", f"{atoms}_embed_trunk_pair_cond"),
        *_linear(f"{embedder}.linear_r", f"{atoms}_atom_positions_to_features"),
        *_linear(f"{decoder}.linear_q_in", f"{atoms}_project_token_features_for_broadcast"),
        *_norm(f"{decoder}.layer_norm", f"{atoms}_atom_features_layer_norm", offset=False),
        *_linear(f"{decoder}.linear_q_out", f"{atoms}_atom_features_to_position_update"),
        *_norm(f"{conditioning}.layer_norm_z", f"{scope}/pair_cond_initial_norm", offset=False),
        *_linear(f"{conditioning}.linear_z", f"{scope}/pair_cond_initial_projection"),
        _Rule(
            f"{conditioning}.layer_norm_s.weight",
            f"{scope}/single_cond_initial_norm",
            "scale",
            lambda x: x[inputs],
        ),
        *_linear(f"{conditioning}.linear_s", f"{scope}/single_cond_initial_projection", _rows(inputs)),
        *_norm(f"{conditioning}.layer_norm_n", f"{scope}/noise_embedding_initial_norm", offset=False),
        *_linear(f"{conditioning}.linear_n", f"{scope}/noise_embedding_initial_projection"),
        *_norm(f"{ours}.layer_norm_s", f"{scope}/single_cond_embedding_norm", offset=False),
        *_linear(f"{ours}.linear_s", f"{scope}/single_cond_embedding_projection"),
        *_norm(f"{ours}.layer_norm_a", f"{scope}/output_norm", offset=False),
        *_norm(
            f"{ours}.diffusion_transformer.layer_norm_z",
            f"{scope}/transformer/pair_input_layer_norm",
            offset=False,
        ),
    ]
    for index in (0, 1):
        for name, theirs in (("transition_z", "pair_transition"), ("transition_s", "single_transition")):
            prefix = f"{scope}/{theirs}_{index}ffw_"
            rules += _transition(f"{conditioning}.{name}.{index}", prefix, "layer_norm")
    return rules


def _heads() -> list[_Rule]:
    """Return the rules of the confidence heads but their blocks, and of the distogram (Algorithm 31)."""
    scope, ours = "confidence_head", "aux_heads"
    embedding, features = f"{ours}.pairformer_embedding", f"{scope}/~_embed_features"
    rules = [
        *_linear(f"{embedding}.linear_i", f"{features}/right_target_feat_project", _rows(_FEATURES)),
        *_linear(f"{embedding}.linear_j", f"{features}/left_target_feat_project", _rows(_FEATURES)),
        *_linear(f"{embedding}.linear_distance", f"{features}/distogram_feat_project"),
        *_linear(f"{ours}.distogram.linear", "distogram_head/half_logits"),
    ]
    for name, norm, logits in (
        ("pae", "pae_logits_ln", "pae_logits"),
        ("pde", "logits_ln", "left_half_distance_logits"),
        ("plddt", "plddt_logits_ln", "plddt_logits"),
        ("experimentally_resolved", "experimentally_resolved_ln", "experimentally_resolved_logits"),
    ):
        rules += _norm(f"{ours}.{name}.layer_norm", f"{scope}/{norm}")
        rules += _linear(f"{ours}.{name}.linear", f"{scope}/{logits}")
    return rules


class _Stack(NamedTuple):
    """A stack of blocks: our path, DeepMind's scope, the rules of a block, and the number of stacked axes."""

    ours: str
    scope: str
    rules: list[_Rule]
    axes: int = 1


def _stacks() -> list[_Stack]:
    template = f"evoformer/template_embedding/single_template_embedding/{_STACK}/template_embedding_iteration"
    tokens = f"~/diffusion_head/transformer/{_LAYERS}/{_LAYERS}"
    stacks = [
        _Stack("msa_module", f"evoformer/{_STACK}/msa_stack", _msa_block()),
        _Stack("pairformer_stack", f"evoformer/{_STACK}_1/trunk_pairformer", _pairformer_block()),
        _Stack("template_embedder.template_pair_stack", template, _pair_block("")),
        _Stack(
            "aux_heads.pairformer_embedding.pairformer_stack",
            f"confidence_head/{_STACK}/confidence_pairformer",
            _pairformer_block(),
        ),
        _Stack(
            "diffusion_module.diffusion_transformer",
            tokens,
            _conditioned_block("transformer", {"layer_norm_a": ""}),
            2,
        ),
    ]
    for ours, scope in _atom_transformers().items():
        rules = _conditioned_block(scope.rpartition("/")[2], {"layer_norm_a_q": "q", "layer_norm_a_k": "k"})
        stacks.append(_Stack(ours, f"{scope}/{_LAYERS}", rules))
    return stacks


def _atom_transformers() -> dict[str, str]:
    """Return our paths of the transformers of atoms, and DeepMind's scopes."""
    name = "atom_transformer"
    return {
        f"input_embedder.atom_attn_enc.{name}": f"evoformer_conditioning_{name}_encoder",
        f"diffusion_module.atom_attn_enc.{name}": f"~/diffusion_head/diffusion_{name}_encoder",
        f"diffusion_module.atom_attn_dec.{name}": f"~/diffusion_head/diffusion_{name}_decoder",
    }


class _Arrays:
    """DeepMind's arrays by name, and those that were not used yet."""

    def __init__(self, arrays: Tensors, path: Path | None) -> None:
        self._arrays, self.path = arrays, path
        self.unused = {name for name in arrays if not _UNREAD.fullmatch(name)}

    def __call__(self, scope: str, name: str) -> torch.Tensor:
        key = f"{_ROOT}{scope}/{name}"
        self.unused.discard(key)
        if key not in self._arrays:
            raise ParametersError(f"not DeepMind's AlphaFold 3 parameters: {key} is missing", self.path)
        return self._arrays[key].float()


def to_openfold3(arrays: Tensors, path: Path | None = None) -> Tensors:
    """Return the tensors of DeepMind's arrays, which are named `scope/name`, by OpenFold3's names.

    Raises:
        ParametersError: an array is missing, unknown or has another number of axes; names the path.
    """
    source, result = _Arrays(arrays, path), {}
    for rule in [*_trunk(), *_diffusion(), *_heads()]:
        result[rule.ours] = _changed(rule, source(rule.scope, rule.name), path)
    for stack in _stacks():
        for rule in stack.rules:
            array = source(f"{stack.scope}/{rule.scope}", rule.name)
            for index, block in enumerate(array.flatten(0, stack.axes - 1)):
                result[f"{stack.ours}.blocks.{index}.{rule.ours}"] = _changed(rule, block, path)
    _add_pair_logits(source, result)
    # the last block's alignment is not read
    last = 1 + max(int(name.split(".")[2]) for name in result if name.startswith("msa_module.blocks."))
    result = {k: x for k, x in result.items() if not k.startswith(f"msa_module.blocks.{last - 1}.msa_")}
    weights, offsets = fourier_constants()
    embedding = "diffusion_module.diffusion_conditioning.fourier_emb"
    result |= {f"{embedding}.w": weights, f"{embedding}.b": offsets}
    if source.unused:
        some = ", ".join(sorted(source.unused)[:3])
        reason = f"arrays of another network than AlphaFold 3's ({len(source.unused)}, such as {some})"
        raise ParametersError(reason, path)
    return result


def _changed(rule: _Rule, array: torch.Tensor, path: Path | None) -> torch.Tensor:
    try:
        return rule.change(array)
    except (IndexError, RuntimeError) as error:
        shape = "x".join(map(str, array.shape))
        raise ParametersError(f"{rule.scope}/{rule.name} has the wrong shape {shape}", path) from error


def _add_pair_logits(source: _Arrays, result: Tensors) -> None:
    """Add the projections of pairs to attention biases, which arrays hold for several blocks at once."""
    tokens = source(f"~/diffusion_head/transformer/{_LAYERS}/pair_logits_projection", "weights")
    projections = {"diffusion_module.diffusion_transformer": tokens.permute(0, 2, 3, 1).flatten(0, 1)}
    for ours, scope in _atom_transformers().items():
        norm = source(f"{scope}/pair_input_layer_norm", "scale")
        result[f"{ours}.layer_norm_z.weight"] = norm
        projections[ours] = source(f"{scope}/pair_logits_projection", "weights").permute(1, 2, 0)
    for ours, weights in projections.items():
        for index, block in enumerate(weights):
            result[f"{ours}.blocks.{index}.attention_pair_bias.linear_z.weight"] = block


def read_arrays(path: Path) -> Tensors:
    """Read DeepMind's arrays by `scope/name`; see `model.checkpoints.records.read_records`.

    Raises:
        ParametersError: the file is damaged, or of another kind.
    """
    arrays = {}
    for record in read_records(path):
        dtype = _DTYPES.get(record.dtype)
        key = f"{record.scope}/{record.name}"
        if dtype is None:
            if not _UNREAD.fullmatch(key):
                raise ParametersError(f"{key} is not floating point ({record.dtype})", path)
            continue
        arrays[key] = torch.frombuffer(bytearray(record.content), dtype=dtype).view(record.shape)
    return arrays


def fourier_constants() -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights and offsets of the embedding of the noise level, float32 [256] each (Algorithm 22).

    DeepMind's file lacks them: they are draws of JAX's generator (Threefry, seed 42), normal and uniform.
    """
    keys = _threefry(np.array([0, _FOURIER_SEED], np.uint32), 4).reshape(2, 2)
    bits = np.stack([_threefry(key, _FOURIER_CHANNELS) for key in keys])
    weights, offsets = ((bits >> np.uint32(9)) | np.uint32(0x3F800000)).view(np.float32) - np.float32(1)
    lowest = np.nextafter(np.float32(-1), np.float32(0))
    symmetric = np.maximum(lowest, weights * (np.float32(1) - lowest) + lowest)
    return math.sqrt(2) * torch.erfinv(torch.from_numpy(symmetric)), torch.from_numpy(offsets)


def _threefry(key: np.ndarray, count: int) -> np.ndarray:
    """Return the first random bits of a key, uint32 [count] (Threefry-2x32-20; Salmon et al., 2011)."""
    keys = np.array([*key, key[0] ^ key[1] ^ np.uint32(0x1BD11BDA)], np.uint32)
    first, second = np.arange(count, dtype=np.uint32).reshape(2, -1) + keys[:2, None]
    for group in range(5):
        for rotation in (13, 15, 26, 6) if group % 2 == 0 else (17, 29, 16, 24):
            first = first + second
            second = (second << np.uint32(rotation)) | (second >> np.uint32(32 - rotation))
            second = second ^ first
        first = first + keys[(group + 1) % 3]
        second = second + keys[(group + 2) % 3] + np.uint32(group + 1)
    return np.concatenate([first, second])
