"""Layouts of results: the files and messages that a run adds in ColabFold's layout."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from features.complexes.pairing import PairingSettings
from foldcli.families.registry import family_of
from foldcli.families.settings import JobSettings, Source
from foldcli.logs import logger
from foldcli.outputs.layout import LayoutName, TargetFiles
from foldcli.outputs.methods import RunMethods, bibtex
from foldcli.outputs.model_files import ModelResult
from foldcli.pipeline.targets.settings import OutputSettings
from foldcli.version import VERSION
from msa.base.atomic import atomic_write
from msa.base.json_files import write_json


@dataclass(frozen=True)
class RunDescription:
    """The values of a run that its own files state.

    Args:
        database: the searched database in words; None without a search.
    """

    output: OutputSettings
    predict: JobSettings
    sources: Sequence[Source]
    num_targets: int
    use_templates: bool
    pairing: PairingSettings
    database: str | None


class Layout:
    """The default layout: what ColabFold's layout adds to a run does nothing here."""

    # in the run's folder
    methods_folder = ""

    def begin_run(self, run: RunDescription) -> None:
        """Write the files of a run that exist from its beginning."""

    def write_methods(self, run: RunDescription) -> None:
        """Write methods.txt, with a paragraph for each family, and cite.bibtex."""
        output, predict = run.output, run.predict
        networks: dict[str, list[Source]] = {}
        for source in run.sources:
            networks.setdefault(source.family, []).append(source)
        methods = [
            RunMethods(
                networks=tuple(source.label for source in sources),
                settings=family.own_settings(predict),
                rank=family.rank_score if predict.rank == "auto" else predict.rank,
                database=run.database,
                templates=run.use_templates,
                num_relax=output.relaxation.num_models,
                network_papers=family.papers,
                has_network=family.has_network,
            )
            for sources in networks.values()
            for family in (family_of(sources[0]),)
        ]
        folder = output.folder / self.methods_folder
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in (
            (folder / "methods.txt", "\n".join(each.paragraph() for each in methods)),
            (output.folder / "cite.bibtex", bibtex(methods)),
        ):
            with atomic_write(path) as stream:
                stream.write(text)

    def log_query(self, name: str, number: int, count: int, residues: int) -> None:
        """Log the beginning of target `number` of `count`."""

    def log_model(self, name: str, result: ModelResult, is_only: bool, untrained: bool) -> None:
        """Log a model of a target, unless it is its only one.

        Args:
            name: the target.
            result: the model.
            is_only: whether the target has no other model.
            untrained: whether a network of the run is untrained.
        """
        if not is_only:
            description = result.describe(untrained)
            logger.info("%s: %s: %s, %.1f s", name, result.tag, description, result.seconds)

    def log_ranking(self, ranked: list[ModelResult], rank_by: str) -> None:
        """Log the ranking of a target's models, best first."""

    def finish_target(self, files: TargetFiles, ranked: list[ModelResult]) -> None:
        """Write the additional files of a target.

        Args:
            files: the target's files; its score files must exist.
            ranked: models, best first.
        """

    def first_line(self, residues: int) -> str:
        """Return the first line of alignments before their first row."""
        return ""

    def stage_alignment(self, files: TargetFiles, content: bytes, residues: int) -> None:
        """Stage the input alignment of a prediction as NAME.a3m."""


