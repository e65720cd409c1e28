"""Structure and score files of models: staged when a model is predicted, published when all are ranked.

Publishing gives the staged files their final names, as hard links. The staged names are removed only when the
target is finished, so publishing can be repeated after an interruption.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Annotated, Any, Protocol, TypeAlias

import msgspec
import numpy as np

from foldcli.logs import logger
from foldcli.outputs.layout import TAG, ModelKind, TargetFiles, is_model_kind, model_kinds, unranked_name
from foldcli.params.parameters import UNTRAINED
from foldcli.version import VERSION
from model.output.provenance import Provenance
from model.prediction import Extra, PairScores, Prediction, complex_confidence
from msa.base.atomic import atomic_write
from msa.base.json_files import read_json, write_json
from msa.base.temporary_names import temporary_path

_RESULT_SUFFIX = ".result.json"
_MAX_RECYCLES = 10_000
# values of a result that JSON leaves out if they are None
_RARE = ("ranking_score", "file_kinds", "checks", "interface")


@dataclass(frozen=True)
class ModelOrigin:
    """The origin of a prediction, as stated in its files.

    Args:
        network: parameters, seed, recycles and precision.
        is_untrained: whether the network was never trained.
        copied_from: the template of a copied model, in words; None for predictions.
        note: see `foldcli.outputs.network_note`; None for networks without a manifest.
        restraints: the geometry that the files' checks expect (`model.all_atom.checks.Restraints`); None for
            models that are not checked.
        templates: templates of the input (`model.output.modelcif.UsedTemplate`).
    """

    target: str
    network: str
    is_untrained: bool
    copied_from: str | None = None
    note: str | None = None
    restraints: Any = field(default=None, repr=False)
    templates: tuple[Any, ...] = ()

    @property
    def provenance(self) -> Provenance:
        """The origin as the writers of structures take it."""
        warning = UNTRAINED if self.is_untrained else None
        program = f"foldcli {VERSION}"
        return Provenance(self.target, program, self.network, warning, self.copied_from, self.note)

    @property
    def scores(self) -> dict[str, Any]:
        """The keys of score files that tell the origin."""
        scores: dict[str, Any] = {"untrained": True, "warning": UNTRAINED} if self.is_untrained else {}
        more = {"copied_from": self.copied_from, "network": self.note}
        return scores | {key: value for key, value in more.items() if value is not None}


@dataclass(frozen=True)
class ModelResult:
    """The values of one prediction that the ranking and done.json need.

    Args:
        tag: the model and its seed, such as alphafold2_ptm_model_3_seed_000.
        plddt: mean pLDDT, 0–100.
        ptm: predicted TM-score; None without a PAE head.
        fingerprint: see `foldcli.families.settings.Job.fingerprints`.
        extras: results that were saved in addition; see `model.prediction.EXTRAS`.
        copied_from: the template of a copied model, in words; None for predictions.
        relaxation: energies, violations and cost of the relaxation (`RelaxResult.summary`); None without one.
        iptm: ipTM of a complex; None for a single chain.
        ranking_score: the network's own score, by which "auto" ranks its models; None for networks without.
        file_kinds: kinds of the model's files; None for those of `model_kinds`.
        checks: result of the checks of the geometry in words; None for networks without.
        interface: the best score of each kind among the pairs of protein chains, and the structure's flags;
            None without such pairs.
    """

    tag: Annotated[str, msgspec.Meta(pattern=f"^{TAG}$")]
    plddt: float
    ptm: float | None
    num_recycles: Annotated[int, msgspec.Meta(ge=0, le=_MAX_RECYCLES)]
    seconds: float
    fingerprint: str
    extras: tuple[Extra, ...] = ()
    copied_from: str | None = None
    relaxation: dict[str, Any] | None = None
    iptm: float | None = None
    num_chains: Annotated[int, msgspec.Meta(ge=1)] = 1
    ranking_score: float | None = None
    file_kinds: tuple[ModelKind, ...] | None = None
    checks: str | None = None
    interface: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        worse = (self.relaxation or {}).get("worse", [])
        if not isinstance(worse, list | tuple) or not all(isinstance(text, str) for text in worse):
            raise ValueError("`worse` in the relaxation of a model's result is not a list of texts")
        if unknown := [kind for kind in self.file_kinds or () if not is_model_kind(kind)]:
            raise ValueError(f"unknown kinds of files {unknown!r} of a model")

    @property
    def kinds(self) -> tuple[ModelKind, ...]:
        """The kinds of the model's files, without a relaxed structure."""
        if self.file_kinds is not None:
            return self.file_kinds
        return model_kinds(self.extras, self.num_recycles, self.num_chains)

    def as_json(self) -> dict[str, Any]:
        """Return the values as JSON, without those that only some networks have."""
        values = asdict(self)
        return {name: value for name, value in values.items() if name not in _RARE or value is not None}

    def paths(self, files: TargetFiles, rank: int) -> list[Path]:
        """Return the paths of all files of the model, whether or not they exist."""
        return [files.model_path(kind, rank, self.tag) for kind in self.kinds]

    def has_extras(self, extras: Sequence[str]) -> bool:
        """Return True if all of these extras were saved."""
        return set(extras) <= set(self.extras)

    def describe(self, is_untrained: bool) -> str:
        """Return the confidence in words, or a warning if the network is untrained."""
        if is_untrained:
            return "UNTRAINED, no meaning"
        if self.copied_from is not None:
            return f"copied from {self.copied_from}; expected lDDT {self.plddt:.1f}"
        scores = [("pLDDT", f"{self.plddt:.1f}")]
        scores += [("pTM", f"{self.ptm:.3f}")] if self.ptm is not None else []
        scores += [("ipTM", f"{self.iptm:.3f}")] if self.iptm is not None else []
        return ", ".join(f"{name} {value}" for name, value in scores)


