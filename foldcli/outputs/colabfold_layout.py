"""What ColabFold writes beside a target's alignment, structures and scores, with its names and keys."""

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foldcli.logs import logger
from foldcli.outputs.layout import TargetFiles
from foldcli.version import VERSION
from msa.io.atomic import atomic_write

if TYPE_CHECKING:
    from foldcli.outputs.model_files import ModelResult
    from foldcli.pipeline.predictor import Predictor

CITATIONS = """\
@article{Jumper2021,
author = {Jumper, John and Evans, Richard and Pritzel, Alexander and others},
doi = {10.1038/s41586-021-03819-2},
journal = {Nature},
pages = {583--589},
title = {{Highly accurate protein structure prediction with AlphaFold}},
volume = {596},
year = {2021},
comment = {AlphaFold2, the network and its parameters}
}
"""


def begin_run(out: Path, predictor: "Predictor", queries: int, overwrite: bool) -> None:
    """Write config.json and cite.bibtex of a run, and have its messages go to log.txt as well.

    Args:
        out: the run's folder.
        predictor: models and settings.
        queries: how many targets this run has.
        overwrite: whether finished ones are done again.
    """
    with atomic_write(out / "config.json") as stream:
        json.dump(config(predictor, queries, overwrite), stream, indent=4)
    with atomic_write(out / "cite.bibtex") as stream:
        stream.write(CITATIONS)
    # runs of other shards may write to it as well
    handler = logging.FileHandler(out / "log.txt", mode="a", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)


def config(predictor: "Predictor", queries: int, overwrite: bool) -> dict[str, Any]:
    """ColabFold's settings as far as they say something of this run, with the keys of its config.json.

    Those of which there is no choice here have the value that describes what is done: no templates, no
    relaxation, one ensemble, chains never paired, no server.
    """
    settings, sources = predictor.settings, predictor.sources
    return {
        "num_queries": queries,
        "use_templates": False,
        "num_relax": 0,
        "msa_mode": "custom",
        "model_type": sources[0].label.partition("_model_")[0],
        "num_models": len(sources),
        "num_recycles": settings.num_recycle,
        "recycle_early_stop_tolerance": settings.recycle_early_stop_tolerance or None,
        "num_ensemble": 1,
        "model_order": [source.number for source in sources],
        "keep_existing_results": not overwrite,
        "rank_by": "plddt" if settings.rank == "auto" else settings.rank,
        "max_seq": settings.max_seq,
        "max_extra_seq": settings.max_extra_seq,
        "pair_mode": "unpaired",
        "pairing_strategy": "none",
        "host_url": "",
        "stop_at_score": 100.0,
        "random_seed": settings.random_seed,
        "num_seeds": settings.num_seeds,
        "recompile_padding": 0,
        "commit": None,
        "use_dropout": False,
        "use_cluster_profile": True,
        "use_fuse": settings.kernels == "fused",
        "use_bfloat16": settings.precision == "bf16",
        "version": f"foldcli {VERSION}",
    }


def finish_target(files: TargetFiles, ranked: "list[ModelResult]") -> None:
    """Write the best model's aligned error as AlphaFold DB has it, and NAME.done.txt last.

    Args:
        files: where the target's files lie; its scores are there.
        ranked: best first.
    """
    scores = json.loads(files.model("scores", 1, ranked[0].tag).read_text())
    aligned_error = files.path("aligned_error")
    if "pae" in scores:
        with atomic_write(aligned_error) as stream:
            content = {
                "predicted_aligned_error": scores["pae"],
                "max_predicted_aligned_error": scores["max_pae"],
            }
            json.dump(content, stream)
    else:
        aligned_error.unlink(missing_ok=True)
    with atomic_write(files.path("finished_mark")):
        pass


def first_line(residues: int) -> str:
    """What ColabFold's alignments begin with: the chain's length, and that there is one."""
    return f"#{residues}\t1\n"


def keep_alignment(files: TargetFiles, content: bytes, residues: int) -> None:
    """Write the alignment that a prediction was made from to NAME.a3m, if it is one in A3M.

    Args:
        files: where the target's files lie.
        content: of the alignment's file.
        residues: of the query.
    """
    text = content.lstrip()
    if not text.startswith((b">", b"#")) or text.startswith(b"# STOCKHOLM"):
        return
    declared = b"" if text.startswith(b"#") else first_line(residues).encode()
    with atomic_write(files.path("alignment"), "wb") as stream:
        stream.write(declared + text)
