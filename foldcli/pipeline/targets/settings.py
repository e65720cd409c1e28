"""Settings of a run's stages: frozen dataclasses, made once from the command line's options."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import click

from features.templates.library.settings import TemplateSettings
from foldcli.inputs.shard import Shard
from foldcli.outputs.layout import LayoutName, TargetFiles
from foldcli.params.parameters import OLD_MULTIMER_TYPES, TEMPLATE, ModelType, network_folder
from foldcli.paths import default_feature_cache
from foldcli.pipeline.targets.alignment_settings import value_or_default
from foldcli.report import ReportSettings
from model.alphafold2.modules.config import MultimerConfig
from model.checkpoints.network_folder import InputSizes, NetworkManifest
from model.prediction import EXTRAS, Extra
from msa.base.errors import InputError


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

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> "FeatureSettings":
        """Create the settings of a prediction, which never overwrites cached features, from its options."""
        return cls(options["cache"] or default_feature_cache(), verify=options["verify"])


_MULTIMER_ROWS = MultimerConfig()
_MULTIMER_SETTINGS = ("multimer_num_recycles", "multimer_tolerance")


@dataclass(frozen=True)
class PredictSettings:
    """The settings that a prediction depends on, in addition to its features and parameters.

    Args:
        num_recycles: number of passes after the first one.
        recycle_early_stop_tolerance: recycling stops when Cα distances change by less (Å); 0 disables this.
        num_seeds: number of seeds; they are random_seed … random_seed + num_seeds − 1.
        random_seed: the first seed.
        max_seq: rows of the clustered alignment.
        max_extra_seq: rows of the extra alignment.
        extras: additional results to save for each model.
        stop_at_score: a target's remaining jobs are skipped once a model has a higher mean pLDDT.
        rank: the score that ranks models; see `foldcli.outputs.model_files.rank_models`.
        precision: number format of the trunk.
        kernels: implementation of the heavy operations; they round differently.
        refine: make peptide bonds regular and remove clashes; see `model.refinement.refine`.
        multimer_num_recycles: `num_recycles` of multimer networks.
        multimer_tolerance: `recycle_early_stop_tolerance` of multimer networks.
    """

    num_recycles: int = 3
    recycle_early_stop_tolerance: float = 0.0
    num_seeds: int = 1
    random_seed: int = 0
    max_seq: int = 512
    max_extra_seq: int = 5120
    extras: tuple[Extra, ...] = ()
    stop_at_score: float = 100.0
    rank: Literal["auto", "plddt", "ptm", "multimer", "iptm"] = "auto"
    precision: Literal["bf16", "fp32"] = "fp32"
    kernels: Literal["fused", "reference"] = "reference"
    refine: bool = False
    # the values of `model.alphafold2.recycling.MULTIMER_RECYCLING`, whose module imports torch
    multimer_num_recycles: int = 20
    multimer_tolerance: float = 0.5

    @property
    def num_passes(self) -> int:
        """Passes through the network per model and seed, if recycling does not stop early."""
        return self.num_recycles + 1

    def seeds(self, requested: Sequence[int] = ()) -> list[int]:
        """Return the seeds of a target.

        Args:
            requested: the seeds that its job file names; used unless `num_seeds` or `random_seed` is set.
        """
        if requested and (self.num_seeds, self.random_seed) == (1, 0):
            return list(dict.fromkeys(requested))
        return list(range(self.random_seed, self.random_seed + self.num_seeds))

    def for_network(self, is_multimer: bool) -> "PredictSettings":
        """Return the settings for one kind of network; those of monomer networks are `self`."""
        if not is_multimer:
            return self
        return replace(
            self,
            num_recycles=self.multimer_num_recycles,
            recycle_early_stop_tolerance=self.multimer_tolerance,
            max_seq=min(self.max_seq, _MULTIMER_ROWS.msa_rows),
            max_extra_seq=min(self.max_extra_seq, _MULTIMER_ROWS.extra_rows),
        )

    def unmeasured(self, inputs: InputSizes) -> list[str]:
        """Return the settings with which the accuracy of a network with a manifest was not measured."""
        settings = []
        if self.num_recycles != inputs.num_recycles:
            settings.append(f"--num-recycle {self.num_recycles}")
        if self.recycle_early_stop_tolerance:
            settings.append(f"--recycle-early-stop-tolerance {self.recycle_early_stop_tolerance:g}")
        if (self.max_seq, self.max_extra_seq) != (inputs.msa_rows, inputs.extra_rows):
            settings.append(f"--max-msa {self.max_seq}:{self.max_extra_seq}")
        return [*settings, *([] if self.refine else ["--no-refine"])]

    def identity(self) -> dict[str, Any]:
        """Return the values that every prediction depends on: not the choice of jobs, extras or ranking."""
        values = asdict(self)
        for name in ("num_seeds", "random_seed", "extras", "stop_at_score", "rank", *_MULTIMER_SETTINGS):
            del values[name]
        if not self.refine:
            del values["refine"]
        # these names are part of fingerprints, so they must never change
        return {"num_recycle": values.pop("num_recycles")} | values


@dataclass(frozen=True)
class NetworkOptions:
    """The network's options as given on the command line, before the device is known.

    Args:
        params: folder of parameters, "alphafold2", "template", "compact", or None for the default.
        models: model numbers, in the order in which they run.
        model_type: "auto", or the kind of parameters.
        device: value of `--device`.
        max_memory: largest number of bytes to use on the GPU; None is all that is free.
        precision: None is the fastest that the device supports.
        kernels: "auto" is the fastest that the device supports.
        predict: the other settings; the precision and kernels in it are ignored.
        gpus_per_target: number of processes that predict each target together.
        rank_timeout: seconds without progress after which one of these processes counts as failed.
        num_recycles: value of `--num-recycle`; None selects the network's default.
        refine: value of `--refine`; None selects the network's default.
    """

    params: str | None
    models: tuple[int, ...]
    model_type: ModelType
    device: str
    max_memory: int | None
    precision: Literal["bf16", "fp32"] | None
    kernels: Literal["auto", "fused", "reference"]
    predict: PredictSettings
    gpus_per_target: int = 1
    rank_timeout: float = 600.0
    num_recycles: int | None = None
    refine: bool | None = None

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that `device` lists, each of which predicts targets of its own."""
        kind, _, numbers = self.device.partition(":")
        return tuple(f"{kind}:{number}" for number in numbers.split(",")) if numbers else (self.device,)

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> "NetworkOptions":
        """Create the options from the values of the options in `foldcli.options.predict`.

        Raises:
            click.UsageError: --num-models is larger than the number of models.
            MissingError, ParametersError: see `with_params`.
        """
        copied_options = ("params", "model_type", "device", "max_memory", "precision", "kernels",
                          "gpus_per_target", "rank_timeout", "num_recycles", "refine")  # fmt: skip
        models, num_models = options["models"], options["num_models"]
        if num_models is not None and num_models > len(models):
            raise click.UsageError(f"--num-models {num_models}: --models has only {len(models)}.")
        max_seq, max_extra_seq = options["max_msa"]
        num_recycles, tolerance = options["num_recycles"], options["recycle_early_stop_tolerance"]
        defaults = PredictSettings
        # DeepMind runs multimer v1 and v2 with the recycling of monomers
        is_old_multimer = options["model_type"] in OLD_MULTIMER_TYPES
        multimer_recycles = defaults.num_recycles if is_old_multimer else defaults.multimer_num_recycles
        multimer_tolerance = 0.0 if is_old_multimer else defaults.multimer_tolerance
        return cls(
            **{name: options[name] for name in copied_options},
            models=models[:num_models],
            predict=PredictSettings(
                num_recycles=value_or_default(num_recycles, defaults.num_recycles),
                recycle_early_stop_tolerance=value_or_default(
                    tolerance, defaults.recycle_early_stop_tolerance
                ),
                num_seeds=options["num_seeds"],
                random_seed=options["random_seed"],
                max_seq=max_seq,
                max_extra_seq=max_extra_seq,
                extras=tuple(extra for extra in EXTRAS if options[f"save_{extra}"]),
                stop_at_score=options["stop_at_score"],
                rank=options["rank"],
                refine=bool(options["refine"]),
                multimer_num_recycles=value_or_default(num_recycles, multimer_recycles),
                multimer_tolerance=value_or_default(tolerance, multimer_tolerance),
            ),
        ).with_params(options["params"])

    def with_params(self, params: str | None) -> "NetworkOptions":
        """Return options for other parameters, with the sizes that a network's manifest says it needs.

        Args:
            params: value of `--params`.

        Raises:
            MissingError, ParametersError: see `foldcli.params.parameters.network_folder`.
        """
        options = replace(self, params=params)
        if (found := network_folder(params)) is None:
            return options
        inputs, predict = found[1].inputs, self.predict
        sized = replace(
            predict,
            num_recycles=value_or_default(self.num_recycles, inputs.num_recycles),
            max_seq=min(predict.max_seq, inputs.msa_rows),
            max_extra_seq=min(predict.max_extra_seq, inputs.extra_rows),
            refine=value_or_default(self.refine, True),
        )
        return replace(options, predict=sized)


