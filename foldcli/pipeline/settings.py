"""Settings of a run's stages: frozen values, made once from the command line's options and passed whole."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import click

from foldcli.inputs.shard import Shard
from foldcli.outputs.layout import LayoutName, TargetFiles
from foldcli.params.parameters import ModelType
from foldcli.report import ReportSettings
from msa.errors import InputError
from msa.search.settings import AlignmentFilter, SearchSettings, default_gap_costs


@dataclass(frozen=True)
class AlignmentSettings:
    """Settings of the searches and of the alignments made from their hits.

    Args:
        search: settings of the search.
        row_filter: filter for the rows of the alignment.
    """

    search: SearchSettings
    row_filter: AlignmentFilter

    @classmethod
    def from_options(cls, options: dict[str, Any], threads: int) -> "AlignmentSettings":
        """Create the settings from the values of `search_options` and `alignment_options`.

        Raises:
            click.UsageError: an unknown matrix, no E-value statistics for the matrix with the gap costs, or
                --qsc is not a number.
        """
        matrix = options["matrix"].upper()
        gap_open, gap_extend, profile_gap_open = default_gap_costs(matrix)
        try:
            search = SearchSettings(
                evalue=options["evalue"],
                max_seqs=options["max_seqs"],
                min_ungapped_score=options["min_ungapped_score"],
                matrix=matrix,
                gap_open=options["gap_open"] or gap_open,
                gap_extend=options["gap_extend"] or gap_extend,
                profile_gap_open=options["gap_open"] or profile_gap_open,
                comp_bias_corr=bool(options["comp_bias_corr"]),
                min_seq_id=options["min_seq_id"],
                coverage=options["coverage"],
                cov_mode=options["cov_mode"],
                num_iterations=options["num_iterations"],
                e_profile=options["e_profile"],
                threads=threads,
            )
        except InputError as error:
            raise click.UsageError(str(error)) from error
        try:
            row_filter = AlignmentFilter(
                **{name: options[name] for name in ("max_seq_id", "qid", "qsc", "cov", "diff")}
            )
        except InputError as error:
            raise click.UsageError(f"--{error}") from error
        return cls(search, row_filter)

    def identity(self) -> dict[str, Any]:
        """Return the values that alignments depend on; the number of threads is not one of them."""
        search = {name: value for name, value in asdict(self.search).items() if name != "threads"}
        return {"search": search, "alignment": asdict(self.row_filter)}


@dataclass(frozen=True)
class FeatureSettings:
    """Settings of the feature cache.

    Args:
        cache: folder of the cache.
        overwrite: compute features again even if the cache has them.
        verify: compare cached features with their checksums.
    """

    cache: Path
    overwrite: bool = False
    verify: bool = True


@dataclass(frozen=True)
class PredictSettings:
    """The settings that a prediction depends on, in addition to its features and parameters.

    Args:
        num_recycles: recycles after the first pass.
        recycle_early_stop_tolerance: Å; recycling stops when Cα distances change by less; 0 is never.
        num_seeds: number of seeds; they are random_seed … random_seed + num_seeds − 1.
        random_seed: the first seed.
        max_seq: rows of the clustered alignment.
        max_extra_seq: rows of the extra alignment.
        rank: the score that ranks models; "auto" is plddt, as ColabFold ranks monomers.
        precision: number format of the trunk.
        kernels: implementation of the heavy operations; they round differently.
    """

    num_recycles: int = 3
    recycle_early_stop_tolerance: float = 0.0
    num_seeds: int = 1
    random_seed: int = 0
    max_seq: int = 512
    max_extra_seq: int = 5120
    rank: Literal["auto", "plddt", "ptm"] = "auto"
    precision: Literal["bf16", "fp32"] = "fp32"
    kernels: Literal["fused", "reference"] = "reference"

    @property
    def num_passes(self) -> int:
        """Passes through the network per model and seed, if recycling does not stop early."""
        return self.num_recycles + 1

    def identity(self) -> dict[str, Any]:
        """Return the settings under their names in done.json and fingerprints, which must never change."""
        names = asdict(self)
        return {"num_recycle": names.pop("num_recycles")} | names


@dataclass(frozen=True)
class NetworkOptions:
    """The network's options as given on the command line, before the device is known.

    Args:
        params: folder of parameters, "demo", or None for the default folder.
        models: model numbers, in the order in which they run.
        model_type: "auto", or the kind of parameters.
        device: value of `--device`.
        max_memory: largest number of bytes to use on the GPU; None is all that is free.
        precision: None is the best that the device has.
        kernels: "auto" is the best that the device has.
        predict: the other settings; its precision and kernels are not used.
    """

    params: str | None
    models: tuple[int, ...]
    model_type: ModelType
    device: str
    max_memory: int | None
    precision: Literal["bf16", "fp32"] | None
    kernels: Literal["auto", "fused", "reference"]
    predict: PredictSettings

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> "NetworkOptions":
        """Create the options from the values of `predict_options`, `params_option` and `device_option`."""
        own = ("params", "models", "model_type", "device", "max_memory", "precision", "kernels")
        return cls(
            **{name: options[name] for name in own},
            predict=PredictSettings(
                num_recycles=options["num_recycles"],
                recycle_early_stop_tolerance=options["recycle_early_stop_tolerance"],
                num_seeds=options["num_seeds"],
                random_seed=options["random_seed"],
                max_seq=options["max_seq"],
                max_extra_seq=options["max_extra_seq"],
                rank=options["rank"],
            ),
        )


@dataclass(frozen=True)
class OutputSettings:
    """Settings of the results of `fold` and `predict`.

    Args:
        folder: the run's folder; need not exist yet.
        layout: layout of its files.
        shard: the run's share of the targets.
        overwrite: predict finished targets again.
        report: pages and plots to make.
    """

    folder: Path
    layout: LayoutName
    shard: Shard
    overwrite: bool
    report: ReportSettings

    def files(self, name: str) -> TargetFiles:
        """Return the paths of a target's files."""
        return TargetFiles(name, self.folder, self.layout)
