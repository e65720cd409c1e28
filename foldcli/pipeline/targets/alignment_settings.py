"""Settings of searches and of the alignments made from their hits."""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from features.complexes.pairing import DEFAULT_PAIRING, PairingSettings
from foldcli.errors import OptionError
from foldcli.values import value_or_default
from msa.alignments.filter_settings import FOLDING_FILTER, AlignmentFilter
from msa.base.errors import InputError
from msa.engines.search_settings import FOLDING_SEARCH, SearchSettings, default_gap_costs
from msa.io import molecules
from msa.profile.matrices import RNA

# options of searches and of the alignments made from their hits, by parameter name
SEARCH_OPTIONS = {"fast", "pair_mode", "pair_strategy"}.union(
    each.name for part in (SearchSettings, AlignmentFilter) for each in fields(part) if each.name != "threads"
)


# options that are not named after their parameters
_OTHER_NAMES = {"coverage": "--min-coverage", "file_format": "--format", "profiles": "--profile"}


def option_of(name: str) -> str:
    """Return the option of a parameter name, such as one in `SEARCH_OPTIONS`."""
    return _OTHER_NAMES.get(name, f"--{name.replace('_', '-')}")


@dataclass(frozen=True)
class AlignmentSettings:
    """Settings of the searches and of the alignments made from their hits.

    Args:
        pairing: method of pairing the alignments of a complex's chains.
    """

    search: SearchSettings
    row_filter: AlignmentFilter
    pairing: PairingSettings = DEFAULT_PAIRING

    @classmethod
    def from_options(cls, options: dict[str, Any], threads: int, tables: bool = False) -> "AlignmentSettings":
        """Create the settings from the values of `search_options`, `alignment_options` and `pairing_options`.

        Args:
            options: values; None selects the default.
            threads: CPU threads.
            tables: use the defaults of tables of hits instead of those of alignments to fold.

        Raises:
            OptionError: an unknown matrix, no E-value statistics for the matrix with the gap costs,
                an option without effect, or a criterion of the alignment's rows is not in its range.
        """
        matrix = options["matrix"].upper()
        if matrix == RNA and options.get("molecule") != molecules.RNA:
            raise OptionError("--matrix RNA: `foldcli search --molecule rna` has these scores.")
        gap_open, gap_extend, profile_gap_open = default_gap_costs(matrix)
        defaults = SearchSettings() if tables else FOLDING_SEARCH
        if options["fast"] and options["num_iterations"] is not None:
            raise OptionError("--fast is one iteration: it cannot be combined with --num-iterations.")
        requested = 1 if options["fast"] else options["num_iterations"]
        num_iterations = value_or_default(requested, defaults.num_iterations)
        if options["e_profile"] is not None and num_iterations == 1:
            raise OptionError("--e-profile needs a search of several iterations (--num-iterations).")
        if options["cov_mode"] is not None and options["coverage"] is None:
            raise OptionError("--cov-mode needs --min-coverage.")
        names = ("evalue", "max_seqs", "coverage", "cov_mode", "e_profile")
        given = {name: options[name] for name in names if options[name] is not None}
        try:
            search = replace(
                defaults,
                **given,
                min_ungapped_score=options["min_ungapped_score"],
                min_seq_id=options["min_seq_id"],
                matrix=matrix,
                gap_open=options["gap_open"] or gap_open,
                gap_extend=options["gap_extend"] or gap_extend,
                profile_gap_open=options["gap_open"] or profile_gap_open,
                comp_bias_corr=bool(options["comp_bias_corr"]),
                num_iterations=num_iterations,
                threads=threads,
            )
            row_filter = _row_filter(options, AlignmentFilter() if tables else FOLDING_FILTER)
        except InputError as error:
            name, _, problem = str(error).partition(" is ")
            is_range = name in SEARCH_OPTIONS
            raise OptionError(f"{option_of(name)} is {problem}" if is_range else str(error)) from error
        return cls(search, row_filter, PairingSettings(options["pair_mode"], options["pair_strategy"]))

    def for_rna(self) -> "AlignmentSettings":
        """Return the same settings for RNA, with its scores and gap costs."""
        costs = default_gap_costs(RNA)
        search = replace(
            self.search, matrix=RNA, gap_open=costs[0], gap_extend=costs[1], profile_gap_open=costs[2]
        )
        return replace(self, search=search)

    def identity(self) -> dict[str, Any]:
        """Return the values that alignments of single chains depend on, without the number of threads."""
        search = {name: value for name, value in asdict(self.search).items() if name != "threads"}
        return {"search": search, "alignment": asdict(self.row_filter)}


def _row_filter(options: dict[str, Any], defaults: AlignmentFilter) -> AlignmentFilter:
    """Return the filter of an alignment's rows; small alignments are filtered only if that is requested."""
    requested = options["cov"] > 0 or any(
        options[name] is not None for name in ("max_seq_id", "qid", "qsc", "diff")
    )
    qid, *buckets = value_or_default(options["qid"], (defaults.qid, *defaults.identity_buckets))
    return AlignmentFilter(
        max_seq_id=value_or_default(options["max_seq_id"], defaults.max_seq_id),
        qid=qid,
        qsc=options["qsc"],
        cov=options["cov"],
        diff=value_or_default(options["diff"], defaults.diff),
        identity_buckets=tuple(buckets),
        filter_min_enable=value_or_default(
            options["filter_min_enable"], 0 if requested else defaults.filter_min_enable
        ),
    )
