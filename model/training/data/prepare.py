"""Decoding of the packed training data: numpy archives and tables inside xz.

`prepare` decodes them once into a folder of plain `.npy` files, which `data.data` maps into memory.
"""

import io
import json
import lzma
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from model.errors import DataError
from model.training.data.data import CENTI, FORMAT_VERSION, ChainSet, open_chains
from msa.base.residues import RESTYPES

CHAINS = "chains.npz.xz"
BACKBONES = "cgdms_backbone_chains.npz.xz"
ALIGNMENTS = "msas.npz.xz"
HITS = "chain_vs_chain_hits.m8.xz"
GROUPS = "homology_groups.tsv"
SOURCES = (CHAINS, BACKBONES, ALIGNMENTS, HITS, GROUPS)
# limits of the hits that are used as templates
MAX_TEMPLATE_EVALUE = 0.1
MIN_TEMPLATE_COLUMNS = 20
# token of an alignment for the same residue as in its first row
SAME_AS_QUERY = 22
_CIGAR = re.compile(r"(\d+)([MID])")


def prepare(source: Path, folder: Path) -> ChainSet:
    """Decode the source files into `folder`, unless it already has them, and open the result.

    The folder appears whole or not at all, so that several processes may prepare it at the same time.

    Raises:
        DataError: a file is missing or unreadable.
    """
    if not (folder / "manifest.json").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            _decode(source, temporary)
            try:
                temporary.rename(folder)
            except OSError:
                # another process was faster
                if not (folder / "manifest.json").exists():
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return open_chains(folder)


