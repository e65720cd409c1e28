"""Mutate every kind of file that foldcli reads, and check that it is read or refused in one line.

    python -m benchmarks.fuzz_inputs [--cases 400] [--kinds fasta,json] [--first 0] [--workers 2]
    python -m benchmarks.fuzz_inputs --show KIND NUMBER > FILE

A case passes if the reader accepts the file, or raises an error with exit code 3 or 4 whose message is one
line and names the file. Anything else (a traceback, a crash, 2 GB of memory, 20 s) is a failure. Ids that
readers return must have no control characters. Databases are mutated by fuzz_databases.py.
"""

import argparse
import bz2
import gzip
import io
import json
import lzma
import os
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import gemmi
import numpy as np
import torch
import zstandard

from benchmarks.fuzzing import Kind, mutated, print_table, run_cases
from cuda.alignment import AlignmentPaths
from features.cache import FeatureCache, encode_entry, read_entry
from features.complexes.cache import rows_to_features
from features.complexes.features import colabfold_features, features_of_rows, in_input_order
from features.complexes.rows import rows_of_file
from features.deterministic import make_features
from features.entry import read_entry_metadata
from features.templates.build import build_library
from features.templates.library import StructureLibrary
from features.templates.structure_files import read_chains, read_structure
from features.templates.user_templates import read_hit_file
from foldcli.inputs.alignment_targets import target_of_file
from foldcli.inputs.cached_targets import CacheIndex, read_complex_entry
from foldcli.inputs.complexes import read_pairs
from foldcli.inputs.queries import name_queries, read_queries
from foldcli.inputs.shard import Shard
from foldcli.outputs.done import DoneRecord, StageCost
from foldcli.outputs.layout import TargetFiles, unranked_name
from foldcli.outputs.model_files import ModelResult, read_staged_results
from foldcli.outputs.summary import RunSummary
from foldcli.params.archive import unpack
from foldcli.params.parameters import ArchiveRecord, FileRecord, ParameterManifest, read_manifest
from foldcli.pipeline.alignment_stores import SEARCH_RECORD, TargetStore
from foldcli.pipeline.failures import Failures
from foldcli.pipeline.identity import AlignmentRequest
from foldcli.pipeline.settings import AlignmentSettings
from foldcli.pipeline.target_plan import read_finished
from foldcli.pipeline.target_run import TargetRun
from foldcli.report import ReportSettings
from foldcli.report.index import index_rows
from foldcli.report.make import make_report
from foldcli.report.result import read_done
from model.config import ModelConfig, MsaConfig, PairConfig, StackConfig, StructureConfig
from model.errors import ConfigError
from model.parameter_files import foreign_bytes, parameter_errors
from model.parameters import load_npz, random_parameters
from model.training.settings import read_settings
from msa.alphabet import encode
from msa.database.sequence_arrays import SequenceArrays
from msa.errors import InputError
from msa.io.a3m import write_a3m
from msa.io.alignments import read_alignment
from msa.io.complex_a3m import parse_complex_a3m
from msa.io.compression import read_bytes
from msa.io.fasta import FastaRecord
from msa.io.m8 import COLUMNS, write_m8
from msa.io.part_hits import PartHitsFile, PartHitsWriter
from msa.io.saved_profiles import ProfileWriter
from msa.search.engine import FilteredTargets, QueryProfile
from msa.search.hits import Hits, StoredSequences
from msa.search.settings import AlignmentFilter, SearchSettings
from msa.search.split_search import PartHits, merge_hits
from tests.foldcli.report.results import COMPLEX_TAG, target_files, write_complex, write_result