class ColabFoldLayout(Layout):
    """ColabFold's layout: config.json, log.txt, its messages, and its files of targets."""

    methods_folder = "foldcli"

    def begin_run(self, run: RunDescription) -> None:
        """Write config.json, and append the run's messages to log.txt."""
        folder = run.output.folder
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "config.json", _config(run), indent=4)
        # appended, because runs of other shards may write to the same file
        handler = logging.FileHandler(folder / "log.txt", mode="a", encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logger.addHandler(handler)

    def log_query(self, name: str, number: int, count: int, residues: int) -> None:
        """Log ColabFold's line about the beginning of a target."""
        logger.info("Query %d/%d: %s (length %d)", number, count, name, residues)

    def log_model(self, name: str, result: ModelResult, is_only: bool, untrained: bool) -> None:
        """Log ColabFold's line about a predicted model."""
        logger.info("%s took %.1fs (%d recycles)", result.tag, result.seconds, result.num_recycles)

    def log_ranking(self, ranked: list[ModelResult], rank_by: str) -> None:
        """Log ColabFold's lines about the ranking of a target's models, best first."""
        automatic = "plddt" if ranked[0].iptm is None else "multimer"
        logger.info("reranking models by '%s' metric", automatic if rank_by == "auto" else rank_by)
        for rank, result in enumerate(ranked, 1):
            ptm = "" if result.ptm is None else f" pTM={result.ptm:.3g}"
            iptm = "" if result.iptm is None else f" ipTM={result.iptm:.3g}"
            confidence = "pLDDT" if result.copied_from is None else "expected_lDDT"
            logger.info("rank_%03d_%s %s=%.3g%s%s", rank, result.tag, confidence, result.plddt, ptm, iptm)

    def finish_target(self, files: TargetFiles, ranked: list[ModelResult]) -> None:
        """Write the best model's predicted aligned error in AlphaFold DB's format, then NAME.done.txt."""
        scores = json.loads(files.model_path("scores", 1, ranked[0].tag).read_text())
        aligned_error = files.path("aligned_error")
        if "pae" in scores:
            content = {
                "predicted_aligned_error": scores["pae"],
                "max_predicted_aligned_error": scores["max_pae"],
            }
            write_json(aligned_error, content)
        else:
            aligned_error.unlink(missing_ok=True)
        with atomic_write(files.path("finished_mark")):
            pass

    def first_line(self, residues: int) -> str:
        """Return chain length and number of copies, 1."""
        return f"#{residues}\t1\n"

    def stage_alignment(self, files: TargetFiles, content: bytes, residues: int) -> None:
        """Stage the input alignment of a prediction as NAME.a3m, if it is in A3M format."""
        text = content.lstrip()
        if not text.startswith((b">", b"#")) or text.startswith(b"# STOCKHOLM"):
            return
        header = b"" if text.startswith(b"#") else self.first_line(residues).encode()
        with atomic_write(files.staged_path("alignment"), "wb") as stream:
            stream.write(header + text)


def _config(run: RunDescription) -> dict[str, object]:
    """Return ColabFold's settings for this run, with the keys of its config.json.

    Settings that foldcli does not have get the value that describes its behaviour, such as one ensemble and
    no server. If a run has several families of networks, the settings of the first one are listed.
    """
    output, predict, sources, pairing = run.output, run.predict, run.sources, run.pairing
    complexes = any(family_of(source).pairs_chains for source in sources)
    listed_sources = [source for source in sources if source.family == sources[0].family]
    family = family_of(sources[0])
    config = family.colabfold_config(predict)
    return {
        "num_queries": run.num_targets,
        "use_templates": run.use_templates,
        "num_relax": output.relaxation.num_models,
        "msa_mode": "custom",
        "model_type": listed_sources[0].label.partition("_model_")[0],
        "num_models": len(listed_sources),
        "num_recycles": config.get("num_recycles"),
        "recycle_early_stop_tolerance": config.get("recycle_early_stop_tolerance"),
        "num_ensemble": 1,
        "model_order": [source.number for source in listed_sources],
        "keep_existing_results": not output.overwrite,
        "rank_by": family.rank_score if predict.rank == "auto" else predict.rank,
        "max_seq": config.get("max_seq"),
        "max_extra_seq": config.get("max_extra_seq"),
        "pair_mode": pairing.mode if complexes else "unpaired",
        "pairing_strategy": pairing.strategy if complexes else "none",
        "host_url": "",
        "stop_at_score": predict.stop_at_score,
        "random_seed": predict.random_seed,
        "num_seeds": predict.num_seeds,
        "recompile_padding": 0,
        "commit": None,
        "use_dropout": getattr(predict, "dropout", False),
        "use_cluster_profile": True,
        "use_fuse": predict.kernels == "fused",
        "use_bfloat16": predict.precision == "bf16",
        "version": f"foldcli {VERSION}",
    }


_LAYOUTS: dict[LayoutName, Layout] = {
    "default": Layout(),
    "colabfold": ColabFoldLayout(),
    "single_folder": Layout(),
}


def layout_of(layout: LayoutName) -> Layout:
    """Return the layout with a name."""
    return _LAYOUTS[layout]
