"""Record the numbers of DeepMind's own network on random parameters, for `test_deepmind.py`.

Needs the packages alphafold3-colabfold, jax and dm-haiku, and nothing of foldcli. The input is that of
data/openbind.npz, with two random templates; parameters depend on their names and shapes alone.

usage: python tests/model/alphafold3/make_deepmind_goldens.py tests/model/alphafold3/data/openbind.npz OUT.npz
"""

import sys
import types
from pathlib import Path
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
# a pickle that the package's build makes, and that the network does not need
_sets: Any = types.ModuleType("alphafold3.constants.chemical_component_sets")
_sets.__getattr__ = lambda name: frozenset()
sys.modules[_sets.__name__] = _sets

from alphafold3.model import feat_batch, features, model  # noqa: E402
from alphafold3.model.atom_layout import atom_layout  # noqa: E402
from alphafold3.model.network import confidence_head, distogram_head, evoformer  # noqa: E402
from drawn_parameters import deepmind_parameter, random_templates  # noqa: E402

SLOTS, CYCLES, MSA_ROWS, SIGMA = 24, 2, 16, 160.0
# our residue types in DeepMind's order: amino acids and UNK, A G C U N, DA DG DC DT DN, gap
CLASSES = np.array([*range(21), 22, 23, 24, 25, 30, 26, 27, 28, 29, 30, 21])
KEPT = slice(None, None, 10)


