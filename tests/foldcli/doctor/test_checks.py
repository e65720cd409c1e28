"""Checks of `foldcli doctor`: each finds its problem and suggests a remedy."""

import importlib.metadata
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from foldcli.doctor.network_checks import compare_with_float64, compare_with_numpy
from foldcli.doctor.result import CheckContext, CheckResult, CheckStatus
from foldcli.doctor.runner import check_names, remedy_for, run_check
from foldcli.doctor.system_checks import package_ranges, python_range
from foldcli.params.openfold3 import AllAtomParameters, write_manifest
from model.checkpoints.network_folder import WEIGHTS_FILE
from model.layers.kernels import REFERENCE, slower_kernels_warning
from tests.foldcli.conftest import Npz
from tests.networks import tiny_network, write_packaged_network


def check(name: str, device: str = "cpu", params: Path | str = "/nowhere") -> CheckResult:
    (result,) = run_check(name, CheckContext(device, Path(params)))
    return result


def add_metadata(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, version: str) -> None:
    """Give a package another version, which is read from the first folder of sys.path with its metadata."""
    (folder / f"{name}-{version}.dist-info").mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (folder / f"{name}-{version}.dist-info" / "METADATA").write_text(metadata)
    monkeypatch.syspath_prepend(folder)


def test_requirements_are_read_from_pyproject() -> None:
    assert package_ranges()["numpy"] == ">=2.0,<2.5"
    assert "pytest" not in package_ranges() and len(check_names()) == len(set(check_names()))
    assert python_range() == ">=3.11,<3.13"
    assert check("Python").status is CheckStatus.OK
    assert check("numba-cuda").status is CheckStatus.OK
    assert remedy_for("numpy") == "pip install --force-reinstall 'numpy>=2.0,<2.5'"


@pytest.mark.parametrize(
    ("name", "version", "status", "finding"),
    [
        ("zstandard", "0.3", CheckStatus.BROKEN, "0.3, and foldcli requires >=0.22"),
        ("numpy", "2.5.0rc1", CheckStatus.WARNING, "2.5.0rc1, and foldcli requires >=2.0,<2.5"),
        ("numpy", "2.4.99+local", CheckStatus.OK, "2.4.99+local"),
        ("numpy", "2", CheckStatus.OK, "2"),
        ("numpy", "1.26.4", CheckStatus.BROKEN, "1.26.4, and foldcli requires >=2.0,<2.5"),
    ],
)
def test_package_versions(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    version: str,
    status: CheckStatus,
    finding: str,
) -> None:
    add_metadata(tmp_path, monkeypatch, name, version)
    result = check(name)
    assert (result.status, result.finding) == (status, finding)
    assert result.remedy == ("" if status is CheckStatus.OK else remedy_for(name))


@pytest.mark.parametrize(
    ("name", "version", "status", "finding"),
    [
        ("rdkit", "2025.9.1", CheckStatus.OK, "2025.9.1"),
        ("rdkit", "2025.10.1", CheckStatus.WARNING, "2025.10.1, and foldcli requires ==2025.9.*"),
        ("biotite", "1.5", CheckStatus.WARNING, "1.5, and foldcli requires >=1.6,<2"),
    ],
)
def test_versions_of_all_atom_libraries(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    version: str,
    status: CheckStatus,
    finding: str,
) -> None:
    pytest.importorskip(name)
    add_metadata(tmp_path, monkeypatch, name, version)
    result = check(name)
    assert (result.status, result.finding.partition(";")[0]) == (status, finding)
    assert result.remedy == ("" if status is CheckStatus.OK else "pip install 'foldcli[allatom]'")