ROOT = Path(__file__).resolve().parents[1]
GB1 = "MTYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"
FAMILY = f">first\n{GB1}\n>second\n{GB1[:30].replace('K', 'R')}{'-' * 26}\n>third\n{GB1.replace('T', 'S')}\n"
TAG = "alphafold2_ptm_model_1_seed_000"
EXAMPLES = [path.read_bytes() for path in sorted((ROOT / "examples").glob("*.fasta"))]
DATA = ROOT / "tests" / "features" / "data"
TAR_FORMATS = (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
STRUCTURES = sorted(
    (ROOT / "tests/features/templates/data").glob("*.cif.gz"), key=lambda path: path.stat().st_size
)[:3]
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def check_queries(path: Path) -> None:
    """Read queries, as all commands do, and check their ids."""
    for name, query in name_queries(read_queries(path)):
        if _CONTROL.search(query.header):
            raise AssertionError(f"the header {query.header!r} has control characters")
        if "/" in name or not name.isascii() or not name.isprintable():
            raise AssertionError(f"the name {name!r} is not file-safe")


def check_pairs(path: Path) -> None:
    """Read a table of pairs; rows that are refused must be so in one line that names the file."""
    chains = {name: FastaRecord(name, GB1) for name in ("gb1", "half", "third")}
    failures = Failures(path.parent, Shard())
    read_pairs(path, chains, failures)
    for _, error in failures.failed:
        if not isinstance(error, InputError) or "\n" in str(error) or str(path) not in str(error):
            raise error


def read_hits(path: Path) -> None:
    """Read a table of template hits, and check the names."""
    for query, hits in read_hit_file(path).items():
        if _CONTROL.search(" ".join([query, *hits])):
            raise AssertionError(f"a name of the hits of {query!r} has control characters")


def read_part_hits(path: Path) -> None:
    """Read the hits of a part of a database, merge them, and write them."""
    file = PartHitsFile.open(path)
    for index in sorted(file.searched):
        query = file.queries[index]
        hits = merge_hits([file.read(index)], SearchSettings())
        write_m8(io.StringIO(), query, hits, list(COLUMNS))
        write_a3m(io.StringIO(), query, hits)


def check_alignment(path: Path) -> None:
    """Read an alignment, as a query and as the input of a prediction."""
    check_queries(path)
    make_features([read_alignment(path)])


COMPLEX = (
    f"#56,3\t1,2\n>101\t102\tchains=2,1,2\n{GB1}MKV\n>a\tb\n{GB1}M-cV\n>101\n{GB1}---\n>102\n{'-' * 56}MKV\n"
)


def check_complex(path: Path) -> None:
    """Read the A3M file of a complex, and compute its features."""
    colabfold_features(parse_complex_a3m(read_bytes(path), os.fspath(path)), min_rows=1)


def check_chain_map(path: Path) -> None:
    """Read AlphaFold-Multimer's list of chains, next to the folders of two chains."""
    for name in "AB":
        folder = path.with_name(name)
        folder.mkdir(exist_ok=True)
        (folder / "uniref90_hits.a3m").write_text(">q\nMK\n")
    target = target_of_file(os.fspath(path))
    target.parse_complex(target.read_contents())


def check_complex_entry(path: Path, verify: bool) -> None:
    """Read an entry of a complex, and compute its features."""
    rows = read_complex_entry(path, verify=verify)
    in_input_order(features_of_rows(rows, min_rows=1), rows)


def query_kinds() -> list[Kind]:
    """Return the kinds of files that hold queries."""
    a3m = [(DATA / name).read_bytes() for name in ("family.a3m", "single.a3m")]
    without_order = COMPLEX.replace("\tchains=2,1,2", "")
    complexes = [COMPLEX.encode(), without_order.encode(), f"#56\t2\n{FAMILY}".encode()]
    chains = {name: {"description": name, "sequence": "MK"} for name in "AB"}
    program = {
        "name": "gb 1", "modelSeeds": [1, 2], "dialect": "alphafold3", "version": 3,
        "sequences": [{"protein": {"id": "A", "sequence": GB1, "unpairedMsa": FAMILY, "templates": []}}],
    }  # fmt: skip
    server = [
        {"name": name, "modelSeeds": [], "sequences": [{"proteinChain": {"sequence": GB1, "count": copies}}]}
        for name, copies in (("a", 1), ("b\u00e9", 2))
    ]
    jobs = [json.dumps(job, indent=1).encode() for job in (program, server)]
    table = f'id,sequence,note\ngb 1,{GB1},"x, ""y"""\nother,{GB1[:20]}*:{GB1},\n'.encode()
    yaml = (
        f"# comment\nversion: 1\nsequences:\n  - protein:\n      id: [A]\n      sequence: {GB1}\n"
        f'  - ligand: {{id: B, smiles: "C\\u00e9"}}\nproperties: &a [*a]\n'
    )
    boltz = f"sequences:\n  - protein:\n      id: A\n      sequence: >\n        {GB1}\n      cyclic: no\n"
    return [
        Kind(
            "fasta", "q.fasta", [*EXAMPLES, FAMILY.encode(), f">pair\n{GB1}:{GB1}\n".encode()], check_queries
        ),
        Kind("a3m", "q.a3m", [*a3m, FAMILY.encode(), b"#56\t1\n" + FAMILY.encode()], check_alignment),
        Kind("complex a3m", "c.a3m", complexes, check_complex),
        Kind("list of chains", "chain_id_map.json", [json.dumps(chains).encode()], check_chain_map, "json"),
        Kind("stockholm", "q.sto", [(DATA / "family.sto").read_bytes()], check_alignment),
        Kind("table", "q.csv", [table, table.replace(b",", b"\t")], check_queries),
        Kind("json", "q.json", jobs, check_queries, "json"),
        Kind("yaml", "q.yaml", [yaml.encode(), boltz.encode()], check_queries),
        Kind("compressed", "q.fasta", _compressed(EXAMPLES[0]), check_queries),
        Kind("profiles", "q.npz", [_profiles()], check_queries, "zip"),
        Kind("part hits", "hits.1", [_part_hits()], read_part_hits, "zip"),
        Kind("pairs", "pairs.tsv", [b"# pairs\ngb1\thalf\n\ngb1,third, third\nhalf\tgb1\r\n"], check_pairs),
        Kind("hits", "hits.m8", [b"gb1\t1abc_A\t0.9\nq\t2xyz_B\t0.8\t1E-9\n#c\n"], read_hits),
    ]


def _compressed(data: bytes) -> list[bytes]:
    return [*(module.compress(data) for module in (gzip, bz2, lzma)), zstandard.compress(data)]


def _profiles() -> bytes:
    stream = io.BytesIO()
    with ProfileWriter(stream) as writer:
        for name, sequence in (("gb1 first", GB1), ("half", GB1[:20])):
            scores = np.random.default_rng(1).integers(-9, 9, (len(sequence), 32)).astype(np.int16)
            writer.add(FastaRecord(name, sequence), QueryProfile(encode(sequence), scores))
    return stream.getvalue()


def _part_hits() -> bytes:
    codes = np.concatenate([encode(GB1), encode(GB1[:20] + GB1[22:])])
    arrays = SequenceArrays(codes, np.array([0, 56]), np.array([56, 54], np.int32))
    records = np.array([[300, 0, 55, 0, 55, 56, 56, 1], [250, 0, 55, 0, 53, 54, 56, 3]], np.int32)
    runs = np.array([56 << 2, 20 << 2, 2 << 2 | 1, 34 << 2], np.int32)
    targets = np.array([7, 3])
    hits = Hits(
        56, StoredSequences(["a one", "b \u00e9"], arrays), np.arange(2), targets, np.array([120.0, 99.5]),
        np.array([1e-30, 1e-20]), AlignmentPaths(records, runs, np.array([0, 1, 4])),
    )  # fmt: skip
    stream = io.BytesIO()
    with PartHitsWriter(stream, {"whole": {"part": 1}, "search": {"kind": "m8"}}) as writer:
        filtered = FilteredTargets(targets, np.array([90, 80], np.int32))
        part = PartHits(hits, targets, np.array([True, False]), filtered)
        writer.add(FastaRecord("gb1 first", GB1), part)
    return stream.getvalue()


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
    return [
        Kind("parameters", "params.npz", [npz.getvalue(), compressed.getvalue()], read_parameters, "zip"),
        Kind("parameter archive", "a.tar", [_tar(kind) for kind in TAR_FORMATS], read_archive),
        Kind(
            "parameter manifest", "parameters.json", [(folder / "parameters.json").read_bytes()],
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
            read_settings(path)
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
        Kind("entry header", "e.safetensors", [data[:3000] for data in entries], read_header),
        Kind("training settings", "train.yaml", settings, read_training),
    ]


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


def record_kinds(folder: Path) -> list[Kind]:
    """Return the kinds of records of finished and unfinished work, and the files that the report reads."""
    finished = write_result(folder / "t", "t")
    result = ModelResult(TAG, 90.0, 0.8, 3, 1.5, "0" * 64, iptm=0.5)
    facts = {"residues": 40, "alignment_rows": 3, "search": {"fingerprint": "1" * 64, "hits": 2}}
    settings = {"query": GB1, "header": "t of GB1", "predict": {"num_recycle": 3}}
    costs = [StageCost("predict", 1.5, 9)]
    record = DoneRecord("t", "0" * 64, settings, "auto", [result], costs, ["a warning"], facts)
    record.write(finished / "t.done.json")
    staged = replace(result, extras=("recycles",))
    request = AlignmentRequest({"residues": "0" * 64}, AlignmentSettings(SearchSettings(), AlignmentFilter()))
    query = FastaRecord("t", GB1)
    search = {
        "fingerprint": request.key(query),
        "hits": 2,
        "capped": None,
        "sha256": {"alignment": "0", "hits": "1"},
    }

    def copied(read: Callable[[TargetFiles], object], source: Path = finished) -> Callable[[Path], None]:
        """Return a reader of the whole result with one file replaced."""

        def read_copy(path: Path) -> None:
            out = path.parent / "out"
            target = out / source.name
            if not target.exists():
                shutil.copytree(source, target)
            original = (target / path.name).read_bytes()
            shutil.copy(path, target / path.name)
            try:
                read(TargetFiles(source.name, out))
            finally:
                (target / path.name).write_bytes(original)

        return read_copy

    def report(files: TargetFiles) -> None:
        make_report(files, read_done(files), ReportSettings(True, False))

    def records(files: TargetFiles) -> None:
        read_finished(files)
        out = files.folder.parent
        summary = RunSummary(out, "default", Shard(), ["t"])
        summary.models([])
        summary.write([])
        summary.log([], out / "failures.jsonl")
        index_rows(out)

    def staged_results(path: Path) -> None:
        for kind in staged.kinds:
            (path.parent / unranked_name(kind, TAG)).touch()
        read_staged_results(path.parent)

    def staged_search(path: Path) -> None:
        files = TargetFiles("t", path.parent / "out")
        files.search_folder.mkdir(parents=True, exist_ok=True)
        for kind in ("alignment", "hits"):
            files.staged(kind).write_text("x")
        shutil.copy(path, files.search_folder / SEARCH_RECORD)
        TargetStore({"t": TargetRun(files, query)}, request).is_finished("t", query)

    pair, many = (target_files(write_complex(folder / name, name), name) for name in ("pair", "many"))
    a, c = ("MGLAK" * 3)[:12], "MGLAKMG"
    rows = [f"{a}{a[:-1]}X{c}", f"{a[:5]}ac{'-' * 19}{c}", f"{a}{'-' * 19}", f"{'-' * 24}{c}"]
    paired = "".join(f">{number}\n{row}\n" for number, row in enumerate(rows))
    pair.path("alignment").write_text(f"#12,12,7\t1,1,1\n{paired}")
    # the mmCIF file is read where there is no PDB file
    many.model("pdb", 1, COMPLEX_TAG).unlink()
    done = (finished / "t.done.json").read_bytes()
    scores, structure, a3m, m8 = (
        next(finished.glob(pattern))
        for pattern in ("*_scores_rank_001_*.json", "*_rank_001_*.pdb", "*.a3m", "*.m8")
    )
    return [
        Kind("done.json", "t.done.json", [done], copied(records), "json"),
        Kind("done.json in report", "t.done.json", [done], copied(report), "json"),
        Kind(
            "result.json", f"{TAG}.result.json", [json.dumps(asdict(staged)).encode()], staged_results, "json"
        ),
        Kind("search.json", SEARCH_RECORD, [json.dumps(search).encode()], staged_search, "json"),
        Kind("scores in report", scores.name, [scores.read_bytes()], copied(report), "json"),
        Kind("structure in report", structure.name, [structure.read_bytes()], copied(report)),
        Kind("alignment in report", a3m.name, [a3m.read_bytes()], copied(report)),
        Kind("hits in report", m8.name, [m8.read_bytes()], copied(report)),
        *(
            Kind(f"{name} of a complex", path.name, [path.read_bytes()], copied(report, path.parent), syntax)
            for name, path, syntax in (
                ("scores", pair.model("scores", 1, COMPLEX_TAG), "json"),
                ("structure", pair.model("pdb", 1, COMPLEX_TAG), ""),
                ("contacts", pair.model("contacts", 1, COMPLEX_TAG), ""),
                ("alignment", pair.path("alignment"), ""),
                ("mmcif", many.model("cif", 1, COMPLEX_TAG), ""),
            )
        ),
    ]  # fmt: skip


def all_kinds(folder: Path) -> list[Kind]:
    """Return all kinds of files; `folder` receives the originals of those that belong together."""
    return [
        *query_kinds(),
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
