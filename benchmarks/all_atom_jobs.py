"""Jobs per hour of an all-atom network with random parameters, from files to written results, and GPU load.

    python benchmarks/all_atom_jobs.py SEQUENCES.fasta.gz [--jobs 40] [--screen 200] [--max-records N]
        [--options "..."] [--tiny]

SEQUENCES is the database; proteins are sequences from it, drawn at random. --jobs folds a folder of jobs of
one or two proteins with ligands of the Chemical Component Dictionary, 200 to 800 tokens. --screen combines
one protein with SMILES strings. A job of its own compiles the kernels before. Jobs per hour and the GPU's
load, which is measured as in fold.py, count from the end of the first job; CPU seconds are those of all
processes from the start on. --tiny runs few blocks on a CPU.

--max-records: sequences of the database; --options: further options of the commands.
"""

import itertools
import json
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import safetensors.torch
from all_atom_gpu import random_tensors
from fold import run_foldcli, write_database
from options import parse_options
from processes import compile_bytecode

from model.alphafold3.config import OPENBIND, AlphaFold3Config
from model.checkpoints.openfold3 import openfold3_tensors
from msa.io.fasta import FastaRecord, read_fasta

# codes of ligands and ions, with their heavy atoms, which are tokens
LIGANDS = {
    "ATP": 31, "ADP": 27, "GTP": 32, "NAD": 44, "NAP": 48, "FAD": 53, "FMN": 31, "HEM": 43, "SAM": 27,
    "SAH": 26, "COA": 48, "PLP": 15, "GLC": 11, "NAG": 14, "GOL": 6, "MG": 1, "ZN": 1, "CA": 1, "SO4": 5,
}  # fmt: skip
SMALLEST, LARGEST = 200, 800
# SMILES strings of a screen are all combinations of these
CORES = (
    "c1ccc({})cc1", "c1ccnc({})c1", "C1CCN({})CC1", "c1ccc2[nH]c({})cc2c1", "c1cnc({})nc1", "C1COCCN1{}",
    "c1csc({})n1", "c1ccc2nc({})ccc2c1", "C1CC1{}", "c1c[nH]c({})n1", "O=C1NC(=O)C1{}",
)  # fmt: skip
PARTS = (
    "C(=O)O", "C(=O)N", "CCO", "CC(C)C", "S(=O)(=O)N", "C(=O)NCC(=O)O", "CN1CCOCC1", "c1ccc(F)cc1",
    "OCC(O)CO", "NC(=O)c1ccccc1", "CC(N)C(=O)O", "c1ccc(C(=O)O)cc1", "N1CCNCC1", "C(F)(F)F", "CCN(C)C",
    "OC1CCCCC1", "c1cccc(OC)c1", "C(=O)Nc1ccc(Cl)cc1", "CSC",
)  # fmt: skip


def write_parameters(path: Path, config: AlphaFold3Config) -> None:
    """Write random parameters with OpenFold3's names."""
    theirs = {name: x.contiguous() for name, x in openfold3_tensors(random_tensors(config, "cpu")).items()}
    safetensors.torch.save_file(theirs, path)


def write_jobs(folder: Path, proteins: list[FastaRecord], count: int, smallest: int, largest: int) -> None:
    """Write files of one or two proteins with up to three ligands, within the limits of tokens."""
    folder.mkdir()
    random = np.random.default_rng(11)
    sequences = [protein.sequence for protein in proteins]
    while len(list(folder.iterdir())) < count:
        chains = [sequences[k] for k in random.choice(len(sequences), random.integers(1, 3))]
        codes = [str(code) for code in random.choice(list(LIGANDS), random.integers(1, 4))]
        if smallest <= sum(map(len, chains)) + sum(LIGANDS[code] for code in codes) <= largest:
            kinds = [("protein", chain) for chain in chains] + [("ccd", code) for code in codes]
            text = "".join(f">{'ABCDE'[k]}|{kind}\n{value}\n" for k, (kind, value) in enumerate(kinds))
            (folder / f"job{len(list(folder.iterdir())):03}.fasta").write_text(text)


