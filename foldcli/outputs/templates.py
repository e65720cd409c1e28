"""The templates of a target's chains: the staged table, facts for done.json, and warnings."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from features.templates.table import write_complex_template_table
from foldcli.logs import logger
from msa.base.atomic import atomic_write

if TYPE_CHECKING:
    from model.output.modelcif import UsedTemplate

_PDB_CODE = re.compile(r"[0-9][A-Za-z0-9]{3}")


def used_templates(chain: str, hits: Any) -> "tuple[UsedTemplate, ...]":
    """Return the templates of a chain as ModelCIF describes them."""
    from model.output.modelcif import UsedTemplate  # imports gemmi, which runs load later

    used = []
    for candidate, template in zip(hits.templates, hits.chains, strict=True):
        entry, _, template_chain = candidate.id.rpartition("_")
        pairs = tuple((int(i), int(j)) for i, j in candidate.pairs)
        # a job may pair residues in any order, which no alignment shows
        is_alignment = all(left[1] < right[1] for left, right in pairwise(pairs))
        used.append(
            UsedTemplate(
                chain,
                entry.upper() if _PDB_CODE.fullmatch(entry) else None,
                template_chain or "A",
                f"{candidate.id}, {candidate.identity:.0%} identity, from {candidate.source}",
                (hits.query, template.sequence) if is_alignment else None,
                pairs,
                candidate.identity,
            )
        )
    return tuple(used)


def record_templates(target: Any, named_templates: Sequence[tuple[str, Any]]) -> None:
    """Stage NAME_templates.tsv, add the templates to the target's facts, and warn of unusable ones.

    Args:
        target: the target (`foldcli.outputs.target.TargetRun`).
        named_templates: name and templates (`foldcli.pipeline.prepare.template_stage.TargetTemplates`) of
            each distinct chain.
    """
    with atomic_write(target.files.staged_path("templates")) as stream:
        write_complex_template_table(
            stream, [(name, templates.hits, templates.unusable) for name, templates in named_templates]
        )
    target.facts.templates = [fact for name, templates in named_templates for fact in templates.facts(name)]
    target.used_templates = tuple(
        used for name, templates in named_templates for used in used_templates(name, templates.hits)
    )
    for name, templates in named_templates:
        for template, reason in templates.unusable:
            logger.warning("%s: template %s of chain %s not used: %s", target.name, template, name, reason)
