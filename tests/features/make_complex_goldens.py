"""Creation of data/complexes.npz with DeepMind's and ColabFold's code.

Not a test. Run by hand in a separate virtual environment:

    pip install alphafold-colabfold colabfold colabfold-kernels jax dm-haiku

    python tests/features/make_complex_goldens.py

The file has two kinds of cases, each with its inputs and all features of the result:

    deepmind/NAME/…    pair_and_merge on alignments of single chains (unpaired/0, paired/0, …)
    colabfold/NAME/…   the features that ColabFold computes from an A3M file of a complex (a3m)

DeepMind's code sorts with NumPy's default algorithm, which orders equal keys differently on different
processors. It is made stable here. As in make_goldens.py, duplicate rows are removed before DeepMind's code
runs.
"""

import functools
from pathlib import Path

import numpy as np
import pandas as pd
from alphafold.data import feature_processing, parsers, pipeline, pipeline_multimer
from colabfold import batch
from make_goldens import without_duplicates

DATA = Path(__file__).parent / "data"
LETTERS = np.array(list("ARNDCQEGHILKMFPSTWYV"))
UNUSUAL = np.array(list("BZUOJX"))

# distinct chains (residues, copies, rows of the own alignment, rows to pair), species, rows of one species
DEEPMIND = {
    "two": ([(11, 1, 30, 40), (8, 1, 20, 50)], 12, 0),
    "copies": ([(6, 2, 12, 30), (5, 1, 9, 30), (7, 3, 5, 20)], 9, 0),
    "many_rows_of_a_species": ([(5, 1, 10, 40), (6, 1, 10, 20)], 5, 620),
    "deep": ([(4, 1, 2300, 1300), (4, 2, 1200, 1500)], 1300, 0),
    "homodimer": ([(4, 2, 2300, 0)], 1, 0),
    "templates": ([(6, 1, 3, 8), (5, 2, 3, 8)], 4, 0),
}
# distinct chains (residues, copies, rows), paired rows, max_seq
COLABFOLD = {
    "two": ([(12, 1, 9), (8, 1, 11)], 13, 16),
    "copies": ([(7, 2, 6), (9, 1, 5), (5, 3, 8)], 12, 12),
    "partial": ([(6, 1, 4), (5, 1, 4), (7, 1, 4), (4, 1, 4)], 30, 60),
    "no_pairs": ([(9, 1, 12), (8, 1, 3)], 0, 8),
    "only_queries": ([(9, 1, 0), (5, 2, 0)], 0, 8),
    "duplicates": ([(5, 1, 20), (4, 1, 20)], 20, 20),
    "deep": ([(4, 1, 2100), (3, 1, 900)], 1200, 508),
    "three_copies": ([(10, 3, 25)], 0, 12),
    "deep_copies": ([(4, 2, 2100)], 0, 508),
    "padded": ([(8, 2, 3), (8, 1, 2)], 2, 64),
}
# features of equal shape, which are stacked; all others but the templates are stored on their own
GROUPS = {
    "scalars": ("seq_length", "assembly_num_chains", "num_alignments", "num_templates"),
    "residues": (
        "aatype",
        "residue_index",
        "seq_mask",
        "asym_id",
        "entity_id",
        "sym_id",
        "entity_mask",
    ),
    "rows": ("msa", "msa_mask", "deletion_matrix", "bert_mask"),
    "row": ("cluster_bias_mask",),
}


class Family:
    """Random rows of a family: substitutions, gaps, unusual letters, insertions in all places."""

    def __init__(self, rng, length):
        self.rng = rng
        self.query = "".join(rng.choice(LETTERS, length))

    def row(self, insertions=0.05):
        rng, length = self.rng, len(self.query)
        row = np.where(rng.random(length) < 0.3, rng.choice(LETTERS, length), list(self.query))
        row = np.where(rng.random(length) < 0.02, rng.choice(UNUSUAL, length), row)
        row = np.where(rng.random(length) < 0.15, "-", row)
        pieces = []
        for letter in row:
            if rng.random() < insertions:
                pieces += [letter.lower() for letter in rng.choice(LETTERS, rng.integers(1, 5))]
            pieces.append(letter)
        return "".join(pieces)


def species_name(number):
    return np.base_repr(number + 40, 36)


