"""Time, compilation and peak memory of a pass of ColabFold's network next to one of ours, on the same GPU.

    python benchmarks/colabfold_pass.py [--network multimer] [--lengths 1024,2048,4096] [--repeats 3]
                                        [--warm-up 2] [--blocks 48] [--device cuda:0]
                                        [--colabfold-python PYTHON]

The networks are model_1_multimer_v3 (--network multimer; a complex of two chains of equal length without
templates) and model_3_ptm (--network monomer), with random parameters, the same random features, 508 + 2,048
rows and bfloat16. A pass is one recycle; for the multimer, it includes the sampling of rows. ColabFold's is
that of alphafold-colabfold's `RunModel`, without the heads that ColabFold turns off by default; it includes
pLDDT, PAE and pTM, which we compute after the last pass only. Times are medians of --repeats passes after
--warm-up others. "First" is our first pass, which compiles kernels that are not in the cache; "compiled" is
the time that JAX needs before its first pass. Peaks are those of the allocators; "planned" is our memory plan
and the sum of XLA's buffers.

Each length and engine has a process of its own, one after the other, so that the engines do not share memory.
An engine that cannot be imported is skipped. ColabFold runs with --use-fast-kernels and --compile-mode tuned.
--blocks 1 --device cpu is a short test, in which neither network has fused kernels.

With --colabfold-python, ColabFold's side runs in another environment, which needs no torch. In addition to
NumPy, scipy, jax and jaxlib 0.11.2 with the CUDA plug-in, it needs these wheels (for Python 3.12). Install
them with --no-deps: some ask for packages that the network does not use.

    absl-py 2.5.1               colabfold-kernels 0.9.0     dm-tree 0.1.10              ml-collections 1.1.0
    alphafold-colabfold 2.3.27  dm-haiku 0.0.17             jmp 0.0.4                   pyyaml 6.0.3
    tabulate 0.10.0

--colabfold-python: Python that has alphafold-colabfold.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from options import parse_options

FOLDER = Path(__file__).resolve().parent
GIB = 2**30
ERROR = re.compile(r"^[\w.]*(?:Error|Exception)\b.*", re.MULTILINE)
# of the GPU's memory; at JAX's default of 75 %, 4,096 residues do not fit
MEMORY_FRACTION = "0.97"


class Engine(NamedTuple):
    """A program whose network is measured."""

    name: str
    script: str
    python: str
    environment: dict[str, str]


def run_engine(engine: Engine, options: argparse.Namespace, length: int) -> dict[str, float] | str:
    """Measure passes of one length in a new process.

    Returns:
        Its figures, or the error that it ended with.
    """
    process = subprocess.run(
        [
            engine.python,
            str(FOLDER / engine.script),
            "--json",
            json.dumps(vars(options) | {"length": length}),
        ],
        env=os.environ | engine.environment,
        capture_output=True,
        text=True,
    )
    if process.returncode == 0:
        return json.loads(process.stdout.splitlines()[-1])
    sys.stderr.write(process.stderr)
    errors = ERROR.findall(process.stderr)
    return errors[-1] if errors else f"exit status {process.returncode}"


def cells(figures: dict[str, float] | None) -> list[str]:
    """Return the cells of an engine: time of a pass, GiB, and time of the first pass or of compilation."""
    if figures is None:
        return ["–", "–", "–"]
    return [
        f"{figures['seconds']:.3f} s",
        f"{figures['peak_bytes'] / GIB:.1f} ({figures['planned_bytes'] / GIB:.1f})",
        f"{figures['first_seconds']:.1f} s",
    ]


def read_options(command_line: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options, by default of the command line; other benchmarks use the defaults too."""
    return parse_options(
        __doc__, command_line=command_line, network=("multimer", "monomer"), lengths="1024,2048,4096",
        repeats=3, warm_up=2, blocks=48, device=("cuda:0", "cpu"), colabfold_python=sys.executable
    )  # fmt: skip


def colabfold_engine(options: argparse.Namespace) -> Engine:
    """Return ColabFold's engine in the Python of the options."""
    environment = {
        "JAX_PLATFORMS": "cpu" if options.device == "cpu" else "cuda",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_CLIENT_MEM_FRACTION": MEMORY_FRACTION,
    }
    return Engine("ColabFold", "engine_colabfold.py", options.colabfold_python, environment)


def main() -> None:
    """Print one row for each length."""
    options = read_options()
    engines = [Engine("foldcli", "network_pass.py", sys.executable, {}), colabfold_engine(options)]
    skipped = set()
    columns = "residues, foldcli, peak (planned) GiB, first, ColabFold, peak (planned) GiB, compiled, ratio"
    print(f"| {columns.replace(', ', ' | ')} |")
    for length in map(int, options.lengths.split(",")):
        row, seconds, problems = [str(length)], [], []
        for engine in engines:
            figures = None
            if engine.name not in skipped:
                result = run_engine(engine, options, length)
                if isinstance(result, str):
                    problems.append(f"{engine.name}, {length} residues: {result}")
                    if result.startswith(("ImportError", "ModuleNotFoundError")):
                        skipped.add(engine.name)
                        problems[-1] = f"{engine.name} is skipped: {result}"
                else:
                    figures = result
                    seconds.append(figures["seconds"])
            row += cells(figures)
        row.append(f"{seconds[1] / seconds[0]:.2f} ×" if len(seconds) == len(engines) else "–")
        print(f"| {' | '.join(row)} |", *problems, sep="\n", flush=True)


if __name__ == "__main__":
    main()
