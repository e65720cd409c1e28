"""Jobs and settings of predictions: frozen values, made once from the command line's options."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from foldcli.errors import OptionError
from foldcli.fingerprints import fingerprint
from foldcli.params.parameters import OLD_MULTIMER_TYPES, ModelType
from foldcli.values import MAX_SEED, value_or_default
from model.alphafold2.modules.config import MULTIMER_RECYCLES, MULTIMER_TOLERANCE, MultimerConfig
from model.checkpoints.network_folder import InputSizes
from model.prediction import EXTRAS, Extra
from msa.base.digests import file_sha256
from msa.base.errors import InputError


class Source(Protocol):
    """The parameters of one model of a family; frozen, hashable, and small enough to pickle."""

    @property
    def family(self) -> str:
        """The name of its family; see `registry.family_of`."""

    @property
    def number(self) -> int:
        """The number of the model among those of its family."""

    @property
    def label(self) -> str:
        """The model's name in file names and messages."""

    @property
    def config_name(self) -> str:
        """The network's name, which is part of fingerprints."""

    @property
    def file(self) -> Path | None:
        """The file to read ahead with `Family.read_file`; None if there is none."""

    @property
    def is_untrained(self) -> bool:
        """True if the network's parameters are random."""

    def tags(self, seed: int) -> tuple[str, ...]:
        """Return the tags of the models that one job gives, such as one for each diffusion sample.

        A tag is part of file names, and of the fingerprint of its model; see `foldcli.outputs.layout.TAG`.
        """


@dataclass(frozen=True)
class Job:
    """One run of a network on a target: one model of a family with one seed."""

    source: Any
    seed: int
    parameters: str

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the models that the job gives, at least one."""
        tags: tuple[str, ...] = self.source.tags(self.seed)
        return tags

    @property
    def tag(self) -> str:
        """The first tag, by which messages name the job."""
        return self.tags[0]

    def fingerprints(self, target_fingerprint: str) -> dict[str, str]:
        """Return the fingerprint of each of the job's models by tag, given the target's fingerprint."""
        network = [target_fingerprint, self.source.config_name, self.parameters]
        return {tag: fingerprint([*network, tag]) for tag in self.tags}


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """The settings of predictions that all families have; each adds its own.

    Args:
        num_seeds: number of seeds; they are random_seed … random_seed + num_seeds − 1.
        random_seed: the first seed.
        replaces_seeds: whether they replace the seeds that a job file names.
        extras: additional results to save for each model.
        stop_at_score: a target's remaining jobs are skipped once a model has a higher mean pLDDT.
        rank: the score that ranks models; see `foldcli.outputs.model_files.rank_models`.
        kernels: implementation of the heavy operations; they round differently.
    """

    num_seeds: int = 1
    random_seed: int = 0
    replaces_seeds: bool = False
    extras: tuple[Extra, ...] = ()
    stop_at_score: float = 100.0
    rank: Literal["auto", "plddt", "ptm", "multimer", "iptm"] = "auto"
    precision: Literal["bf16", "fp32"] = "fp32"
    kernels: Literal["fused", "reference"] = "reference"

    @staticmethod
    def seed_values(options: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of seeds from the values of `predict_options`.

        Raises:
            OptionError: a seed is too large.
        """
        count, first = options["num_seeds"], options["random_seed"]
        values = {"num_seeds": value_or_default(count, 1), "random_seed": value_or_default(first, 0)}
        if values["random_seed"] + values["num_seeds"] - 1 > MAX_SEED:
            raise OptionError(f"--num-seeds: the last seed would be larger than {MAX_SEED}.")
        return {**values, "replaces_seeds": count is not None or first is not None}

    @property
    def num_passes(self) -> int:
        """Steps that the progress bar counts per job, if none is left out."""
        return 1

    def seeds(self, requested: Sequence[int] = ()) -> list[int]:
        """Return the seeds of a target.

        Args:
            requested: the seeds that its job file names; used unless `num_seeds` or `random_seed` is set.
        """
        if requested and not self.replaces_seeds and (self.num_seeds, self.random_seed) == (1, 0):
            return list(dict.fromkeys(requested))
        return list(range(self.random_seed, self.random_seed + self.num_seeds))

    def identity_of(self, name: str) -> dict[str, Any]:
        """Return what the predictions of one target depend on in addition, given the target's name.

        Raises:
            InputError: a file for the target is missing.
        """
        return {}

    def identity(self) -> dict[str, Any]:
        """Return the values that every prediction depends on: not the choice of jobs, extras or ranking."""
        choices = ("num_seeds", "random_seed", "replaces_seeds", "extras", "stop_at_score", "rank")
        return {name: value for name, value in asdict(self).items() if name not in choices}