def deepmind_inputs(rng, chains, species, large):
    """Return the A3M texts of each distinct chain: its own alignment and the rows to be paired."""
    inputs = []
    for length, _, own_rows, rows in chains:
        family = Family(rng, length)
        shared = [family.row() for _ in range(rows)]
        names = [f"tr|A0A000|A0A000_{species_name(rng.integers(species))}/1-9" for _ in range(rows)]
        names = [name if rng.random() < 0.9 else "UPI0" for name in names]
        shared += [family.row(insertions=0.3) for _ in range(large)]
        names += [f"tr|A0A000|A0A000_{species_name(0)}"] * large
        own = [family.row() for _ in range(own_rows)] + shared[: rows // 3]
        paired = f">query\n{family.query}\n" + "".join(
            f">{name}\n{row}\n" for name, row in zip(names, shared, strict=True)
        )
        unpaired = f">query\n{family.query}\n" + "".join(f">\n{row}\n" for row in own)
        inputs.append((unpaired, paired))
    return inputs


def random_templates(rng, length, count):
    mask = (rng.random((count, length, 37)) < 0.2).astype(np.float32)
    positions = rng.integers(-9, 9, (count, length, 37, 3)).astype(np.float32)
    return {
        "template_aatype": np.eye(22, dtype=np.float32)[rng.integers(22, size=(count, length))],
        "template_all_atom_masks": mask,
        "template_all_atom_positions": positions * mask[..., None],
        "template_domain_names": np.array([b"x"] * count, object),
        "template_sum_probs": np.ones((count, 1), np.float32),
    }


def deepmind_case(rng, name, chains, species, large):
    inputs = deepmind_inputs(rng, chains, species, large)
    arrays, features = {}, {}
    for number, ((length, copies, _, _), (unpaired, paired)) in enumerate(zip(chains, inputs, strict=True)):
        own, rows = (without_duplicates([parsers.parse_a3m(text)]) for text in (unpaired, paired))
        query = own[0].sequences[0]
        templates = random_templates(rng, length, [5, 2][number] if name == "templates" else 0)
        chain = pipeline.make_sequence_features(query, "query", length) | pipeline.make_msa_features(own)
        chain |= templates
        if len(chains) > 1:
            to_pair = pipeline.make_msa_features(rows)
            kept = ("msa", "deletion_matrix_int", "msa_species_identifiers")
            chain |= {f"{key}_all_seq": to_pair[key] for key in kept}
        arrays |= {f"unpaired/{number}": as_bytes(unpaired), f"paired/{number}": as_bytes(paired)}
        if name == "templates":
            arrays |= {f"{key}/{number}": value for key, value in templates.items() if "names" not in key}
        arrays[f"copies/{number}"] = np.array(copies)
        for copy in range(copies):
            chain_id = f"{number}_{copy}"
            features[chain_id] = pipeline_multimer.convert_monomer_features(dict(chain), chain_id)
    features = pipeline_multimer.add_assembly_features(features)
    merged = feature_processing.pair_and_merge(features)
    return arrays | compact(pipeline_multimer.pad_msa(merged, 512))


def colabfold_inputs(rng, name, chains, pairs):
    families = [Family(rng, length) for length, _, _ in chains]
    gaps = ["-" * length for length, _, _ in chains]
    text = f"#{','.join(str(length) for length, _, _ in chains)}\t{','.join(str(n) for _, n, _ in chains)}\n"
    queries = [family.query for family in families]
    rows = (
        [("\t".join(str(101 + k) for k in range(len(chains))), "".join(queries))] if len(chains) > 1 else []
    )
    for pair in range(pairs):
        parts = [family.row() for family in families]
        if name == "partial":
            parts = [gap if rng.random() < 0.4 else part for gap, part in zip(gaps, parts, strict=True)]
        rows.append(("\t".join(f"P{pair % 9}_{k}" for k in range(len(chains))), "".join(parts)))
    for number, (_, _, count) in enumerate(chains):
        own = [(str(101 + number), queries[number])]
        own += [(f"U{k % 9}\t0.5", families[number].row()) for k in range(count)]
        rows += [(label, "".join([*gaps[:number], row, *gaps[number + 1 :]])) for label, row in own]
    if name == "duplicates":
        # the same row under the same and under another name
        again = [
            rows[k] if rng.random() < 0.5 else ("again", rows[k][1]) for k in rng.integers(len(rows), size=20)
        ]
        rows += again
    return text + "".join(f">{label}\n{row}\n" for label, row in rows)


def colabfold_case(rng, name, chains, pairs, max_seq):
    text = colabfold_inputs(rng, name, chains, pairs)
    unpaired, paired, queries, copies, templates = batch.unserialize_msa([text], "")
    features, _ = batch.generate_input_feature(
        queries, copies, unpaired, paired, templates, True, "alphafold2_multimer_v3", max_seq
    )
    return {"a3m": as_bytes(text), "max_seq": np.array(max_seq)} | compact(features)


def as_bytes(text):
    return np.frombuffer(text.encode(), np.uint8)


def compact(features):
    """Return all features in few arrays, because each has a long header, and in few bytes without loss."""
    features = {name: np.asarray(value) for name, value in features.items()}
    assert not features["all_atom_positions"].any()
    result = {group: small(np.stack([features[name] for name in names])) for group, names in GROUPS.items()}
    result |= {name: small(features[name].astype(np.float32)) for name in ("deletion_mean", "all_atom_mask")}
    if features["template_all_atom_mask"].any():
        names = ("template_aatype", "template_all_atom_mask", "template_all_atom_positions")
        result |= {name: small(features[name]) for name in names}
    else:
        assert not features["template_aatype"].any() and not features["template_all_atom_positions"].any()
    return {f"features/{name}": value for name, value in result.items()}


def small(value):
    """Return integers as int8 or int16 if they fit."""
    if not (value == value.astype(np.int16)).all():
        return value
    return value.astype(np.int8 if np.abs(value).max() < 128 else np.int16)


if __name__ == "__main__":
    np.argsort = functools.partial(np.argsort, kind="stable")
    pd.DataFrame.sort_values = functools.partialmethod(pd.DataFrame.sort_values, kind="stable")
    arrays = {}
    for number, (name, (chains, species, large)) in enumerate(DEEPMIND.items()):
        case = deepmind_case(np.random.default_rng(number), name, chains, species, large)
        arrays |= {f"deepmind/{name}/{key}": value for key, value in case.items()}
    for number, (name, (chains, pairs, max_seq)) in enumerate(COLABFOLD.items()):
        case = colabfold_case(np.random.default_rng(100 + number), name, chains, pairs, max_seq)
        arrays |= {f"colabfold/{name}/{key}": value for key, value in case.items()}
    np.savez_compressed(DATA / "complexes.npz", **arrays)
