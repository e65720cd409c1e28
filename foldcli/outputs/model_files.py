"""The files of a target's models: each written when it is predicted, ranked when all are."""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foldcli.logs import logger
from foldcli.outputs.layout import MODEL_KINDS, TargetFiles, partial_name
from foldcli.params.parameters import UNTRAINED
from foldcli.version import VERSION
from msa.io.atomic import atomic_write

if TYPE_CHECKING:
    from model.recycling import Prediction


@dataclass(frozen=True)
class Origin:
    """Where a prediction comes from, as its files say it.

    Args:
        target: its name.
        network: parameters, seed and precision.
        untrained: the network was never trained.
    """

    target: str
    network: str
    untrained: bool


@dataclass(frozen=True)
class ModelResult:
    """What the ranking and done.json need of one prediction."""

    tag: str
    plddt: float
    ptm: float | None
    num_recycles: int
    seconds: float


def write_model(
    partial: Path, tag: str, prediction: "Prediction", origin: Origin, seconds: float
) -> ModelResult:
    """Write the files of one prediction.

    Args:
        partial: folder of the target's models until all are there.
        tag: what the files have in their names.
        prediction: what they show.
        origin: see Origin.
        seconds: what the prediction took.

    Raises:
        OSError: they cannot be written.
    """
    # not needed, and so not waited for, before
    from model.output.scores import format_scores
    from model.output.structure import Provenance, format_mmcif, format_pdb

    provenance = Provenance(
        name=origin.target,
        program=f"foldcli {VERSION}",
        network=origin.network,
        warning=UNTRAINED if origin.untrained else None,
    )
    extra = {"untrained": True, "warning": UNTRAINED} if origin.untrained else None
    texts = (
        format_pdb(prediction, provenance),
        format_mmcif(prediction, provenance),
        format_scores(prediction, extra),
    )
    for kind, text in zip(MODEL_KINDS, texts, strict=True):
        with atomic_write(partial / partial_name(kind, tag)) as stream:
            stream.write(text)
    result = ModelResult(
        tag=tag,
        plddt=float(prediction.plddt.mean()),
        ptm=None if prediction.ptm is None else float(prediction.ptm),
        num_recycles=prediction.num_recycles,
        seconds=round(seconds, 3),
    )
    with atomic_write(_result_path(partial, tag)) as stream:
        json.dump(asdict(result), stream)
    logger.debug("%s: %s pLDDT %.1f in %.1f s", origin.target, tag, result.plddt, result.seconds)
    return result


def read_result(partial: Path, tag: str) -> ModelResult | None:
    """What `write_model` gave, if it came to its end."""
    path = _result_path(partial, tag)
    return ModelResult(**json.loads(path.read_text())) if path.is_file() else None


def rank(results: list[ModelResult], by: str) -> list[ModelResult]:
    """Best first: by mean pLDDT, or by pTM where every model gives one; equal ones stay in order."""
    if by == "ptm" and all(result.ptm is not None for result in results):
        return sorted(results, key=lambda result: -(result.ptm or 0.0))
    return sorted(results, key=lambda result: -result.plddt)


def publish(ranked: list[ModelResult], files: TargetFiles, partial: Path) -> None:
    """Move the finished files to their ranked names, replacing those of an earlier run."""
    for old in files.models():
        old.unlink()
    for number, result in enumerate(ranked, 1):
        for kind in MODEL_KINDS:
            (partial / partial_name(kind, result.tag)).replace(files.model(kind, number, result.tag))
    shutil.rmtree(partial)


def _result_path(partial: Path, tag: str) -> Path:
    return partial / f"{tag}.result.json"
