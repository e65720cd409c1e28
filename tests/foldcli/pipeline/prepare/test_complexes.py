"""Tests of runs with complexes."""

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event, Timer
from typing import Any

import numpy as np
import pytest

from features.alphafold2.deterministic import make_features
from features.cache.entry import CorruptEntryError
from features.complexes.features import complex_features, in_input_order
from features.complexes.pairing import DEFAULT_PAIRING
from features.complexes.rows import pair_chains
from features.templates.library.structure_files import read_chains
from foldcli.errors import SomeTargetsFailed
from foldcli.families.alphafold2 import AlignmentInputs
from foldcli.families.alphafold2_networks import limit_rows
from foldcli.families.registry import check_parameters, family_of
from foldcli.families.settings import PredictSettings
from foldcli.inputs.alignment_targets import AlignmentTarget, starts_as_complex
from foldcli.inputs.cached_targets import find_all_cached_targets, read_complex_entry
from foldcli.inputs.complexes import chain_query, split_chains
from foldcli.inputs.failures import Failures
from foldcli.inputs.queries import QuerySources
from foldcli.inputs.shard import Shard
from foldcli.inputs.targets import (
    PredictInput,
    TargetInput,
    find_feature_targets,
    find_fold_targets,
    find_predict_targets,
    is_complex,
)
from foldcli.options.predict import ModelTypeChoice
from foldcli.outputs.layout import TargetFiles
from foldcli.outputs.model_files import ModelOrigin
from foldcli.outputs.target import TargetRun
from foldcli.params.parameters import TEMPLATE_COPY, ModelType, find_parameters, network_kinds
from foldcli.pipeline.network.device import NetworkMemory
from foldcli.pipeline.prepare.cached_features import CacheTask
from foldcli.pipeline.prepare.complexes import ComplexStage
from foldcli.pipeline.prepare.feature_stage import FeatureStage
from foldcli.pipeline.runs.dry_run import inspect_target
from foldcli.pipeline.runs.run import run_targets
from foldcli.pipeline.runs.state import RunSettings
from foldcli.pipeline.search.chain_search import ChainSearch, ChainStore
from foldcli.pipeline.search.searcher import LocalSearcher
from foldcli.pipeline.search.stage import HitSearcher, SearchStage
from foldcli.pipeline.search.stores import CacheStore
from foldcli.pipeline.targets.alignment_request import AlignmentRequest
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from foldcli.pipeline.targets.identity import TargetIdentities
from foldcli.pipeline.targets.locks import LockOwner, TargetLocks
from foldcli.pipeline.targets.settings import FeatureSettings, OutputSettings
from foldcli.report import ReportSettings
from foldcli.search_runs.folder import print_alignment, write_alignments
from foldcli.search_runs.settings import SearchRun
from foldcli.search_runs.table import write_table
from model.alphafold2.modules.config import MultimerConfig, model_config
from model.prediction import Prediction
from msa.alignments.files import parse_alignment
from msa.alignments.m8 import DEFAULT_COLUMNS
from msa.base.errors import InputError, MissingError
from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.hits.hits import Hits
from msa.hits.search_settings import AlignmentFilter, SearchSettings
from msa.io.compression import read_bytes
from msa.io.fasta import FastaRecord, JoinedRecord
from tests.foldcli.pipeline.network.tiny_worker import TinyPredictor
from tests.networks import tiny_parameters

FIRST, SECOND = "MKVLAAGIVQWE", "GHTKDLMNP"
PAIR = f"#12,9\t1,2\n>101\t102\n{FIRST}{SECOND}\n>s\tt\nMKVLSAGIVQWE-HTKELMNP\n>101\n{FIRST}---------\n"
PAIR += f">102\n------------{SECOND}\n>u\n------------GHSKDLMQP\n"
PROTEIN_A, PROTEIN_B = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQ", "MTYKLILNGKTLKGETTTEAVDAATAEKVFK"
SETTINGS = PredictSettings(
    num_recycles=0, max_seq=8, max_extra_seq=6, multimer_num_recycles=1, multimer_tolerance=0.0
)


