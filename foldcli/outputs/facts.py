"""The facts of a target: each key of "facts" in done.json, with its writer.

A key that is not known is None, or 0 for sizes, and is left out of done.json. Older versions left out some
keys of the parts, which are None then.
"""

from typing import Any

import msgspec


class SearchFacts(msgspec.Struct, frozen=True):
    """The search of a target's chains.

    Args:
        hits: number of hits of all distinct chains.
        capped: the value of --max-seqs if a search reached it.
        sha256: SHA-256 of the staged files, hex, by `FileKind`.
    """

    hits: int
    capped: int | None = None
    sha256: dict[str, str] = {}


class TemplateFacts(msgspec.Struct, frozen=True):
    """A template of a target.

    Args:
        chain: the chain of a complex that it belongs to; left out for single chains.
        id: its name in the library.
        source: its structure file.
        identity: identical residues, as a fraction of the aligned ones.
        coverage: aligned residues, as a fraction of the chain.
        evalue: None for templates that were not searched.
    """

    chain: str | msgspec.UnsetType = msgspec.UNSET
    id: str = ""
    source: str = ""
    identity: float | None = None
    coverage: float | None = None
    evalue: float | None = None


class ExpectedAccuracy(msgspec.Struct, frozen=True):
    """The accuracy of a network on held-out chains like the target; lDDT-CA from 0 to 100.

    Args:
        inputs: the kind of inputs, in words.
        chains: number of held-out chains.
        lddt: mean; some older versions wrote it from 0 to 1.
        percentile_10, percentile_90: percentiles of single chains.
        baseline: mean of copies of the best template, or of a helix.
        plddt_error: mean error of a chain's mean pLDDT.
    """

    inputs: str = ""
    chains: int | None = None
    lddt: float | None = None
    percentile_10: float | None = None
    percentile_90: float | None = None
    baseline: float | None = None
    plddt_error: float | None = None


class NetworkFacts(msgspec.Struct, frozen=True):
    """A network with a manifest (`NetworkManifest`), and what is expected of it for a target.

    Args:
        name, version, licence, training_data, samples: see `NetworkManifest`.
        templates: names of the target's templates, best first.
        effective_sequences: number of effective sequences of its alignment.
        expected_lddt: None if it was not measured for such inputs.
        note: all of this in words.
    """

    name: str = ""
    version: str = ""
    licence: str = ""
    training_data: str = ""
    samples: int | None = None
    templates: list[str] = []
    effective_sequences: float | None = None
    expected_lddt: ExpectedAccuracy | None = None
    note: str = ""


class RowClusterFacts(msgspec.Struct, frozen=True):
    """The clusters of an alignment's rows: their numbers of rows, and their distance `epsilon`."""

    rows: list[int] = []
    epsilon: float | None = None


class State(msgspec.Struct, frozen=True):
    """A group of similar models.

    Args:
        models: their tags, best first.
        medoid: tag of the model with the highest mean TM-score with the others.
        tm_score: TM-score of the medoid with that of the first state.
    """

    models: list[str]
    medoid: str
    tm_score: float


class Facts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The facts of a target, in the order of done.json.

    The search (`ChainStore.stage`) writes `search`; `Family.inputs` writes the keys from `alignment` to
    `templates`, `target_facts` the two after them, the network stage those from `waited_…` to `peak_…`, and
    `finish_target` the last.

    Args:
        alignment: absolute path of an alignment given to `predict`.
        feature_cache_hit: whether the features came from the cache.
        residues: a number that stands for the size: residues, or tokens of molecules.
        atoms: number of atoms of molecules.
        alignment_rows: rows of the alignment, the query included.
        paired_rows: rows of it that are paired; of molecules only.
        chains: number of chains of a complex or of molecules.
        waited_for_features_seconds: time for which the network waited for the target's inputs.
        gpus_per_target: number of GPUs that predicted the target together, if there were several.
        device: "cpu", or the name of the GPU.
        peak_gpu_memory_bytes: most memory that a prediction allocated on one GPU.
        states: groups of the models, in the order of their best ones.
    """

    search: SearchFacts | None = None
    alignment: str | None = None
    feature_cache_hit: bool | None = None
    residues: int = 0
    atoms: int | None = None
    alignment_rows: int = 0
    paired_rows: int | None = None
    chains: int | None = None
    templates: list[TemplateFacts] | None = None
    network: NetworkFacts | None = None
    row_clusters: RowClusterFacts | None = None
    waited_for_features_seconds: float | None = None
    gpus_per_target: int | None = None
    device: str | None = None
    peak_gpu_memory_bytes: int | None = None
    states: list[State] | None = None

    @property
    def expected_lddt(self) -> ExpectedAccuracy | None:
        """The accuracy that is expected of the network; None if it is not known."""
        return None if self.network is None else self.network.expected_lddt

    @property
    def network_note(self) -> str | None:
        """The facts about the network in words; None without any."""
        return None if self.network is None else self.network.note

    def add_device(self, facts: "Facts") -> None:
        """Add the facts about a prediction's device; numbers are peaks, of which the largest is kept."""
        self.gpus_per_target = _largest(self.gpus_per_target, facts.gpus_per_target)
        self.device = facts.device or self.device
        self.peak_gpu_memory_bytes = _largest(self.peak_gpu_memory_bytes, facts.peak_gpu_memory_bytes)

    def updated(self, facts: "Facts") -> "Facts":
        """Return these facts, replaced by the others that are known."""
        return msgspec.convert(self.as_json() | facts.as_json(), Facts)

    def as_json(self) -> dict[str, Any]:
        """Return the facts as JSON values."""
        content: dict[str, Any] = msgspec.to_builtins(self)
        if self.chains is None or self.atoms is not None:
            return content
        # those of complexes of proteins have always been in this order
        first = ("search", "alignment", "feature_cache_hit", "templates")
        return {name: content[name] for name in first if name in content} | content


def _largest(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)
