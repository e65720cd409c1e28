"""Checks of the installation and the machine, with suggested fixes, for `foldcli doctor`; see docs/doctor.md.

Unlike in the rest of foldcli, checks import torch, numba and foldcli's own packages inside functions: one of
these may be what is broken, and the other checks must still run.
"""
