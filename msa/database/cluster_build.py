"""Building a database with clusters: which sequences are searched, which are found through them."""

import hashlib
from pathlib import Path

import numpy as np

from msa.database.clusters import accession_hashes, read_clusters
from msa.database.length_sort import LengthSorter
from msa.database.manifest import CLUSTERS, MEMBERS, Clusters
from msa.errors import InputError
from msa.io.fasta_blocks import Records


class Clustering:
    """The clusters of a table, and the sequences as they are read.

    All of the table and of the sequences' ids is in memory: some 100 bytes a sequence at most.

    Args:
        path: the table; see msa.database.clusters.read_clusters.

    Raises:
        InputError: the table is wrong.
    """

    def __init__(self, path: Path) -> None:
        self._table = read_clusters(path)
        self._ids: list[np.ndarray] = []
        self._accessions: list[np.ndarray] = []

    def add(self, records: Records) -> None:
        """Take note of the next records."""
        self._ids.append(records.id_hashes)
        self._accessions.append(accession_hashes(records.headers, records.header_lengths))

    def write(self, folder: Path, sorter: LengthSorter, threads: int) -> tuple[Clusters, dict[str, str]]:
        """Write all parts of the database.

        Args:
            folder: of the database.
            sorter: which has all records.
            threads: see LengthSorter.write.

        Returns:
            What the manifest says of the clusters, and SHA-256 of each part.

        Raises:
            InputError: sequences and table do not match.
            OSError: the disk is full.
        """
        heads = self._heads(sorter)
        later = heads != np.arange(len(heads))
        places = sorter.places(later)
        representatives = int(np.count_nonzero(~later))
        clusters, members = places[heads[later]], places[later]
        # cluster after cluster, each in the order of the database
        members = members[np.lexsort((members, clusters))]
        sizes = np.bincount(clusters, minlength=representatives)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        residues = sorter.residues_of(~later)
        checksums = sorter.write(threads, later)
        for name, array in ((CLUSTERS, starts), (MEMBERS, members)):
            data = array.astype("<i8").tobytes()
            (folder / name).write_bytes(data)
            checksums[name] = hashlib.sha256(data).hexdigest()
        told = Clusters(representatives, residues, int(sizes.max()) + 1, Path(self._table.path).name)
        return told, checksums

    def _heads(self, sorter: LengthSorter) -> np.ndarray:
        """The representative of each sequence, both by their places in the input: int64 [sequences]."""
        ids, accessions = np.concatenate(self._ids), np.concatenate(self._accessions)
        self._ids, self._accessions = [], []
        found, sequences = self._table.assign(ids, accessions)
        left = np.flatnonzero(found < 0)
        if len(left):
            header = sorter.header(int(left[0]))
            others = f", nor {len(left) - 1} others" if len(left) > 1 else ""
            raise InputError(
                f"no line has the sequence {header[:60]!r} as a member{others}; one alone is its own",
                self._table.path,
            )
        return np.asarray(sequences[self._table.representatives[found]])
