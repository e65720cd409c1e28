"""A training run of an all-atom network, from the complexes of a folder."""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import safetensors.torch
import torch

from features.training.complexes import ComplexSet
from features.training.labels import MoleculeTable
from foldcli.params.openfold3 import (
    OPENFOLD3,
    SUFFIX,
    TRAINED,
    AllAtomParameters,
    find_parameters,
    openfold3_folder,
    write_manifest,
)
from foldcli.training.settings import AllAtomRunSettings
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.network import AlphaFold3
from model.checkpoints.openfold3 import openfold3_tensors, translate
from model.errors import DataError
from model.training.alphafold3.permutation import Crop, Experiment, Molecules
from model.training.alphafold3.task import AllAtomTask, AllAtomTrainingSample, NumberedSample
from model.training.runtime.checkpoint import FULL_NAME, load
from model.training.runtime.parameters import FlatParameters
from model.training.runtime.processes import TrainingProcesses
from model.training.runtime.trainer import Trainer
from msa.base.atomic import replaced_file
from msa.base.digests import file_sha256


class ComplexSamples:
    """The samples of a run on a device; a thread makes the next one while the network computes.

    Args:
        processes: the processes that train together, which take the samples in turn.
    """

    def __init__(
        self, complexes: ComplexSet, settings: AllAtomRunSettings, processes: TrainingProcesses
    ) -> None:
        self._complexes, self._settings, self._processes = complexes, settings, processes
        self._thread = ThreadPoolExecutor(1)
        self._next: tuple[int, Future[AllAtomTrainingSample]] | None = None

    def __call__(self, number: int) -> AllAtomTrainingSample:
        """Return the sample of a number."""
        if self._next is None or self._next[0] != number:
            self._next = number, self._thread.submit(self._make, number)
        sample = self._next[1].result()
        following = number + self._processes.count
        self._next = following, self._thread.submit(self._make, following)
        return sample

    def _make(self, number: int) -> AllAtomTrainingSample:
        settings, device = self._settings, self._processes.device
        drawn = self._complexes.draw(settings.seed, number, settings.crop, settings.crops)
        symmetries = {key: torch.as_tensor(orders) for key, orders in drawn.crop.symmetries.items()}
        return AllAtomTrainingSample(
            AlphaFold3Inputs.from_arrays(drawn.features, device).for_network(settings.network),
            Crop(_molecules(drawn.crop), symmetries),
            Experiment(
                _molecules(drawn.whole.molecules),
                torch.as_tensor(drawn.whole.positions),
                torch.as_tensor(drawn.whole.resolved),
            ),
        )


def _molecules(table: MoleculeTable) -> Molecules:
    columns = {name: x for name, x in vars(table).items() if name != "symmetries"}
    return Molecules(**{name: torch.as_tensor(x) for name, x in columns.items()})


def all_atom_trainer(
    settings: AllAtomRunSettings,
    complexes: ComplexSet,
    run: Path,
    processes: TrainingProcesses,
    resume: bool = False,
) -> Trainer[NumberedSample]:
    """Return a training run on complexes; see `Trainer`."""
    held_out = None
    if settings.validation:
        held_out = ComplexSamples(ComplexSet(Path(settings.validation)), settings, processes)
    samples = ComplexSamples(complexes, settings, processes)
    task = AllAtomTask(settings, samples, processes, held_out, _initial_file)
    return Trainer(task, run, processes, resume)


def package(run: Path, settings: AllAtomRunSettings, folder: Path) -> AllAtomParameters:
    """Write the averaged network of a run as a folder of parameters that predictions read.

    Raises:
        DataError: there is no checkpoint, or it belongs to another network.
        ParametersError: the network has other sizes than OpenFold3's, so that predictions cannot read it.
    """
    if not (run / FULL_NAME).exists():
        raise DataError(f"{run / FULL_NAME}: no such checkpoint")
    network = AlphaFold3(settings.network, "reference")
    flat = FlatParameters(network, torch.device("cpu"))
    load(run, flat, {}, settings.network)
    flat.values.copy_(flat.average)
    tensors = openfold3_tensors(network.state_dict())
    config, _ = translate(tensors, run / FULL_NAME)
    name = settings.network.name
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}{SUFFIX}"
    content = safetensors.torch.save({key: x.contiguous() for key, x in tensors.items()})
    with replaced_file(target) as path:
        path.write_bytes(content)
    result = AllAtomParameters(
        name, config.variant, target, TRAINED, bytes=target.stat().st_size, sha256=file_sha256(target)
    )
    write_manifest(result)
    return result


def _initial_file(name: str) -> Path:
    """Return the file of the parameters that a run starts from; see `find_parameters`."""
    return find_parameters(openfold3_folder() if name == OPENFOLD3 else Path(name)).file
