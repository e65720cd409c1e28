"""Training data of all-atom networks: complexes of structure files, with inputs and coordinates."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from features.alphafold3.inputs import InputSettings
from features.templates.library.structure_files import find_structure_files
from features.training.complexes import ComplexEntry, protein_name, write_complex, write_index
from features.training.experiment import read_complex
from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard
from foldcli.logs import logger
from foldcli.paths import make_writable_folder
from foldcli.units import format_count
from msa.database.clusters import ClusterTable, read_clusters


@dataclass
class ComplexesRun:
    """A run of `foldcli training-data --molecules`, which keeps what an earlier run has written.

    Args:
        max_tokens: largest number of tokens of a complex.
        max_release_date: last release date, YYYY-MM-DD; None for all.
        clusters: table of the clusters of protein sequences, by their names in proteins.fasta.
    """

    structures: Sequence[str]
    output: Path
    shard: Shard
    max_tokens: int
    max_release_date: str | None = None
    clusters: Path | None = None

    def run(self) -> None:
        """Write the training data.

        Raises:
            InputError: a path does not exist, or the table of clusters is damaged.
            SomeTargetsFailed: some files cannot be used; the others are written.
            TargetFailed: the only file cannot be used.
        """
        table = None if self.clusters is None else read_clusters(self.clusters)
        files = dict.fromkeys(find_structure_files(self.structures))
        make_writable_folder(self.output)
        # one template without content has the same effect as several
        settings = InputSettings(templates=1, max_tokens=self.max_tokens)
        failures = Failures(self.output, self.shard)
        entries: list[ComplexEntry] = []
        late = 0

        def process(name: str, path: Path) -> None:
            nonlocal late
            known = read_complex(path)
            if self.max_release_date and (known.release_date or "9999") > self.max_release_date:
                late += 1
                return
            entries.append(write_complex(known, path.name, self.output, settings))
            if known.remarks:
                logger.warning("%s: %s", name, "; ".join(known.remarks))

        failures.run(self.shard.select((str(path), path) for path in files), process)
        unlisted = write_index(self.output, entries, _clusters(table, entries), self.shard.suffix)
        if unlisted:
            logger.warning(
                "%s: %s of an earlier run alone, and not used for training any more",
                self.output, format_count(unlisted, "complex is", "complexes are"),
            )  # fmt: skip
        logger.info(
            "%s: %s; %d released too late or at an unknown date; %d cannot be used",
            self.output, format_count(len(entries), "complex", "complexes"), late, len(failures.failed),
        )  # fmt: skip
        failures.finish()


def _clusters(table: ClusterTable | None, entries: Sequence[ComplexEntry]) -> dict[str, str]:
    """Return the clusters of the sequences that a table names."""
    if table is None:
        return {}
    names = {protein_name(sequence): sequence for entry in entries for sequence in entry.contacts.proteins}
    known = table.representatives_of(names)
    return {names[name]: str(cluster) for name, cluster in known.items()}
