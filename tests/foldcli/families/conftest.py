"""Random parameters of an all-atom network, and runs with it."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from foldcli.cli import cli
from foldcli.params.openfold3_import import import_parameters
from tests.model.alphafold3.goldens import checkpoint
from tests.model.alphafold3.parity_networks import shallow_names

JOB = ">A|protein\nMKVSGA\n>B|ccd\nGOL\n>C|smiles\nCC(O)C(=O)O\n>D|dna\nACG\n"
Run = Callable[..., Result]


@pytest.fixture(scope="session")
def parameters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with imported random parameters of few blocks."""
    folder = tmp_path_factory.mktemp("parameters")
    torch.save(checkpoint(shallow_names("openbind")), folder / "random.pt")
    import_parameters(folder / "random.pt", folder / "imported")
    return folder / "imported"


@pytest.fixture
def run(parameters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a command with the network on few steps."""
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path / "cache"))
    (tmp_path / "db.fasta").write_text(">a\nMKVSGARRLLNDAAKSL\n")
    (tmp_path / "job.fasta").write_text(JOB)

    def call(
        command: str,
        *arguments: object,
        samples: int = 2,
        out: str = "out",
        templates: tuple[str, ...] = ("--no-templates",),
        plots: bool = False,
    ) -> Result:
        database = () if command == "predict" else ("--db", str(tmp_path / "db.fasta"))
        return CliRunner().invoke(
            cli,
            [
                command, *map(str, arguments), *database, "-o", str(tmp_path / out), "--params",
                str(parameters), "--device", "cpu", "--threads", "1", "--num-recycle", "0",
                "--num-diffusion-steps", "2", "--num-diffusion-samples", str(samples), *templates,
                *(() if plots else ("--no-plots",)),
            ],
        )  # fmt: skip

    return call