# writes the content of a file
WriteFile: TypeAlias = Callable[[IO[bytes]], object]


class ModelWriter(Protocol):
    """A writer of the models of one kind of network; must be picklable."""

    def result(self, model: "PredictedModel") -> ModelResult:
        """Return the values of a model for ranking and done.json, with the kinds of its files."""
        ...

    def files(self, model: "PredictedModel") -> dict[ModelKind, WriteFile]:
        """Return a function for each kind of file, which writes its content.

        Kinds that the model's result does not have are not written.
        """
        ...


class ResidueModels:
    """The writer of models made of the twenty amino acids."""

    def result(self, model: "PredictedModel") -> ModelResult:
        """Return the values of a model; log if the PDB format cannot name its chains."""
        prediction, result = model.prediction, model.result()
        if "pairwise" in result.kinds and prediction.pae is None:
            logger.warning("%s: %s has no PAE, so no NAME_pairwise file", model.origin.target, model.tag)
            kinds = tuple(kind for kind in result.kinds if kind != "pairwise")
            result = replace(result, file_kinds=kinds)
        if "pdb" not in result.kinds:
            reason = "more than the PDB format can name: mmCIF only"
            name = model.origin.target
            logger.warning("%s: %s has %d chains, %s", name, model.tag, result.num_chains, reason)
        return result

    def files(self, model: "PredictedModel") -> dict[ModelKind, WriteFile]:
        """Return a function for each kind of file, which writes its content."""
        # imports gemmi, which runs without predictions do not need
        from model.output import modelcif, residues, scores

        prediction, provenance = model.prediction, model.origin.provenance
        texts: dict[ModelKind, Callable[[], str]] = {
            "pdb": partial(residues.format_pdb, prediction, provenance),
            "cif": partial(residues.format_mmcif, prediction, provenance, model.origin.templates),
            "pairwise": partial(modelcif.format_pairwise_scores, prediction, provenance),
            "scores": partial(scores.format_scores, prediction, model.flags | model.origin.scores),
            "contacts": partial(residues.format_contacts, prediction),
        }
        for index in range(len(prediction.passes)):
            network = f"{provenance.network}, structure after {index} of them"
            texts[f"recycle_{index}"] = partial(
                residues.format_pdb, prediction.after_pass(index), replace(provenance, network=network)
            )
        files: dict[ModelKind, WriteFile] = {
            kind: partial(write_text, format_text) for kind, format_text in texts.items()
        }
        for kind in prediction.extras:
            if kind not in ("recycles", "pairwise"):
                files[kind] = partial(_write_results, kind, prediction)
        return files