def _decode(source: Path, folder: Path) -> None:
    for name in SOURCES:
        if not (source / name).is_file():
            raise DataError(f"{source / name}: no such file")
    chains, backbones, alignments = (_read_archive(source / name) for name in (CHAINS, BACKBONES, ALIGNMENTS))
    ids = [str(name) for name in chains["ids"]]
    index_of = {name: index for index, name in enumerate(ids)}
    atom14, bits = _full_atoms(chains)
    clusters = np.unique(chains["cluster30"], return_inverse=True, return_counts=True)
    extra_ids, extra = _backbone_chains(backbones)
    extra_chains = len(extra_ids)
    lengths = np.concatenate([chains["length"], extra["length"]])
    offset = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    aatype = np.concatenate([chains["aatype"], extra["aatype"]])
    group = np.full(len(lengths), -1, np.int32)
    group[: len(ids)] = _read_groups(source / GROUPS, index_of)
    arrays = {
        "chain_offset": offset,
        "aatype": aatype,
        "atom14": np.concatenate([atom14, extra["atom14"]]),
        "atom_bits": np.concatenate([bits, extra["atom_bits"]]),
        "break_before": np.concatenate([chains["chain_break"], extra["break_before"]]).astype(np.uint8),
        "group": group,
        "cluster_size": np.concatenate([clusters[2][clusters[1]], np.ones(extra_chains)]).astype(np.int32),
        **_read_alignments(alignments, index_of, aatype, offset),
        **_read_hits(source / HITS, index_of, len(lengths)),
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    manifest = {"format_version": FORMAT_VERSION, "full_atom": len(ids), "ids": [*ids, *extra_ids]}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def _read_archive(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(io.BytesIO(lzma.decompress(path.read_bytes())), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (lzma.LZMAError, ValueError, OSError) as error:
        raise DataError(f"{path}: not a numpy archive inside xz ({error})") from error


def _full_atoms(chains: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return atom14 [R, 14, 3] int16 in 0.01 Å, centred per chain, and the mask bits [R] int16."""
    length = chains["length"]
    starts = np.concatenate([[0], np.cumsum(length)[:-1]])
    alpha = np.cumsum(chains["ca_delta_centi"].astype(np.int64), axis=0)
    low, high = (extreme.reduceat(alpha, starts, axis=0) for extreme in (np.minimum, np.maximum))
    alpha = alpha - np.repeat((low + high) // 2, length, axis=0)  # [R, 3]
    mask = np.unpackbits(chains["atom14_mask"], axis=1)[:, :14].astype(bool)  # [R, 14]
    atom14 = np.repeat(alpha[:, None].astype(np.int16), 14, axis=1)
    atom14[mask] += chains["atom_offset_centi"]
    return atom14, _pack_bits(mask)


def _pack_bits(mask: np.ndarray) -> np.ndarray:
    """Return masks [R, 14] as integers [R] int16; bit k is atom k."""
    return (mask.astype(np.int16) << np.arange(14, dtype=np.int16)).sum(axis=1, dtype=np.int16)


def _backbone_chains(archive: dict[str, np.ndarray]) -> tuple[list[str], dict[str, np.ndarray]]:
    """Return names and arrays of the chains that have N, CA and C only.

    CB is added at its ideal position, which the backbone determines. Chains with coordinates that do not fit
    into the stored integers, or bond lengths that no protein has, are left out.
    """
    position = archive["n_ca_c_centroid_centi"][:, :3].astype(np.float64) * CENTI  # [R, 3, 3]
    aatype, length = archive["aatype"], archive["length"]
    chain = np.repeat(np.arange(len(length)), length)
    bonds = np.linalg.norm(np.diff(position, axis=1), axis=-1)  # [R, 2]: N-CA, CA-C
    is_invalid = (
        (np.abs(position) > 320).any(axis=(1, 2)) | (bonds < 1.2).any(axis=1) | (bonds > 1.8).any(axis=1)
    )
    is_valid = np.bincount(chain, is_invalid, minlength=len(length)) == 0
    valid_residues = is_valid[chain]
    n, ca, c = position[:, 0], position[:, 1], position[:, 2]
    beta = ca + _ideal_beta(ca - n, c - ca)
    atoms = np.repeat(ca[:, None], 14, axis=1)  # [R, 14, 3]
    has_beta = aatype != RESTYPES.index("G")
    mask = np.zeros(atoms.shape[:2], bool)
    for slot, points, exists in ((0, n, True), (1, ca, True), (2, c, True), (4, beta, has_beta)):
        atoms[:, slot] = points
        mask[:, slot] = exists
    ca_distance = np.linalg.norm(np.diff(ca, axis=0, prepend=ca[:1]), axis=-1)
    first = np.concatenate([[True], np.diff(chain) != 0])
    breaks = ((ca_distance > 4.3) | (ca_distance < 2.5)) & ~first
    ids = [str(name) for name, valid in zip(archive["ids"], is_valid, strict=True) if valid]
    arrays = {
        "length": length[is_valid],
        "aatype": aatype[valid_residues],
        "atom14": np.round(atoms[valid_residues] / CENTI).clip(-32767, 32767).astype(np.int16),
        "atom_bits": _pack_bits(mask[valid_residues]),
        "break_before": breaks[valid_residues],
    }
    return ids, arrays


def _ideal_beta(n_to_ca: np.ndarray, ca_to_c: np.ndarray) -> np.ndarray:
    """Return CB minus CA of ideal geometry, [R, 3] in Å."""
    normal = np.cross(n_to_ca, ca_to_c)
    return -0.58273431 * normal + 0.56802827 * n_to_ca - 0.54067466 * ca_to_c


def _read_groups(path: Path, index_of: dict[str, int]) -> np.ndarray:
    """Return the homology group of each full-atom chain, int32."""
    group = np.full(len(index_of), -1, np.int32)
    for number, line in enumerate(path.read_text().splitlines(), 1):
        name, _, value = line.partition("\t")
        if name not in index_of or not value.isdecimal():
            if number == 1:
                continue  # a header
            raise DataError(f"{path}, line {number}: expected a chain and its group")
        group[index_of[name]] = int(value)
    if (group < 0).any():
        raise DataError(f"{path}: {int((group < 0).sum())} chains have no group")
    return group


def _read_alignments(
    archive: dict[str, np.ndarray], index_of: dict[str, int], aatype: np.ndarray, offset: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the alignments row by row; chains without one have their own sequence as the only row."""
    counts = np.ones(len(offset) - 1, np.int32)
    blocks: dict[int, np.ndarray] = {}
    start = 0
    for name, rows, length in zip(archive["ids"], archive["rows"], archive["length"], strict=True):
        block = archive["tokens"][start : start + int(rows) * int(length)].reshape(int(length), int(rows)).T
        start += block.size
        if str(name) not in index_of:
            raise DataError(f"{ALIGNMENTS}: {name} is not one of the chains")
        index = index_of[str(name)]
        query = aatype[offset[index] : offset[index + 1]]
        blocks[index] = np.where(block == SAME_AS_QUERY, query, block)
        if not np.array_equal(blocks[index][0], query):
            raise DataError(f"{ALIGNMENTS}: the first row of {name} is not its sequence")
        counts[index] = rows
    sizes = counts * np.diff(offset)
    row_offset = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    tokens = np.empty(int(sizes.sum()), np.uint8)
    for index, first in enumerate(row_offset):
        block = blocks.get(index, aatype[offset[index] : offset[index + 1]])
        tokens[first : first + sizes[index]] = block.reshape(-1)
    return {"row_offset": row_offset, "row_count": counts, "tokens": tokens}


def _read_hits(path: Path, index_of: dict[str, int], chains: int) -> dict[str, np.ndarray]:
    """Return template hits, sorted by query and E-value."""
    hits = []
    for query, target, identity, query_start, target_start, evalue, cigar in _hit_lines(path):
        for name in (query, target):
            if name not in index_of:
                raise DataError(f"{path}: {name} is not one of the chains")
        if query == target or evalue > MAX_TEMPLATE_EVALUE:
            continue
        columns = _aligned_columns(cigar, query_start, target_start)
        if len(columns) >= MIN_TEMPLATE_COLUMNS:
            hits.append((index_of[query], evalue, index_of[target], identity, columns))
    hits.sort(key=lambda hit: hit[:3])
    queries = np.array([hit[0] for hit in hits], np.int64)
    sizes = [len(hit[4]) for hit in hits]
    return {
        "hit_offset": np.searchsorted(queries, np.arange(chains + 1)).astype(np.int64),
        "hit_target": np.array([hit[2] for hit in hits], np.int32),
        "hit_identity": np.array([hit[3] for hit in hits], np.float32),
        "hit_evalue": np.array([hit[1] for hit in hits], np.float32),
        "column_offset": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        "columns": np.concatenate([np.empty((0, 2)), *(hit[4] for hit in hits)]).astype(np.int16),
    }


def _hit_lines(path: Path) -> Iterator[tuple[str, str, float, int, int, float, str]]:
    with lzma.open(path, "rt") as stream:
        for number, line in enumerate(stream, 1):
            fields = line.rstrip("\n").split("\t")
            try:
                query, target, identity, query_start, _, target_start, _, evalue, _, cigar = fields
                yield (
                    query,
                    target,
                    float(identity),
                    int(query_start),
                    int(target_start),
                    float(evalue),
                    cigar,
                )
            except ValueError as error:
                raise DataError(f"{path}, line {number}: expected ten fields ({error})") from error


def _aligned_columns(cigar: str, query_start: int, target_start: int) -> np.ndarray:
    """Return aligned pairs of residues counted from 0, [columns, 2].

    I consumes a residue of the query, D one of the target; starts count from 1.
    """
    query, target = query_start - 1, target_start - 1
    parts = []
    for count, operation in _CIGAR.findall(cigar):
        size = int(count)
        if operation == "M":
            steps = np.arange(size)
            parts.append(np.stack([query + steps, target + steps], axis=1))
        query += size if operation in "MI" else 0
        target += size if operation in "MD" else 0
    return np.concatenate(parts) if parts else np.empty((0, 2), np.int64)
