"""The templates of a target's chains: the staged table, facts for done.json, and warnings."""

from collections.abc import Sequence
from typing import Any

from features.templates.table import write_complex_template_table
from foldcli.logs import logger
from msa.base.atomic import atomic_write


def record_templates(target: Any, named_templates: Sequence[tuple[str, Any]]) -> None:
    """Stage NAME_templates.tsv, add the templates to the target's facts, and warn of unusable ones.

    Args:
        target: the target (`foldcli.families.protocols.TargetState`).
        named_templates: name and templates (`foldcli.pipeline.prepare.template_stage.TargetTemplates`) of
            each distinct chain.
    """
    with atomic_write(target.files.staged_path("templates")) as stream:
        write_complex_template_table(
            stream, [(name, templates.hits, templates.unusable) for name, templates in named_templates]
        )
    target.facts["templates"] = [
        {"chain": name} | fact for name, templates in named_templates for fact in templates.facts()
    ]
    for name, templates in named_templates:
        for template, reason in templates.unusable:
            logger.warning("%s: template %s of chain %s not used: %s", target.name, template, name, reason)
