"""The methods of a run as a paragraph for a publication, and the papers to cite."""

from collections.abc import Sequence
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
    """The methods of a run's predictions with one family of networks.

    Args:
        settings: settings of the predictions (`foldcli.families.settings.JobSettings`).
        database: the searched database in words; None without a search.
        templates: whether templates are searched for.
        num_relax: number of models that are relaxed with OpenMM.
        network_papers: keys in papers.bib of the network's papers.
        has_network: False if structures are copies of templates.
    """

    networks: tuple[str, ...]
    settings: object
    rank: str
    database: str | None
    templates: bool
    num_relax: int
    network_papers: tuple[str, ...]
    has_network: bool = True

    def paragraph(self) -> str:
        """Return the methods as a paragraph."""
        if not self.has_network:
            copied = f"Structures were copied from templates with foldcli {VERSION}, without a network"
            return ". ".join([copied, *self._inputs()]) + ".\n"
        settings = vars(self.settings)
        seeds, first = settings.get("num_seeds", 1), settings.get("random_seed", 0)
        more = f" and the {seeds - 1} after it" if seeds > 1 else "" if first else " or those of a job's file"
        cyclic = " and ".join(settings.get("cyclic", ()))
        sentences = [
            f"Structures were predicted with foldcli {VERSION}, model {', '.join(self.networks)}, with at "
            f"most {settings.get('num_recycles', 0)} recycles, in {settings.get('precision', 'fp32')}, with "
            f"the random seed {first}{more}"
        ]
        if samples := settings.get("num_samples"):
            sentences.append(f"Each seed gave {samples} samples of {settings['num_steps']} denoising steps")
        sentences += self._inputs()
        if mask := settings.get("msa_mask"):
            sentences.append(f"Each seed masked {mask:.0%} of the alignment's columns")
        if settings.get("dropout"):
            sentences.append("The networks dropped updates at random, as in training")
        if settings.get("msa_cluster"):
            sentences.append("Seeds from 1 were predicted from one cluster of the alignment's rows each")
        if cyclic:
            sentences.append(f"Chain {cyclic} was cyclic")
        if settings.get("initial_guess") is not None:
            sentences.append("Recycling started from the positions of a given structure")
        score = "0.8 ipTM + 0.2 pTM" if self.rank == "multimer" else self.rank
        sentences.append(f"Models were ranked by {score}")
        if self.num_relax:
            sentences.append(f"The best {self.num_relax} models of each target were relaxed with OpenMM")
        return ". ".join(sentences) + ".\n"

    def _inputs(self) -> list[str]:
        """Return the sentences about alignments and templates."""
        searched = f"made by searching {self.database} with profiles"
        return [
            f"Alignments were {'given' if self.database is None else searched}",
            f"Templates were {'searched for by profile' if self.templates else 'not used'}",
        ]

    def papers(self) -> list[str]:
        """Return the keys of the papers to cite."""
        names = ["search"] if self.database is not None else []
        names += [
            name
            for name in ("initial_guess", "msa_mask", "msa_cluster", "cyclic")
            if getattr(self.settings, name, None)
        ]
        return [*self.network_papers, *(_PAPERS[name] for name in names)]


def bibtex(methods: Sequence[RunMethods]) -> str:
    """Return the papers to cite."""
    text = Path(__file__).with_name("papers.bib").read_text(encoding="utf-8")
    papers = {}
    for entry in text.split("\n\n"):
        papers[entry.partition("{")[2].partition(",")[0]] = f"{entry.rstrip()}\n"
    cited = dict.fromkeys(key for each in methods for key in each.papers())
    return "\n".join([*(papers[key] for key in cited), _FOLDCLI])