@dataclass(frozen=True)
class TemplateOptions:
    """The template options as given on the command line.

    Args:
        library: path of `--templates`; None is the library that comes with foldcli.
        custom_path: path of `--custom-template-path`, whose structures are used whatever their E-value.
        hit_file: path of `--pdb-hit-file`.
        mirror: path of `--local-pdb-path`.
        search: settings of the search.
    """

    library: Path | None
    custom_path: Path | None
    hit_file: Path | None
    mirror: Path | None
    search: TemplateSettings

    @classmethod
    def from_options(cls, options: dict[str, Any], threads: int) -> "TemplateOptions | None":
        """Create the options from the values of `template_options`; None for `--no-templates`.

        Args:
            options: values of the options, and of `--params`.
            threads: CPU threads.

        Raises:
            click.UsageError: options that exclude each other, or a malformed date.
        """
        library, custom = options["templates"], options["custom_template_path"]
        hit_file, mirror = options["pdb_hit_file"], options["local_pdb_path"]
        template_sources = [name for name, value in
                 (("--templates", library), ("--custom-template-path", custom), ("--pdb-hit-file", hit_file))
                 if value is not None]  # fmt: skip
        if len(template_sources) > 1:
            raise click.UsageError(f"{' and '.join(template_sources)} exclude each other")
        if (hit_file is None) != (mirror is None):
            raise click.UsageError("--pdb-hit-file and --local-pdb-path need each other")
        if options["no_templates"]:
            if template_sources:
                raise click.UsageError(f"{template_sources[0]} and --no-templates exclude each other")
            if options.get("params") == TEMPLATE:
                raise click.UsageError("--params template and --no-templates exclude each other")
            return None
        user_selected = custom is not None or hit_file is not None
        try:
            search = TemplateSettings(
                # structures that a user selected are used whatever their E-value
                evalue=float("inf") if user_selected else TemplateSettings.evalue,
                max_template_date=options["max_template_date"],
                exclude_self=options["exclude_self"],
                threads=threads,
            )
        except InputError as error:
            raise click.UsageError(f"--{str(error).replace('_', '-', 2)}") from error
        return cls(library, custom, hit_file, mirror, search)

    def for_network(self, manifest: NetworkManifest | None) -> "TemplateOptions":
        """Return options with as many templates as a network takes, chosen by the accuracy of their copies.

        Args:
            manifest: the network's manifest; without one, AlphaFold2's rule is kept.
        """
        if manifest is None or not manifest.inputs.templates:
            return self
        search = replace(self.search, max_templates=manifest.inputs.templates, by_copy_accuracy=True)
        return replace(self, search=search)


