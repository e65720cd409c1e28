"""Each check says what is wrong where something is."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from foldcli.doctor.checks import names_of_checks, remedy_for, run_check
from foldcli.doctor.network_checks import compared_with_float64, compared_with_numpy
from foldcli.doctor.outcome import Context, Outcome, Status
from foldcli.doctor.requirements import package_ranges, python_range
from model.kernels import REFERENCE, slower_for
from tests.foldcli.conftest import Npz


def check(name: str, device: str = "cpu", params: Path | str = "/nowhere") -> Outcome:
    (outcome,) = run_check(name, Context(device, Path(params)))
    return outcome


def test_what_is_needed_is_read_from_the_project() -> None:
    assert package_ranges()["numpy"] == ">=2.0,<2.5"
    assert "pytest" not in package_ranges() and len(names_of_checks()) == len(set(names_of_checks()))
    assert python_range() == ">=3.11,<3.14"
    assert check("Python").status is Status.OK
    assert check("numba-cuda").status is Status.OK
    assert remedy_for("numpy") == "pip install --force-reinstall 'numpy>=2.0,<2.5'"


@pytest.mark.parametrize(
    ("name", "version", "status", "said"),
    [
        ("zstandard", "0.3", Status.BROKEN, "0.3, and foldcli is made for >=0.22"),
        ("numpy", "2.5.0rc1", Status.WARNING, "2.5.0rc1, and foldcli is made for >=2.0,<2.5"),
        ("numpy", "2.4.99+local", Status.OK, "2.4.99+local"),
        ("numpy", "2", Status.OK, "2"),
        ("numpy", "1.26.4", Status.BROKEN, "1.26.4, and foldcli is made for >=2.0,<2.5"),
    ],
)
def test_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, version: str, status: Status, said: str
) -> None:
    """What pip would say is installed comes from the first of sys.path."""
    (tmp_path / f"{name}-{version}.dist-info").mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (tmp_path / f"{name}-{version}.dist-info" / "METADATA").write_text(metadata)
    monkeypatch.syspath_prepend(tmp_path)
    outcome = check(name)
    assert (outcome.status, outcome.found) == (status, said)
    assert outcome.remedy == ("" if status is Status.OK else remedy_for(name))


@pytest.mark.parametrize("kind", ["package", "module"])
def test_a_foreign_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    foreign = tmp_path / "cuda" / "__init__.py" if kind == "package" else tmp_path / "cuda.py"
    foreign.parent.mkdir(exist_ok=True)
    foreign.touch()
    assert check("cuda namespace").status is Status.OK
    # what has been imported is not looked for again
    import sys

    for name in [name for name in sys.modules if name == "cuda" or name.startswith("cuda.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    outcome = check("cuda namespace")
    assert outcome.status is Status.BROKEN and str(foreign) in outcome.found and outcome.remedy


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path / "a" / "b"))
    outcome = check("cache folder")
    assert outcome.status in (Status.OK, Status.WARNING) and "made when needed" in outcome.found
    assert not (tmp_path / "a").exists()
    (tmp_path / "a").touch()
    outcome = check("cache folder")
    assert outcome.status is Status.BROKEN and "cannot be written" in outcome.found
    assert "FOLDCLI_CACHE" in outcome.remedy
    assert check("temporary files").status in (Status.OK, Status.WARNING)


def test_parameters(tmp_path: Path, npz: Npz) -> None:
    outcome = check("parameters", params=tmp_path)
    assert outcome.status is Status.WARNING and "--params demo" in outcome.remedy
    assert check("parameters", params="demo").status is Status.OK
    files = [tmp_path / f"params_model_{number}_ptm.npz" for number in range(1, 6)]
    files[2].write_bytes(npz("model_3_ptm"))
    outcome = check("parameters", params=tmp_path)
    assert outcome.status is Status.WARNING and "none for model 1, 2, 4, 5" in outcome.found
    assert "--models 3." in outcome.remedy
    for number, file in enumerate(files, 1):
        file.write_bytes(npz(f"model_{number}_ptm"))
    assert check("parameters", params=tmp_path).status is Status.OK
    for file in files:
        file.unlink()
    np.savez(files[1], x=np.zeros(1))
    outcome = check("parameters", params=tmp_path)
    assert outcome.status is Status.BROKEN and "params_model_2_ptm.npz: does not hold" in outcome.found
    assert "--overwrite" in outcome.remedy


def test_operations_that_are_wrong_are_found() -> None:
    assert compared_with_numpy("n", REFERENCE).status is Status.OK
    assert compared_with_float64("n", REFERENCE, "cpu", torch.bfloat16).status is Status.OK
    unnormed = replace(REFERENCE, layer_norm=lambda x, scale, offset: x * scale + offset)
    unbiased = replace(
        REFERENCE, add_attention=lambda r, w, mask, bias: REFERENCE.add_attention(r, w, mask, None)
    )
    nothing = replace(REFERENCE, layer_norm=lambda x, scale, offset: x * float("nan"))
    for kernels, said in ((unnormed, "layer norm"), (unbiased, "attention"), (nothing, "layer norm")):
        for outcome in (
            compared_with_numpy("n", kernels),
            compared_with_float64("n", kernels, "cpu", torch.bfloat16),
        ):
            assert outcome.status is Status.BROKEN and outcome.found.startswith(said)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there() -> None:
    assert check("GPU").found == "not asked about: --device cpu"
    driver, *gpus = run_check("GPU", Context("cuda:0,3", Path("/nowhere")))
    assert driver.name == "NVIDIA driver"
    assert [gpu.name for gpu in gpus] == ["GPU 0 for the search", "GPU 3 for the search"]
    assert all(gpu.status is Status.BROKEN and gpu.remedy for gpu in gpus)
    network = check("GPU for the network", "cuda")
    assert network.status is Status.BROKEN and torch.__version__ in network.found
    assert run_check("search on the GPU", Context("cuda", Path("/nowhere"))) == []
    assert run_check("network on the GPU", Context("cuda", Path("/nowhere"))) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here")
def test_a_gpu_that_is_there() -> None:
    for name in ("GPU", "GPU for the network", "search on the GPU", "network on the GPU"):
        outcomes = run_check(name, Context("cuda", Path("/nowhere")))
        assert outcomes and all(outcome.status is Status.OK for outcome in outcomes), outcomes


def test_a_triton_that_holds_the_fastest_kernels_back() -> None:
    pytest.importorskip("triton")
    assert "need Triton 3.6.x" in slower_for((9, 0), "3.7.1")
    assert slower_for((9, 0), "3.6.0") == slower_for((8, 0), "3.7.1") == ""
