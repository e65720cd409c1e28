"""`foldcli bench` as a user runs it, on a machine without a GPU."""

import subprocess
from pathlib import Path

import pytest

from tests.command_process import command_environment, run_foldcli


def bench(*arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    return run_foldcli(["bench", "gapless", *arguments], env=command_environment(cache))


@pytest.mark.parametrize("arguments", [(), ("--tune",), ("--gpu", "3", "--lengths", "128")])
def test_reason_is_given_without_a_gpu(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    from msa.gpu.device.devices import GpuUnavailable, find_gpu

    try:
        find_gpu()
    except GpuUnavailable as error:
        reason = error.reason
    else:
        pytest.skip("for machines without a GPU")
    result = bench(*arguments, cache=tmp_path)
    assert (result.returncode, result.stdout) == (4, "")
    assert result.stderr == f"foldcli: error: {reason}\nfoldcli bench gapless needs an NVIDIA GPU.\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "table.json"), "-o needs --tune"),
        (("--lengths", "128,x"), "expected query lengths such as 128,256, got '128,x'"),
        (("--lengths", "0"), "expected query lengths"),
        (("--gpu", "-1"), "--gpu"),
    ],
)
def test_wrong_arguments_are_usage_errors(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    result = bench(*arguments, cache=tmp_path)
    assert result.returncode == 2 and message in result.stderr and "Traceback" not in result.stderr
