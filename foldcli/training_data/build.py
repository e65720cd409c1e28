"""A run of `foldcli training-data`: structures and a database in, packed training data out."""

import json
import lzma
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from features.chemistry.residues import decode_query
from features.templates.library.library import StructureLibrary
from foldcli.fingerprints import fingerprint
from foldcli.logs import logger
from foldcli.pipeline.search.opening import DatabaseSource, open_search_engine
from foldcli.pipeline.search.searcher import LocalSearcher
from foldcli.pipeline.targets.defaults import library_database
from foldcli.progress import progress_bar
from foldcli.training_data.alignments import chain_alignments
from foldcli.training_data.chains import (
    MAX_LENGTH,
    MIN_LENGTH,
    SelectedChains,
    open_structures,
    select_chains,
)
from foldcli.version import VERSION
from model.training.data.homology import ChainHits, choose_held_out
from model.training.data.packing import write_alignments, write_chains, write_groups, write_held_out
from model.training.data.prepare import HITS
from msa.alignments.m8 import write_m8
from msa.base.atomic_folders import check_output, publish, temporary_folder
from msa.base.errors import InputError
from msa.base.json_files import read_json
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.database.manifest import MANIFEST
from msa.engines.engine import Engine
from msa.engines.search_settings import SearchSettings
from msa.io.fasta import FastaRecord

FORMAT, FORMAT_VERSION = "foldcli training data", 1
MAX_HIT_EVALUE = 10.0
"""Largest E-value of a hit among the chains."""
_HIT_COLUMNS = (
    "query", "target", "fident", "qstart", "qend", "tstart", "tend", "evalue", "bits", "cigar",
)  # fmt: skip


