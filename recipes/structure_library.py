"""Build the structure library that comes with the package, from archives of experimental chains.

    python recipes/structure_library.py FOLDER -o features/templates/embedded

FOLDER holds chains.npz.xz and extra_fullatom_chains.npz.xz (full atoms), and cgdms_backbone_chains.npz.xz
(N, CA, C). Coordinates are those of PDB entries (CC0). The library holds backbones with CB on a grid of
0.04 Å. A chain of the second and third archive is left out if an earlier chain has nearly its sequence, or if
its name is not that of an unchanged PDB file.
"""

import argparse
import io
import lzma
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from features.chemistry.residues import CA, CB, GLYCINE, atom_maps, decode_query
from features.templates.library.build import write_library
from features.templates.library.chains import TemplateChain
from features.templates.library.settings import LibrarySettings
from msa.base.residues import ATOM37
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.engines.search_settings import SearchSettings
from msa.io.fasta import FastaRecord
from msa.search.database_search import search_many

FULL_ATOM, BACKBONES, EXTRA = "chains.npz.xz", "cgdms_backbone_chains.npz.xz", "extra_fullatom_chains.npz.xz"
SETTINGS = LibrarySettings(units_per_angstrom=25, backbone_only=True)
# a chain is a copy of another if this fraction of its residues is aligned with this identity
COPY = SearchSettings(evalue=1e-3, min_seq_id=0.95, coverage=0.97, cov_mode=2, max_seqs=20)
N, C, O = (ATOM37.index(name) for name in ("N", "C", "O"))  # noqa: E741


def load(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a numpy archive inside xz."""
    with np.load(io.BytesIO(lzma.open(path).read())) as archive:
        return dict(archive)


def full_atom_chains(path: Path) -> Iterator[TemplateChain]:
    """Yield the chains of an archive of full-atom chains."""
    data = load(path)
    atom14 = np.unpackbits(data["atom14_mask"], axis=1)[:, :14].astype(bool)
    offsets = np.zeros((len(atom14), 14, 3), np.int32)
    offsets[atom14] = data["atom_offset_centi"]
    ends = np.cumsum(data["length"])
    for name, source, length, end in zip(data["ids"], data["source"], data["length"], ends, strict=True):
        rows = slice(end - length, end)
        alpha = np.cumsum(data["ca_delta_centi"][rows].astype(np.int64), axis=0)
        aatype = data["aatype"][rows].astype(np.int32)
        to37 = atom_maps(aatype)["residx_atom14_to_atom37"]
        positions = np.zeros((length, 37, 3), np.float32)
        mask = np.zeros((length, 37), bool)
        residue, slot = np.nonzero(atom14[rows])
        atom = to37[residue, slot]
        positions[residue, atom] = (alpha[residue] + offsets[rows][residue, slot]) / 100
        mask[residue, atom] = True
        yield TemplateChain(str(name), decode_query(aatype), positions, mask, None, str(source))


def backbone_chains(path: Path) -> Iterator[TemplateChain]:
    """Yield the chains of the archive of backbones, with O and CB placed by ideal geometry."""
    data = load(path)
    ends = np.cumsum(data["length"])
    for name, length, end in zip(data["ids"], data["length"], ends, strict=True):
        rows = slice(end - length, end)
        aatype = data["aatype"][rows]
        positions = np.zeros((length, 37, 3), np.float32)
        n, alpha, c = np.moveaxis(data["n_ca_c_centroid_centi"][rows, :3] / 100, 1, 0)
        positions[:, N], positions[:, CA], positions[:, C] = n, alpha, c
        mask = np.zeros((length, 37), bool)
        mask[:, [N, CA, C]] = True
        bonded = np.linalg.norm(n[1:] - c[:-1], axis=1) < 1.7
        outward = unit(unit(c[:-1] - alpha[:-1]) + unit(c[:-1] - n[1:]))
        positions[:-1, O] = (c[:-1] + 1.23 * outward) * bonded[:, None]
        mask[:-1, O] = bonded
        to_alpha, from_alpha = alpha - n, c - alpha
        beta = (
            alpha
            - 0.58273431 * np.cross(to_alpha, from_alpha)
            + 0.56802827 * to_alpha
            - 0.54067466 * from_alpha
        )
        mask[:, CB] = aatype != GLYCINE
        positions[:, CB] = beta * mask[:, CB, None]
        yield TemplateChain(str(name), decode_query(aatype), positions, mask, None, "cgdms")


def unit(vectors: np.ndarray) -> np.ndarray:
    """Return vectors [..., 3] with length 1."""
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def plain_id(name: str) -> str | None:
    """Return the id of a chain, or None if its file may be an edited copy of a PDB entry."""
    if match := re.fullmatch(r"\w+\|(\d\w{3})(?:_\w+)?\.(?:pdb|cif)(?:\.gz)?\|(\w+)", name):
        return f"{match[1].lower()}_{match[2]}"
    if "|" in name:
        return None
    if match := re.fullmatch(r"(\d\w{3})(\w)_\2|d?(\d\w{3})_(\w)|d(\d\w{3})\w_?_(\w)", name):
        entry, chain = [part for part in match.groups() if part is not None]
        return f"{entry.lower()}_{chain}"
    return name


def without_copies(chains: list[TemplateChain], unconditional: int, threads: int) -> Iterator[TemplateChain]:
    """Yield the first `unconditional` chains, and all others without a copy among the chains before them."""
    with tempfile.TemporaryDirectory() as folder:
        fasta = Path(folder, "chains.fasta")
        fasta.write_text("".join(f">{k}\n{chain.sequence}\n" for k, chain in enumerate(chains)))
        build_database([fasta], Path(folder, "db"), BuildSettings(threads=threads))
        database = TargetDatabase.open(Path(folder, "db"))
        yield from chains[:unconditional]
        kept = set(range(unconditional))
        queries = [FastaRecord(str(k), chains[k].sequence) for k in range(unconditional, len(chains))]
        for query, hits in search_many(queries, database, replace(COPY, threads=threads)):
            number = int(query.id)
            if not any(int(hit.id) in kept for hit in hits):
                kept.add(number)
                yield chains[number]


def main() -> None:
    """Build the library."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    first = list(full_atom_chains(arguments.folder / FULL_ATOM))
    others = [
        *full_atom_chains(arguments.folder / EXTRA),
        *backbone_chains(arguments.folder / BACKBONES),
    ]
    named = [replace(chain, id=name) for chain in [*first, *others] if (name := plain_id(chain.id))]
    chains = without_copies(named, len(first), arguments.threads)
    manifest = write_library(chains, arguments.out, replace(SETTINGS, threads=arguments.threads), sources=3)
    print(f"{arguments.out}: {manifest.chains} chains, {manifest.residues} residues")


if __name__ == "__main__":
    main()
