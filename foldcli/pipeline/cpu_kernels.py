"""Compilation of the CPU kernels that the first target of a run needs, before it needs them.

numba compiles a kernel at its first call, and keeps it on disk. In the process of the run, this would hold
the interpreter's lock for seconds, during which torch is imported and the first searches begin. Other
processes therefore call the kernels once on tiny data, and the run then loads what they have compiled. A mark
in the cache says that this has been done, so that later runs start no process.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from foldcli.logs import log_time_since_start, logger
from foldcli.paths import cache_dir
from foldcli.pipeline.background import run_in_background
from foldcli.pipeline.fingerprints import fingerprint
from foldcli.process_state import set_numba_cache_folder, set_up_worker_process
from msa.io.atomic import atomic_write

if TYPE_CHECKING:
    import numpy as np

    from msa.search.hits import Hits

FEATURES = ("prepare_features",)
"""Names of the functions here that call the kernels of features."""
ALIGNMENTS = ("call_filter_kernels",)
"""Names of those that call the kernels which make alignments of hits."""
ITERATIONS = (
    "call_alignment_kernels", "call_family_kernels", "call_score_kernels", "call_null_score_kernels",
)  # fmt: skip
"""Names of those that call the kernels which searches need between their iterations, the slowest first."""

REFINEMENT = ("call_refinement_kernels",)
"""Names of those that call the kernels which refine structures."""

_PACKAGES = Path(__file__).resolve().parents[2]
_COMMAND = (
    sys.executable,
    "-c",
    "import sys; sys.path[:] = sys.argv[1:]; from foldcli.pipeline.cpu_kernels import main; main()",
)
# a limit in case a process hangs; compilations take seconds
_MAX_SECONDS = 900
# packages with kernels that numba compiles
_WITH_KERNELS = "msa", "features", "model/refinement"
# longer than the blocks in which kernels compare rows
_SEQUENCE = "MKWVTFISLLFLFSSAYSRGVFRRDAHKSEVAHRFKDLGEENFKALVLIAFAQYLQQCPFEDHVKLVNEVTEFAKTCVADES"
# as many as are scored together
_MANY_TARGETS = 64


def compile_cpu_kernels(calls: Sequence[str]) -> "Future[None]":
    """Compile kernels in processes, unless that has been done; the first use should wait for the result.

    Errors are ignored here; the first use compiles what is missing.

    Args:
        calls: names of functions of this module, each of which is called in a process.
    """

    def compile_missing() -> None:
        state = _numba_state()
        missing = [call for call in calls if not _is_marked(call, state)]
        if not missing:
            return
        try:
            process = subprocess.run(
                [*_COMMAND, *sys.path], input="\n".join(missing), text=True, timeout=_MAX_SECONDS,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            logger.warning("CPU kernels were not compiled within %d s, and will be when used", _MAX_SECONDS)
            return
        log_time_since_start("the CPU kernels are compiled")
        if process.returncode == 0:
            for call in missing:
                with atomic_write(_mark(call)) as stream:
                    stream.write(state)

    return run_in_background(compile_missing)


def _numba_state() -> str:
    """Return a digest of what numba recognises compiled kernels by: its version, the CPU and the modules."""
    files = [path for package in _WITH_KERNELS for path in sorted((_PACKAGES / package).rglob("*.py"))]
    cpu = Path("/proc/cpuinfo").read_text().partition("\n\n")[0] if Path("/proc/cpuinfo").exists() else ""
    return fingerprint(
        {
            "numba": metadata.version("numba"),
            "python": sys.implementation.cache_tag,
            "cpu": [line for line in cpu.splitlines() if line.startswith(("model name", "flags"))],
            "modules": [(str(path), path.stat().st_mtime_ns) for path in files],
        }
    )


def _mark(call: str) -> Path:
    """Return the path of the file that marks the kernels of a function here as compiled.

    It is in the folder of numba's files, so that it disappears with them, or else in foldcli's cache.
    """
    folder = set_numba_cache_folder()
    is_writable = os.access(folder, os.W_OK) or not folder.exists()
    return (folder if is_writable else cache_dir() / "kernels") / f"compiled-{call}"


def _is_marked(call: str, state: str) -> bool:
    try:
        return _mark(call).read_text() == state
    except OSError:
        return False


def main() -> None:
    """Call the functions named on standard input, each in a process; exit with 1 if one fails."""
    names = sys.stdin.read().split()
    set_up_worker_process(os.getppid(), lambda number, frame: os._exit(1))
    # once, before the process forks: these take a large share of the time of a compilation
    import numba
    import numpy as np

    import msa.search.alignment_filter
    import msa.search.families  # noqa: F401

    numba.njit(_use_common_operations)(np.zeros((1, 2), np.uint8))
    children = []
    for name in names[1:]:
        parent = os.getpid()
        if (child := os.fork()) == 0:
            set_up_worker_process(parent, lambda number, frame: os._exit(1))
            globals()[name]()
            os._exit(0)
        children.append(child)
    globals()[names[0]]()
    statuses = [os.waitpid(child, 0)[1] for child in children]
    sys.exit(any(statuses))


def _use_common_operations(rows: "np.ndarray") -> int:
    """Use the operations that most kernels use."""
    count = 0
    for row in rows:
        count += len(row[1:])
    return count


def prepare_features() -> None:
    """Make, pack, unpack and sample small features, so that numba loads or compiles their kernels."""
    from features.deterministic import make_features
    from features.encoding import decode, encode
    from features.sampling import SamplingSettings, sample_features
    from msa.io.alignments import parse_alignment

    blocks, layout = encode(make_features([parse_alignment(b">a\nAC\n>b\nAG\n>c\nCC\n")]))
    features = decode({name: memoryview(block) for name, block in blocks.items()}, layout)
    sample_features(features, SamplingSettings(max_seq=2, max_extra_seq=1), 1, 0)


def call_family_kernels() -> None:
    """Make the profile of a family."""
    from msa.alphabet import encode
    from msa.profile.family_profile import MAX_MEMBER_IDENTITY, distinct_rows, family_profile
    from msa.search.alignment_rows import code_rows

    family_profile(distinct_rows(code_rows(encode(_SEQUENCE), _hits()), MAX_MEMBER_IDENTITY))


def call_score_kernels() -> None:
    """Correct scores, and compute E-values, in an iterated search."""
    from msa.search.compiled_scoring import call_scoring_kernels

    call_scoring_kernels(with_forward=False)


def call_null_score_kernels() -> None:
    """Score many targets at once."""
    _align(_MANY_TARGETS)


def call_alignment_kernels() -> None:
    """Align a single target, as after scores that are too large for a byte."""
    _align(1)


def call_filter_kernels() -> None:
    """Select hits for an alignment."""
    from msa.io.fasta import FastaRecord
    from msa.search.alignment_filter import alignment_hits
    from msa.search.settings import FOLDING_FILTER

    criteria = replace(FOLDING_FILTER, filter_min_enable=0)
    alignment_hits(FastaRecord("query", _SEQUENCE), _hits(), criteria)


def call_refinement_kernels() -> None:
    """Refine the structure of two residues without atoms."""
    import numpy as np

    from model import residue_constants
    from model.prediction import Prediction
    from model.refinement.refine import WEIGHTS, refine

    aatype, positions = np.zeros(2, np.int64), np.zeros((2, 37, 3), np.float32)
    mask = residue_constants.atom37_mask()[aatype]
    prediction = Prediction(aatype, np.arange(2), positions, mask, np.zeros(2), None, None, None, 0, ())
    refine(prediction, WEIGHTS._replace(steps=1))


def _hits() -> "Hits":
    """Return two hits of _SEQUENCE: fragments of it."""
    import numpy as np

    from msa.alphabet import encode
    from msa.database.sequence_arrays import SequenceArrays
    from msa.search.hits import Hits, LocalAlignment, StoredSequences, alignment_paths

    lengths = 70, 60
    arrays = SequenceArrays.concatenate([encode(_SEQUENCE[:length]) for length in lengths])
    alignments = [
        LocalAlignment(9, 1, length, 1, length, length, length, np.array([4 * length], np.int32))
        for length in lengths
    ]
    indices, numbers = np.arange(len(lengths)), np.ones(len(lengths))
    source = StoredSequences(["a", "b"], arrays)
    return Hits(len(_SEQUENCE), source, indices, indices, numbers, numbers, alignment_paths(alignments))


def _align(targets: int) -> None:
    """Compute the scores of alignments of the profile of _SEQUENCE to some targets."""
    import numpy as np

    from msa.alphabet import encode
    from msa.cpu.smith_waterman_scores import alignment_scores
    from msa.database.sequence_arrays import SequenceArrays
    from msa.io.fasta import FastaRecord
    from msa.search.family import initial_profile
    from msa.search.settings import SearchSettings

    profile = initial_profile(FastaRecord("query", _SEQUENCE), SearchSettings()).profile
    sequences = SequenceArrays.concatenate(targets * [encode("AC")])
    alignment_scores(profile, sequences, np.arange(targets))
