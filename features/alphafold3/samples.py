"""Cached inputs of the all-atom network: one file per job, seed and settings.

An entry is a safetensors file of the features under their names, with one-hot arrays as classes, bonds as
pairs, deletions as counts, and arrays of one value left out. Its metadata has the molecules, from which the
tables of atoms and tokens are made again. It includes the reference conformers, which other versions of RDKit
would draw differently: every machine with the entry predicts from the same inputs.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import xxhash

from features.alphafold3.alignments import deletion_features
from features.alphafold3.inputs import InputSettings, Sample
from features.alphafold3.templates import TokenTemplates
from features.assembly.atoms import build_atoms
from features.assembly.job import MoleculeJob
from features.assembly.job_json import job_of_json, job_to_json
from features.assembly.tokens import build_tokens
from features.cache.entry import CorruptEntryError, corrupt_entry_errors, entry_path
from features.chemistry.conformers import Conformer
from msa.alignments.files import Alignment
from msa.base.atomic import atomic_write, writing_cache
from msa.base.network_inputs import ALL_ATOM

FORMAT = "foldcli.sample"
SCHEMA_VERSION = 2
# subfolder of a feature cache, so that entries of the two kinds are told apart by their place
_FOLDER = "samples"
_ONE_HOT = {
    name: int(axes.split()[-1])
    for name, (_, axes, _) in ALL_ATOM.items()
    if name
    in ("restype", "ref_element", "ref_atom_name_chars", "msa", "template_restype", "template_distogram")
}
_NO_CLASS = 255
_DELETIONS = "deletions"


def sample_key(job: MoleculeJob, settings: InputSettings, templates: TokenTemplates | None = None) -> str:
    """Return the SHA-256 (hex) of all that the inputs of a job depend on, but not of its name or files.

    Args:
        job: the job, whose alignments count by their letters and deletions.
        settings: settings; the largest number of tokens does not count.
        templates: see `features.alphafold3.inputs.build_sample`.
    """
    options = {key: value for key, value in asdict(settings).items() if key != "max_tokens"}
    content = [FORMAT, SCHEMA_VERSION, job_to_json(job), options]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for polymer in job.polymers():
        for alignment in (polymer.alignment, polymer.paired):
            _add_alignment(digest, alignment)
    if templates is not None:
        for array in (templates.classes, templates.pseudo_beta, templates.frames):
            digest.update(f"{array.shape}\0".encode())
            digest.update(np.ascontiguousarray(array, np.float64).tobytes())
    return digest.hexdigest()


def _add_alignment(digest: Any, alignment: Alignment | None) -> None:
    """Add the content of an alignment to a hash."""
    if alignment is None:
        digest.update(b"none\0")
        return
    positions = np.flatnonzero(alignment.deletions)
    digest.update(f"{alignment.letters.shape}\0{len(positions)}\0".encode())
    digest.update(np.ascontiguousarray(alignment.letters).data)
    digest.update(positions.astype("<i8").tobytes())
    digest.update(alignment.deletions.reshape(-1)[positions].astype("<u4").tobytes())


def sample_path(root: Path, key: str) -> Path:
    """Return the path of an entry in a cache, which need not exist."""
    return entry_path(root / _FOLDER, key)


def write_sample(root: Path, key: str, job: MoleculeJob, sample: Sample) -> Path:
    """Write an entry atomically, replacing an existing one, and return its path.

    Raises:
        UnwritableFolder, OSError: the cache cannot be written.
    """
    arrays, constants = _encode(sample.features)
    for name in ("positions", "mask", "charges"):
        values = [getattr(conformer, name) for conformer in sample.conformers]
        arrays[f"conformer.{name}"] = np.concatenate(values)
    # safetensors writes the memory of an array, whatever its strides
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    metadata = {
        "version": SCHEMA_VERSION,
        "key": key,
        "name": job.name,
        "job": job_to_json(job),
        "constants": constants,
        "conformers": [[conformer.source, len(conformer.positions)] for conformer in sample.conformers],
    }
    metadata["xxh3_128"] = _checksum(arrays, metadata)
    # a single metadata value, because safetensors writes several in random order
    content = safetensors.numpy.save(arrays, {FORMAT: json.dumps(metadata)})
    path = sample_path(root, key)
    with writing_cache(root):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path, "wb") as stream:
            stream.write(content)
    return path


def read_sample(path: Path, key: str | None = None) -> Sample:
    """Read an entry.

    Args:
        path: its file.
        key: the key that it must have, or None.

    Raises:
        FileNotFoundError: there is no such entry.
        CorruptEntryError: it is damaged, of another version, or made with other components.
    """
    data = path.read_bytes()
    with corrupt_entry_errors(path):
        metadata = _metadata(data)
        if metadata["version"] != SCHEMA_VERSION:
            raise CorruptEntryError(f"entry of version {metadata['version']}, not {SCHEMA_VERSION}")
        if key is not None and metadata["key"] != key:
            raise CorruptEntryError(f"cache entry has a different key, {metadata['key']}")
        arrays = safetensors.numpy.load(data)
        checksum = metadata.pop("xxh3_128")
        if _checksum(arrays, metadata) != checksum:
            raise CorruptEntryError("damaged cache entry (checksum does not match)")
        stored = {name.partition(".")[2]: arrays.pop(name) for name in list(arrays) if "." in name}
        features = _decode(arrays, metadata["constants"])
        atoms = build_atoms(job_of_json(metadata["job"], metadata["name"]))
        if len(atoms) != len(features["ref_mask"]):
            raise CorruptEntryError(
                "the Chemical Component Dictionary has other atoms than that of the entry"
            )
        conformers = tuple(_conformers(stored, metadata["conformers"]))
        return Sample(atoms, build_tokens(atoms), conformers, features)


def _metadata(data: bytes) -> dict[str, Any]:
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    content = header.get("__metadata__", {}).get(FORMAT)
    if content is None:
        raise CorruptEntryError("not cached inputs of an all-atom network")
    result: dict[str, Any] = json.loads(content)
    return result


def _checksum(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any]) -> str:
    """Return the xxh3 checksum (128 bits, hex) of arrays and metadata."""
    digest = xxhash.xxh3_128(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f"{name}\0{arrays[name].dtype.str}\0{arrays[name].shape}\0".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


def _encode(features: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return compact arrays, and the shape and value of those that have one value only."""
    arrays: dict[str, np.ndarray] = {}
    constants: dict[str, Any] = {}
    deletions = np.rint(3 * np.tan(features["deletion_value"].astype(np.float64) * np.pi / 2))
    counted = {"has_deletion", "deletion_value"}
    if any((deletion_features(deletions)[name] != features[name]).any() for name in counted):
        counted = set()
    else:
        arrays[_DELETIONS] = deletions.astype(np.min_scalar_type(int(deletions.max(initial=0))))
    for name in ALL_ATOM:
        array = features[name]
        if name in counted:
            continue
        if array.size and (array == array.flat[0]).all():
            constants[name] = [list(array.shape), array.flat[0].item()]
        elif name == "token_bonds":
            arrays[name] = np.argwhere(array).astype(np.int32)
        elif name in _ONE_HOT:
            arrays[name] = _classes(array)
        else:
            arrays[name] = array
    return arrays, constants


