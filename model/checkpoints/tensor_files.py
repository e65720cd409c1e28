"""Files of tensors in the format safetensors."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError

from msa.base.atomic import replaced_file


def write_tensors(
    target: Path, tensors: Mapping[str, torch.Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write tensors, atomically replacing a file.

    Raises:
        OSError: the file cannot be written, for example because the disk is full.
    """
    with replaced_file(target) as path:
        path.touch()
        mode = path.stat().st_mode
        try:
            safetensors.torch.save_file(dict(tensors), path, metadata)
        except SafetensorError as error:
            # the only trace of a system error is its text: "No space left on device (os error 28)"
            if (match := re.search(r"os error (\d+)", str(error))) is None:
                raise
            number = int(match[1])
            raise OSError(number, os.strerror(number), str(target)) from error
        path.chmod(mode)  # safetensors leaves a file that only its owner can read
