"""The files of models of any molecules."""

from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import IO, TYPE_CHECKING, Any

from foldcli.logs import logger
from foldcli.outputs.layout import ModelKind
from foldcli.outputs.model_files import ModelResult, PredictedModel, WriteFile
from model.prediction import Extra

if TYPE_CHECKING:
    from model.output.files import AllAtomFiles

_KINDS: tuple[ModelKind, ...] = ("pdb", "cif", "scores", "contacts", "summary_confidences")
# with --save-all
_ALL_KINDS: tuple[ModelKind, ...] = ("confidences", "pairwise")


@dataclass(frozen=True, eq=False)
class AllAtomModel:
    """A structure of a job, and what its files need.

    Args:
        prediction: the structure and its confidence (`model.structure.AllAtomPrediction`).
        num_recycles: number of cycles after the first.
        extras: additional results to save.
        restraints: the geometry that it should have (`model.all_atom.checks.Restraints`).
        templates: templates of the input (`model.output.modelcif.UsedTemplate`).
    """

    prediction: Any
    num_recycles: int
    extras: tuple[Extra, ...]
    restraints: Any = field(repr=False)
    templates: tuple[Any, ...] = ()

    @property
    def mean_plddt(self) -> float:
        """The mean pLDDT of all atoms, 0 to 100."""
        plddt: float = self.prediction.mean_plddt
        return plddt


class AllAtomModels:
    """The writer of models of any molecules; see `foldcli.outputs.model_files.ModelWriter`."""

    def result(self, model: PredictedModel) -> ModelResult:
        """Return the values of a model with its checks; log if the PDB format cannot hold it."""
        content: AllAtomModel = model.prediction
        prediction, formatted = content.prediction, _format(model)
        kinds = [kind for kind in _KINDS if kind in formatted.texts]
        if "all" in content.extras:
            kinds += _ALL_KINDS
        elif "pairwise" in content.extras:
            kinds.append("pairwise")
        if (reason := formatted.pdb_missing) is not None:
            logger.warning("%s: %s: mmCIF only, no PDB file: %s", model.origin.target, model.tag, reason)
        return ModelResult(
            tag=model.tag,
            plddt=prediction.mean_plddt,
            ptm=prediction.ptm,
            num_recycles=content.num_recycles,
            seconds=round(model.seconds, 3),
            fingerprint=model.fingerprint,
            extras=content.extras,
            iptm=prediction.iptm,
            num_chains=prediction.num_chains,
            ranking_score=round(prediction.ranking_score, 4),
            file_kinds=tuple(kinds),
            checks=formatted.checks.summary,
            interface=_interface(prediction),
        )

    def files(self, model: PredictedModel) -> dict[ModelKind, WriteFile]:
        """Return a function for each kind of file, which writes its content."""
        from model.output.modelcif import format_pairwise_scores

        files: dict[ModelKind, WriteFile] = {
            kind: partial(_write, text) for kind, text in _format(model).texts.items()
        }
        prediction, provenance = model.prediction.prediction, model.origin.provenance
        files["pairwise"] = lambda stream: _write(
            format_pairwise_scores(prediction.structure, prediction.pae, prediction.pde, provenance), stream
        )
        return files


ALL_ATOM_MODELS = AllAtomModels()


@lru_cache(maxsize=1)
def _format(model: PredictedModel) -> "AllAtomFiles":
    """Return the content of the files of a model, which both methods of the writer need."""
    from model.output.files import format_all_atom_files  # imports gemmi

    content, origin = model.prediction, model.origin
    return format_all_atom_files(
        content.prediction,
        origin.provenance,
        content.restraints,
        content.templates,
        extra_scores=origin.scores,
    )


def _interface(prediction: Any) -> dict[str, Any] | None:
    """Return the best scores of pairs of protein chains, and the flags; None without such pairs."""
    from model.confidence.all_atom import protein_pair_scores  # imports torch

    if (pairs := protein_pair_scores(prediction)) is None:
        return None
    flags = {
        "has_clash": prediction.has_clash,
        "fraction_disordered": round(prediction.fraction_disordered, 4),
    }
    return pairs[1].best() | flags


def _write(text: str, stream: IO[bytes]) -> None:
    stream.write(text.encode())
