"""Ideal lengths and angles of the bonds in a protein's backbone."""

import math

N_CA, CA_C, C_N, C_O = 1.458, 1.525, 1.329, 1.231
"""Lengths in Å."""
N_CA_C, CA_C_N, C_N_CA = (math.radians(angle) for angle in (111.0, 117.2, 121.7))
"""Angles in radians."""
