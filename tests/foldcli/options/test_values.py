"""Tests of the values of --device, --max-memory and $FOLDCLI_GPU_MEMORY."""

import click
import pytest

from foldcli.options.types import device_type, size_type
from foldcli.pipeline.search.opening import max_gpu_bytes
from msa.base.errors import InputError
from msa.base.hardware import gpu_numbers


@pytest.mark.parametrize("text", ["auto", "cpu", "cuda", "cuda:0", "cuda:0,1", "cuda:3,1,2"])
def test_valid_devices(text: str) -> None:
    assert device_type.convert(text, None, None) == text


@pytest.mark.parametrize("text", ["gpu", "cuda:", "cuda:a", "cuda:0,", "cuda:-1", "cpu:0", "cuda:²"])
def test_invalid_devices(text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected auto, cpu, cuda, cuda:N or cuda:N,N"):
        device_type.convert(text, None, None)


def test_gpu_named_twice_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="GPU 1 is named twice"):
        device_type.convert("cuda:1,0,01", None, None)


def test_gpu_numbers_of_devices() -> None:
    numbers = {text: gpu_numbers(text) for text in ("auto", "cuda", "cuda:2", "cuda:2,0")}
    assert numbers == {"auto": [0], "cuda": [0], "cuda:2": [2], "cuda:2,0": [2, 0]}


@pytest.mark.parametrize(
    ("text", "expected"), [("", None), ("500", 500), ("3K", 3072), ("500M", 500 * 2**20), ("2G", 2**31)]
)
def test_valid_gpu_memory(text: str, expected: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDCLI_GPU_MEMORY", text)
    assert max_gpu_bytes() == expected


@pytest.mark.parametrize("text", ["0", "-1", "G", "1.5G", "25%", "2 G"])
def test_invalid_gpu_memory(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDCLI_GPU_MEMORY", text)
    with pytest.raises(InputError, match="expected bytes such as 500000000, 500M or 2G"):
        max_gpu_bytes()


@pytest.mark.parametrize(
    ("text", "size"), [("500", 500), ("3K", 3 * 2**10), ("20G", 20 * 2**30), ("7M", 7 * 2**20)]
)
def test_valid_sizes(text: str, size: int) -> None:
    assert size_type.convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "0", "G", "1.5G", "-2G", "2g"])
def test_invalid_sizes(text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected bytes such as"):
        size_type.convert(text, None, None)
