"""The phases of a `foldcli` command that searches: when each begins and ends, in seconds after its start.

    python benchmarks/search_phases.py search QUERY.fasta DB -o OUT.m8 [options of the command]

Phases of different threads overlap; "CPU" is the time for which the threads had the processor. The table goes
to stderr; search_gpu.py runs this script.
"""

import functools
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from foldcli.errors import run_with_exit_codes
from foldcli.logs import seconds_since_start

OFFSET = seconds_since_start() - time.perf_counter()

# module → function or method → name of the phase
FUNCTIONS = {
    "foldcli.pipeline.search_table": {"write_table": "the run, after the imports of the command"},
    "foldcli.pipeline.searcher": {
        "open_search_engine": "engine opened, GPU included",
        "DatabaseSource.open": "database opened",
    },
    "msa.gpu.opening": {"create_context": "driver and context"},
    "msa.gpu.kernel_compiler": {"KernelCompiler._compile_stage": "kernels looked for and compiled"},
    "cuda.alignment.kernel_cache": {"load_binary": "kernel loaded"},
    "msa.gpu.database_stream": {"DatabaseStream._copy_chunk": "chunk of the database queued"},
    "msa.gpu.local_worker": {
        "LocalWorker._upload_queries": "tables of a batch built and uploaded",
        "LocalWorker._queue_filter": "filter queued",
        "_wait_for_filter": "filter waited for",
    },
    "msa.gpu.filtering": {"PendingFilter.wait": "GPU waited for, and targets read"},
    "msa.gpu.group": {"GpuGroup._candidates": "candidates of a batch"},
    "msa.search.engine": {
        "Selection.possible": "candidates that may pass",
        "Selection.passing": "candidates that pass",
    },
    "msa.search.profile_search": {
        "ProfileSearch._hits": "hits of a query",
    },
    "msa.search.candidate_scorer": {"CandidateScorer.score": "candidates scored"},
    "msa.search.scoring_process": {"RemoteScoring.submit": "candidates sent to be scored"},
    "msa.search.further_alignments": {"FurtherAlignments.add_to": "further alignments"},
    "msa.gpu.alignment": {"BatchAligner.scores": "scores aligned", "BatchAligner.paths": "paths traced"},
    "msa.search.families": {"FamilyBuilder.update": "family updated"},
    "msa.profile.pssm": {"query_profile": "profile of a query"},
    "msa.io.m8": {"write_m8": "hits written"},
}
calls: dict[str, list[tuple[float, float, float]]] = {}
lock = threading.Lock()


def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, which now records when it is called."""

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        start, processor = time.perf_counter(), time.thread_time()
        try:
            return function(*arguments, **options)
        finally:
            span = start + OFFSET, time.perf_counter() + OFFSET, time.thread_time() - processor
            with lock:
                calls.setdefault(name, []).append(span)

    return call


class TimedImports(MetaPathFinder):
    """A finder of modules that times functions of the modules in FUNCTIONS."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module of FUNCTIONS with the other finders, and replace its functions after its import."""
        if name not in FUNCTIONS:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(spec for finder in others if (spec := finder.find_spec(name, path, target)) is not None)
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_replace(module: ModuleType) -> None:
            execute(module)
            for path_in_module, phase in FUNCTIONS[name].items():
                *owners, attribute = path_in_module.split(".")
                owner = functools.reduce(getattr, owners, module)
                setattr(owner, attribute, timed(phase, getattr(owner, attribute)))

        spec.loader.exec_module = execute_and_replace  # type: ignore[method-assign]
        return spec


def report() -> None:
    """Print the phases, first those that begin first."""
    columns = ("from", "to", "sum", "CPU")
    print(f"{'phase':44s}{'calls':>6s}" + "".join(f"{name:>9s}" for name in columns), file=sys.stderr)
    for name, spans in sorted(calls.items(), key=lambda each: each[1][0]):
        first, last = min(start for start, _, _ in spans), max(end for _, end, _ in spans)
        total, processor = sum(end - start for start, end, _ in spans), sum(cpu for _, _, cpu in spans)
        numbers = "".join(f"{number:9.3f}" for number in (first, last, total, processor))
        print(f"{name:44s}{len(spans):6d}{numbers}", file=sys.stderr)
    print(f"{'CPU of the whole process':77s}{time.process_time():9.3f}", file=sys.stderr)
    print(f"{'end of the command':50s}{time.perf_counter() + OFFSET:9.3f}", file=sys.stderr)


def main() -> None:
    """Run the command line, and report its phases."""
    from foldcli.cli import cli  # after the finder is in place, as everything that it imports

    calls["this script begins"] = [(0.0, time.perf_counter() + OFFSET, time.process_time())]
    code = run_with_exit_codes(cli)
    report()
    sys.exit(code)


if __name__ == "__main__":
    sys.meta_path.insert(0, TimedImports())
    main()
