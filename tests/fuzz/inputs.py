"""Mutate every kind of file that foldcli reads, and check that it is read or refused in one line.

    python -m tests.fuzz.inputs [--cases 400] [--kinds fasta,json] [--first 0] [--workers 2]
    python -m tests.fuzz.inputs --show KIND NUMBER > FILE

A case passes if the reader accepts the file, or raises an error with exit code 3 or 4 whose message is one
line and names the file. Anything else (a traceback, a crash, 2 GB of memory, 20 s) is a failure. Ids that
readers return must have no control characters. Databases are mutated by databases.py.
"""

import argparse
import gzip
import io
import shutil
import sys
import tarfile
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import gemmi
import numpy as np
import torch

from benchmarks.random_parameters import random_parameters
from features.alphafold2.deterministic import make_features
from features.alphafold3.inputs import InputSettings, build_sample
from features.alphafold3.samples import read_sample, sample_key, write_sample
from features.assembly.job import Ligand, MoleculeJob, Polymer
from features.cache.cache import FeatureCache
from features.cache.entry import encode_entry, read_entry, read_entry_metadata
from features.chemistry.residue_classes import MoleculeKind
from features.complexes.cache import rows_to_features
from features.complexes.features import features_of_rows, in_input_order
from features.complexes.rows import rows_of_file
from features.templates.library.build import build_library
from features.templates.library.library import StructureLibrary
from features.templates.library.structure_files import read_chains
from foldcli.inputs.cached_targets import CacheIndex, read_complex_entry
from foldcli.params.archive import unpack
from foldcli.params.manifest import ArchiveRecord, FileRecord, ParameterManifest, read_manifest
from foldcli.training.settings import read_run_settings
from model.alphafold2.modules.config import ModelConfig, MsaConfig, PairConfig, StackConfig, StructureConfig
from model.checkpoints.alphafold2 import load_npz
from model.checkpoints.deepmind import foreign_bytes, parameter_errors
from model.errors import ConfigError
from msa.alignments.complex_a3m import parse_complex_a3m
from msa.alignments.files import parse_alignment, read_alignment
from msa.base.errors import InputError
from msa.io.structures import read_structure
from tests.fuzz.fuzzing import Kind, mutated, print_table, run_cases
from tests.fuzz.molecule_kinds import molecule_kinds
from tests.fuzz.query_kinds import COMPLEX, DATA, ROOT, query_kinds
from tests.fuzz.result_kinds import record_kinds

TAR_FORMATS = (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
STRUCTURES = sorted(
    (ROOT / "tests/features/templates/data").glob("*.cif.gz"), key=lambda path: path.stat().st_size
)[:3]


def check_complex_entry(path: Path, verify: bool) -> None:
    """Read an entry of a complex, and compute its features."""
    rows = read_complex_entry(path, verify=verify)
    in_input_order(features_of_rows(rows, min_rows=1), rows)


def parameter_kinds(folder: Path) -> list[Kind]:
    """Return the kinds of parameter files, archives and their records."""
    pair = PairConfig(
        channels=4, multiplication_channels=4, attention_heads=1, attention_channels=4, transition_factor=1
    )
    msa = MsaConfig(
        channels=4, attention_heads=1, attention_channels=4, outer_channels=2, transition_factor=1
    )
    stack = StackConfig(1, msa, pair)
    structure = StructureConfig(
        channels=4, heads=1, scalar_channels=2, query_points=1, value_points=1, sidechain_channels=4
    )
    network = ModelConfig("tiny", evoformer=stack, extra_msa=stack, structure=structure)
    arrays = random_parameters(network)
    npz = io.BytesIO()
    np.savez(npz, **arrays)  # type: ignore[arg-type]
    compressed = io.BytesIO()
    np.savez_compressed(compressed, **arrays)  # type: ignore[arg-type]

    def read_parameters(path: Path) -> None:
        load_npz(path, network)
        with parameter_errors(path, "tiny"):
            foreign_bytes(path)

    def read_archive(path: Path) -> None:
        with tempfile.TemporaryDirectory(dir=path.parent) as out:
            unpack(path, ["a.npz"], Path(out), lambda size: None, lambda done, total: None)

    manifest = ParameterManifest().with_unpacked(
        {"params_model_3_ptm.npz": FileRecord(10, "0" * 64, "1" * 64)}, ArchiveRecord("URL", 20, "1" * 64, "")
    )
    manifest.write(folder)
    manifests = [(folder / "parameters.json").read_bytes()]
    replace(manifest, architectures={"params_model_1_ptm.npz": network}).write(folder)
    manifests.append((folder / "parameters.json").read_bytes())
    return [
        Kind("parameters", "params.npz", [npz.getvalue(), compressed.getvalue()], read_parameters, "zip"),
        Kind("parameter archive", "a.tar", [_tar(kind) for kind in TAR_FORMATS], read_archive),
        Kind(
            "parameter manifest", "parameters.json", manifests,
            lambda path: read_manifest(path.parent), "json",
        ),
    ]  # fmt: skip


def _tar(tar_format: int) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tar_format) as tar:
        for name in ("LICENSE", "params/a.npz", "x" * 120):
            info = tarfile.TarInfo(name)
            info.size, info.pax_headers = (
                700,
                {"comment": "x" * 40} if tar_format == tarfile.PAX_FORMAT else {},
            )
            tar.addfile(info, io.BytesIO(b"abcdefg" * 100))
    return stream.getvalue()


