"""Quantities as people write them."""


def seconds(value: float) -> str:
    """0.4 s, 36 s, 12 min 5 s, 3 h 20 min."""
    if value < 10:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def gigabytes(count: float) -> str:
    """Bytes in GiB."""
    return f"{count / 2**30:.2f} GiB"