def run_settings(
    out: Path, models: tuple[int, ...] = (1,), model_type: ModelType = "auto", **changes: Any
) -> RunSettings:
    """Return settings with small networks of both kinds, and without reports."""
    kinds = network_kinds(model_type, single_chains=True, complexes=True)
    settings = replace(SETTINGS, **changes)
    predictor = TinyPredictor(
        find_parameters(tiny_parameters(), models, model_type, kinds), settings, NetworkMemory("cpu")
    )
    identities = TargetIdentities(predictor.sources, check_parameters(predictor.sources), settings)
    output = OutputSettings(out, "default", Shard(), False, ReportSettings(False, False))
    return RunSettings(output, FeatureSettings(out.parent / "cache"), predictor, identities)


class CountingSearcher(HitSearcher):
    """A database that counts the queries that it is searched with."""

    def __init__(self, searcher: LocalSearcher) -> None:
        self._searcher = searcher
        self.sequences: list[str] = []

    @property
    def checksums(self) -> dict[str, str]:
        return self._searcher.checksums

    def search_many(
        self, queries: Sequence[FastaRecord], *arguments: Any
    ) -> Iterator[tuple[FastaRecord, Hits]]:
        self.sequences += [query.sequence for query in queries]
        return self._searcher.search_many(queries, *arguments)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> LocalSearcher:
    folder = tmp_path_factory.mktemp("database")
    (folder / "t.fasta").write_text(
        f">a OX=9606\n{PROTEIN_A[:-1]}L\n>b OX=9606\n{PROTEIN_B[:-1]}R\n>c OX=10090\n{PROTEIN_A[:-2]}AA\n"
    )
    build_database([folder / "t.fasta"], folder / "db", BuildSettings(threads=1))
    return LocalSearcher(TargetDatabase.open(folder / "db"), CpuEngine())


def fold_settings(out: Path, searcher: CountingSearcher, models: tuple[int, ...] = (1,)) -> RunSettings:
    """Return settings with a search."""
    alignment = AlignmentSettings(SearchSettings(), AlignmentFilter())
    search = SearchStage(searcher, alignment, show_progress=False)
    settings = run_settings(out, models, multimer_num_recycles=0)
    return replace(settings, search=search, identities=replace(settings.identities, request=search.request))


def find_targets(folder: Path, **files: str) -> list[tuple[str, PredictInput]]:
    """Write alignment files, and return the targets that `foldcli predict` finds in their folder."""
    for name, content in files.items():
        (folder / f"{name}.a3m").write_text(content)
    return find_predict_targets([str(folder)], False, folder, Failures(folder / "out", Shard()))


@pytest.mark.slow
def test_older_networks_keep_their_file_format_with_fewer_rows() -> None:
    config = limit_rows(model_config("model_1_multimer_v2"), PredictSettings(max_seq=8).for_multimer())
    assert config.multimer == MultimerConfig(8, 1152, joined_projections=False)
    assert limit_rows(model_config("model_1_ptm"), PredictSettings()) == model_config("model_1_ptm")


def test_complex_is_predicted_next_to_a_single_chain_and_a_damaged_file(tmp_path: Path) -> None:
    wrong = PAIR.replace("#12,9", "#12,10")
    targets = find_targets(tmp_path, pair=PAIR, wrong=wrong, single=f">q\n{FIRST}\n>x\nMKVLAAGIVQWD\n")
    out = tmp_path / "out"
    failures = Failures(out, Shard())
    with pytest.raises(SomeTargetsFailed):
        run_targets(targets, run_settings(out), failures)
    ((name, error),) = failures.failed
    assert name == "wrong" and "row 1 (101) has 21 columns, the header line declares 22" in str(error)
    done = json.loads((out / "pair/pair.done.json").read_text())
    (model,) = done["ranking"]
    assert model["tag"] == "alphafold2_multimer_v3_model_1_seed_000" and model["num_chains"] == 3
    assert 0 <= model["iptm"] <= 1 and model["num_recycles"] == 1
    assert (done["facts"]["residues"], done["facts"]["alignment_rows"], done["facts"]["chains"]) == (30, 5, 3)
    lines = (out / f"pair/pair_unrelaxed_rank_001_{model['tag']}.pdb").read_text().splitlines()
    numbers = [(line[21], int(line[22:26])) for line in lines if line[12:16] == " CA "]
    assert numbers == [
        (chain, i) for chain, length in zip("ABC", (12, 9, 9), strict=True) for i in range(1, length + 1)
    ]
    (single,) = json.loads((out / "single/single.done.json").read_text())["ranking"]
    assert single["tag"] == "alphafold2_ptm_model_1_seed_000" and single["num_recycles"] == 0
    # finished results of the same settings are kept, others are refused
    target = dict(targets)["pair"]
    assert inspect_target("pair", target, run_settings(out).identities, run_settings(out).output)[1] == (
        "already done"
    )
    more = run_settings(out, multimer_num_recycles=2)
    with pytest.raises(InputError, match="num_recycle 1, now 2"):
        inspect_target("pair", target, more.identities, more.output)


