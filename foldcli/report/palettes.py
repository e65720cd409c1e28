"""Colours of page and plots; blue is confident everywhere, and none needs red told from green."""

# AlphaFold's database: lowest pLDDT of each class, its name, its colour
CONFIDENCE = (
    (90.0, "very high", "#0053d6"),
    (70.0, "confident", "#65cbf3"),
    (50.0, "low", "#ffdb13"),
    (0.0, "very low", "#ff7d45"),
)
# from 0 Å up
PAE = ("#08306b", "#2171b5", "#6baed6", "#c6dbef", "#f7fbff")
PAE_HIGHEST = 31.75
# of the rows of an alignment, from 0 to all residues equal to the query's; dark enough for white paper and
# light enough for a dark screen
IDENTITY = ("#f0a43a", "#b9ad8a", "#56a8dc", "#1668b8")


def confidence_class(plddt: float) -> int:
    """Index in CONFIDENCE."""
    return next(i for i, (lowest, _, _) in enumerate(CONFIDENCE) if plddt >= lowest or lowest == 0)
