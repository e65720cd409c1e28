"""What a run uses if the user names no database and no parameters, and none are installed."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from features.templates.library import EMBEDDED, SEQUENCES
from foldcli.logs import logger
from foldcli.params.parameters import TEMPLATE, NetworkKind, default_folder
from foldcli.pipeline.settings import NetworkOptions, TemplateOptions


def library_database() -> Path:
    """Return the database of the sequences in the package's structure library; warn that it is small."""
    logger.warning(
        "without --db, the chains of known structure in the package are searched, so alignments are shallow; "
        "`foldcli help how-to/own-database` describes larger databases"
    )
    return EMBEDDED / SEQUENCES


def with_default_method(
    network: NetworkOptions, templates: TemplateOptions | None, kinds: Sequence[NetworkKind]
) -> NetworkOptions:
    """Return options that copy templates if no parameters were named and none are installed.

    Runs that copying cannot serve are left as they are: those of complexes, those without templates, and
    those that divide a prediction among several processes. So are those with $FOLDCLI_PARAMS.

    Args:
        network: options of the network.
        templates: options of the templates; None for no templates.
        kinds: see `foldcli.pipeline.startup.needed_kinds`.
    """
    requested = network.params is not None or "FOLDCLI_PARAMS" in os.environ
    served = templates is not None and network.gpus_per_target == 1 and tuple(kinds) == ("monomer",)
    if requested or not served or default_folder().is_dir():
        return network
    logger.warning(
        "no network parameters are installed, so the best template is copied (--params template); "
        "`foldcli params fetch` gets those of AlphaFold2"
    )
    return replace(network, params=TEMPLATE)
