"""Statements of results about a network with a manifest: its origin, its templates, its expected accuracy.

All lDDT-CA and pLDDT are from 0 to 100.
"""

from collections.abc import Sequence

from features.templates.candidates import TemplateCandidate
from features.templates.homology import template_name
from foldcli.outputs.facts import ExpectedAccuracy, NetworkFacts
from model.checkpoints.network_folder import MAX_EVALUE, MIN_COVERAGE, HeldOutCase, NetworkManifest

# share of the bonds between residues below which results name it
MIN_REGULAR_BONDS = 0.95


def describe_network(manifest: NetworkManifest) -> str:
    """Return what holds for all predictions of a network, in words."""
    origin = f"trained on {manifest.training_data}" if manifest.config.trained else "not trained"
    sentences = [f"Network {manifest.title}, {origin}; weights under {manifest.licence}."]
    if manifest.regular_bonds is not None and manifest.regular_bonds < MIN_REGULAR_BONDS:
        sentences.append(
            f"Before relaxation (--num-relax), {100 * manifest.regular_bonds:.0f} % of the bonds between "
            "residues are as in crystal structures."
        )
    if not manifest.side_chains:
        sentences.append("Side chains beyond CB were not trained.")
    return " ".join(sentences)


def network_facts(
    manifest: NetworkManifest,
    templates: Sequence[TemplateCandidate],
    residues: int,
    effective: float,
    unmeasured: Sequence[str] = (),
) -> NetworkFacts:
    """Return the facts about a network and a target for done.json; `note` has them in words.

    Args:
        manifest: the network's manifest.
        templates: the templates of the target, best first.
        residues: number of residues of the target.
        effective: number of effective sequences of the alignment.
        unmeasured: settings with which the accuracy was not measured, in words.
    """
    # the best one that is not weak
    strong = [each for each in templates if not _is_weak(each)]
    best = next(iter([*strong, *templates]), None)
    identity = None if best is None else best.identity
    is_weak = best is not None and not strong
    case = manifest.expected_accuracy(identity, effective, is_weak)
    if case is not None and not case.shortest <= residues <= case.longest:
        unmeasured = [*unmeasured, f"{residues} residues (but with {case.shortest} to {case.longest})"]
    return NetworkFacts(
        name=manifest.name,
        version=manifest.version,
        licence=manifest.licence,
        training_data=manifest.training_data,
        samples=manifest.samples,
        templates=[template.id for template in templates],
        effective_sequences=round(effective, 1),
        expected_lddt=None if case is None or unmeasured else _expected_lddt(case),
        note=f"{describe_network(manifest)} {_describe_target(templates, case, unmeasured)}",
    )


def plddt_warning(expected: ExpectedAccuracy | None, plddt: float) -> str | None:
    """Return a warning if the mean pLDDT of a target contradicts its expected accuracy, else None.

    Args:
        expected: the expected accuracy; that of an older version lacks some values.
        plddt: mean pLDDT of the best model.
    """
    if expected is None:
        return None
    low, high, error = expected.percentile_10, expected.percentile_90, expected.plddt_error
    if low is None or high is None or error is None or low - error <= plddt <= high + error:
        return None
    return (
        f"mean pLDDT {plddt:.0f}, but lDDT-CA {low:.0f} to {high:.0f} is expected of such inputs: rely on "
        f"pLDDT, whose mean error was {error:.0f}"
    )


def _is_weak(template: TemplateCandidate) -> bool:
    return (template.evalue or 0.0) > MAX_EVALUE or template.query_coverage < MIN_COVERAGE


def _expected_lddt(case: HeldOutCase) -> ExpectedAccuracy:
    """Return the accuracy on held-out chains for done.json, 0 to 100."""
    fractions = (case.lddt, *case.single_chains, case.baseline, case.plddt_error)
    return ExpectedAccuracy(case.label, case.chains, *(round(100 * value, 1) for value in fractions))


def _describe_target(
    templates: Sequence[TemplateCandidate], case: HeldOutCase | None, unmeasured: Sequence[str]
) -> str:
    """Return templates and expected accuracy in words."""
    names = ", ".join(
        f"{template_name(each.id)} ({100 * each.identity:.0f} % identity)" for each in templates
    )
    sentences = [f"Templates: {names}." if templates else "No templates."]
    if case is None:
        sentences.append("The accuracy for such inputs was not measured.")
    elif unmeasured:
        sentences.append(f"The accuracy was not measured with {' and '.join(unmeasured)}.")
    else:
        low, high = (100 * bound for bound in case.single_chains)
        sentences.append(
            f"Expected lDDT-CA {low:.0f} to {high:.0f} (10th to 90th percentile of single proteins; mean "
            f"{100 * case.lddt:.0f}), as of {case.chains} held-out chains with {case.label}."
        )
        if case.with_template and case.baseline > case.lddt:
            sentences.append(
                "For such inputs, a copy of the best template is more accurate: mean "
                f"{100 * case.baseline:.0f} (--params template)."
            )
    return " ".join(sentences)