def test_multimer_networks_take_the_features_of_a_single_chain(tmp_path: Path) -> None:
    settings = run_settings(tmp_path, model_type="alphafold2_multimer_v3")
    (job,) = settings.identities.jobs(AlignmentTarget("q", ("q.a3m",)))
    assert job.tag == "alphafold2_multimer_v3_model_1_seed_000"
    features = make_features([parse_alignment(f">q\n{FIRST}\n>x\nMKVLAAGIVQWD\n".encode())])
    family = family_of(job.source)
    assert family.sampling(job, SETTINGS) is None and family.uses_templates(job.source)
    sample: Any = family.sample(AlignmentInputs(features, None), job, SETTINGS)
    assert sample["asym_id"].tolist() == [1] * 12 and sample["num_alignments"] == 2


def test_complex_needs_multimer_networks(tmp_path: Path) -> None:
    target = AlignmentTarget("pair", ("pair.a3m",), PAIR.encode(), is_complex=True)
    monomer = run_settings(tmp_path, model_type="alphafold2_ptm").identities
    with pytest.raises(InputError, match="needs the parameters of AlphaFold-Multimer"):
        monomer.jobs(target)
    copies = TargetIdentities([TEMPLATE_COPY], check_parameters([TEMPLATE_COPY]), SETTINGS)
    with pytest.raises(InputError, match="--params template copies single chains only"):
        copies.jobs(target)


def test_plan_names_complexes_without_a_network_before_the_database_exists(tmp_path: Path) -> None:
    settings = run_settings(tmp_path / "out", model_type="alphafold2_ptm")
    pair = split_chains(JoinedRecord("p", f"{FIRST}:{SECOND}", "", "", 1))
    with pytest.raises(InputError, match="needs the parameters of AlphaFold-Multimer"):
        inspect_target("p", pair, settings.identities, settings.output)


def test_networks_are_found_by_what_the_targets_need(tmp_path: Path) -> None:
    assert network_kinds("auto", single_chains=True, complexes=False) == ("monomer",)
    assert network_kinds("auto", single_chains=False, complexes=True) == ("multimer",)
    assert network_kinds("auto", single_chains=True, complexes=True) == ("monomer", "multimer")
    assert network_kinds("alphafold2", single_chains=True, complexes=True) == ("monomer",)
    assert network_kinds("alphafold2_multimer_v3", single_chains=True, complexes=False) == ("multimer",)
    for name in ("model_2", "model_2_multimer_v3"):
        (tmp_path / f"params_{name}.npz").touch()
    both = find_parameters(str(tmp_path), (2,), "auto", ("monomer", "multimer"))
    assert [source.label for source in both] == ["alphafold2_model_2", "alphafold2_multimer_v3_model_2"]
    with pytest.raises(MissingError, match=r"has no params_model_1_multimer_v3\.npz") as missing:
        find_parameters(str(tmp_path), (1,), "auto", ("multimer",))
    assert "params fetch --which multimer" in missing.value.remedy


