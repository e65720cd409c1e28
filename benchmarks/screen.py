"""Seconds of `foldcli screen` for 200 pairs of real proteins, and the GPU's load.

    python benchmarks/screen.py SEQUENCES.fasta.gz [--baits 10] [--preys 20] [--options "..."]
    python benchmarks/screen.py SEQUENCES.fasta.gz --baits 1 --designs 1000 [--design-length 64]
                                [--colabfold-python PYTHON]

SEQUENCES is the database; baits and preys are sequences from it with 100 to 300 residues, drawn at random.
Each bait is predicted with each prey. The network is model_1_multimer_v3 with random parameters, 3 recycles.
A screen of one pair, with an empty cache, compiles the kernels before. The GPU's load is measured as in
fold.py. With --designs, the preys are random sequences, such as designed binders, without relatives in the
database, so that all complexes share the bait's alignment; structures per hour are printed, next to those of
ColabFold's engine, whose passes of a complex of this length are timed afterwards as in colabfold_pass.py: an
upper bound, without its features and files. --tiny runs a tiny network on a machine without a GPU,
--colabfold-python names a Python that has alphafold-colabfold, and --options are further ones of screen.
"""

import itertools
import tempfile
from pathlib import Path

import colabfold_pass
import numpy as np
from fold import run_foldcli, write_database
from options import parse_options
from processes import compile_bytecode
from random_parameters import network_config, write_random_parameters

from msa.io.fasta import FastaRecord, read_fasta

MIN_RESIDUES, MAX_RESIDUES = 100, 300
RECYCLES = 3


def draw_chains(records: list[FastaRecord], baits: int, preys: int) -> list[FastaRecord]:
    """Return randomly drawn sequences of suitable lengths, baits first."""
    suitable = [record for record in records if MIN_RESIDUES <= len(record.sequence) <= MAX_RESIDUES]
    random = np.random.default_rng(23)
    return [suitable[k] for k in random.choice(len(suitable), baits + preys, replace=False)]


def draw_designs(count: int, length: int) -> list[FastaRecord]:
    """Return random sequences of one length."""
    letters = np.random.default_rng(5).choice(list("ADEGHIKLMNPQRSTVWY"), (count, length))
    return [FastaRecord("", "".join(row)) for row in letters]


def write_chains(path: Path, letter: str, records: list[FastaRecord]) -> None:
    """Write a FASTA file with short names."""
    path.write_text("".join(f">{letter}{k:04}\n{record.sequence}\n" for k, record in enumerate(records)))


def screen(folder: Path, name: str, files: list[str], options: str) -> None:
    """Run `foldcli screen` on two files of chains, and print its times and the GPU's load."""
    arguments = ["screen", *(str(folder / file) for file in files), "--db", str(folder / "db")]
    arguments += ["-o", str(folder / name), "--cache", str(folder / f"features-{name}"), "-v"]
    arguments += ["--params", str(folder / "params"), "--model-type", "multimer_v3", "--models", "1"]
    arguments += ["--num-recycle", str(RECYCLES), *options.split()]
    run = run_foldcli(arguments, folder, name, folder / "cache")
    complexes = (folder / name / "summary.tsv").read_text().count("\n") - 1
    per_hour = 3600 * complexes / (run.seconds - run.first_block)
    print(f"{name}: {complexes} complexes in {run.seconds:.1f} s, first block after {run.first_block:.1f} s")
    print(f"    {per_hour:,.0f} structures per hour after the first block")
    print(f"    GPU: {run.load}")
    print(f"    {run.compiled} kernels compiled in mid-run; s after the start: {run.phases}", flush=True)


def time_colabfold(python: str | None, residues: int, tiny: bool) -> None:
    """Print the structures per hour of ColabFold's engine for complexes of this length."""
    arguments = [] if python is None else ["--colabfold-python", python]
    arguments += ["--device", "cpu", "--blocks", "1", "--repeats", "1", "--warm-up", "1"] if tiny else []
    options = colabfold_pass.read_options(arguments)
    figures = colabfold_pass.run_engine(colabfold_pass.colabfold_engine(options), options, residues)
    if isinstance(figures, str):
        print(f"ColabFold's engine is skipped: {figures}")
        return
    per_hour = 3600 / ((RECYCLES + 1) * figures["seconds"])
    print(f"ColabFold's engine: {figures['seconds']:.3f} s a pass of {residues} residues, compiled before")
    print(f"    at most {per_hour:,.0f} structures per hour")


def main() -> None:
    """Run the benchmark and print the results."""
    arguments = parse_options(
        __doc__, "sequences", baits=10, preys=20, designs=0, design_length=64, max_records=int, options="",
        tiny=False, colabfold_python=str
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        records = list(itertools.islice(read_fasta(arguments.sequences), arguments.max_records))
        write_database(folder, records)
        config = network_config("model_1_multimer_v3", arguments.tiny)
        write_random_parameters(folder / "params", config)
        chains = draw_chains(records, arguments.baits, 0 if arguments.designs else arguments.preys)
        baits, preys = chains[: arguments.baits], chains[arguments.baits :]
        if arguments.designs:
            preys = draw_designs(arguments.designs, arguments.design_length)
        write_chains(folder / "baits.fasta", "b", baits)
        write_chains(folder / "preys.fasta", "p", preys)
        write_chains(folder / "bait.fasta", "b", baits[:1])
        write_chains(folder / "prey.fasta", "p", preys[:1])
        mean = np.mean([len(b.sequence) + len(p.sequence) for b in baits for p in preys])
        print(f"{len(records):,} sequences in the database; complexes have {mean:.0f} residues on average")
        compile_bytecode(folder)
        options = f"--device cpu {arguments.options}" if arguments.tiny else arguments.options
        screen(folder, "one", ["bait.fasta", "prey.fasta"], options)
        screen(folder, "all", ["baits.fasta", "preys.fasta"], options)
    if arguments.designs:
        # once foldcli has left the GPU
        time_colabfold(arguments.colabfold_python, round(mean), arguments.tiny)


if __name__ == "__main__":
    main()
