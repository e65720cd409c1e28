"""Templates from the structure of a first model: `--templates-from-structure`."""

from pathlib import Path

from features.templates.candidates import TemplateHits
from features.templates.library.library import StructureLibrary
from features.templates.library.settings import TemplateSettings
from features.templates.library.states import library_states
from features.templates.selection import select_templates
from features.templates.structures.search import StructureSearchSettings, search_structures
from foldcli.outputs.done import FinishedTarget
from foldcli.outputs.layout import STRUCTURE_KINDS, TargetFiles
from foldcli.paths import cache_dir
from foldcli.structure_search.models import read_queries
from foldcli.structure_search.search import cpu_engine
from msa.alphabet import encode
from msa.base.errors import InputError
from msa.engines.query_profile import QueryProfile
from msa.profile.pssm import ProfileQuery


def templates_of_model(
    first: Path, query: ProfileQuery, library: StructureLibrary, settings: TemplateSettings
) -> TemplateHits:
    """Find templates for a single chain with the best model that an earlier run made of it.

    Args:
        first: the folder of results of the earlier run, in the default layout.
        query: the target, whose header is its name.
        library: the library.
        settings: see TemplateSettings.

    Raises:
        InputError: the earlier run has no model of this chain with all residues.
    """
    files = TargetFiles(query.header, first)
    try:
        finished = FinishedTarget.read(files.path("done"))
    except (OSError, ValueError):
        finished = None
    if finished is None:
        raise InputError(f"no finished target {query.header} for --templates-from-structure", first)
    paths = [files.model_path(kind, 1, finished.ranking[0].tag) for kind in STRUCTURE_KINDS]
    model = next((path for path in paths if path.is_file()), paths[-1])
    (chain, *_) = read_queries(model, query.header)
    if chain.sequence != query.sequence:
        raise InputError("not a model of all residues of the target", model)
    states = library_states(library, cache_dir())
    search = StructureSearchSettings(settings.evalue, threads=settings.threads)
    ((_, hits),) = search_structures([chain], library, states, cpu_engine(), search)
    profile = QueryProfile(encode(query.sequence), query.profile)
    return select_templates(query.sequence, hits, profile, query.of_family, library, settings)