def test_single_chains_of_a_mixed_list_need_no_multimer_networks(tmp_path: Path) -> None:
    (tmp_path / "params_model_1_ptm.npz").touch()
    (source,) = find_parameters(str(tmp_path), (1,), "auto", ("monomer", "multimer"))
    assert source.label == "alphafold2_ptm_model_1"
    with pytest.raises(MissingError, match=r"has no params_model_2_ptm\.npz or params_model_2\.npz"):
        find_parameters(str(tmp_path), (2,), "auto", ("monomer", "multimer"))


def test_model_types_have_short_names() -> None:
    convert = ModelTypeChoice().convert
    names = [convert(name, None, None) for name in ("monomer", "ptm", "multimer_v3", "alphafold2_ptm")]
    assert names == ["alphafold2", "alphafold2_ptm", "alphafold2_multimer_v3", "alphafold2_ptm"]


def test_multimer_settings_are_deepminds() -> None:
    multimer_settings = PredictSettings().for_multimer()
    assert (multimer_settings.num_recycles, multimer_settings.recycle_early_stop_tolerance) == (20, 0.5)
    assert (multimer_settings.max_seq, multimer_settings.max_extra_seq) == (508, 2048)


def test_chains_are_put_into_the_order_of_the_input() -> None:
    sequences = ["ACDE", "FGH", "ACDE", "KL"]
    chains = [make_features([parse_alignment(f">q\n{x}\n>r\n{x[:-1]}-\n".encode())]) for x in sequences]
    by_entity = complex_features(chains, min_rows=1)
    ordered = in_input_order(by_entity, pair_chains(chains, DEFAULT_PAIRING))
    names = np.array(list("ARNDCQEGHILKMFPSTWYVX"))
    assert "".join(names[ordered["aatype"]]) == "".join(sequences)
    assert "".join(map(str, ordered["asym_id"].astype(int))) == "1111222333344"
    assert "".join(map(str, ordered["entity_id"].astype(int))) == "1111222111133"
    assert "".join(map(str, ordered["sym_id"].astype(int))) == "1111111222211"
    assert np.array_equal(ordered["msa"][:, :4], by_entity["msa"][:, :4])
    assert np.array_equal(ordered["msa"][:, 4:7], by_entity["msa"][:, 8:11])
    assert ordered["residue_index"].tolist() == [0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 0, 1]


class InterruptedPredictor(TinyPredictor):
    """A predictor whose run is interrupted when its second target begins."""

    def start(self, name: str, *arguments: Any) -> Callable[[], tuple[Prediction, ModelOrigin]]:
        if name == "homodimer":
            raise KeyboardInterrupt
        return super().start(name, *arguments)


@pytest.mark.slow
def test_fold_searches_each_chain_once_and_continues_after_an_interruption(
    tmp_path: Path, database: LocalSearcher
) -> None:
    (tmp_path / "q.fasta").write_text(
        f">mixed\n{PROTEIN_A}:{PROTEIN_B}:{PROTEIN_A}\n>homodimer\n{PROTEIN_A}:{PROTEIN_A}\n>x\nXX:{PROTEIN_A}\n"
    )
    out = tmp_path / "out"
    failures = Failures(out, Shard())
    targets = find_fold_targets([str(tmp_path / "q.fasta")], True, "BLOSUM62", tmp_path, failures)
    searcher = CountingSearcher(database)
    settings = fold_settings(out, searcher)
    interrupted = InterruptedPredictor(
        settings.predictor.sources, settings.predictor.settings, settings.predictor.memory
    )
    with pytest.raises(KeyboardInterrupt):
        run_targets(targets, replace(settings, predictor=interrupted), failures)
    assert sorted(searcher.sequences) == [PROTEIN_A, PROTEIN_B]
    assert [name for name, _ in failures.failed] == ["x"]
    assert "none of the twenty residues" in str(failures.failed[0][1])

    finished = (out / "mixed/mixed.done.json").read_bytes()
    with pytest.raises(SomeTargetsFailed):
        run_targets(targets, fold_settings(out, searcher), Failures(out, Shard()))
    assert len(searcher.sequences) == 2 and (out / "mixed/mixed.done.json").read_bytes() == finished
    for name, first_line, rows in (("mixed", "#31,31\t2,1", 3), ("homodimer", "#31\t2", 3)):
        lines = (out / f"{name}/{name}.a3m").read_text().splitlines()
        done = json.loads((out / f"{name}/{name}.done.json").read_text())
        assert lines[0] == first_line and done["facts"]["alignment_rows"] == rows
        assert done["ranking"][0]["num_chains"] == (3 if name == "mixed" else 2)
        assert not (out / f"{name}/.work").exists()
    hits = [line.split("\t")[:2] for line in (out / "mixed/mixed.m8").read_text().splitlines()]
    assert sorted(hits) == [["mixed_A", "a"], ["mixed_A", "c"], ["mixed_B", "b"]]
    assert done["facts"]["search"] == {"hits": 2}
    # the two chains' rows of one species are paired
    assert [line for line in (out / "mixed/mixed.a3m").read_text().splitlines() if line.startswith(">a\tb")]
    (structure,) = (out / "mixed").glob("*.pdb")
    residues = [(x[21], x[17:20]) for x in structure.read_text().splitlines() if x[12:16] == " CA "]
    assert [name for chain, name in residues if chain == "B"][:4] == ["MET", "THR", "TYR", "LYS"]
    assert [name for chain, name in residues if chain == "C"][:4] == ["MET", "GLN", "ILE", "PHE"]