def write_screen(folder: Path, protein: FastaRecord, count: int) -> None:
    """Write a protein and a list of ligands."""
    (folder / "protein.fasta").write_text(f">p\n{protein.sequence}\n")
    smiles = [core.format(part) for part, core in itertools.product(PARTS, CORES)][:count]
    (folder / "ligands.smi").write_text("".join(f"{text} l{k:03}\n" for k, text in enumerate(smiles)))


def run(folder: Path, name: str, command: list[str], options: str) -> None:
    """Run a command, and print its rate and the GPU's load."""
    out = folder / name
    arguments = [*command, "--db", str(folder / "db"), "-o", str(out), "--params", str(folder / PARAMETERS)]
    arguments += ["--cache", str(folder / f"features-{name}"), "--no-templates", "-v", *options.split()]
    result = run_foldcli(arguments, folder, name, folder / "cache")
    files = sorted(out.rglob("*.done.json"), key=lambda path: path.stat().st_mtime)
    ends = [path.stat().st_mtime for path in files]
    facts = [json.loads(path.read_text()) for path in files]
    stages: Counter[str] = Counter()
    for content in facts:
        stages.update({stage["stage"]: stage["seconds"] for stage in content["stages"]})
    waited = sum(content["facts"].get("waited_for_features_seconds", 0.0) for content in facts[1:])
    tokens = np.mean([content["facts"]["residues"] for content in facts])
    span = ends[-1] - ends[0]
    rate = f"{3600 * (len(files) - 1) / span:.0f} jobs per hour after the first" if span else "one job"
    print(f"{name}: {len(files)} jobs of {tokens:.0f} tokens on average in {result.seconds:.1f} s, ", end="")
    print(f"the first after {ends[0] - result.began:.1f} s; {rate}")
    print(f"    GPU: {result.gpu.text()}; after the first job: {result.gpu.text(ends[0])}")
    host, main = (x / len(files) for x in (result.host_seconds, result.main_seconds))
    print(f"    CPU seconds a job: {host:.2f}, of them {main:.2f} of the thread that launches kernels")
    summed = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in stages.items())
    print(f"    summed seconds: {summed}; the network waited {waited:.1f} for features", flush=True)


PARAMETERS = "random.safetensors"


def main() -> None:
    """Run the benchmark and print the results."""
    options = parse_options(__doc__, "sequences", jobs=0, screen=0, max_records=int, options="", tiny=False)
    config, smallest, largest, steps = OPENBIND, SMALLEST, LARGEST, ""
    if options.tiny:
        few = {"msa": replace(config.msa, blocks=2), "diffusion": replace(config.diffusion, blocks=1)}
        few["confidence"] = replace(config.confidence, blocks=1)
        config, smallest, largest = replace(config, pairformer_blocks=1, template_blocks=1, **few), 40, 120
        steps = " --device cpu --num-recycle 0 --num-diffusion-steps 2"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        records = list(itertools.islice(read_fasta(options.sequences), options.max_records))
        write_database(folder, records)
        write_parameters(folder / PARAMETERS, config)
        proteins = [record for record in records if smallest // 2 <= len(record.sequence) <= largest // 2]
        if not proteins:
            sys.exit(f"no sequences of {smallest // 2} to {largest // 2} residues")
        write_jobs(folder / "one", proteins, 1, smallest, largest)
        write_jobs(folder / "many", proteins, options.jobs, smallest, largest)
        write_screen(folder, proteins[len(proteins) // 2], options.screen)
        compile_bytecode(folder)
        run(folder, "kernels", ["fold", str(folder / "one")], options.options + steps)
        if options.jobs:
            run(folder, "jobs", ["fold", str(folder / "many")], options.options + steps)
        if options.screen:
            files = [str(folder / name) for name in ("protein.fasta", "ligands.smi")]
            run(folder, "screen", ["screen", *files], options.options + steps)


if __name__ == "__main__":
    main()
