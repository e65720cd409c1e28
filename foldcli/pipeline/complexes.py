"""The feature stage of complexes: from ColabFold's A3M file, or from the searches of the chains."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from features.complexes.a3m import write_paired_a3m
from features.complexes.entities import in_input_order
from features.complexes.features import colabfold_features, complex_features
from features.complexes.pairing import PairingSettings
from features.deterministic import make_features
from features.residues import encode_msa
from features.templates.table import write_complex_template_table
from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.complexes import Complex
from foldcli.logs import logger
from foldcli.outputs import colabfold_layout
from foldcli.pipeline.chain_search import ChainStore
from foldcli.pipeline.features import check_foldable
from foldcli.pipeline.identity import chain_query
from foldcli.pipeline.target_run import TargetRun
from foldcli.pipeline.template_stage import TargetTemplates, TemplateStage
from model.chains import chain_names
from msa.io.alignments import Alignment, parse_alignment
from msa.io.atomic import atomic_write
from msa.io.complex_a3m import parse_complex_a3m
from msa.io.fasta import FastaRecord

# chains whose features are kept in memory, for other complexes with the same chains
_CHAINS_IN_MEMORY = 32


@dataclass(frozen=True, eq=False)
class _Chain:
    """A distinct chain of complexes.

    Args:
        alignment: content of its A3M file.
        features: features in `features.schema.CACHED`, with its templates if they were searched.
        templates: its templates; None if they were not searched.
    """

    alignment: bytes
    features: dict[str, np.ndarray]
    templates: TargetTemplates | None


class ComplexStage:
    """The features of the complexes of a run.

    Args:
        pairing: how the alignments of chains are paired.
        templates: the template stage; None to use no templates.
        chains: the alignments of searched chains; None if there are no searches.
    """

    def __init__(
        self,
        pairing: PairingSettings,
        templates: TemplateStage | None,
        chains: ChainStore | None = None,
    ) -> None:
        self._pairing, self._templates, self._store = pairing, templates, chains
        self._chains: OrderedDict[tuple[str, bool], _Chain] = OrderedDict()

    def load(self, target: TargetRun, with_templates: bool) -> dict[str, np.ndarray]:
        """Return the features of a complex in `features.schema.COMPLEX`, chains in the order of the input.

        Stages NAME.a3m, if the chains were searched, and NAME_templates.tsv, if there are templates.

        Raises:
            InputError: the alignment cannot be read, or a chain has none of the twenty residues.
            OSError: a file cannot be read or written.
        """
        with_templates = with_templates and self._templates is not None
        with target.stage("features"):
            if isinstance(target.input, Complex):
                features = self._from_searches(target, target.input, with_templates)
            else:
                assert isinstance(target.input, AlignmentTarget)
                features = self._from_file(target, target.input, with_templates)
        rows, residues = int(features["num_alignments"]), len(features["aatype"])
        chains = int(features["assembly_num_chains"])
        target.facts |= {"residues": residues, "alignment_rows": rows, "chains": chains}
        if rows == 1:
            target.warnings.append("the alignment holds the query alone")
            logger.warning("%s: the alignment holds the query alone; expect low confidence", target.name)
        return features

    def _from_file(
        self, target: TargetRun, source: AlignmentTarget, with_templates: bool
    ) -> dict[str, np.ndarray]:
        content = source.read_contents()[0]
        alignment = parse_complex_a3m(content, source.files[0])
        for query in alignment.queries:
            check_foldable(query)
        if "-" not in source.files:
            target.facts["alignment"] = str(Path(source.files[0]).resolve())
        if target.files.layout == "colabfold":
            colabfold_layout.stage_alignment(target.files, content, sum(map(len, alignment.queries)))
        templates = None
        if with_templates:
            names = _first_names(
                [number for number, count in enumerate(alignment.copies) for _ in range(count)]
            )
            found = [
                (name, self._find(f"{target.name}_{name}", _profile_features(rows), number))
                for number, (name, rows) in enumerate(zip(names, alignment.unpaired, strict=True))
            ]
            _record_templates(target, found)
            templates = [each.features for _, each in found]
        return colabfold_features(alignment, templates)

    def _from_searches(
        self, target: TargetRun, source: Complex, with_templates: bool
    ) -> dict[str, np.ndarray]:
        sequences = [chain.sequence for chain in source.chains]
        chains = [self._load_chain(chain_query(chain), with_templates) for chain in source.chains]
        with atomic_write(target.files.staged("alignment")) as stream:
            write_paired_a3m(stream, [chain.alignment for chain in chains], self._pairing)
        if with_templates:
            distinct = dict(zip(sequences, chains, strict=True))
            found = [
                (name, chain.templates)
                for name, chain in zip(_first_names(sequences), distinct.values(), strict=True)
                if chain.templates is not None
            ]
            _record_templates(target, found)
        return in_input_order(
            complex_features([chain.features for chain in chains], self._pairing), sequences
        )

    def _load_chain(self, query: FastaRecord, with_templates: bool) -> _Chain:
        """Return a searched chain, from memory if another complex has it."""
        assert self._store is not None
        key = (self._store.key(query), with_templates)
        if key not in self._chains:
            content = self._store.read(query)
            features = make_features([parse_alignment(content)])
            templates = self._find(query.id, features, 0) if with_templates else None
            if templates is not None:
                features |= templates.features
            self._chains[key] = _Chain(content, features, templates)
            if len(self._chains) > _CHAINS_IN_MEMORY:
                self._chains.popitem(last=False)
        self._chains.move_to_end(key)
        return self._chains[key]

    def _find(self, name: str, features: Mapping[str, np.ndarray], number: int) -> TargetTemplates:
        assert self._templates is not None
        return self._templates.find(name, features, number)


def _first_names(chains: Sequence[Any]) -> list[str]:
    """Return the name of the first copy of each distinct chain, in the order of the chains."""
    first: dict[Any, str] = {}
    for name, chain in zip(chain_names(len(chains)), chains, strict=True):
        first.setdefault(chain, name)
    return list(first.values())


def _profile_features(alignment: Alignment) -> dict[str, np.ndarray]:
    """Return the features that a template search needs."""
    return {
        "msa": encode_msa(alignment.letters),
        "sequence": np.array([alignment.query.encode("ascii")], object),
    }


def _record_templates(target: TargetRun, found: Sequence[tuple[str, TargetTemplates]]) -> None:
    """Stage NAME_templates.tsv, and add the templates, given with the names of their chains, to the facts."""
    with atomic_write(target.files.staged("templates")) as stream:
        write_complex_template_table(stream, [(name, each.hits, each.unusable) for name, each in found])
    target.facts["templates"] = [{"chain": name} | fact for name, each in found for fact in each.facts()]
    for name, each in found:
        for template, reason in each.unusable:
            logger.warning("%s: template %s of chain %s not used: %s", target.name, template, name, reason)