def write_templated_job(path: Path) -> np.ndarray:
    """Write a job of a chain with a template, another copy without one, and a chain without templates.

    Returns:
        Positions of the first two residues that the template covers, 4 and 5 of the chain.
    """
    file = Path(__file__).parents[3] / "features/templates/data/1a8o.cif.gz"
    template = {"queryIndices": [4, 5], "templateIndices": [10, 20]}
    given = {"mmcif": gzip.decompress(file.read_bytes()).decode()} | template
    chains = [(PROTEIN_A, "A", [given]), (PROTEIN_B, "B", None), (PROTEIN_A, "C", [])]
    sequences = [
        {"protein": {"id": name, "sequence": sequence, "templates": templates}}
        for sequence, name, templates in chains
    ]
    jobs = [{"name": "complex", "sequences": sequences}, {"name": "single", "sequences": sequences[:1]}]
    path.write_text(json.dumps(jobs))
    return read_chains(file)[0].positions[[10, 20]]


def test_templates_of_a_job_are_used_for_the_chain_that_they_are_given_to(
    tmp_path: Path, database: LocalSearcher, caplog: pytest.LogCaptureFixture
) -> None:
    positions = write_templated_job(tmp_path / "q.json")
    failures = Failures(tmp_path / "out", Shard())

    def read() -> dict[str, Any]:
        return dict(find_fold_targets([str(tmp_path / "q.json")], True, "BLOSUM62", tmp_path, failures))

    settings = fold_settings(tmp_path / "out", CountingSearcher(database), models=(3,))
    run_targets(list(read().items()), settings, failures)
    done = json.loads((tmp_path / "out/complex/complex.done.json").read_text())
    (used,) = done["facts"]["templates"]
    assert used["id"] == "1_A" and used["evalue"] is None and used["source"].startswith("q.json:")
    assert "A\t1_A\t1\t" in (tmp_path / "out/complex/complex_templates.tsv").read_text()
    # model 3 for single chains takes none
    assert "single: the templates of the job file are not used" in caplog.text
    assert "complex: the templates" not in caplog.text
    assert not (tmp_path / "out/single/single_templates.tsv").exists()
    # another template is another prediction, and nothing else is
    identity = settings.identities.identity
    before = identity("complex", read()["complex"])
    assert before == identity("complex", read()["complex"])
    (tmp_path / "q.json").write_text((tmp_path / "q.json").read_text().replace("[10, 20]", "[10, 21]"))
    assert before != identity("complex", read()["complex"])
    # the features of the chain alone have the template
    assert settings.search is not None
    chains = ChainStore(CacheStore(settings.features.cache, settings.search.request))
    write_templated_job(tmp_path / "q.json")
    target = TargetRun(TargetFiles("complex", tmp_path / "again"), read()["complex"])
    target.files.search_folder.mkdir(parents=True)
    features = ComplexStage(settings.features, None, chains).load(target, with_templates=True)
    mask = features["template_all_atom_mask"]
    assert np.flatnonzero(mask.any((0, 2))).tolist() == [4, 5] and not mask[1:].any()
    np.testing.assert_array_equal(features["template_all_atom_positions"][0, 4:6], positions)
    templates = FeatureStage(settings.features, None, {"single": 0}, None, chains)._find_templates(
        TargetRun(TargetFiles("single", tmp_path / "again"), read()["single"]), features
    )
    assert templates is not None
    np.testing.assert_array_equal(templates.features["template_all_atom_positions"][0, 4:6], positions)


