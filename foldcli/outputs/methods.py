"""The methods of a run as a paragraph for a publication, and the papers to cite."""

from dataclasses import dataclass
from pathlib import Path

from foldcli.version import VERSION

_FOLDCLI = f"""\
@software{{foldcli,
author = {{{{The foldcli developers}}}},
title = {{{{foldcli}}}},
version = {{{VERSION}}},
comment = {{the program}}
}}
"""
# keys in papers.bib of the papers to cite for a search and for some settings
_PAPERS = {
    "search": "Altschul1997",
    "initial_guess": "Bennett2023",
    "msa_mask": "Kalakoti2025",
    "msa_cluster": "WaymentSteele2024",
    "cyclic": "Rettie2025",
}


@dataclass(frozen=True)
class RunMethods:
    """The methods of a run.

    Args:
        settings: settings of the predictions (`foldcli.families.settings.JobSettings`).
        database: the searched database in words; None without a search.
        templates: whether templates are searched for.
        num_relax: number of models that are relaxed with OpenMM.
        network_paper: key in papers.bib of the network's paper.
    """

    networks: tuple[str, ...]
    settings: object
    rank: str
    database: str | None
    templates: bool
    num_relax: int
    network_paper: str

    def paragraph(self) -> str:
        """Return the methods as a paragraph."""
        settings = self.settings
        options = {
            name: getattr(settings, name, None)
            for name in ("initial_guess", "cyclic", "msa_mask", "msa_cluster")
        }
        seeds, first = getattr(settings, "num_seeds", 1), getattr(settings, "random_seed", 0)
        sentences = [
            f"Structures were predicted with foldcli {VERSION}, model {', '.join(self.networks)}",
            f"with at most {getattr(settings, 'num_recycles', 0)} recycles, in "
            f"{getattr(settings, 'precision', 'fp32')}, with the random seed {first}"
            + (
                f" and the {seeds - 1} after it"
                if seeds > 1
                else ""
                if first
                else " or those of a job's file"
            ),
        ]
        text = f"{sentences[0]}, {sentences[1]}."
        if samples := getattr(settings, "num_samples", 0):
            text += (
                f" Each seed gave {samples} samples of {getattr(settings, 'num_steps', 0)} denoising steps."
            )
        if self.database is not None:
            text += f" Alignments were made by searching {self.database} with profiles."
        else:
            text += " Alignments were given."
        text += f" Templates were {'searched for by profile' if self.templates else 'not used'}."
        if options["msa_mask"]:
            text += f" Each seed masked {options['msa_mask']:.0%} of the alignment's columns."
        if getattr(settings, "dropout", False):
            text += " The networks dropped updates at random, as in training."
        if options["msa_cluster"]:
            text += " Seeds from 1 were predicted from one cluster of the alignment's rows each."
        if options["cyclic"]:
            text += f" Chain {' and '.join(options['cyclic'])} was cyclic."
        if options["initial_guess"] is not None:
            text += " Recycling started from the positions of a given structure."
        text += f" Models were ranked by {self.rank}."
        if self.num_relax:
            text += f" The best {self.num_relax} models of each target were relaxed with OpenMM."
        return text + "\n"

    def bibtex(self) -> str:
        """Return the papers to cite."""
        names = ["search"] if self.database is not None else []
        names += [
            name
            for name in ("initial_guess", "msa_mask", "msa_cluster", "cyclic")
            if getattr(self.settings, name, None)
        ]
        text = Path(__file__).with_name("papers.bib").read_text(encoding="utf-8")
        papers = {"": "\n"}
        for entry in text.split("\n\n"):
            papers[entry.partition("{")[2].partition(",")[0]] = f"{entry.rstrip()}\n"
        cited = [self.network_paper, *(_PAPERS[name] for name in names)]
        return "\n".join([*(papers[key] for key in cited), _FOLDCLI])
