"""Settings of a run's stages: frozen dataclasses, made once from the command line's options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from features.templates.library.settings import TemplateSettings
from foldcli.errors import OptionError
from foldcli.inputs.shard import Shard
from foldcli.outputs.layout import LayoutName, TargetFiles
from foldcli.paths import default_feature_cache
from foldcli.report import ReportSettings
from msa.base.errors import InputError


@dataclass(frozen=True)
class FeatureSettings:
    """Settings of the feature cache.

    Args:
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


@dataclass(frozen=True)
class TemplateOptions:
    """The template options as given on the command line.

    Args:
        library: path of `--templates`; None is the library that comes with foldcli.
        custom_path: path of `--custom-template-path`, whose structures are used whatever their E-value.
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
            options: values of the options.
            threads: CPU threads.

        Raises:
            OptionError: options that exclude each other, or a malformed date.
        """
        library, custom = options["templates"], options["custom_template_path"]
        hit_file, mirror = options["pdb_hit_file"], options["local_pdb_path"]
        template_sources = [name for name, value in
                 (("--templates", library), ("--custom-template-path", custom), ("--pdb-hit-file", hit_file))
                 if value is not None]  # fmt: skip
        if len(template_sources) > 1:
            raise OptionError(f"{' and '.join(template_sources)} exclude each other")
        if (hit_file is None) != (mirror is None):
            raise OptionError("--pdb-hit-file and --local-pdb-path need each other")
        if options["no_templates"]:
            if template_sources:
                raise OptionError(f"{template_sources[0]} and --no-templates exclude each other")
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
            raise OptionError(f"--{str(error).replace('_', '-', 2)}") from error
        return cls(library, custom, hit_file, mirror, search)


@dataclass(frozen=True)
class RelaxOptions:
    """The relaxation of a target's best models.

    Args:
        num_models: number of models; with `every`, the number that config.json states.
        use_gpu: relax on a GPU instead of the CPU.
        every: relax all models, also those of seeds that an input names.
    """

    num_models: int = 0
    use_gpu: bool = False
    every: bool = False

    @property
    def limit(self) -> int | None:
        """The number of ranked models to relax; None for all."""
        return None if self.every else self.num_models

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> "RelaxOptions":
        """Create the options from the values of `relax_options` and `predict_options`.

        Raises:
            OptionError: --use-gpu-relax without a relaxation.
        """
        num_models, every = options["num_relax"], options["amber"] and options["num_relax"] is None
        if num_models is None:
            if options["use_gpu_relax"] and not every:
                raise OptionError("--use-gpu-relax needs --num-relax or --amber")
            models = options["models"][: options["num_models"]]
            num_models = len(models) * (options["num_seeds"] or 1) if every else 0
        return cls(num_models, options["use_gpu_relax"], every)


@dataclass(frozen=True)
class OutputSettings:
    """Settings of the results of `fold` and `predict`.

    Args:
        folder: the run's folder; need not exist yet.
        shard: the run's share of the targets.
        overwrite: predict finished targets again.
        report: pages and plots to make.
        archive: whether targets get a NAME.result.zip.
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
            report=ReportSettings(
                not options["no_report"], not options["no_plots"], options["references"], options["similar"]
            ),
            relaxation=RelaxOptions.from_options(options),
            **{name: options[name] for name in ("layout", "shard", "overwrite", "archive")},
        )

    def files(self, name: str) -> TargetFiles:
        """Return the paths of a target's files."""
        return TargetFiles(name, self.folder, self.layout)
