"""Facts and warnings of targets: what done.json says of their networks and inputs."""

from foldcli.families.registry import family_of
from foldcli.logs import logger
from foldcli.outputs.target import TargetRun
from foldcli.params.parameters import UNTRAINED
from foldcli.pipeline.runs.state import RunSettings
from foldcli.pipeline.targets.plan import TargetPlan


def add_facts(
    target: TargetRun, plan: TargetPlan, inputs: object, settings: RunSettings, with_templates: bool
) -> None:
    """Add facts about the networks, inputs and templates of a target.

    Args:
        target: the target.
        plan: its plan.
        inputs: inputs of its jobs; see `Family.inputs`.
        settings: settings of the run.
        with_templates: whether templates were searched.
    """
    if plan.finished is not None and target.facts.templates is None:
        # the templates of the models that are kept
        target.facts.templates = plan.finished.facts.templates
    if settings.predictor.is_untrained and UNTRAINED not in target.warnings:
        target.warnings.append(UNTRAINED)
    _add_network_facts(target, plan, inputs, settings, with_templates)
    family = settings.identities.family_of(target.input)
    target.facts.row_clusters = family.row_cluster_facts(inputs, settings.predictor.settings)


def _add_network_facts(
    target: TargetRun, plan: TargetPlan, inputs: object, settings: RunSettings, with_templates: bool
) -> None:
    """Add the facts about a network whose accuracy was measured, and log those of the target."""
    if plan.finished is not None and not with_templates and plan.finished.facts.network is not None:
        # no templates are searched if all models are kept
        target.facts.network = plan.finished.facts.network
        return
    source = settings.identities.sources_of(target.input)[0]
    family = family_of(source)
    own_templates = bool(getattr(target.input, "templates", ()))
    own_templates |= settings.templates is not None and settings.templates.from_user
    facts = family.network_facts(source, inputs, settings.identities.settings, own_templates)
    if facts is not None:
        target.facts.network = facts
        description = family.describe_network(source)
        logger.info("%s: %s", target.name, facts.note.removeprefix(f"{description} "))


def warn_of_equal_seeds(target: TargetRun, plan: TargetPlan, inputs: object, settings: RunSettings) -> None:
    """Warn if several seeds of a network get the same inputs."""
    if len({job.seed for job in plan.jobs}) < 2:
        return
    family = settings.identities.family_of(target.input)
    samplings = [family.sampling(job, settings.predictor.settings) for job in plan.jobs]
    warning = family.same_for_all_seeds(inputs, samplings)
    if warning is not None and warning not in target.warnings:
        target.warnings.append(warning)
        logger.warning("%s: %s", target.name, warning)
