"""Kinds of files that hold queries, alignments and hits, for inputs.py."""

import bz2
import gzip
import io
import json
import lzma
import os
import re
from pathlib import Path

import numpy as np
import zstandard

from cuda.alignment import AlignmentPaths
from features.alphafold2.deterministic import make_features
from features.complexes.features import features_of_rows
from features.complexes.rows import rows_of_file
from features.templates.user_templates import read_hit_file
from foldcli.inputs.alignment_targets import target_of_file
from foldcli.inputs.complexes import read_pairs
from foldcli.inputs.failures import Failures
from foldcli.inputs.queries import name_single_chains, read_queries
from foldcli.inputs.shard import Shard
from msa.alignments.a3m import write_a3m
from msa.alignments.complex_a3m import parse_complex_a3m
from msa.alignments.files import read_alignment
from msa.alignments.m8 import COLUMNS, write_m8
from msa.alphabet import encode
from msa.base.errors import InputError
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.search_settings import SearchSettings
from msa.hits.filtered_targets import FilteredTargets
from msa.hits.hits import Hits, StoredSequences
from msa.io.compression import read_bytes
from msa.io.fasta import FastaRecord
from msa.profile.profile_archive import ProfileWriter
from msa.profile.pssm import QueryProfile
from msa.search.split.hit_files import PartHitsFile, PartHitsWriter
from msa.search.split.merge import PartHits, merge_hits
from tests.fuzz.fuzzing import Kind

ROOT = Path(__file__).resolve().parents[2]
GB1 = "MTYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"
FAMILY = f">first\n{GB1}\n>second\n{GB1[:30].replace('K', 'R')}{'-' * 26}\n>third\n{GB1.replace('T', 'S')}\n"
DATA = ROOT / "tests" / "features" / "data"
EXAMPLES = [path.read_bytes() for path in sorted((ROOT / "examples").glob("*.fasta"))]
COMPLEX = (
    f"#56,3\t1,2\n>101\t102\tchains=2,1,2\n{GB1}MKV\n>a\tb\n{GB1}M-cV\n>101\n{GB1}---\n>102\n{'-' * 56}MKV\n"
)
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def check_queries(path: Path) -> None:
    """Read queries, as all commands do, and check their ids."""
    for name, query in name_single_chains(read_queries(path)):
        if _CONTROL.search(query.header):
            raise AssertionError(f"the header {query.header!r} has control characters")
        if "/" in name or not name.isascii() or not name.isprintable() or name.startswith((".", "-")):
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


def check_complex(path: Path) -> None:
    """Read the A3M file of a complex, and compute its features."""
    features_of_rows(rows_of_file(parse_complex_a3m(read_bytes(path), os.fspath(path))), min_rows=1)


def check_chain_map(path: Path) -> None:
    """Read AlphaFold-Multimer's list of chains, next to the folders of two chains."""
    for name in "AB":
        folder = path.with_name(name)
        folder.mkdir(exist_ok=True)
        (folder / "uniref90_hits.a3m").write_text(">q\nMK\n")
    target = target_of_file(os.fspath(path))
    target.parse_complex(target.read_contents())


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
    molecules = f">A|protein|a.a3m\n{GB1}\n>B|smiles\nCC(=O)O\n>rna|name=C\nACGU\n".encode()
    annotated = f">ss_pred\n{'C' * 56}\n>ss_conf\n{'9' * 56}\n{FAMILY}".encode()
    boltz = f"sequences:\n  - protein:\n      id: A\n      sequence: >\n        {GB1}\n      cyclic: no\n"
    return [
        Kind(
            "fasta",
            "q.fasta",
            [*EXAMPLES, FAMILY.encode(), f">pair\n{GB1}:{GB1}\n".encode(), molecules],
            check_queries,
        ),
        Kind("a3m", "q.a3m", [*a3m, FAMILY.encode(), b"#56 1\n" + annotated, annotated], check_alignment),
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
        filtered = FilteredTargets.of_query(targets, np.array([90, 80], np.int32))
        part = PartHits(hits, targets, np.array([True, False]), filtered)
        writer.add(FastaRecord("gb1 first", GB1), part)
    return stream.getvalue()


def _compressed(data: bytes) -> list[bytes]:
    return [*(module.compress(data) for module in (gzip, bz2, lzma)), zstandard.compress(data)]
