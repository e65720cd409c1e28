"""The methods of a run as a paragraph for a publication, and the papers to cite."""

from dataclasses import dataclass

from foldcli.version import VERSION

_FOLDCLI = f"""\
@software{{foldcli,
author = {{{{The foldcli developers}}}},
title = {{{{foldcli}}}},
version = {{{VERSION}}},
comment = {{the program}}
}}
"""
_PAPERS = {
    "search": """\
@article{Altschul1997,
author = {Altschul, Stephen F. and Madden, Thomas L. and Sch\\"affer, Alejandro A. and others},
doi = {10.1093/nar/25.17.3389},
journal = {Nucleic Acids Research},
pages = {3389--3402},
title = {{Gapped BLAST and PSI-BLAST: a new generation of protein database search programs}},
volume = {25},
year = {1997},
comment = {iterated searches with profiles}
}
""",
    "initial_guess": """\
@article{Bennett2023,
author = {Bennett, Nathaniel R. and Coventry, Brian and Goreshnik, Inna and others},
doi = {10.1038/s41467-023-38328-5},
journal = {Nature Communications},
pages = {2625},
title = {{Improving de novo protein binder design with deep learning}},
volume = {14},
year = {2023},
comment = {--initial-guess}
}
""",
    "msa_mask": """\
@article{Kalakoti2025,
author = {Kalakoti, Yogesh and Wallner, Bj\\"orn},
doi = {10.1038/s42003-025-07791-9},
journal = {Communications Biology},
pages = {373},
title = {{AFsample2 predicts multiple conformations and ensembles with AlphaFold2}},
volume = {8},
year = {2025},
comment = {--msa-mask}
}
""",
    "msa_cluster": """\
@article{WaymentSteele2024,
author = {Wayment-Steele, Hannah K. and Ojoawo, Adedolapo and Otten, Renee and others},
doi = {10.1038/s41586-023-06832-9},
journal = {Nature},
pages = {832--839},
title = {{Predicting multiple conformations via sequence clustering and AlphaFold2}},
volume = {625},
year = {2024},
comment = {--msa-cluster}
}
""",
    "cyclic": """\
@article{Rettie2025,
author = {Rettie, Stephen A. and Campbell, Katelyn V. and Bera, Asim K. and others},
journal = {Nature Communications},
title = {{Cyclic peptide structure prediction and design using AlphaFold2}},
volume = {16},
year = {2025},
comment = {--cyclic}
}
""",
}


@dataclass(frozen=True)
class RunMethods:
    """The methods of a run.

    Args:
        networks: labels of the models.
        settings: settings of the predictions (`foldcli.families.settings.JobSettings`).
        rank: the score that ranks models.
        database: the searched database in words; None without a search.
        templates: whether templates are searched for.
        num_relax: number of models that are relaxed with OpenMM.
        network_citations: BibTeX of the networks' papers.
    """

    networks: tuple[str, ...]
    settings: object
    rank: str
    database: str | None
    templates: bool
    num_relax: int
    network_citations: str

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
        return "\n".join(
            [self.network_citations.rstrip() + "\n", *(_PAPERS[name] for name in names), _FOLDCLI]
        )
