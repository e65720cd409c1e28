"""Durations and numbers of bytes as text for people."""


def format_duration(seconds: float) -> str:
    """Return a duration such as 0.4 s, 36 s, 12 min 5 s or 3 h 20 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def format_bytes(count: float) -> str:
    """Return a number of bytes as KB, MB or GB of 1024."""
    for unit in ("KB", "MB"):
        count /= 1024
        if count < 1024:
            return f"{max(count, 0.1):.1f} {unit}"
    return f"{count / 1024:.2f} GB"


def format_count(count: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun, such as "2 models"; the default plural has an "s"."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def format_length(count: int, polymer: str) -> str:
    """Return the length of a polymer, "protein", "RNA" or "DNA", such as "2 nucleotides"."""
    return format_count(count, "residue" if polymer == "protein" else "nucleotide")