@dataclass(frozen=True)
class TrainingDataRun:
    """A run of `foldcli training-data`.

    Finished batches of alignments are kept next to the output until it is complete, so that an interrupted
    run continues with the next batch.

    Args:
        structures: structure libraries, structure files, and folders of them.
        db: path of the database; None for the sequences of the library of structures.
        device: device of the searches.
        output: folder to create; it appears only when it is complete.
        held_out: share of the homology groups that is held out as a whole.
        seed: seed of the choice of held-out chains.
        threads: CPU threads. Does not affect the content.
        overwrite: replace existing training data. Does not affect the content.
    """

    structures: Sequence[str]
    db: str | None
    device: str
    output: Path
    held_out: float
    seed: int
    threads: int
    overwrite: bool = False

    def run(self) -> None:
        """Write the training data, unless an earlier run with the same input has.

        Raises:
            OptionError: a structure library has backbones only.
            InputError: there is no chain to train on, an input is damaged, or the output exists.
        """
        libraries = open_structures(self.structures, self.threads)
        database = self._database.open()
        identity = self._identity(libraries, database)
        if not self.overwrite and _stored_fingerprint(self.output) == identity:
            logger.info("%s: already finished", self.output)
            return
        check_output(self.output, self.overwrite, is_training_data, "folder of training data")
        selected = select_chains(libraries)
        selected.log()
        if not selected.chains:
            raise InputError(f"no chain of {MIN_LENGTH} to {MAX_LENGTH} residues to train on")
        with temporary_folder(self.output) as folder:
            self._write(folder, selected, database, identity)
            publish(folder, self.output, replace=self.overwrite)
        shutil.rmtree(self._parts, ignore_errors=True)

    def _identity(self, libraries: Sequence[StructureLibrary], database: TargetDatabase) -> str:
        """Return a fingerprint of everything that the output depends on."""
        checksums = [library.checksums for library in libraries]
        return fingerprint([VERSION, FORMAT_VERSION, checksums, database.manifest.checksums, self._settings])

    @property
    def _settings(self) -> dict[str, float]:
        return {"held_out": self.held_out, "seed": self.seed}

    @cached_property  # the package's own is named in a warning
    def _database(self) -> DatabaseSource:
        return DatabaseSource(self.db or str(library_database()), self.device)

    @property
    def _parts(self) -> Path:
        """Folder of the finished batches of alignments."""
        return self.output.parent / f".{self.output.name}.parts"

    def _write(self, folder: Path, selected: SelectedChains, database: TargetDatabase, identity: str) -> None:
        names = [chain.id for chain in selected.chains]
        sequences = [decode_query(chain.aatype) for chain in selected.chains]
        engine = open_search_engine(self._database.device)
        queries = [FastaRecord(name, sequence) for name, sequence in zip(names, sequences, strict=True)]
        searcher = LocalSearcher(database, engine)
        write_alignments(folder, chain_alignments(queries, searcher, self._parts, self.threads))
        hits = self._write_hits(folder, queries, engine)
        groups, clusters = hits.groups(), hits.clusters()
        write_chains(folder, selected.chains, clusters)
        write_groups(folder, names, groups)
        sets = choose_held_out(hits, self.held_out, self.seed)
        write_held_out(folder, {key: [names[chain] for chain in chains] for key, chains in sets.items()})
        num_training = len(names) - sum(len(chains) for chains in sets.values())
        num_groups = int(groups.max()) + 1
        logger.info(
            "%s: %s chains in %s homology groups; held out: %s without relatives, %s with distant templates, "
            "%s relatives of these; %s to train on",
            self.output, f"{len(names):,}", f"{num_groups:,}",
            *(f"{len(sets[key]):,}" for key in ("A", "B", "X")), f"{num_training:,}",
        )  # fmt: skip
        if self.held_out and not sets["A"]:
            logger.warning("%s: all chains are related, so none is held out for validation", self.output)
        manifest = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "fingerprint": identity,
            "chains": len(names),
            "left_out": selected.left_out,
            "groups": num_groups,
            "sets": {key: len(chains) for key, chains in sets.items()},
            "settings": self._settings,
            "database": {"path": str(self._database.db), "sha256": database.manifest.checksums},
            "foldcli": VERSION,
        }
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")

    def _write_hits(self, folder: Path, queries: Sequence[FastaRecord], engine: Engine) -> ChainHits:
        """Search the chains among themselves; write and return the hits."""
        fasta, path = folder / "chains.fasta", folder / "chains"
        fasta.write_text("".join(f">{query.header}\n{query.sequence}\n" for query in queries))
        build_database([fasta], path, BuildSettings(threads=self.threads))
        fasta.unlink()
        database = TargetDatabase.open(path)
        index_of = {query.id: index for index, query in enumerate(queries)}
        chain_of = np.array([index_of[database.id(index)] for index in range(len(database))])
        search = SearchSettings(evalue=MAX_HIT_EVALUE, max_seqs=max(300, len(queries)), threads=self.threads)
        parts: list[tuple[np.ndarray, ...]] = []
        with (
            progress_bar("chains against chains", "pairs") as progress,
            lzma.open(folder / HITS, "wt") as stream,
        ):
            results = LocalSearcher(database, engine).search_many(queries, search, progress)
            for index, (query, hits) in enumerate(results):
                write_m8(stream, query, hits, _HIT_COLUMNS)
                parts.append(
                    (
                        np.full(len(hits), index),
                        chain_of[hits.targets],
                        hits.identities,
                        hits.evalues,
                        hits.query_coverages,
                        hits.target_coverages,
                    )
                )
        shutil.rmtree(path)
        return ChainHits(len(queries), *map(np.concatenate, zip(*parts, strict=True)))


def is_training_data(path: Path) -> bool:
    """Return whether a folder holds finished training data of `foldcli training-data`."""
    return _stored_fingerprint(path) is not None


def _stored_fingerprint(path: Path) -> str | None:
    """Return the fingerprint of the input of finished training data; None if there are none."""
    try:
        content: Any = read_json(path / MANIFEST)
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        return None
    return str(content.get("fingerprint"))
