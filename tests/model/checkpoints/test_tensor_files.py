"""Files of tensors: a full disk is a system error that names the file; others may read what umask allows."""

import errno
import resource
from pathlib import Path

import pytest
import torch

from model.checkpoints.tensor_files import write_tensors


def test_full_disk_is_a_system_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"a": torch.zeros(10)})
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError) as caught:
            write_tensors(path, {"a": torch.zeros(10_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(path))
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_files_can_be_read_by_those_who_can_read_others(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a.safetensors", {"a": torch.zeros(1)})
    (tmp_path / "b").touch()
    assert (tmp_path / "a.safetensors").stat().st_mode == (tmp_path / "b").stat().st_mode
