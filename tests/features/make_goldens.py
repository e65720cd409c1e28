"""Creation of the reference features in data/ with DeepMind's code.

Not a test. Run by hand in a separate virtual environment:

    pip install alphafold-colabfold colabfold-kernels jax dm-haiku

    python tests/features/make_goldens.py [../shared]

alphafold-colabfold contains DeepMind's parsers and feature pipeline, with TensorFlow's operations replaced by
NumPy ones that draw the same random numbers. One difference: its `make_msa_features` keeps duplicate rows.
They are removed beforehand here, as in DeepMind's published loop (first occurrence, by aligned sequence,
across alignments).

With a folder of real data, data/real.npz is written too: for real alignments, checksums of integer arrays and
samples of the others; for the network's parity sets, the random choices behind them.
"""

import gzip
import hashlib
import sys
from pathlib import Path

import numpy as np
from alphafold.data import parsers, pipeline
from alphafold.model import config, features
from alphafold.model.tf import data_transforms, np_backend

DATA = Path(__file__).parent / "data"
REAL = ["6KWC_1.a3m", "3u8v_A.a3m", "3u8v_A.uniref90.sto", "2QKE_E.colabfold.a3m.gz"]
SAMPLES = 3000

# name → alignment files, model, clusters (template slots included), extra rows, recycles
SYNTHETIC = {
    "a3m": (["family.a3m"], "model_3_ptm", 12, 9, 2),
    "sto": (["family.sto"], "model_3_ptm", 10, 100, 0),
    "merged": (["family.sto", "family.a3m"], "model_1_ptm", 14, 20, 1),
    "single": (["single.a3m"], "model_1_ptm", 12, 9, 1),
}


class Recorder:
    """A recorder of the pipeline's random choices, in order."""

    def __init__(self):
        self.log = []
        np_backend.random_shuffle = self._record(np_backend.random_shuffle)
        np_backend.random.uniform = self._record(np_backend.random.uniform)
        np_backend.random.categorical = self._record(np_backend.random.categorical)

    def _record(self, function):
        def recorded(*args, **kwargs):
            result = function(*args, **kwargs)
            self.log.append(np.asarray(result).copy())
            return result

        return recorded

    def iterations(self, count):
        """Return the four choices of each of the last `count` iterations, in the order of their calls."""
        kept = {}
        for i, draws in enumerate(np.array_split(np.arange(len(self.log) - 4 * count, len(self.log)), count)):
            sample, uniform, categorical, extra = (self.log[k] for k in draws)
            masked = uniform < 0.15
            kept[f"{i}/sample_order"] = (sample - 1).astype(np.uint16)
            kept[f"{i}/masked"] = np.packbits(masked)
            kept[f"{i}/replacements"] = categorical.reshape(masked.shape)[masked].astype(np.uint8)
            kept[f"{i}/extra_order"] = extra.astype(np.uint16)
        return kept


def parse(path):
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    if path.suffix == ".sto":
        return parsers.parse_stockholm(text)
    return parsers.parse_a3m("".join(line for line in text.splitlines(True) if not line.startswith("#")))


def without_duplicates(msas):
    seen, kept = set(), []
    for msa in msas:
        rows = [i for i, row in enumerate(msa.sequences) if not (row in seen or seen.add(row))]
        kept.append(
            parsers.Msa(
                sequences=[msa.sequences[i] for i in rows],
                deletion_matrix=[list(msa.deletion_matrix[i]) for i in rows],
                descriptions=[msa.descriptions[i] for i in rows],
            )
        )
    return [msa for msa in kept if msa.sequences]


def raw_features(msas):
    query = msas[0].sequences[0]
    length = len(query)
    return {
        **pipeline.make_sequence_features(query, msas[0].descriptions[0], length),
        **pipeline.make_msa_features(without_duplicates(msas)),
        # result of the template search without hits
        "template_aatype": np.zeros((0, length, 22), np.float32),
        "template_all_atom_masks": np.zeros((0, length, 37), np.float32),
        "template_all_atom_positions": np.zeros((0, length, 37, 3), np.float32),
        "template_domain_names": np.array([], object),
        "template_sum_probs": np.zeros((0, 1), np.float32),
    }


def process(raw, model, clusters, extra, recycles):
    settings = config.model_config(model)
    with settings.unlocked():
        settings.data.eval.max_msa_clusters = clusters
        settings.data.common.max_extra_msa = extra
        settings.data.common.num_recycle = recycles
    return features.np_example_to_features(raw, settings, random_seed=0)


def profile(raw):
    """Return `hhblits_profile`, which the pipeline does not return."""
    protein = {"msa": raw["msa"], "deletion_matrix": raw["deletion_matrix_int"]}
    return data_transforms.make_hhblits_profile(data_transforms.correct_msa_restypes(protein))[
        "hhblits_profile"
    ]


def trim(processed):
    """Remove the masked padding rows, which must be zero, except one extra row if there are no others."""
    rows = int(processed["msa_row_mask"][0].sum())
    extra_rows = max(1, int(processed["extra_msa_row_mask"][0].sum()))
    out = {}
    for name, value in processed.items():
        keep = {"extra_msa": extra_rows, "extra_": extra_rows, "msa_": rows, "bert": rows, "true": rows}
        for prefix, count in keep.items():
            if name.startswith(prefix):
                assert not value[:, count:].any(), name
                value = value[:, :count]
                break
        out[name] = value
    return out


