"""Checks of parameters, which each family of networks knows how to find."""

from foldcli.doctor.result import CheckContext, CheckResult, CheckStatus
from foldcli.families.registry import find_family
from foldcli.families.reporting import ParametersFinding
from foldcli.params.openfold3 import OPENFOLD3
from model.errors import ParametersError
from msa.base.errors import MissingError


def check_parameters(context: CheckContext) -> list[CheckResult]:
    """Check the parameters that predictions would use."""
    params = str(context.params)
    try:
        findings = find_family(params).check_installed(params)
    except ParametersError as error:
        findings = [ParametersFinding(str(error), "Write or install the network again.", usable=False)]
    except MissingError as error:
        findings = [ParametersFinding(error.reason, error.remedy, usable=False)]
    return [_result("parameters", each) for each in findings]


def check_all_atom_parameters(context: CheckContext) -> CheckResult:
    """Report whether OpenFold3's parameters are installed; only all-atom predictions need them."""
    family = find_family(OPENFOLD3)
    try:
        names = [each.network for each in family.installed(None)]
    except ParametersError as error:
        return CheckResult("all-atom parameters", CheckStatus.WARNING, str(error))
    finding = ", ".join(names) or f"not installed: foldcli params fetch --which {OPENFOLD3}"
    return CheckResult("all-atom parameters", CheckStatus.OK, finding)


def _result(name: str, finding: ParametersFinding) -> CheckResult:
    """Return a finding as a line of the report; one with a remedy is a warning."""
    status = CheckStatus.WARNING if finding.remedy else CheckStatus.OK
    return CheckResult(
        name, status if finding.usable else CheckStatus.BROKEN, finding.finding, finding.remedy
    )
