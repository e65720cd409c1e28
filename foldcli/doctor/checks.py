"""All checks, by name, in the order in which they are reported."""

from collections.abc import Callable
from importlib import import_module

from foldcli.doctor.outcome import Context, Outcome
from foldcli.doctor.requirements import check_package, check_python, how_to_install, package_ranges

# by where they are: what a check imports may be what is broken
_CHECKS = {
    "cuda namespace": "machine.check_namespace",
    "machine": "machine.check_machine",
    "cache folder": "machine.check_cache",
    "temporary files": "machine.check_temporary",
    "parameters": "machine.check_parameters",
    "search on the CPU": "search_checks.check_cpu_search",
    "network on the CPU": "network_checks.check_cpu_network",
    "GPU": "gpus.check_gpus",
    "GPU for the network": "gpus.check_torch",
    "search on the GPU": "search_checks.check_gpu_search",
    "network on the GPU": "network_checks.check_gpu_network",
}


def names_of_checks() -> list[str]:
    """Python, each package that foldcli needs, and what they are needed for."""
    return ["Python", *package_ranges(), *_CHECKS]


def run_check(name: str, context: Context) -> list[Outcome]:
    """What a check finds; none where it has nothing to look at."""
    if name == "Python":
        return [check_python()]
    if name not in _CHECKS:
        return [check_package(name)]
    module, _, function = _CHECKS[name].partition(".")
    check: Callable[[Context], Outcome | list[Outcome]] = getattr(
        import_module(f"foldcli.doctor.{module}"), function
    )
    found = check(context)
    return found if isinstance(found, list) else [found]


def remedy_for(name: str) -> str:
    """What to do about a check that did not come to an end of its own."""
    if name in package_ranges():
        return how_to_install(name)
    return "Mend first what else is broken; if this stays, report it with the whole output."