SampleT = TypeVar("SampleT")
SettingsT = TypeVar("SettingsT", bound=JobSettings)
_MULTIMER_ROWS = MultimerConfig()


@dataclass(frozen=True, kw_only=True)
class AlphaFold2Settings(JobSettings):
    """The settings of networks of AlphaFold2's architecture.

    Args:
        num_recycles: number of passes after the first one.
        recycle_early_stop_tolerance: recycling stops when Cα distances change by less (Å); 0 disables this.
        max_seq: rows of the clustered alignment.
        refine: make peptide bonds regular and remove clashes; see `model.refinement.refine`.
        multimer_tolerance: `recycle_early_stop_tolerance` of multimer networks.
        initial_guess: the structure that recycling starts from, or a folder of them; None without.
        msa_mask: share of the alignment's columns that each seed masks.
        dropout: the network drops updates as in its training.
        msa_cluster: seeds from 1 predict from one cluster of the alignment's rows each.
    """

    num_recycles: int = 3
    recycle_early_stop_tolerance: float = 0.0
    max_seq: int = 512
    max_extra_seq: int = 5120
    refine: bool = False
    multimer_num_recycles: int = MULTIMER_RECYCLES
    multimer_tolerance: float = MULTIMER_TOLERANCE
    initial_guess: Path | None = None
    cyclic: tuple[str, ...] = ()
    msa_mask: float = 0.0
    msa_cluster: bool = False
    dropout: bool = False

    @property
    def num_passes(self) -> int:
        """Passes through the network per model and seed, if recycling does not stop early."""
        return self.num_recycles + 1

    def for_multimer(self) -> "AlphaFold2Settings":
        """Return the settings of multimer networks; those of the others are `self`."""
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
        settings += ["--initial-guess"] if self.initial_guess is not None else []
        settings += ["--cyclic"] if self.cyclic else []
        settings += [f"--msa-mask {self.msa_mask:g}"] if self.msa_mask else []
        settings += ["--msa-cluster"] if self.msa_cluster else []
        settings += ["--dropout"] if self.dropout else []
        return [*settings, *([] if self.refine else ["--no-refine"])]

    def start_structure(self, name: str) -> Path | None:
        """Return the structure that recycling starts from for a target; None to start from nothing.

        Raises:
            InputError: the folder has no structure of the target, or several.
        """
        path = self.initial_guess
        if path is None or not path.is_dir():
            return path
        from foldcli.comparison.references import find_reference  # imports gemmi

        if (found := find_reference(path, name)) is None:
            raise InputError(f"no structure of target {name} for --initial-guess: {name}.cif or .pdb", path)
        return found

    def identity_of(self, name: str) -> dict[str, Any]:
        """Return the content of the structure that recycling starts from; see `JobSettings.identity_of`."""
        path = self.start_structure(name)
        return {} if path is None else {"initial_guess": file_sha256(path)}

    def identity(self) -> dict[str, Any]:
        """Return the values that every prediction depends on: not the choice of jobs, extras or ranking."""
        # these names and their order are part of the results, so they must never change
        return {
            "num_recycle": self.num_recycles,
            "recycle_early_stop_tolerance": self.recycle_early_stop_tolerance,
            "max_seq": self.max_seq,
            "max_extra_seq": self.max_extra_seq,
            "precision": self.precision,
            "kernels": self.kernels,
        } | {
            name: value
            for name, value in (
                ("refine", self.refine),
                ("cyclic", list(self.cyclic)),
                ("msa_mask", self.msa_mask),
                ("msa_cluster", self.msa_cluster),
                ("dropout", self.dropout),
            )
            if value
        }