def test_chain_that_another_run_searches_is_waited_for(tmp_path: Path, database: LocalSearcher) -> None:
    searcher = CountingSearcher(database)
    stage = SearchStage(searcher, AlignmentSettings(SearchSettings(), AlignmentFilter()), show_progress=False)
    chains = ChainStore(CacheStore(tmp_path / "cache", stage.request))
    pair = split_chains(JoinedRecord("p", f"{PROTEIN_A}:{PROTEIN_B}", "", "", 1))
    first, second = map(chain_query, pair.chains)
    with TargetLocks(Event()) as other_locks, TargetLocks(Event()) as locks:
        assert other_locks.try_acquire(chains.lock(first))

        def finish_in_other_run() -> None:
            ((_, hits),) = database.search_many([first], SearchSettings())
            chains.write("chain", first, hits)
            other_locks.release(chains.lock(first))

        thread = Timer(0.1, finish_in_other_run)
        thread.start()
        (result,) = ChainSearch(stage, chains, locks).search_ahead(
            [pair], lambda target: target.chains, print
        )
        thread.join()
        assert not chains.lock(first).exists() and not chains.lock(second).exists()
    assert result.target == pair and result.error is None and result.cost is not None
    assert searcher.sequences == [PROTEIN_B]
    assert chains.is_finished("chain", first) and chains.is_finished("chain", second)
    # as a run leaves it that was killed before it released the lock
    chains.lock(first).write_text(json.dumps(vars(replace(LockOwner.this_process(), started=1))))
    with TargetLocks(Event()) as locks:
        (result,) = ChainSearch(stage, chains, locks).search_ahead(
            [pair], lambda target: target.chains, print
        )
        assert result.target == pair and result.cost is None
    assert not chains.lock(first).exists()


class BrokenSearcher(CountingSearcher):
    """A database whose search with one sequence fails."""

    def search_many(
        self, queries: Sequence[FastaRecord], *arguments: Any
    ) -> Iterator[tuple[FastaRecord, Hits]]:
        for query in queries:
            if query.sequence == PROTEIN_B:
                raise OSError("disk on fire")
            yield from super().search_many([query], *arguments)


def test_failed_search_of_a_chain_fails_only_its_complexes(
    tmp_path: Path, database: LocalSearcher, caplog: pytest.LogCaptureFixture
) -> None:
    limited = AlignmentSettings(SearchSettings(max_seqs=1), AlignmentFilter())
    stage = SearchStage(BrokenSearcher(database), limited, show_progress=False)
    chains = ChainStore(CacheStore(tmp_path / "cache", stage.request))
    sequences = {
        "ab": f"{PROTEIN_A}:{PROTEIN_B}",
        "bb": f"{PROTEIN_B}:{PROTEIN_B}",
        "aa": f"{PROTEIN_A}:{PROTEIN_A}",
    }
    named = [
        (name, split_chains(JoinedRecord(name, sequence, "", "", 1))) for name, sequence in sequences.items()
    ]
    with TargetLocks(Event()) as locks:
        results = list(ChainSearch(stage, chains, locks).search_complexes(named, chains.store))
    failed = [(result.name, str(result.error)) for result in results if result.error is not None]
    assert failed == [("ab", "disk on fire"), ("bb", "disk on fire")]
    assert [result.name for result in results] == ["ab", "bb", "aa"]
    stored = chains.store.path("aa", named[2][1])
    assert read_bytes(stored).startswith(f"#31\t2\n>101\n{PROTEIN_A}\n".encode())
    assert "ab_A: the search reached --max-seqs 1" in caplog.text
    assert not list(tmp_path.rglob(".lock"))


