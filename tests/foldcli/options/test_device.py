"""`--device` and $FOLDCLI_GPU_MEMORY: what is taken, and what is refused in words."""

import click
import pytest

from foldcli.options.common import DeviceType
from foldcli.pipeline.runtime import choose_device, most_gpu_bytes
from msa.errors import InputError, MissingError
from msa.search.engine_selection import gpu_numbers


@pytest.mark.parametrize("text", ["auto", "cpu", "cuda", "cuda:0", "cuda:0,1", "cuda:3,1,2"])
def test_devices(text: str) -> None:
    assert DeviceType().convert(text, None, None) == text


@pytest.mark.parametrize("text", ["gpu", "cuda:", "cuda:a", "cuda:0,", "cuda:-1", "cpu:0", "cuda:²"])
def test_what_is_no_device(text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected auto, cpu, cuda, cuda:N or cuda:N,N"):
        DeviceType().convert(text, None, None)


def test_a_gpu_named_twice() -> None:
    with pytest.raises(click.BadParameter, match="GPU 1 is named twice"):
        DeviceType().convert("cuda:1,0,01", None, None)


def test_numbers_of_gpus() -> None:
    numbers = {text: gpu_numbers(text) for text in ("auto", "cuda", "cuda:2", "cuda:2,0")}
    assert numbers == {"auto": [0], "cuda": [0], "cuda:2": [2], "cuda:2,0": [2, 0]}


@pytest.mark.parametrize(
    ("text", "expected"), [("", None), ("500", 500), ("3K", 3072), ("500M", 500 * 2**20), ("2G", 2**31)]
)
def test_gpu_memory(text: str, expected: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDCLI_GPU_MEMORY", text)
    assert most_gpu_bytes() == expected


@pytest.mark.parametrize("text", ["0", "-1", "G", "1.5G", "25%", "2 G"])
def test_what_is_no_gpu_memory(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDCLI_GPU_MEMORY", text)
    with pytest.raises(InputError, match="expected bytes such as 500000000, 500M or 2G"):
        most_gpu_bytes()


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert choose_device("cuda:1") == "cuda:1" and choose_device("cuda") == "cuda:0"
    with pytest.raises(MissingError, match="--device cuda:2: torch finds 2 CUDA GPUs"):
        choose_device("cuda:2")
