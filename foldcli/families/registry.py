"""The registry of families: which one `--params` names, and which one a model belongs to."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from foldcli.errors import OptionError
from foldcli.families.all_atom import AllAtom
from foldcli.families.alphafold2 import AlphaFold2, Multimer
from foldcli.families.base import AnyFamily
from foldcli.families.native import Native
from foldcli.families.settings import NetworkOptions
from foldcli.families.template_copy import TemplateCopy
from msa.base.errors import InputError

# in the order in which they are asked; the last one claims everything else
FAMILIES: list[AnyFamily] = [TemplateCopy(), AllAtom(), Native(), Multimer(), AlphaFold2()]

# options whose parameters have other names
_OPTIONS = {
    "num_recycles": "num_recycle",
    "save_single": "save_single_representations",
    "save_pair": "save_pair_representations",
}


def find_family(params: str | None) -> AnyFamily:
    """Return the family that a value of `--params` names."""
    return next(family for family in FAMILIES if family.claims(params))


def family_of(source: Any) -> AnyFamily:
    """Return the family of a model's parameters (`foldcli.families.settings.Source`)."""
    return next(family for family in FAMILIES if family.name == source.family)


def refuse_options_of_others(family: AnyFamily, given: Collection[str]) -> None:
    """Raise OptionError for an option, by parameter name, that the user gave and only other families have."""
    others = frozenset[str]().union(*(each.own_options for each in FAMILIES)) - family.own_options
    if name := min(others.intersection(given), default=None):
        option = _OPTIONS.get(name, name).replace("_", "-")
        raise OptionError(f"--{option}: {family.refusal(name)}")


def with_params(options: NetworkOptions, params: str | None) -> NetworkOptions:
    """Return options for other parameters, with the settings of the family that they name.

    Args:
        options: options of the network; those of AlphaFold2 or without parameters.
        params: value of `--params`.
    """
    options = replace(options, params=params)
    return replace(options, predict=find_family(params).settings(options))


def sources_for(target: Any, sources: Iterable[Any]) -> list[Any]:
    """Return those of a run's models that predict a target: the models of the first family that accepts it.

    Raises:
        InputError: no family accepts it; gives the reason of the first one.
    """
    reasons = []
    for _, models in groupby(sources, lambda source: source.family):
        of_family = list(models)
        reason = family_of(of_family[0]).accepts(target, of_family[0])
        if reason is None:
            return of_family
        reasons.append(reason)
    raise InputError(reasons[0])


def check_parameters(sources: Sequence[Any]) -> list[dict[str, str]]:
    """Check the parameters of all models before a run starts.

    Returns:
        For each source, its label, its network and a hash of its content; part of fingerprints.

    Raises:
        ParametersError: a file cannot be used; names the file and the problem.
    """
    return [
        {"label": source.label, "network": source.config_name, "content": family_of(source).content(source)}
        for source in sources
    ]