def _classes(one_hot: np.ndarray) -> np.ndarray:
    """Return the class of each element of [*, C], or _NO_CLASS for those without: uint8 [*]."""
    *shape, count = one_hot.shape
    result = np.full(one_hot.size // count, _NO_CLASS, np.uint8)
    ones = np.flatnonzero(one_hot)
    result[ones // count] = ones % count
    return result.reshape(shape)


def _decode(arrays: Mapping[str, np.ndarray], constants: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the features of compact arrays; the inverse of `_encode`."""
    counted = deletion_features(arrays[_DELETIONS]) if _DELETIONS in arrays else {}
    tokens = len(arrays["token_index"]) if "token_index" in arrays else 1
    features = {}
    for name, (dtype, axes, _) in ALL_ATOM.items():
        if name in counted:
            value = counted[name]
        elif name in constants:
            shape, constant = constants[name]
            # the pages of zeros are not touched
            value = np.zeros(shape, dtype) if not constant else np.full(shape, constant, dtype)
        elif name == "token_bonds":
            value = np.zeros((tokens, tokens), dtype)
            value[tuple(arrays[name].T)] = 1
        elif name in _ONE_HOT:
            table: np.ndarray = np.eye(_NO_CLASS + 1, _ONE_HOT[name], dtype=dtype)
            value = table[arrays[name]]
        else:
            value = arrays[name]
        if value.dtype != dtype or value.ndim != len(axes.split()):
            raise ValueError(f"{name} has type {value.dtype} and {value.ndim} axes")
        features[name] = value
    return features


def _conformers(arrays: Mapping[str, np.ndarray], layout: list[Any]) -> Iterator[Conformer]:
    end = 0
    for source, count in layout:
        start, end = end, end + count
        part = slice(start, end)
        yield Conformer(arrays["positions"][part], arrays["mask"][part], arrays["charges"][part], source)


def load_sample(root: Path, key: str) -> Sample | None:
    """Return a cached sample; None if the cache has none."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        return read_sample(sample_path(root, key), key)
    return None
