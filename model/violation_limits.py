"""Limits of bond lengths, angles and clashes (supplement section 1.9.11, values of DeepMind's code)."""

TOLERANCE_FACTOR = 12.0  # standard deviations
OVERLAP_TOLERANCE = 1.5  # Å
# C-N length and its standard deviation before another residue and before proline, Å
BOND_LENGTH, BOND_DEVIATION = (1.329, 1.341), (0.014, 0.016)
# cosines of the angles CA-C-N and C-N-CA between residues
CA_C_N, C_N_CA = -0.4473, -0.5203
# the first is a deviation of the bond length, which the published code uses for this angle
CA_C_N_DEVIATION, C_N_CA_DEVIATION = 0.014, 0.0353
VDW_RADIUS = {"C": 1.7, "N": 1.55, "O": 1.52, "S": 1.8}  # Å
