"""Colours of page and plots; blue always means confident, and no scale pairs red with green."""

# AlphaFold's database: lowest pLDDT of each class, name, colour
CONFIDENCE_CLASSES = (
    (90.0, "very high", "#0053d6"),
    (70.0, "confident", "#65cbf3"),
    (50.0, "low", "#ffdb13"),
    (0.0, "very low", "#ff7d45"),
)
# colour scale of the PAE, from 0 Å to MAX_PAE
PAE_COLOURS = ("#08306b", "#2171b5", "#6baed6", "#c6dbef", "#f7fbff")
MAX_PAE = 31.75
# colour scale of the rows of an alignment, from identity 0 to 1; readable on white paper and a dark screen
IDENTITY_COLOURS = ("#f0a43a", "#b9ad8a", "#56a8dc", "#1668b8")


def confidence_class(plddt: float) -> int:
    """Return the index of a pLDDT's class in CONFIDENCE_CLASSES."""
    return next(i for i, (lowest, _, _) in enumerate(CONFIDENCE_CLASSES) if plddt >= lowest or lowest == 0)
