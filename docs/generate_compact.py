"""Write the table of results in docs/compact-network.md from the manifest of the network in the package.

Run `python docs/generate_compact.py` after the network has changed; a test compares them.
"""

from pathlib import Path

from model.checkpoints.network_folder import COMPACT_FOLDER, HeldOutCase, NetworkManifest, read_manifest

PAGE = Path(__file__).with_name("compact-network.md")
START, END = "<!-- results: python docs/generate_compact.py -->\n", "<!-- end of results -->\n"
_COLUMNS = (
    "input", "held-out chains", "mean lDDT-CA, 95 % interval", "single chains", "template copy or helix",
    "pLDDT error",
)  # fmt: skip


def results(manifest: NetworkManifest | None) -> str:
    """Return the text about a network's version and accuracy as Markdown."""
    if manifest is None:
        return "This version of foldcli does not contain the network yet.\n"
    training = f"{manifest.steps:,} steps, {manifest.samples:,} samples"
    lines = [f"Version {manifest.version}: {training}; {manifest.training_data}."]
    missing = [
        text
        for text, trained in (
            ("PAE and pTM", manifest.config.predicted_aligned_error),
            ("side chains beyond CB", manifest.side_chains),
        )
        if not trained
    ]
    if missing:
        lines.append(f"Not trained: {', '.join(missing)}.")
    if not manifest.held_out:
        return "\n".join([*lines, "Its accuracy has not been measured.\n"])
    rows = [_COLUMNS, ("---",) * len(_COLUMNS), *map(_row, manifest.held_out)]
    table = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*lines, "", *table, ""])


def _row(case: HeldOutCase) -> tuple[str, ...]:
    interval = f"{100 * case.lddt:.0f} ({100 * case.low:.0f} to {100 * case.high:.0f})"
    low, high = (100 * bound for bound in case.single_chains)
    baseline, error = f"{100 * case.baseline:.0f}", f"{100 * case.plddt_error:.0f}"
    return case.label, str(case.chains), interval, f"{low:.0f} to {high:.0f}", baseline, error


def page(text: str, manifest: NetworkManifest | None) -> str:
    """Return the page with new results."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{results(manifest)}\n{END}{after}"


def package_manifest() -> NetworkManifest | None:
    """Return the manifest of the network in the package, or None."""
    return read_manifest(COMPACT_FOLDER) if COMPACT_FOLDER.is_dir() else None


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), package_manifest()), encoding="utf-8")
