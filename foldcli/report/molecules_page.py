"""The HTML page of one target of any molecules: proteins, nucleic acids, ligands and ions."""

import statistics
from typing import Any
from urllib.parse import quote

import numpy as np

from foldcli.report.data.comparison import reference_text
from foldcli.report.data.file_rows import file_type
from foldcli.report.data.molecules import MoleculeModel, MoleculeResult
from foldcli.report.data.page_data import (
    PALETTES,
    coordinate_step,
    pack_array,
    pack_plddt,
    pae_data,
    pae_values,
    superpositions,
)
from foldcli.report.data.result import PAE_STEP
from foldcli.report.rendering import render_page
from foldcli.units import format_length
from model.all_atom.checks import CHECKS

SCRIPTS = ("state.js", "plot.js", "pae.js", "drawing.js", "viewer.js", "molecules.js", "tables.js")
MAX_ROWS = 200


def molecules_page(result: MoleculeResult, shared: dict[str, Any]) -> str:
    """Return the HTML of one target.

    Args:
        result: the target's models.
        shared: see `page_values`.
    """
    best, kinds = result.models[0], result.chain_kinds
    transform = superpositions([best.positions])[0]
    return render_page(
        "molecules.html",
        SCRIPTS,
        **shared,
        tiles=_tiles(result),
        warnings=result.done.get("warnings", []),
        models=[_model_row(model) for model in result.models],
        num_chains=len(kinds),
        chains=_chain_rows(result),
        pae=pae_values(best.pae),
        check_names=CHECKS,
        checks=[_check_rows(model) for model in result.models],
        interfaces=_interface_rows(best),
        contacts=_contact_rows(best),
        contact_count=len(best.scores.get("ligand_contacts", [])),
        max_rows=MAX_ROWS,
        data=_page_data(result) | {"reference": reference_text(shared["comparison"], transform)},
    )


def _tiles(result: MoleculeResult) -> list[tuple[str, str]]:
    """Return the most important facts as (name, value)."""
    best = result.models[0]
    tiles = [
        ("chains", f"{len(result.chain_kinds):,}"),
        ("atoms", f"{len(best.positions):,}"),
        ("tokens", f"{len(best.scores['plddt']):,}"),
        ("ranking score, best model", f"{best.scores['ranking_score']:.2f}"),
        ("mean pLDDT of atoms", f"{best.atom_plddt.mean():.1f}"),
        ("pTM", f"{best.scores['ptm']:.2f}"),
    ]
    if best.scores.get("iptm") is not None:
        tiles.append(("ipTM", f"{best.scores['iptm']:.2f}"))
    if "checks" in best.scores:
        tiles.append(("checks that failed", f"{len(best.scores['checks']['failed'])}"))
    return tiles


def _model_row(model: MoleculeModel) -> dict[str, Any]:
    iptm = model.scores.get("iptm")
    return {
        "rank": model.rank,
        "score": f"{model.scores['ranking_score']:.3f}",
        "plddt": f"{model.atom_plddt.mean():.1f}",
        "ptm": f"{model.scores['ptm']:.2f}",
        "iptm": "–" if iptm is None else f"{iptm:.2f}",
        "clash": "yes" if model.scores["has_clash"] else "no",
        "checks": model.scores["checks"]["summary"] if "checks" in model.scores else "not made",
        "passed": "checks" in model.scores and not model.scores["checks"]["failed"],
        "made_by": model.tag,
        "links": [(file_type(file), quote(file)) for file in model.files],
    }


def _chain_rows(result: MoleculeResult) -> list[dict[str, Any]]:
    """Return a row for each chain, with its pLDDT in the best model."""
    best, atoms = result.models[0], result.atoms
    rows = []
    for name, kind in result.chain_kinds.items():
        members = atoms.chain == name
        codes = list(dict.fromkeys(atoms.component[members].tolist()))
        residues = len(set(atoms.number[members].tolist()))
        is_polymer = kind in ("protein", "RNA", "DNA")
        rows.append(
            {
                "name": name,
                "kind": kind,
                "content": format_length(residues, kind) if is_polymer else "-".join(codes),
                "atoms": f"{int(members.sum()):,}",
                "plddt": f"{best.atom_plddt[members].mean():.1f}",
                "lowest": f"{best.atom_plddt[members].min():.1f}",
                "ptm": f"{best.scores['per_chain_ptm'][name]:.2f}",
                "can_focus": not is_polymer,
            }
        )
    return rows