def test_search_of_complexes_writes_what_fold_predicts_from(
    tmp_path: Path, database: LocalSearcher, capsys: pytest.CaptureFixture[str]
) -> None:
    queries = tmp_path / "q.fasta"
    queries.write_text(f">mixed\n{PROTEIN_A}:{PROTEIN_B}:{PROTEIN_A}\n>bb\n{PROTEIN_B}:{PROTEIN_B}\n")
    searcher, alignment = CountingSearcher(database), AlignmentSettings(SearchSettings(), AlignmentFilter())
    run = SearchRun(
        QuerySources([str(queries)], True, "BLOSUM62"),
        alignment,
        lambda: searcher,
        Shard(),
        None,
        False,
        tmp_path / "cache",
    )
    folder = tmp_path / "alignments"
    for _ in range(2):
        write_alignments(run, folder, "a3m")
        assert sorted(searcher.sequences) == [PROTEIN_A, PROTEIN_B]
    with pytest.raises(SomeTargetsFailed):
        write_alignments(run, tmp_path / "sto", "sto")
    write_table(run, str(tmp_path / "t.m8"), DEFAULT_COLUMNS)
    hits = [line.split("\t")[0] for line in (tmp_path / "t.m8").read_text().splitlines()]
    assert hits == ["mixed_A", "mixed_A", "mixed_B"]
    queries.write_text(queries.read_text().partition(">bb")[0])
    print_alignment(run, "a3m")
    assert capsys.readouterr().out == (folder / "mixed.a3m").read_text()
    with pytest.raises(InputError, match="'mixed' has 3 protein chains; --save-profile takes single chains"):
        print_alignment(replace(run, save_profile=str(tmp_path / "p")), "a3m")

    # features from the alignment and from the cache are those of fold
    settings, failures = FeatureSettings(tmp_path / "features"), Failures(tmp_path, Shard())
    given = dict(find_predict_targets([str(folder)], False, tmp_path, failures))
    for name, target in find_feature_targets([str(folder)], False, failures):
        assert isinstance(target, AlignmentTarget)
        cached = CacheTask(target, settings).add()
        assert (cached.was_cached, cached.rows) == (False, {"mixed": 6, "bb": 2}[name])
        assert CacheTask(target, settings).add().was_cached
    entries = {target.name: target for target in find_all_cached_targets(settings.cache, failures)}
    chains = ChainStore(CacheStore(tmp_path / "cache", AlignmentRequest(searcher.checksums, alignment)))
    stage = ComplexStage(settings, None, chains)
    for name, sequences in (("mixed", [PROTEIN_A, PROTEIN_B, PROTEIN_A]), ("bb", [PROTEIN_B] * 2)):
        searched = split_chains(JoinedRecord(name, ":".join(sequences), "", "", 1))
        entry = entries[name]
        assert is_complex(entry) and entry.residues() == 31 * len(sequences)
        file = AlignmentTarget(name, (str(entry.path),))
        inputs: list[TargetInput] = [searched, given[name], entry, replace(file, is_complex=True)]
        assert starts_as_complex(file)
        expected, *others = (
            stage.load(TargetRun(TargetFiles(name, tmp_path / "out"), each), False) for each in inputs
        )
        assert expected["asym_id"][-1] == len(sequences)
        for features in others:
            assert features.keys() == expected.keys()
            for key, value in expected.items():
                assert np.array_equal(features[key], value), key
    # a damaged entry is computed again from its file
    content = bytearray(entries["bb"].path.read_bytes())
    content[-1] ^= 1
    entries["bb"].path.write_bytes(content)
    assert entries["bb"].load_complex_rows().chains == [PROTEIN_B] * 2
    assert read_complex_entry(entries["bb"].path).chains == [PROTEIN_B] * 2
    (folder / "bb.a3m").unlink()
    entries["bb"].path.write_bytes(content)
    with pytest.raises(CorruptEntryError, match="checksum does not match"):
        entries["bb"].load_complex_rows()
