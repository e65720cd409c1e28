"""Predictions of proteins of known structure with the installed networks, for `foldcli doctor --predict`."""

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gemmi
import numpy as np

from features.templates.library.library import EMBEDDED, StructureLibrary
from foldcli.comparison.read import read_molecules
from foldcli.doctor.result import CheckStatus
from foldcli.families.registry import find_family
from foldcli.outputs.done import facts_of, read_done_record
from foldcli.outputs.layout import TargetFiles
from foldcli.params.openfold3 import OPENFOLD3
from foldcli.params.parameters import ALPHAFOLD2
from model.checkpoints.network_folder import COMPACT
from model.comparison.chains import ComparedChain, ComparedMolecules
from model.comparison.compare import compare
from msa.base.residues import ATOM37

PUBLISHED = (
    "AlphaFold2: lDDT-CA = 0.997 pLDDT - 1.17 and TM-score = 0.98 pTM + 0.07 (fits to recent PDB chains; "
    "Jumper et al., Nature 596, 583 (2021), figure 2c and d)",
    "AlphaFold 3: 76 % of the ligands of PoseBusters within 2 Å (Abramson et al., Nature 630, 493 (2024), "
    "figure 1c); OpenFold3 is not measured here",
    "compact: docs/compact-network.md; its limits are those of done.json",
)
# chains of the package's library; their own structures are among the templates
PROTEINS = ("1enh_A", "1hz6_A", "1ctf_A")
# a bromodomain with a ligand, for networks that take ligands (PDB 4CUP, CC0)
_COMPLEX = Path(__file__).parent / "data" / "4cup.cif.gz"
_LIGAND = "ZYB"
# limits: lDDT-CA unless the network's own is known, its difference from that of pLDDT, TM-score, Å
_MIN_LDDT, _MAX_DIFFERENCE, _MIN_TM_SCORE, _MAX_LIGAND_RMSD = 70.0, 20.0, 0.7, 2.0


@dataclass(frozen=True)
class PredictionCheck:
    """One line of the table.

    Args:
        target: PDB entry and chain.
        status: BROKEN if it is not predicted as it should be; WARNING if only the ligand is not.
        reason: what is wrong; "" if nothing is.
        lddt: lDDT-CA, 0 to 100; None, as the others, without a prediction.
        least_lddt: lower limit of lDDT-CA.
        plddt: mean pLDDT.
        published: lDDT-CA that PUBLISHED gives for this pLDDT; pLDDT itself for packaged networks.
        ptm: pTM; None for networks without a PAE head.
        rmsd: RMSD of CA, Å.
        ligand_rmsd: RMSD of the ligand after superposition of its pocket, Å.
    """

    network: str
    target: str
    status: CheckStatus
    reason: str = ""
    lddt: float | None = None
    least_lddt: float | None = None
    plddt: float | None = None
    published: float | None = None
    tm_score: float | None = None
    ptm: float | None = None
    rmsd: float | None = None
    ligand_rmsd: float | None = None

    def cells(self) -> list[str]:
        """Return the cells of the table."""
        values = list(asdict(self).values())
        numbers = ["–" if value is None else f"{value:.2f}" for value in values[4:]]
        return [self.network, self.target, *numbers, self.status + (self.reason and f": {self.reason}")]


COLUMNS = (
    "network", "target", "lDDT-CA", "at least", "pLDDT", "published", "TM-score", "pTM", "RMSD",
    "ligand", "result",
)  # fmt: skip


def installed_networks() -> list[str]:
    """Return the values of `--params` of the networks whose parameters are installed."""
    downloaded = [name for name in (ALPHAFOLD2, OPENFOLD3) if find_family(name).installed(None)]
    return [*downloaded, COMPACT]


def check_predictions(network: str, device: str) -> list[PredictionCheck]:
    """Predict with one network in a process of its own, and compare with experiments."""
    library = StructureLibrary.open(EMBEDDED)
    with tempfile.TemporaryDirectory(prefix="foldcli-doctor-") as folder:
        references: dict[str, ComparedMolecules] = {}
        inputs = [Path(folder, "proteins.fasta")]
        with inputs[0].open("w") as stream:
            for name in PROTEINS:
                index = library.find(name)
                assert index is not None
                chain = library.chain(index)
                references[name] = _molecules(chain.sequence, chain.positions, chain.mask)
                stream.write(f">{name}\n{chain.sequence}\n")
        if find_family(network).prepares_jobs:
            inputs.append(Path(folder, "4cup.json"))
            inputs[1].write_text(json.dumps(_complex_job()))
            references["4cup"] = read_molecules(_COMPLEX)
        out = Path(folder, "out")
        code = _fold(inputs, out, network, device)
        return [_check(network, TargetFiles(name, out), references[name], code) for name in references]


