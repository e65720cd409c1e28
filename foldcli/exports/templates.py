"""Templates for other programs: tables of hits, and the entries of AlphaFold 3's jobs."""

from collections.abc import Iterable, Iterator
from typing import IO, Any

import numpy as np

from features.templates.candidates import TemplateCandidate, TemplateHits
from features.templates.library.chains import TemplateChain
from features.templates.library.library import StructureLibrary
from features.templates.library.mmcif import UNKNOWN_DATE, chains_as_mmcif, known_residues
from foldcli.logs import logger


def write_template_hits(stream: IO[str], query: str, hits: TemplateHits) -> None:
    """Write the templates of a query as a table: ColabFold's twelve columns, those of `foldcli search`."""
    for template in hits.templates:
        stream.write("\t".join([query, template.id, *_columns(template)]) + "\n")


def _columns(template: TemplateCandidate) -> list[str]:
    """Return identity, length, mismatches, gaps, ends, E-value and bits of a hit."""
    pairs = template.pairs
    ends = (template.query_start, template.query_end, template.template_start, template.template_end)
    columns = ends[1] - ends[0] + ends[3] - ends[2] + 2 - len(pairs)
    mismatches = len(pairs) - round(template.identity * columns)
    gaps = int(np.count_nonzero(np.diff(pairs, axis=0) > 1))
    return [
        f"{template.identity:.3f}", str(columns), str(mismatches), str(gaps), *map(str, ends),
        f"{template.evalue:.3E}", str(round(template.bits)),
    ]  # fmt: skip


def template_entries(hits: TemplateHits) -> list[dict[str, Any]]:
    """Return the templates of a query as entries of an AlphaFold 3 job, best first.

    Each has the structure of the chain with its residues of known coordinates, of which the pairs of the
    alignment are indices from 0.
    """
    return [_entry(chain, each.pairs) for chain, each in zip(hits.chains, hits.templates, strict=True)]


def log_unknown_dates(name: str, hits: TemplateHits) -> None:
    """Log that the templates without a release date get one."""
    if undated := [template.id for template in hits.templates if template.release_date is None]:
        logger.info("%s: templates without release date get %s: %s", name, UNKNOWN_DATE, ", ".join(undated))


def template_files(library: StructureLibrary, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the files that ColabFold's server sends for templates: an HH-suite database and the entries.

    Args:
        library: the structure library.
        names: ids of chains, such as 1abc_A; those that the library does not have are left out.

    Yields:
        Name and content of each file.
    """
    entries: dict[str, dict[str, TemplateChain]] = {}
    alignments, index, offset = [], [], 0
    for name in sorted(set(names)):
        if (number := library.find(name)) is None:
            continue
        chain = library.chain(number)
        entry, _, letter = name.rpartition("_")
        entries.setdefault(entry.lower(), {})[letter] = chain
        residues = "".join(chain.sequence[each] for each in np.flatnonzero(known_residues(chain)))
        alignments.append(f">{name}\n{residues}\n\0")
        index.append(f"{name}\t{offset}\t{len(alignments[-1])}\n")
        offset += len(alignments[-1])
    yield "pdb70_a3m.ffdata", "".join(alignments)
    yield "pdb70_a3m.ffindex", "".join(index)
    for entry, chains in entries.items():
        yield f"{entry}.cif", chains_as_mmcif(entry, chains)


def _entry(chain: TemplateChain, pairs: np.ndarray) -> dict[str, Any]:
    is_known = known_residues(chain)
    numbers = np.cumsum(is_known) - 1
    kept = pairs[is_known[pairs[:, 1]]]
    return {
        "mmcif": chains_as_mmcif(chain.id.rpartition("_")[0] or chain.id, {"A": chain}),
        "queryIndices": kept[:, 0].tolist(),
        "templateIndices": numbers[kept[:, 1]].tolist(),
    }