def feature_kinds(folder: Path) -> list[Kind]:
    """Return the kinds of files of feature caches and training."""
    entries = []
    for name in ("family.a3m", "single.a3m"):
        alignment = read_alignment(DATA / name)
        entries.append(
            FeatureCache(folder / "cache").store("ab" * 32, make_features([alignment])).read_bytes()
        )

    rows = rows_of_file(parse_complex_a3m(COMPLEX.encode()))
    complex_entry = encode_entry("cd" * 32, rows_to_features("c", rows), ["c.a3m"])

    def read_header(path: Path) -> None:
        read_entry_metadata(path)
        cache = path.parent / "cache" / "ab"
        cache.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, cache / f"{'ab' * 32}.safetensors")
        index = CacheIndex(cache.parent)
        for targets in index.targets.values():
            targets[0].residues()

    def read_training(path: Path) -> None:
        try:
            read_run_settings(path)
        except ConfigError as error:  # a usage error of `foldcli train`
            raise InputError(str(error)) from error

    settings = [(ROOT / "examples/train/compact.yaml").read_bytes()]
    return [
        Kind("feature entry", "e.safetensors", entries, read_entry),
        Kind("unverified entry", "e.safetensors", entries, partial(read_entry, verify=False)),
        Kind(
            "complex entry",
            "e.safetensors",
            [complex_entry],
            partial(check_complex_entry, verify=True),
        ),
        Kind(
            "unverified complex entry",
            "e.safetensors",
            [complex_entry],
            partial(check_complex_entry, verify=False),
        ),
        Kind("sample entry", "s.safetensors", [_sample_entry(folder)], read_sample),
        Kind("entry header", "e.safetensors", [data[:3000] for data in entries], read_header),
        Kind("training settings", "train.yaml", settings, read_training),
    ]


def _sample_entry(folder: Path) -> bytes:
    """Return cached inputs of the all-atom network."""
    polymer = Polymer(MoleculeKind.PROTEIN, "MKV", ("A",), alignment=parse_alignment(b">q\nMKV\n>a\nMaR-\n"))
    job = MoleculeJob("job", (polymer, Ligand(("B",), ("GOL",))))
    key = sample_key(job, InputSettings())
    return write_sample(folder / "cache", key, job, build_sample(job, InputSettings())).read_bytes()


def template_kinds(folder: Path) -> list[Kind]:
    """Return the kinds of structure files and the parts of a structure library."""
    cif = [gzip.decompress(path.read_bytes()) for path in STRUCTURES]
    pdb = []
    for text in cif:
        structure = gemmi.make_structure_from_block(gemmi.cif.read_string(text.decode())[0])
        structure.shorten_chain_names()
        pdb.append(structure.make_pdb_string().encode())

    def read_names(path: Path) -> None:
        for chain in read_chains(path):
            if not chain.id.isprintable():
                raise AssertionError(f"the id {chain.id!r} has control characters")

    library = folder / "library"
    build_library(STRUCTURES, library)
    parts = [path.name for path in sorted(library.iterdir()) if path.is_file()]

    def read_library(path: Path) -> None:
        copy = path.parent / "library"
        if not copy.exists():
            shutil.copytree(library, copy)
        shutil.copy(path, copy / path.name)
        try:
            opened = StructureLibrary.open(copy)
            for index in range(len(opened)):
                opened.chain(index)
        finally:
            shutil.copy(library / path.name, copy / path.name)

    return [
        Kind("mmcif", "1abc.cif", cif, read_names),
        Kind("compressed mmcif", "1abc.cif.gz", [path.read_bytes() for path in STRUCTURES], read_names),
        Kind("pdb", "1abc.pdb", pdb, read_names),
        Kind("pdb to relax", "1abc.pdb", pdb, read_structure),
        *(
            Kind(
                f"library {name}", name, [(library / name).read_bytes()], read_library,
                "json" if name.endswith(".json") else "",
            )
            for name in parts
        ),
    ]  # fmt: skip


def all_kinds(folder: Path) -> list[Kind]:
    """Return all kinds of files; `folder` receives the originals of those that belong together."""
    return [
        *query_kinds(),
        *molecule_kinds(),
        *parameter_kinds(folder),
        *feature_kinds(folder),
        *template_kinds(folder),
        *record_kinds(folder),
    ]


def main() -> int:
    """Run the cases, print a table of outcomes, and return 1 if any case failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=400, help="cases of each kind")
    parser.add_argument("--kinds", help="kinds to run, separated by commas; default all")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--show", nargs=2, metavar=("KIND", "NUMBER"), help="write the content of a case to stdout"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        kinds = all_kinds(Path(folder))
        if options.show:
            (kind,) = (kind for kind in kinds if kind.name == options.show[0])
            sys.stdout.buffer.write(mutated(kind, int(options.show[1])))
            return 0
        if options.kinds:
            requested = options.kinds.split(",")
            kinds = [kind for kind in kinds if kind.name in requested]
        outcomes = run_cases(kinds, options.cases, options.workers, options.first)
    return 1 if print_table(outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
