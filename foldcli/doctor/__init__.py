"""Checks of the installation and the machine, with suggested fixes, for `foldcli doctor`; see docs/doctor.md.

The modules are divided by the libraries that they import: system_checks needs none, search_checks numba, and
network_checks torch. So the checks that do not need a broken library still run.
"""