@dataclass(frozen=True, kw_only=True)
class AllAtomSettings(JobSettings):
    """The settings of all-atom networks; the defaults are OpenFold3's.

    Args:
        num_recycles: number of cycles of the trunk after the first one.
        dropout: the network drops updates as in its training.
    """

    num_recycles: int = 3
    num_steps: int = 200
    num_samples: int = 5
    dropout: bool = False

    @property
    def num_passes(self) -> int:
        """Cycles and denoising steps."""
        return self.num_recycles + 1 + self.num_steps

    def identity(self) -> dict[str, Any]:
        """Return the values that every prediction depends on; a sample does not depend on their number."""
        return {
            "num_recycle": self.num_recycles,
            "num_diffusion_steps": self.num_steps,
            "precision": self.precision,
            "kernels": self.kernels,
        } | ({"dropout": True} if self.dropout else {})


@dataclass(frozen=True)
class NetworkOptions:
    """The network's options as given on the command line, before the device is known.

    Args:
        params: folder of parameters, "alphafold2", "template", "compact", or None for the default.
        models: model numbers, in the order in which they run.
        model_type: "auto", or the type of parameters.
        max_memory: largest number of bytes to use on the GPU; None is all that is free.
        precision: None is the fastest that the device supports.
        kernels: "auto" is the fastest that the device supports.
        predict: the other settings; the precision and kernels in it are ignored. `Family.settings` gets those
            of AlphaFold2's networks as given.
        gpus_per_target: number of processes that predict each target together.
        rank_timeout: seconds without progress after which one of these processes counts as failed.
        num_recycles: value of `--num-recycle`; None selects the network's default.
        refine: value of `--refine`; None selects the network's default.
        num_diffusion_samples: value of `--num-diffusion-samples`; None selects the network's default.
        num_diffusion_steps: value of `--num-diffusion-steps`; None selects the network's default.
    """

    params: str | None
    models: tuple[int, ...]
    model_type: ModelType
    device: str
    max_memory: int | None
    precision: Literal["bf16", "fp32"] | None
    kernels: Literal["auto", "fused", "reference"]
    predict: Any
    gpus_per_target: int = 1
    rank_timeout: float = 600.0
    num_recycles: int | None = None
    refine: bool | None = None
    num_diffusion_samples: int | None = None
    num_diffusion_steps: int | None = None

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that `device` lists, each of which predicts targets of its own."""
        kind, _, numbers = self.device.partition(":")
        return tuple(f"{kind}:{number}" for number in numbers.split(",")) if numbers else (self.device,)

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> "NetworkOptions":
        """Create the options from the values of the options in `foldcli.options.predict`.

        The settings are those of AlphaFold2's networks; see `foldcli.families.registry.with_params`.

        Raises:
            OptionError: --num-models is larger than the number of models.
        """
        copied_options = ("params", "model_type", "device", "max_memory", "precision", "kernels",
                          "gpus_per_target", "rank_timeout", "num_recycles", "refine",
                          "num_diffusion_samples", "num_diffusion_steps")  # fmt: skip
        copied_settings = ("stop_at_score", "rank", "initial_guess", "cyclic", "msa_mask", "msa_cluster",
                           "dropout")  # fmt: skip
        models, num_models = options["models"], options["num_models"]
        if num_models is not None and num_models > len(models):
            raise OptionError(f"--num-models {num_models}: --models has only {len(models)}.")
        max_seq, max_extra_seq = options["max_msa"]
        num_recycles, tolerance = options["num_recycles"], options["recycle_early_stop_tolerance"]
        defaults = AlphaFold2Settings
        # DeepMind runs multimer v1 and v2 with the recycling of monomers
        is_old_multimer = options["model_type"] in OLD_MULTIMER_TYPES
        multimer_recycles = defaults.num_recycles if is_old_multimer else defaults.multimer_num_recycles
        multimer_tolerance = 0.0 if is_old_multimer else defaults.multimer_tolerance
        return cls(
            **{name: options[name] for name in copied_options},
            models=models[:num_models],
            predict=AlphaFold2Settings(
                num_recycles=value_or_default(num_recycles, defaults.num_recycles),
                recycle_early_stop_tolerance=value_or_default(
                    tolerance, defaults.recycle_early_stop_tolerance
                ),
                **JobSettings.seed_values(options),
                max_seq=max_seq,
                max_extra_seq=max_extra_seq,
                extras=tuple(extra for extra in EXTRAS if options[f"save_{extra}"]),
                refine=bool(options["refine"]),
                **{name: options[name] for name in copied_settings},
                multimer_num_recycles=value_or_default(num_recycles, multimer_recycles),
                multimer_tolerance=value_or_default(tolerance, multimer_tolerance),
            ),
        )