def dense(inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Return the place of each atom among N · 24; nucleotides have an empty place for OP3."""
    token = inputs["atom_to_token_index"].astype(int)
    rank = np.arange(len(token)) - inputs["start_atom_index"].astype(int)[token]
    nucleotide = (inputs["is_rna"] | inputs["is_dna"]).astype(bool) & ~inputs["is_atomized"].astype(bool)
    return token * SLOTS + rank + nucleotide[token]


def make_batch(inputs: dict[str, np.ndarray]) -> feat_batch.Batch:
    """Return features as DeepMind's network takes them."""
    tokens, places = len(inputs["token_index"]), dense(inputs)

    def spread(x: np.ndarray, dtype: str) -> np.ndarray:
        result = np.zeros((tokens * SLOTS, *x.shape[1:]), dtype)
        result[places] = x
        return result.reshape(tokens, SLOTS, *x.shape[1:])

    names = spread(np.array([f"A{i}" for i in range(len(places))], object), "O")
    names[names == 0] = ""
    rows = np.broadcast_to(np.arange(tokens)[:, None], names.shape)
    text = np.full(names.shape, "A", object)
    layout = atom_layout.AtomLayout(
        atom_name=names, res_id=rows, chain_id=text, atom_element=text, res_name=text, chain_type=text
    )
    shapes = features.PaddingShapes(tokens, MSA_ROWS, 1, 2, -(-len(places) // 32) * 32)
    windows = features.AtomCrossAtt.compute_features(layout, 32, 128, shapes)
    # bonds once each; the first row of all is the fill value of padding
    first, second = np.nonzero(np.triu(inputs["token_bonds"]))
    bonds = np.stack([first, second], axis=1)
    is_bond = np.ones(bonds.shape, bool)
    none = atom_layout.GatherInfo(np.zeros((1, 2), int), np.zeros((1, 2), bool), np.array([tokens]))
    ligand = atom_layout.GatherInfo(bonds, is_bond, np.array([tokens]))
    integers = {
        name: inputs[name].astype(np.int32)
        for name in ("residue_index", "token_index", "asym_id", "entity_id", "sym_id")
    }
    flags = {name: inputs[name].astype(bool) for name in ("is_protein", "is_rna", "is_dna", "is_ligand")}
    residue_type = CLASSES[inputs["restype"].argmax(-1)].astype(np.int32)
    profile = np.zeros((tokens, 31), np.float32)
    np.add.at(profile.T, CLASSES, inputs["profile"].T)
    zeros = np.zeros(tokens, bool)
    uid = inputs["ref_space_uid"].astype(int)[inputs["start_atom_index"].astype(int)]
    element = (inputs["ref_element"].argmax(-1) + 1) * inputs["ref_element"].any(-1)
    atom_mask = spread(np.ones(len(places)), "bool")
    templates = random_templates(inputs)
    representative = representative_places(inputs)
    reference = features.RefStructure(
        positions=spread(inputs["ref_pos"], "float32"),
        mask=spread(inputs["ref_mask"], "bool"),
        element=spread(element, "int32") * spread(inputs["ref_mask"], "int32"),
        charge=spread(inputs["ref_charge"], "float32"),
        atom_name_chars=spread(inputs["ref_atom_name_chars"].argmax(-1), "int32"),
        ref_space_uid=np.broadcast_to(uid[:, None], atom_mask.shape).astype(np.int32),
    )
    return feat_batch.Batch(
        msa=features.MSA(
            rows=CLASSES[inputs["msa"].argmax(-1)].astype(np.int32),
            mask=inputs["msa_mask"].astype(bool),
            deletion_matrix=(3 * np.tan(np.pi / 2 * inputs["deletion_value"])).astype(np.float32),
            profile=profile,
            deletion_mean=inputs["deletion_mean"],
            num_alignments=np.array(len(inputs["msa"])),
        ),
        templates=features.Templates(
            np.maximum(CLASSES[templates["classes"]], 0), templates["positions"], templates["mask"]
        ),
        token_features=features.TokenFeatures(
            aatype=residue_type,
            mask=inputs["token_mask"].astype(np.int32),
            seq_length=np.array(tokens),
            is_nonstandard_polymer_chain=zeros,
            is_water=zeros,
            **integers,
            **flags,
        ),
        ref_structure=reference,
        predicted_structure_info=features.PredictedStructureInfo(atom_mask, zeros.astype(int)),
        polymer_ligand_bond_info=features.PolymerLigandBondInfo(none, none),
        ligand_ligand_bond_info=features.LigandLigandBondInfo(ligand, np.zeros(len(bonds), np.int32)),
        pseudo_beta_info=features.PseudoBetaInfo(
            atom_layout.GatherInfo(representative, np.ones(tokens, bool), np.array([tokens, SLOTS]))
        ),
        atom_cross_att=windows,
        convert_model_output=None,
        frames=features.Frames(zeros),
        chirals=None,
    )


def representative_places(inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Return the place of the atom that stands for each token: C4, C2, Cβ, Cα or its only one."""
    kind = inputs["restype"].argmax(-1)
    offset = np.where(kind == 7, 1, 4)
    for nucleotides, ranks in ((range(21, 25), (21, 22, 13, 13)), (range(26, 30), (20, 21, 12, 12))):
        for nucleotide, rank in zip(nucleotides, ranks, strict=True):
            offset = np.where(kind == nucleotide, rank, offset)
    offset = np.where(inputs["is_atomized"].astype(bool), 0, offset)
    return dense(inputs)[inputs["start_atom_index"].astype(int) + offset]


def configuration(shallow: bool) -> model.Model.Config:
    """Return the network's configuration, float32 on a CPU; a shallow one has two blocks of each kind."""
    config = model.Model.Config()
    config.global_config.bfloat16 = "none"
    config.global_config.flash_attention_implementation = "xla"
    config.evoformer.num_msa = MSA_ROWS
    if shallow:
        trunk, diffusion = config.evoformer, config.heads.diffusion
        trunk.pairformer.num_layer = trunk.msa_stack.num_layer = 2
        config.heads.confidence.pairformer.num_layer = 2
        diffusion.transformer.num_blocks, diffusion.transformer.super_block_size = 4, 2
        stacks = trunk.per_atom_conditioning, diffusion
        for stack in stacks:
            stack.atom_transformer.num_blocks = 2
    return config


class Tapped(model.Model):
    """The parts of the network, one after the other, as `Model` calls them."""

    def __call__(self, batch: Any, noisy: jax.Array) -> dict[str, Any]:
        config, settings = self.config, self.global_config
        trunk = evoformer.Evoformer(config.evoformer, settings)
        target_feat = model.create_target_feat_embedding(batch, trunk.config, settings)
        tokens = target_feat.shape[0]
        result = {
            "pair": jnp.zeros((tokens, tokens, 128)),
            "single": jnp.zeros((tokens, 384)),
            "target_feat": target_feat,
        }
        for cycle in range(CYCLES):
            result = trunk(batch=batch, prev=result, target_feat=target_feat, key=jax.random.PRNGKey(cycle))
        distogram = distogram_head.DistogramHead(config.heads.distogram, settings)
        logits = distogram(batch, result, return_distogram=True)["distogram"]
        denoised = self.diffusion_module(noisy, jnp.asarray(SIGMA), batch, result, True)
        heads = confidence_head.ConfidenceHead(config.heads.confidence, settings)(
            dense_atom_positions=noisy,
            embeddings=result,
            seq_mask=batch.token_features.mask,
            token_atoms_to_pseudo_beta=batch.pseudo_beta_info.token_atoms_to_pseudo_beta,
            asym_id=batch.token_features.asym_id,
            token_features=batch.token_features,
            return_logits=True,
            batch=batch,
        )
        return {**result, "distogram": logits, "denoised": denoised, "heads": heads}


def main(source: Path, target: Path) -> None:
    """Run the network, and write what the test compares."""
    stored = np.load(source)
    inputs = {key.removeprefix("features/"): stored[key] for key in stored if key.startswith("features/")}
    inputs = {key: x[0] for key, x in inputs.items()}
    batch, places, tokens = make_batch(inputs), dense(inputs), len(inputs["token_index"])
    noisy = np.zeros((tokens * SLOTS, 3), np.float32)
    noisy[places] = 10 * np.random.default_rng(0).standard_normal((len(places), 3))
    noisy = noisy.reshape(tokens, SLOTS, 3)
    arrays: dict[str, np.ndarray] = {}
    for shallow in (False, True):
        network = hk.transform(lambda *x, shallow=shallow: Tapped(configuration(shallow))(*x))
        shapes = jax.eval_shape(network.init, jax.random.PRNGKey(0), batch, noisy)
        names = [
            f"{scope}\t{name}\t{'x'.join(map(str, x.shape))}"
            for scope, part in shapes.items()
            for name, x in part.items()
        ]
        arrays["shallow_names" if shallow else "names"] = np.frombuffer("\n".join(names).encode(), np.uint8)
    parameters = {
        scope: {name: deepmind_parameter(f"{scope}/{name}", x.shape) for name, x in part.items()}
        for scope, part in shapes.items()
    }
    result = jax.jit(network.apply)(parameters, jax.random.PRNGKey(0), batch, noisy)
    heads = result.pop("heads")
    print({key: x.shape for key, x in heads.items()})
    arrays["target_feat"], arrays["single"] = result["target_feat"][KEPT], result["single"][KEPT]
    arrays["pair"] = result["pair"][KEPT, KEPT]
    arrays["distogram"] = result["distogram"][KEPT, KEPT]
    arrays["denoised"] = result["denoised"].reshape(-1, 3)[places]
    for key, x in heads.items():
        if key.endswith("logits"):
            per_atom = key.startswith(("plddt", "predicted_lddt", "exp", "resolved"))
            x = x.reshape(-1, x.shape[-1])[places] if per_atom else x[KEPT]
            arrays[f"heads/{key}"] = x[KEPT] if per_atom else x[:, KEPT]
    np.savez_compressed(target, **{key: np.asarray(x) for key, x in arrays.items()})
    print({key: np.asarray(x).shape for key, x in arrays.items()})


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