def write_alignments():
    """Write a family of 40 rows with insertions everywhere, long ones, duplicates and ambiguous letters."""
    rng = np.random.default_rng(0)
    letters = np.array(list("ARNDCQEGHILKMFPSTWYV" * 6 + "XBZUOJ"))
    query = rng.choice(letters[:20], 31)
    query[5] = "X"
    rows = [query]
    for _ in range(39):
        row = np.where(rng.random(31) < 0.4, rng.choice(letters, 31), query)
        rows.append(np.where(rng.random(31) < 0.2, "-", row))
    rows[7], rows[20] = rows[3], query.copy()
    insertions = [{} for _ in rows]
    for i in range(1, 40):
        for column in np.flatnonzero(rng.random(32) < 0.06):
            insertions[i][int(column)] = "".join(rng.choice(letters, rng.integers(1, 6)))
    insertions[11][4] = "A" * 300

    a3m = []
    for i, (row, inserted) in enumerate(zip(rows, insertions, strict=True)):
        text = "".join(inserted.get(c, "").lower() + (row[c] if c < 31 else "") for c in range(32))
        a3m.append(
            f">row{i} a description\n" + "".join(text[k : k + 60] + "\n" for k in range(0, len(text), 60))
        )
    (DATA / "family.a3m").write_text("".join(a3m))

    selected = [0, *range(30, 40), 3, 12]
    widths = [max(len(insertions[i].get(c, "")) for i in selected) for c in range(32)]
    full = []
    for i in selected:
        cells = [
            insertions[i].get(c, "").ljust(widths[c], "-") + (rows[i][c] if c < 31 else "") for c in range(32)
        ]
        full.append("".join(cells))
    sto = ["# STOCKHOLM 1.0\n", "#=GF ID a synthetic family\n"]
    for start in range(0, len(full[0]), 25):
        sto.append("\n")
        sto += [f"seq{i:<8} {text[start : start + 25]}\n" for i, text in zip(selected, full, strict=True)]
        sto.append(f"#=GC RF     {'x' * 25}\n")
    (DATA / "family.sto").write_text("".join(sto) + "//\n")
    (DATA / "single.a3m").write_text(">alone\nMKTAYIAKQRQISFVK\n")


def write_synthetic(recorder):
    for case, (files, *settings) in SYNTHETIC.items():
        raw = raw_features([parse(DATA / file) for file in files])
        processed = trim(process(raw, *settings))
        kept = {f"raw/{name}": value for name, value in raw.items() if value.dtype != object}
        kept |= {f"processed/{name}": value for name, value in processed.items()}
        kept |= {f"draws/{name}": value for name, value in recorder.iterations(settings[-1] + 1).items()}
        np.savez_compressed(DATA / f"{case}.npz", profile=profile(raw), settings=settings[1:3], **kept)


def sha256(array):
    return np.frombuffer(hashlib.sha256(np.ascontiguousarray(array).tobytes()).digest(), np.uint8)


def write_real(shared, recorder):
    kept = {}
    for file in REAL:
        raw = raw_features([parse(shared / "data" / "msas" / file)])
        processed = trim(process(raw, "model_1_ptm", 512, 5120, 0))
        processed["hhblits_profile"] = profile(raw)
        arrays = {
            f"raw/{name}": raw[name] for name in ("aatype", "msa", "deletion_matrix_int", "num_alignments")
        }
        arrays |= {f"processed/{name}": value for name, value in processed.items()}
        rng = np.random.default_rng(0)
        for name, value in arrays.items():
            kept[f"{file}/{name}/shape"] = np.array(value.shape)
            if value.dtype.kind == "f" and not np.array_equal(value, np.rint(value)):
                positions = rng.integers(value.size, size=min(SAMPLES, value.size))
                kept[f"{file}/{name}/positions"] = positions.astype(np.uint32)
                kept[f"{file}/{name}/values"] = value.ravel()[positions]
            else:
                kept[f"{file}/{name}/sha256"] = sha256(value.astype(np.int32))
        kept |= {f"{file}/draws/{name}": value for name, value in recorder.iterations(1).items()}
    for model, clusters in (("model_1_ptm", 20), ("model_3_ptm", 16)):
        folder = shared / "parity" / f"{model}_2_blocks"
        processed = process(dict(np.load(folder / "raw_features.npz")), model, clusters, 32, 2)
        for name, value in np.load(folder / "features.npz").items():
            # unused; comes from a counter of the process
            assert name == "random_crop_to_size_seed" or np.array_equal(value, processed[name]), name
        kept |= {f"{model}/draws/{name}": value for name, value in recorder.iterations(3).items()}
    np.savez_compressed(DATA / "real.npz", **kept)


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    write_alignments()
    recorder = Recorder()
    write_synthetic(recorder)
    if len(sys.argv) > 1:
        write_real(Path(sys.argv[1]), recorder)
