"""Statements of results about a network with a manifest: its origin, its templates, its expected accuracy."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from features.templates.candidates import TemplateCandidate
from features.templates.homology import template_name
from model.network_folder import HeldOutCase, NetworkManifest

# share of the bonds between residues below which results name it
MIN_REGULAR_BONDS = 0.95


def network_facts(
    manifest: NetworkManifest, templates: Sequence[TemplateCandidate], effective: float
) -> dict[str, Any]:
    """Return the facts about a network for done.json; `note` has them in words.

    Args:
        manifest: the network's manifest.
        templates: the templates of the target, best first.
        effective: number of effective sequences of the alignment.
    """
    identity = templates[0].identity if templates else None
    case = manifest.expected_accuracy(identity, effective)
    return {
        "name": manifest.name,
        "version": manifest.version,
        "licence": manifest.licence,
        "training_data": manifest.training_data,
        "samples": manifest.samples,
        "templates": [template.id for template in templates],
        "effective_sequences": round(effective, 1),
        "expected_lddt": None if case is None else asdict(case),
        "note": _note(manifest, templates, case),
    }


def _note(manifest: NetworkManifest, templates: Sequence[TemplateCandidate], case: HeldOutCase | None) -> str:
    """Return the facts in words."""
    origin = f"trained on {manifest.training_data}" if manifest.config.trained else "not trained"
    sentences = [f"Network {manifest.title}, {origin}."]
    if templates:
        names = ", ".join(
            f"{template_name(each.id)} ({100 * each.identity:.0f} % identity)" for each in templates
        )
        sentences.append(f"Templates: {names}.")
    else:
        sentences.append("No templates.")
    if case is None:
        sentences.append("The accuracy for such inputs was not measured.")
    else:
        sentences.append(
            f"Expected lDDT-CA {100 * case.lddt:.0f}, the mean of {case.chains} held-out chains with "
            f"{case.label} (95 % interval {100 * case.low:.0f} to {100 * case.high:.0f})."
        )
        if case.with_template and case.baseline > case.lddt:
            sentences.append(
                "For such inputs, a copy of the best template is more accurate: "
                f"{100 * case.baseline:.0f} (--params template)."
            )
    if manifest.regular_bonds is not None and manifest.regular_bonds < MIN_REGULAR_BONDS:
        sentences.append(
            f"Before relaxation (--num-relax), {100 * manifest.regular_bonds:.0f} % of the bonds between "
            "residues are as in crystal structures."
        )
    if not manifest.side_chains:
        sentences.append("Side chains beyond CB were not trained.")
    return " ".join(sentences)