def _check_rows(model: MoleculeModel) -> dict[str, Any] | None:
    """Return the counts of each chain and the failures of a model; None without checks."""
    checks = model.scores.get("checks")
    if checks is None:
        return None
    used = [key for key in CHECKS if any(key in chain["counts"] for chain in checks["chains"])]
    rows = [
        {
            "chain": chain["chain"],
            "label": chain["label"],
            "unchecked": chain["unchecked"],
            "cells": [_count_cell(chain["counts"].get(key)) for key in used],
        }
        for chain in checks["chains"]
    ]
    failures = [
        (CHECKS.get(item["check"], item["check"]), " – ".join(item["atoms"]), f"{item['value']:.3g}",
         f"{item['limit']:.3g}")
        for item in checks["failures"][:MAX_ROWS]
    ]  # fmt: skip
    return {"rank": model.rank, "columns": [CHECKS[key] for key in used], "rows": rows, "failures": failures}


def _count_cell(count: list[int] | None) -> tuple[str, bool]:
    """Return the text of a count, and whether there are failures."""
    if count is None:
        return "–", False
    checked, failed = count
    return (f"{failed:,} of {checked:,} failed" if failed else f"{checked:,} right"), failed > 0


def _interface_rows(model: MoleculeModel) -> list[dict[str, str]]:
    return [
        {
            "chains": " – ".join(item["chains"]),
            "kinds": " and ".join(item["kinds"]),
            "iptm": f"{item['iptm']:.2f}",
            "pae": f"{item['pae_min'][0]:.1f} and {item['pae_min'][1]:.1f} Å",
            "close": f"{item['close_contacts']:,}",
            "contacts": f"{item['contacts']:,}",
        }
        for item in model.scores.get("interfaces", [])[:MAX_ROWS]
    ]


def _contact_rows(model: MoleculeModel) -> list[tuple[str, ...]]:
    rows = model.scores.get("ligand_contacts", [])[:MAX_ROWS]
    return [(*map(str, row[:4]), f"{row[4]:.2f} Å") for row in rows]


def _page_data(result: MoleculeResult) -> dict[str, Any]:
    """Return the data that the page's scripts read; names as in `foldcli.report.data.page_data`."""
    atoms, tokens = result.atoms, result.tokens
    transforms = superpositions([model.positions for model in result.models])
    moved = [
        transform.apply(model.positions) for transform, model in zip(transforms, result.models, strict=True)
    ]
    step = coordinate_step(moved)
    return {
        "name": result.files.name,
        "sequence": _token_labels(tokens),
        "chains": result.chains,
        "kinds": list(result.chain_kinds.values()),
        "confidence": "pLDDT",
        "step": step,
        "header": atoms.header,
        "before": atoms.before,
        "after": atoms.after,
        "atomNames": atoms.name.tolist(),
        "residues": _residues(result),
        "atomTokens": pack_array(_atom_tokens(result), "u4"),
        "lines": pack_array(atoms.lines, "u4"),
        "ligandContacts": [
            sorted({row[2] for row in model.scores.get("ligand_contacts", [])}) for model in result.models
        ],
        "models": [
            {
                "rank": model.rank,
                "tag": model.tag,
                "atoms": pack_array(np.rint(positions / step), "i2"),
                "plddt": pack_plddt(model.scores["plddt"]),
                "atomPlddt": pack_plddt(model.atom_plddt),
                "mean": round(statistics.fmean(model.scores["plddt"]), 1),
                "pae": pae_data(model.pae),
            }
            for model, positions in zip(result.models, moved, strict=True)
        ],
        "paeStep": PAE_STEP,
        "palettes": PALETTES,
    }


def _token_labels(tokens: dict[str, list[Any]]) -> list[str]:
    """Return the text before each token's number in its chain: "SER " of residues, else with the atom."""
    labels, position, chain = [], 0, None
    for name, residue, code, atom in zip(*(tokens[key] for key in tokens), strict=True):
        position = position + 1 if name == chain else 1
        chain = name
        text = f"{code} {atom}" if atom else code
        labels.append(f"{text} " if not atom and residue == position else f"{text} of {residue}, token ")
    return labels


def _residues(result: MoleculeResult) -> list[list[Any]]:
    """Return chain, number, component and first atom of each residue."""
    atoms = result.atoms
    starts = np.ones(len(atoms.name), bool)
    starts[1:] = (atoms.chain[1:] != atoms.chain[:-1]) | (np.diff(atoms.number) != 0)
    return [
        [atoms.chain[row], int(atoms.number[row]), atoms.component[row], row]
        for row in np.flatnonzero(starts).tolist()
    ]


def _atom_tokens(result: MoleculeResult) -> np.ndarray:
    """Return the token of each atom, int [A]."""
    tokens = result.tokens
    by_atom = {
        (chain, residue, atom): index
        for index, (chain, residue, atom) in enumerate(
            zip(tokens["chain"], tokens["residue"], tokens["atom"], strict=True)
        )
    }
    atoms = result.atoms
    keys = zip(atoms.chain.tolist(), atoms.number.tolist(), atoms.name.tolist(), strict=True)
    # a residue is one token, or each of its atoms is
    return np.array([by_atom.get((*key[:2], ""), by_atom.get(key, 0)) for key in keys])