RESIDUE_MODELS = ResidueModels()


@dataclass(frozen=True)
class PredictedModel:
    """A prediction whose files are to be written.

    Args:
        folder: the target's staging folder.
        tag: the model and its seed; part of the file names.
        writer: writes the files; that of the network's family.
    """

    folder: Path
    tag: str
    fingerprint: str
    prediction: Prediction
    origin: ModelOrigin
    seconds: float
    writer: ModelWriter = RESIDUE_MODELS

    @cached_property
    def flags(self) -> dict[str, Any]:
        """The flags of the structure (`model.confidence.flags`) of a complex; empty for a single chain."""
        prediction = self.prediction
        if (own := prediction.all_atom) is not None:
            disordered = round(own.fraction_disordered, 4)
            return {"has_clash": own.has_clash, "fraction_disordered": disordered}
        if prediction.scores is None:
            return {}
        from model.confidence.flags import structure_flags  # imports torch

        return structure_flags(prediction.structure, prediction.positions)

    @property
    def interface(self) -> dict[str, Any] | None:
        """The best score of each kind among the pairs of proteins, and the flags; None without pairs."""
        pairs: PairScores | None = self.prediction.scores
        if self.prediction.all_atom is not None:
            from model.confidence.pair_scores import protein_pair_scores  # imports torch

            named = protein_pair_scores(self.prediction)
            pairs = None if named is None else named[1]
        return None if pairs is None else pairs.best() | self.flags

    def result(self, kinds: tuple[ModelKind, ...] | None = None, checks: str | None = None) -> ModelResult:
        """Return the values of the model; see `ModelResult` for the kinds of its files, and its checks."""
        prediction = self.prediction
        score = prediction.ranking_score
        return ModelResult(
            tag=self.tag,
            plddt=prediction.mean_plddt,
            ptm=None if prediction.ptm is None else float(prediction.ptm),
            num_recycles=prediction.num_recycles,
            seconds=round(self.seconds, 3),
            fingerprint=self.fingerprint,
            extras=prediction.extras,
            copied_from=self.origin.copied_from,
            iptm=prediction.iptm,
            num_chains=prediction.num_chains,
            ranking_score=None if score is None else round(score, 4),
            file_kinds=kinds,
            checks=checks,
            interface=self.interface,
        )


def write_model(model: PredictedModel) -> ModelResult:
    """Write the files of one prediction into the staging folder, then its result."""
    result = model.writer.result(model)
    for kind, write_file in model.writer.files(model).items():
        if kind in result.kinds:
            with atomic_write(model.folder / unranked_name(kind, model.tag), "wb") as stream:
                write_file(stream)
    write_result(model.folder, result)
    return result


def write_text(format_text: Callable[[], str], stream: IO[bytes]) -> None:
    """Write a text that a function returns."""
    stream.write(format_text().encode())


def _write_results(kind: Extra, prediction: Prediction, stream: IO[bytes]) -> None:
    """Write one representation as npy, or all results as npz."""
    if kind == "all":
        np.savez(stream, **prediction.results)  # type: ignore[arg-type]
    else:
        np.save(stream, prediction.results[f"representations/{kind}"])


def read_staged_results(folder: Path) -> list[ModelResult]:
    """Return the results of the complete models in a staging folder, sorted by tag.

    A damaged result is a warning.
    """
    results = []
    for path in sorted(folder.glob(f"*{_RESULT_SUFFIX}")):
        try:
            result = read_json(path, ModelResult)
        except (OSError, ValueError) as error:
            logger.warning("%s: damaged, so the model is predicted again (%s)", path, error)
            continue
        if all((folder / unranked_name(kind, result.tag)).is_file() for kind in result.kinds):
            results.append(result)
    return results