@pytest.mark.parametrize("name", ["biotite", "rdkit"])
def test_missing_all_atom_library_is_no_failure(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    installed_version = importlib.metadata.version

    def version(package: str) -> str:
        if package == name:
            raise importlib.metadata.PackageNotFoundError(package)
        return installed_version(package)

    monkeypatch.setattr(importlib.metadata, "version", version)
    result = check(name)
    assert result.status is CheckStatus.OK and not result.remedy
    assert "not installed" in result.finding and "pip install 'foldcli[allatom]'" in result.finding


def test_all_atom_parameters_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDCLI_PARAMS", str(tmp_path))
    result = check("all-atom parameters")
    assert result.status is CheckStatus.OK and "params fetch --which openfold3" in result.finding
    folder = tmp_path / "openfold3"
    folder.mkdir()
    file = folder / "of3.safetensors"
    write_manifest(AllAtomParameters("of3", "p2", file, "of3.pt", "0" * 64))
    result = check("all-atom parameters")
    assert result.status is CheckStatus.WARNING and "of3.safetensors is missing" in result.finding
    file.touch()
    assert check("all-atom parameters").finding == "of3"
    assert check("parameters", params=folder).finding == f"of3 in {folder}"


@pytest.mark.parametrize("kind", ["package", "module"])
def test_package_that_hides_cuda_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    foreign = tmp_path / "cuda" / "__init__.py" if kind == "package" else tmp_path / "cuda.py"
    foreign.parent.mkdir(exist_ok=True)
    foreign.touch()
    assert check("cuda namespace").status is CheckStatus.OK
    # find_spec returns imported modules without searching for them
    for name in [name for name in sys.modules if name == "cuda" or name.startswith("cuda.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    result = check("cuda namespace")
    assert result.status is CheckStatus.BROKEN and str(foreign) in result.finding and result.remedy


def test_folders_must_be_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path / "a" / "b"))
    result = check("cache folder")
    assert result.status in (CheckStatus.OK, CheckStatus.WARNING) and "created when needed" in result.finding
    assert not (tmp_path / "a").exists()
    (tmp_path / "a").touch()
    result = check("cache folder")
    assert result.status is CheckStatus.BROKEN and "cannot be written to" in result.finding
    assert "FOLDCLI_CACHE" in result.remedy
    assert check("temporary files").status in (CheckStatus.OK, CheckStatus.WARNING)


def test_parameter_files_must_match_their_networks(tmp_path: Path, npz: Npz) -> None:
    result = check("parameters", params=tmp_path)
    assert result.status is CheckStatus.WARNING and "--params compact" in result.remedy
    files = [tmp_path / f"params_model_{number}_ptm.npz" for number in range(1, 6)]
    files[2].write_bytes(npz("model_3_ptm"))
    result = check("parameters", params=tmp_path)
    assert result.status is CheckStatus.WARNING and "none for model 1, 2, 4, 5" in result.finding
    assert "--models 3." in result.remedy
    for number, file in enumerate(files, 1):
        file.write_bytes(npz(f"model_{number}_ptm"))
    assert check("parameters", params=tmp_path).status is CheckStatus.OK
    for file in files:
        file.unlink()
    np.savez(files[1], x=np.zeros(1))
    result = check("parameters", params=tmp_path)
    assert (
        result.status is CheckStatus.BROKEN and "params_model_2_ptm.npz: does not contain" in result.finding
    )
    assert "--overwrite" in result.remedy


def test_network_folders_are_verified(tmp_path: Path) -> None:
    write_packaged_network(tmp_path / "network", tiny_network())
    result = check("parameters", params=tmp_path / "network")
    assert (result.status, result.finding.split(" in ")[0]) == (CheckStatus.OK, "network tiny 2026.11.23-10")
    with (tmp_path / "network" / WEIGHTS_FILE).open("ab") as stream:
        stream.write(b"x")
    result = check("parameters", params=tmp_path / "network")
    assert result.status is CheckStatus.BROKEN and "its SHA-256 differs" in result.finding


def test_wrong_operations_are_detected() -> None:
    assert compare_with_numpy("n", REFERENCE).status is CheckStatus.OK
    assert compare_with_float64("n", REFERENCE, "cpu", torch.bfloat16).status is CheckStatus.OK
    unnormed = replace(REFERENCE, layer_norm=lambda x, scale, offset: x * scale + offset)
    unbiased = replace(
        REFERENCE, add_attention=lambda r, w, mask, bias: REFERENCE.add_attention(r, w, mask, None)
    )
    nan = replace(REFERENCE, layer_norm=lambda x, scale, offset: x * float("nan"))
    for kernels, operation in ((unnormed, "layer norm"), (unbiased, "attention"), (nan, "layer norm")):
        for result in (
            compare_with_numpy("n", kernels),
            compare_with_float64("n", kernels, "cpu", torch.bfloat16),
        ):
            assert result.status is CheckStatus.BROKEN and result.finding.startswith(operation)


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_missing_gpu_is_broken() -> None:
    assert check("GPU").finding == "not checked: --device cpu"
    driver, *gpus = run_check("GPU", CheckContext("cuda:0,3", Path("/nowhere")))
    assert driver.name == "NVIDIA driver"
    assert [gpu.name for gpu in gpus] == ["GPU 0 for the search", "GPU 3 for the search"]
    assert all(gpu.status is CheckStatus.BROKEN and gpu.remedy for gpu in gpus)
    network = check("GPU for the network", "cuda")
    assert network.status is CheckStatus.BROKEN and torch.__version__ in network.finding
    assert run_check("search on the GPU", CheckContext("cuda", Path("/nowhere"))) == []
    assert run_check("network on the GPU", CheckContext("cuda", Path("/nowhere"))) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_working_gpu_is_ok() -> None:
    for name in ("GPU", "GPU for the network", "search on the GPU", "network on the GPU"):
        results = run_check(name, CheckContext("cuda", Path("/nowhere")))
        assert results and all(result.status is CheckStatus.OK for result in results), results


def test_triton_without_the_fastest_kernels_is_reported() -> None:
    pytest.importorskip("triton")
    assert "need Triton 3.6.x" in slower_kernels_warning((9, 0), "3.7.1")
    assert slower_kernels_warning((9, 0), "3.6.0") == slower_kernels_warning((8, 0), "3.7.1") == ""
