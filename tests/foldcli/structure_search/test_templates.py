"""Templates that are found with the model of an earlier run."""

from pathlib import Path

import numpy as np
import pytest

from features.templates.library.library import EMBEDDED, StructureLibrary
from features.templates.library.settings import TemplateSettings
from foldcli.structure_search.templates import templates_of_model
from msa.alphabet import encode
from msa.base.errors import InputError
from msa.profile.pssm import ProfileQuery, query_profile
from tests.command_process import run_foldcli


def profile_query(name: str, sequence: str) -> ProfileQuery:
    return ProfileQuery(name, sequence, query_profile(encode(sequence)), "test", False)


@pytest.mark.slow
def test_templates_are_those_that_look_like_the_model(root: Path, tmp_path: Path) -> None:
    first = tmp_path / "first"
    library = StructureLibrary.open(EMBEDDED)
    sequence = library.database.sequence(library.find("1f6b_B") or 0)
    query = tmp_path / "query.fasta"
    query.write_text(f">gtpase\n{sequence}\n")
    result = run_foldcli(["fold", query, "--params", "template", "-o", first, "--no-report", "--no-plots"])
    assert result.returncode == 0, result.stderr
    hits = templates_of_model(
        first, profile_query("gtpase", sequence), library, TemplateSettings(max_templates=20)
    )
    # Arf and Rho, at a fifth of identical residues
    assert {"1f6b_B", "1R8S_r_u_A", "1cxz_A"} <= {template.id for template in hits.templates}
    assert all(template.evalue <= 0.01 for template in hits.templates)
    assert np.all([len(template.pairs) > 80 for template in hits.templates])
    with pytest.raises(InputError, match="not a model of all residues"):
        templates_of_model(first, profile_query("gtpase", sequence[:-1]), library, TemplateSettings())


def test_a_target_that_the_earlier_run_lacks_is_named(tmp_path: Path) -> None:
    library = StructureLibrary.open(EMBEDDED)
    with pytest.raises(InputError, match="no finished target other"):
        templates_of_model(tmp_path, profile_query("other", "ACDEFGHIKL"), library, TemplateSettings())
