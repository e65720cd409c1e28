"""Structure states equal those of mini3di, Foldseek's encoder in numpy, and are stored with libraries."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from features.chemistry.residues import CA
from features.templates.library.library import STATES, StructureLibrary
from features.templates.library.states import NO_STATE, encode_states, library_states, state_letters
from features.templates.library.structure_files import read_chains
from msa.database.manifest import MANIFEST

# printed by mini3di 0.2.1 for the residues with CA
MINI3DI = {
    "1a7g": "DKWKKKKKAFFQVLVVVLVVVCVVVCVLFPDKAHWDADPVDPPHGRRIIIMTTHPDVVSPVVCVVPRDRDPRIDMDIDIDDD",
    "1a8o": "DPQAADPPHFLVVSVVVVVVVVVVVVDDPVVVLVCVLPVSLVRYDPVLNVQSVVVDPPQDPVNSNVSRGD",
    "1as5": "DDQQAPPQDHDCDDPCPVPPNNDD",
    "1lcd": "DPAQALCNLQVQLVHDSVQSVLVPPPPDPQDDSSVVSSVVSVVVDVHDDPD",
}


@pytest.mark.parametrize("entry", MINI3DI)
def test_states_are_those_of_mini3di(structures: Path, entry: str) -> None:
    chain = read_chains(structures / f"{entry}.cif.gz")[0]
    (states,) = encode_states([(chain.positions, chain.mask)])
    resolved = chain.mask[:, CA]
    assert state_letters(states[resolved]) == MINI3DI[entry]
    assert np.all(states[~resolved] == NO_STATE)


def test_chains_at_once_have_the_states_of_single_ones(structures: Path) -> None:
    chains = [chain for path in sorted(structures.glob("*.cif.gz"))[:4] for chain in read_chains(path)]
    arguments = [(chain.positions, chain.mask) for chain in chains]
    for states, single in zip(encode_states(arguments), arguments, strict=True):
        np.testing.assert_array_equal(states, encode_states([single])[0])
    assert encode_states([]) == []


def test_libraries_store_states_and_old_ones_get_them_in_the_cache(
    library: StructureLibrary, tmp_path: Path
) -> None:
    stored = library_states(library, tmp_path)
    assert not list(tmp_path.iterdir())
    assert len(stored.residues) == len(library.database.arrays.residues)
    old = tmp_path / "old"
    shutil.copytree(library.path, old)
    (old / STATES).unlink()
    manifest = json.loads((old / MANIFEST).read_text())
    del manifest["parts"][STATES]
    (old / MANIFEST).write_text(json.dumps(manifest))
    opened = StructureLibrary.open(old)
    assert opened.checksums == library.checksums
    for _ in range(2):
        np.testing.assert_array_equal(library_states(opened, tmp_path).residues, stored.residues)
    assert len(list((tmp_path / "states").iterdir())) == 1
