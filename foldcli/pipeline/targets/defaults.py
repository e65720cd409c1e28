"""Defaults for runs whose command line names no database or no parameters."""

import os
from collections.abc import Sequence
from pathlib import Path

from features.templates.library.library import EMBEDDED, SEQUENCES
from foldcli.families.registry import find_family, with_params
from foldcli.families.settings import NetworkOptions
from foldcli.logs import logger
from foldcli.params.openfold3 import openfold3_folder
from foldcli.params.parameters import TEMPLATE, default_folder, default_method
from foldcli.pipeline.targets.settings import TemplateOptions
from model.checkpoints.network_folder import COMPACT

_METHODS = {TEMPLATE: "the best template is copied", COMPACT: "the compact network predicts"}


def library_database() -> Path:
    """Return the path of the database of the package's structure library, and warn that it is small."""
    logger.warning(
        "without --db, the chains of known structure in the package are searched, so alignments are shallow; "
        "`foldcli help how-to/own-database` describes larger databases"
    )
    return EMBEDDED / SEQUENCES


def with_default_method(
    network: NetworkOptions, templates: TemplateOptions | None, families: Sequence[str]
) -> NetworkOptions:
    """Return options with `default_method()` if no parameters are named and none are installed.

    The options are returned unchanged if $FOLDCLI_PARAMS is set, and for runs that the method does not
    support: those of complexes alone and, if templates are copied, those without templates or with
    predictions divided among several processes.

    Args:
        network: options of the network.
        templates: options of the templates; None for no templates.
        families: see `foldcli.families.base.Family.needed_families`.
    """
    requested = network.params is not None or "FOLDCLI_PARAMS" in os.environ
    method = default_method()
    can_copy = templates is not None and network.gpus_per_target == 1
    is_possible = find_family(network.params).name in families and (can_copy or method != TEMPLATE)
    if requested or not is_possible or _has_alphafold2_folder():
        return network
    logger.warning(
        "no network parameters are installed, so %s (--params %s); "
        "`foldcli params fetch` gets those of AlphaFold2",
        _METHODS[method],
        method,
    )
    return with_params(network, method)


def _has_alphafold2_folder() -> bool:
    """Return True if the default folder exists, and not only because OpenFold3's parameters are in it."""
    folder = default_folder()
    return folder.is_dir() and list(folder.iterdir()) != [openfold3_folder()]
