"""The files of models of any molecules."""

from functools import lru_cache, partial
from typing import IO, TYPE_CHECKING

from foldcli.logs import logger
from foldcli.outputs.layout import ModelKind
from foldcli.outputs.model_files import ModelResult, PredictedModel, WriteFile

if TYPE_CHECKING:
    from model.output.files import AllAtomFiles

_KINDS: tuple[ModelKind, ...] = ("pdb", "cif", "scores", "contacts", "summary_confidences")
# with --save-all
_ALL_KINDS: tuple[ModelKind, ...] = ("confidences", "pairwise")


class AllAtomModels:
    """The writer of models of any molecules; see `foldcli.outputs.model_files.ModelWriter`."""

    def result(self, model: PredictedModel) -> ModelResult:
        """Return the values of a model with its checks; log if the PDB format cannot hold it."""
        formatted = _format(model)
        kinds = [kind for kind in _KINDS if kind in formatted.texts]
        if "all" in model.prediction.extras:
            kinds += _ALL_KINDS
        elif "pairwise" in model.prediction.extras:
            kinds.append("pairwise")
        if (reason := formatted.pdb_missing) is not None:
            logger.warning("%s: %s: mmCIF only, no PDB file: %s", model.origin.target, model.tag, reason)
        return model.result(tuple(kinds), formatted.checks.summary)

    def files(self, model: PredictedModel) -> dict[ModelKind, WriteFile]:
        """Return a function for each kind of file, which writes its content."""
        from model.output.modelcif import format_pairwise_scores  # imports gemmi

        files: dict[ModelKind, WriteFile] = {
            kind: partial(_write, text) for kind, text in _format(model).texts.items()
        }
        files["pairwise"] = lambda stream: _write(
            format_pairwise_scores(model.prediction, model.origin.provenance), stream
        )
        return files


ALL_ATOM_MODELS = AllAtomModels()


@lru_cache(maxsize=1)
def _format(model: PredictedModel) -> "AllAtomFiles":
    """Return the content of the files of a model, which both methods of the writer need."""
    from model.output.files import format_all_atom_files  # imports gemmi

    origin = model.origin
    return format_all_atom_files(
        model.prediction, origin.provenance, origin.restraints, origin.templates, extra_scores=origin.scores
    )


def _write(text: str, stream: IO[bytes]) -> None:
    stream.write(text.encode())
