"""Checks of the installation and the machine, with suggested fixes, for `foldcli doctor`; see docs/doctor.md.

Each module imports other libraries: system_checks none, search_checks numba, and network_checks torch. If a
library is broken, the checks that do not need it still run.
"""
