"""What a prediction is expected to take: memory as planned on a GPU, seconds as measured on such a GPU.

Where nothing was measured nothing is said: a device that is not in the table, another precision, kernels or
depth of the alignment than were measured, more residues than were.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foldcli.pipeline.predictor import PredictSettings
    from model.config import ModelConfig

# residues and seconds of one pass of the 48 blocks in bfloat16 with fused kernels over 508 + 5,120 rows:
# benchmarks/network_gpu.py, docs/performance.md
SECONDS_A_PASS = {
    "NVIDIA H200": ((256, 0.111), (512, 0.294), (1024, 1.044), (2048, 4.518), (2560, 7.620), (4096, 24.94)),
}
_BLOCKS, _ROWS, _EXTRA_ROWS = 48, 512, 5120


@dataclass(frozen=True)
class Estimate:
    """Of one target.

    Args:
        memory_bytes: at the highest on the GPU, parameters included; None is unknown.
        seconds: of the network's passes, which a shallow alignment makes shorter; None is unknown.
    """

    memory_bytes: int | None
    seconds: float | None


def seconds_a_pass(
    device: str, config: "ModelConfig", settings: "PredictSettings", residues: int
) -> float | None:
    """At most about so long one pass takes; None where nothing like it was measured.

    Between measured lengths the logarithm is interpolated; what is shorter than all of them takes no longer
    than the shortest.

    Args:
        device: the GPU's name.
        config: the network.
        settings: of the prediction.
        residues: N.
    """
    measured = SECONDS_A_PASS.get(device)
    as_measured = (
        config.evoformer.blocks == _BLOCKS
        and (settings.precision, settings.kernels) == ("bf16", "fused")
        and settings.max_seq <= _ROWS
        and settings.max_extra_seq <= _EXTRA_ROWS
    )
    if measured is None or not as_measured or residues > measured[-1][0]:
        return None
    if residues <= measured[0][0]:
        return measured[0][1]
    place = next(i for i, (length, _) in enumerate(measured) if length >= residues)
    (shorter, least), (longer, most) = measured[place - 1], measured[place]
    share = math.log(residues / shorter) / math.log(longer / shorter)
    return math.exp(math.log(least) + share * math.log(most / least))


def peak_on_gpu(
    config: "ModelConfig", settings: "PredictSettings", residues: int, available_bytes: int
) -> int:
    """Bytes of one network's pass at the highest, for as many rows as the settings allow, parameters apart.

    Args:
        config: the network.
        settings: of the prediction.
        residues: N.
        available_bytes: what may be taken, which decides how large the pieces of work are.
    """
    from model.memory_plan import PassSize, plan_memory

    size = PassSize(
        residues,
        settings.max_seq,
        settings.max_extra_seq,
        element_bytes={"bf16": 2, "fp32": 4}[settings.precision],
        in_place=settings.kernels == "fused",
    )
    return plan_memory(config, size, available_bytes).peak_bytes


def parameter_bytes(config: "ModelConfig", settings: "PredictSettings") -> int:
    """Bytes of a network's parameters, all of them in the trunk's precision or wider."""
    from model.parameters import expected_shapes

    count = sum(math.prod(shape) for shape in expected_shapes(config).values())
    return count * {"bf16": 2, "fp32": 4}[settings.precision]
