"""Chains to train on, from structure files and structure libraries."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from features.chemistry.residues import X, atom_maps, encode_query
from features.templates.library.chains import TemplateChain
from features.templates.library.library import StructureLibrary, is_library
from features.templates.user_templates import library_of_files
from foldcli.errors import OptionError
from foldcli.logs import logger, warn_unusable_files
from foldcli.paths import cache_dir
from foldcli.progress import progress_bar
from model.training.data.packing import TrainingChain
from msa.base.residues import ATOM37

MIN_LENGTH, MAX_LENGTH = 40, 512
"""Residues of the chains to train on, of those that have a backbone."""
_BACKBONE = [ATOM37.index(name) for name in ("N", "CA", "C")]


@dataclass(frozen=True)
class SelectedChains:
    """The chains to train on.

    Args:
        residues_left_out: residues of `chains` without N, CA and C, or other than the twenty.
    """

    chains: list[TrainingChain]
    left_out: dict[str, int]
    residues_left_out: int

    def log(self) -> None:
        """Log the numbers of chains and residues, and of those that are left out."""
        reasons = [f"{count:,} {reason}" for reason, count in self.left_out.items() if count]
        logger.info(
            "%s chains with %s residues; chains left out: %s; residues left out: %s",
            f"{len(self.chains):,}",
            f"{sum(len(chain.aatype) for chain in self.chains):,}",
            ", ".join(reasons) or "none",
            f"{self.residues_left_out:,} of unknown type or without N, CA or C",
        )


def open_structures(paths: Sequence[str], threads: int) -> list[StructureLibrary]:
    """Open structure libraries, and build one of all structure files; files that cannot be used are named.

    The library of structure files is kept in $FOLDCLI_CACHE/templates.

    Raises:
        OptionError: a library has backbones only.
        InputError: there is no usable chain, a library is damaged, or a path does not exist.
    """
    libraries = [StructureLibrary.open(path) for path in paths if is_library(path)]
    for library in libraries:
        if library.manifest.backbone_only:
            raise OptionError(
                f"{library.path} has no side chains beyond CB; build a library of all atoms with "
                "`foldcli createdb --structures` without --backbone, or name the structure files."
            )
    files = [path for path in paths if not is_library(path)]
    if files:
        with progress_bar("reading structures", "files") as progress:
            library = library_of_files(files, cache_dir(), threads, progress)
        warn_unusable_files(library.manifest.unreadable, str(library.path), library.manifest.remarks)
        libraries.append(library)
    return libraries


def select_chains(libraries: Sequence[StructureLibrary]) -> SelectedChains:
    """Return the chains to train on, in the order of the libraries, with unique names.

    Raises:
        InputError: the coordinates of a chain are damaged.
    """
    few, many = f"shorter than {MIN_LENGTH} residues", f"longer than {MAX_LENGTH} residues"
    far = "with atoms too far apart"
    left_out = {few: 0, many: 0, far: 0}
    chains: list[TrainingChain] = []
    residues_left_out = 0
    names: dict[str, int] = {}
    for library in libraries:
        for index in range(len(library)):
            template = library.chain(index)
            chain = training_chain(template)
            length = len(chain.aatype)
            if not MIN_LENGTH <= length <= MAX_LENGTH:
                left_out[few if length < MIN_LENGTH else many] += 1
                continue
            if not chain.is_storable:
                left_out[far] += 1
                continue
            residues_left_out += len(template.sequence) - length
            chains.append(replace(chain, id=_unique_name(chain.id, names)))
    return SelectedChains(chains, left_out, residues_left_out)


def training_chain(chain: TemplateChain) -> TrainingChain:
    """Return the residues of a chain that have N, CA and C, and are one of the twenty."""
    codes = encode_query(chain.sequence)
    kept = (codes != X) & chain.mask[:, _BACKBONE].all(axis=1)
    codes = codes[kept]
    maps = atom_maps(codes)
    atoms = maps["residx_atom14_to_atom37"]  # [L, 14]
    residues = np.arange(len(codes))[:, None]
    mask = chain.mask[kept][residues, atoms] & (maps["atom14_atom_exists"] > 0)
    return TrainingChain(
        chain.id, chain.source, codes.astype(np.uint8), chain.positions[kept][residues, atoms], mask
    )


def _unique_name(name: str, counts: dict[str, int]) -> str:
    """Return a name, with a number such as .2 if an earlier chain has it.

    Args:
        name: the name.
        counts: how often each name was needed so far; updated.
    """
    unique = name
    while unique in counts:
        counts[name] += 1
        unique = f"{name}.{counts[name]}"
    counts[unique] = 1
    return unique
