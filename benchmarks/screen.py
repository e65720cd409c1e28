"""Seconds of `foldcli screen` for 200 pairs of real proteins, and the GPU's load.

    python benchmarks/screen.py SEQUENCES.fasta.gz [--baits 10] [--preys 20] [--options "..."]
    python benchmarks/screen.py SEQUENCES.fasta.gz --baits 1 --designs 1000 [--design-length 64]

SEQUENCES is the database; baits and preys are sequences from it with 100 to 300 residues, drawn at random.
Each bait is predicted with each prey. The network is model_1_multimer_v3 with random parameters, 3 recycles.
A screen of one pair, with an empty cache, compiles the kernels before. The GPU's load is measured as in
fold.py. With --designs, the preys are random sequences, such as designed binders, without relatives in the
database, so that all complexes share the bait's alignment; structures per hour are printed, to compare with
the passes of ColabFold's engine that colabfold_pass.py times.

--designs: random preys instead of drawn ones; --max-records: sequences of the database; --options: further
options of screen.
"""

import itertools
import tempfile
from pathlib import Path

import numpy as np
from fold import run_foldcli, write_database
from options import parse_options
from runs import compile_bytecode, write_random_parameters

from model.alphafold2.modules.config import model_config
from msa.io.fasta import FastaRecord, read_fasta

MIN_RESIDUES, MAX_RESIDUES = 100, 300


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
    arguments += ["--num-recycle", "3", *options.split()]
    run = run_foldcli(arguments, folder, name, folder / "cache")
    complexes = (folder / name / "summary.tsv").read_text().count("\n") - 1
    per_hour = 3600 * complexes / (run.seconds - run.first_block)
    print(f"{name}: {complexes} complexes in {run.seconds:.1f} s, first block after {run.first_block:.1f} s")
    print(f"    {per_hour:,.0f} structures per hour after the first block")
    print(f"    GPU: {run.load}")
    print(f"    {run.compiled} kernels compiled in mid-run; s after the start: {run.phases}", flush=True)


def main() -> None:
    """Run the benchmark and print the results."""
    arguments = parse_options(
        __doc__, "sequences", baits=10, preys=20, designs=0, design_length=64, max_records=int, options=""
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        records = list(itertools.islice(read_fasta(arguments.sequences), arguments.max_records))
        write_database(folder, records)
        write_random_parameters(folder / "params", model_config("model_1_multimer_v3"))
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
        screen(folder, "one", ["bait.fasta", "prey.fasta"], arguments.options)
        screen(folder, "all", ["baits.fasta", "preys.fasta"], arguments.options)


if __name__ == "__main__":
    main()