def restage_model(files: TargetFiles, rank: int, result: ModelResult) -> None:
    """Stage a model of a finished target again, so that it is ranked and published together with new models.

    Raises:
        OSError: a file is missing, or cannot be written.
    """
    for kind in result.kinds:
        link_file(
            files.model_path(kind, rank, result.tag), files.staging_folder / unranked_name(kind, result.tag)
        )
    if (relaxed := files.model_path("relaxed_pdb", rank, result.tag)).is_file():
        link_file(relaxed, relaxed_path(files.staging_folder, result.tag))
    else:
        result = replace(result, relaxation=None)
    write_result(files.staging_folder, result)


def relaxed_path(folder: Path, tag: str) -> Path:
    """Return the path of a model's relaxed structure in a staging folder."""
    return folder / unranked_name("relaxed_pdb", tag)


def discard_staged(files: TargetFiles, tag: str) -> None:
    """Remove the staged files of one model."""
    # found by pattern, because a damaged result does not say which files the model has
    for path in files.staging_folder.glob(f"*{tag}.*"):
        path.unlink()


def rank_models(results: list[ModelResult], rank_by: str) -> list[ModelResult]:
    """Return the results best first; ties keep their order.

    Args:
        results: one per model and seed.
        rank_by: the score. "auto" ranks by `ranking_score` if every model has one. Otherwise, "auto" and
            "multimer" rank complexes by `complex_confidence`, and "iptm" by ipTM. "ptm" ranks by pTM if every
            model has one. All others are ranked by mean pLDDT.
    """
    if rank_by == "auto" and all(result.ranking_score is not None for result in results):
        return sorted(results, key=lambda result: -(result.ranking_score or 0.0))
    is_complex = all(result.iptm is not None for result in results)
    if rank_by == "iptm" and is_complex:
        return sorted(results, key=lambda result: -(result.iptm or 0.0))
    if rank_by in ("auto", "multimer") and is_complex:
        return sorted(results, key=lambda result: -complex_confidence(result.ptm, result.iptm))
    if rank_by == "ptm" and all(result.ptm is not None for result in results):
        return sorted(results, key=lambda result: -(result.ptm or 0.0))
    return sorted(results, key=lambda result: -result.plddt)


def publish_models(ranked: list[ModelResult], files: TargetFiles) -> None:
    """Give the staged files names with their ranks, and remove the files of earlier rankings.

    If it is interrupted, it can be repeated.
    """
    staged_by_path = {}
    for rank, result in enumerate(ranked, 1):
        relaxed = relaxed_path(files.staging_folder, result.tag).is_file()
        kinds: tuple[ModelKind, ...] = ("relaxed_pdb", *result.kinds) if relaxed else result.kinds
        for kind in kinds:
            staged = files.staging_folder / unranked_name(kind, result.tag)
            staged_by_path[files.model_path(kind, rank, result.tag)] = staged
    for existing in files.model_files():
        if existing not in staged_by_path:
            existing.unlink()
    for path, staged in staged_by_path.items():
        link_file(staged, path)


def link_file(source: Path, target: Path) -> None:
    """Give a file a second name, replacing any file of that name.

    On file systems without hard links, the file is copied.

    Raises:
        OSError: the file cannot be linked or copied.
    """
    if target.exists() and target.samefile(source):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(target)
    try:
        os.link(source, temporary)
        temporary.replace(target)
    except OSError:
        temporary.unlink(missing_ok=True)
        with source.open("rb") as content, atomic_write(target, "wb") as stream:
            shutil.copyfileobj(content, stream)


def write_result(folder: Path, result: ModelResult) -> None:
    """Write the result of a model into a staging folder, after its files."""
    write_json(folder / f"{result.tag}{_RESULT_SUFFIX}", result.as_json())
