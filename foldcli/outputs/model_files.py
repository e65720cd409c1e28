"""Structure and score files of a target's models, written as each is predicted, renamed when ranked."""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foldcli.logs import logger
from foldcli.outputs.layout import MODEL_KINDS, TargetFiles, unranked_name
from foldcli.params.parameters import UNTRAINED
from foldcli.version import VERSION
from msa.io.atomic import atomic_write

if TYPE_CHECKING:
    from model.prediction import Prediction


@dataclass(frozen=True)
class ModelOrigin:
    """The origin of a prediction, as stated in its files.

    Args:
        target: name of the target.
        network: parameters, seed, recycles and precision.
        untrained: whether the network was never trained.
    """

    target: str
    network: str
    untrained: bool


@dataclass(frozen=True)
class ModelResult:
    """The values of one prediction that the ranking and done.json need.

    Args:
        tag: the model and its seed, such as alphafold2_ptm_model_3_seed_000.
        plddt: mean pLDDT, 0–100.
        ptm: predicted TM-score; None without a PAE head.
        num_recycles: recycles that were run.
        seconds: wall time of the prediction.
    """

    tag: str
    plddt: float
    ptm: float | None
    num_recycles: int
    seconds: float


def write_model(
    folder: Path, tag: str, prediction: "Prediction", origin: ModelOrigin, seconds: float
) -> ModelResult:
    """Write the structure, score and result files of one prediction under their unranked names.

    Args:
        folder: folder of the target's unranked models.
        tag: the model and its seed; part of the file names.
        prediction: coordinates and confidences.
        origin: see ModelOrigin.
        seconds: wall time of the prediction.

    Raises:
        OSError: a file cannot be written.
    """
    # imported here so that loading gemmi does not delay the network's start
    from model.output import Provenance, format_mmcif, format_pdb, format_scores

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
        with atomic_write(folder / unranked_name(kind, tag)) as stream:
            stream.write(text)
    result = ModelResult(
        tag=tag,
        plddt=float(prediction.plddt.mean()),
        ptm=None if prediction.ptm is None else float(prediction.ptm),
        num_recycles=prediction.num_recycles,
        seconds=round(seconds, 3),
    )
    with atomic_write(_result_path(folder, tag)) as stream:
        json.dump(asdict(result), stream)
    logger.debug("%s: %s pLDDT %.1f in %.1f s", origin.target, tag, result.plddt, result.seconds)
    return result


def read_model_result(folder: Path, tag: str) -> ModelResult | None:
    """Return the result that `write_model` wrote last, or None if it did not complete."""
    path = _result_path(folder, tag)
    return ModelResult(**json.loads(path.read_text())) if path.is_file() else None


def rank_models(results: list[ModelResult], by: str) -> list[ModelResult]:
    """Return the results best first; ties keep their order.

    Args:
        results: one per model and seed.
        by: "ptm" ranks by pTM if every model has one; anything else ranks by mean pLDDT.
    """
    if by == "ptm" and all(result.ptm is not None for result in results):
        return sorted(results, key=lambda result: -(result.ptm or 0.0))
    return sorted(results, key=lambda result: -result.plddt)


def publish_models(ranked: list[ModelResult], files: TargetFiles, folder: Path) -> None:
    """Move the unranked files in `folder` to their ranked names, replacing those of an earlier run."""
    for old in files.models():
        old.unlink()
    for rank, result in enumerate(ranked, 1):
        for kind in MODEL_KINDS:
            (folder / unranked_name(kind, result.tag)).replace(files.model(kind, rank, result.tag))
    shutil.rmtree(folder)


def _result_path(folder: Path, tag: str) -> Path:
    return folder / f"{tag}.result.json"