@dataclass(frozen=True)
class RelaxOptions:
    """The relaxation of a target's best models.

    Args:
        num_models: number of models of each target to relax.
        use_gpu: relax on a GPU instead of the CPU.
    """

    num_models: int = 0
    use_gpu: bool = False

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> "RelaxOptions":
        """Create the options from the values of `relax_options` and `predict_options`."""
        num_models = options["num_relax"]
        if num_models is None:
            models = options["models"][: options["num_models"]]
            num_models = len(models) * options["num_seeds"] if options["amber"] else 0
        return cls(num_models, options["use_gpu_relax"])


@dataclass(frozen=True)
class OutputSettings:
    """Settings of the results of `fold` and `predict`.

    Args:
        folder: the run's folder; need not exist yet.
        layout: layout of its files.
        shard: the run's share of the targets.
        overwrite: predict finished targets again.
        report: pages and plots to make.
        archive: whether targets get a NAME.result.zip.
        relaxation: models to relax.
    """

    folder: Path
    layout: LayoutName
    shard: Shard
    overwrite: bool
    report: ReportSettings
    archive: bool = False
    relaxation: RelaxOptions = RelaxOptions()

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> "OutputSettings":
        """Create the settings from the values of `result_options`, `relax_options` and `run_options`."""
        return cls(
            options["out"],
            report=ReportSettings(not options["no_report"], not options["no_plots"]),
            relaxation=RelaxOptions.from_options(options),
            **{name: options[name] for name in ("layout", "shard", "overwrite", "archive")},
        )

    def files(self, name: str) -> TargetFiles:
        """Return the paths of a target's files."""
        return TargetFiles(name, self.folder, self.layout)