def _fold(inputs: list[Path], out: Path, network: str, device: str) -> int:
    """Run `foldcli fold`, whose messages are shown; return its exit code."""
    arguments = [*map(str, inputs), "-o", str(out), "--params", network, "--device", device]
    arguments += ["--no-plots", "--no-report", "--quiet"]
    if not find_family(network).prepares_jobs:
        arguments += ["--num-models", "1"]
    # the same installation, wherever this process was started
    start = f"import sys; sys.path[:] = {sys.path!r}; from foldcli.__main__ import main; main()"
    return subprocess.run([sys.executable, "-c", start, "fold", *arguments]).returncode


def _complex_job() -> dict[str, Any]:
    structure = gemmi.read_structure(str(_COMPLEX))
    entity = next(each for each in structure.entities if each.full_sequence)
    sequence = gemmi.one_letter_code(entity.full_sequence)
    return {
        "name": "4cup", "dialect": "alphafold3", "version": 1, "modelSeeds": [1],
        "sequences": [
            {"protein": {"id": "A", "sequence": sequence}}, {"ligand": {"id": "B", "ccdCodes": [_LIGAND]}}
        ],
    }  # fmt: skip


def _molecules(sequence: str, positions: np.ndarray, mask: np.ndarray) -> ComparedMolecules:
    """Return a chain of the library for comparisons; it has no breaks."""
    names = [gemmi.expand_one_letter(letter, gemmi.ResidueKind.AA) for letter in sequence]
    residues = [
        {ATOM37[atom]: positions[i, atom].astype(np.float64) for atom in np.flatnonzero(mask[i])}
        for i in range(len(sequence))
    ]
    return ComparedMolecules([ComparedChain("A", "CA", names, [False] * (len(names) - 1), residues)], [])


def _check(network: str, files: TargetFiles, reference: ComparedMolecules, code: int) -> PredictionCheck:
    models = files.score_files()
    if not models:
        reason = f"not predicted, see the messages (exit code {code})"
        return PredictionCheck(network, files.name, CheckStatus.BROKEN, reason)
    structure, done = files.existing_structures(*models[0])[0], read_done_record(files.path("done"))
    result, best = compare(read_molecules(structure), reference), done["ranking"][0]
    if result is None:
        return PredictionCheck(network, files.name, CheckStatus.BROKEN, "another sequence")
    scores, plddt = result.scores, best["plddt"]
    expected = facts_of(done).expected_lddt
    least = _MIN_LDDT if expected is None or expected.percentile_10 is None else expected.percentile_10 - 10
    ligands = [each["rmsd"] for name, each in result.ligands.items() if _LIGAND in name]
    ligand_rmsd = float(ligands[0]) if ligands else None
    published = 0.997 * plddt - 1.17 if expected is None else plddt
    lddt, tm_score = 100 * scores["lddt_ca"], scores["tm_score"]
    problems = {
        f"lDDT-CA under {least:.0f}": not lddt >= least,
        f"TM-score under {_MIN_TM_SCORE}": not tm_score >= _MIN_TM_SCORE,
        f"over {_MAX_DIFFERENCE:.0f} from what pLDDT says": not abs(lddt - published) <= _MAX_DIFFERENCE,
    }
    found = [problem for problem, occurs in problems.items() if occurs]
    status = CheckStatus.BROKEN if found else CheckStatus.OK
    if ligand_rmsd is not None and not ligand_rmsd <= _MAX_LIGAND_RMSD:
        found.append(f"ligand over {_MAX_LIGAND_RMSD:g} Å, as for one in four")
        status = status if status is CheckStatus.BROKEN else CheckStatus.WARNING
    return PredictionCheck(
        network, files.name, status, "; ".join(found), lddt, least, plddt, published, tm_score, best["ptm"],
        scores["rmsd_ca"], ligand_rmsd,
    )  # fmt: skip
