"""Kinds of records of finished and unfinished work, for inputs.py."""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from foldcli.inputs.shard import Shard
from foldcli.outputs.done import DoneRecord, StageCost
from foldcli.outputs.facts import Facts, SearchFacts
from foldcli.outputs.layout import TargetFiles, unranked_name
from foldcli.outputs.model_files import ModelResult, read_staged_results
from foldcli.outputs.summary import RunSummary
from foldcli.pipeline.targets.plan import read_finished
from foldcli.report import ReportSettings
from foldcli.report.data.result import read_done
from foldcli.report.index import index_rows
from foldcli.report.make import make_report
from tests.foldcli.report.results import COMPLEX_TAG, target_files, write_complex, write_result
from tests.fuzz.fuzzing import Kind
from tests.fuzz.query_kinds import GB1

TAG = "alphafold2_ptm_model_1_seed_000"


def record_kinds(folder: Path) -> list[Kind]:
    """Return the kinds of records of finished and unfinished work, and the files that the report reads."""
    finished = write_result(folder / "t", "t")
    result = ModelResult(TAG, 90.0, 0.8, 3, 1.5, "0" * 64, iptm=0.5)
    facts = Facts(residues=40, alignment_rows=3, search=SearchFacts(hits=2))
    settings = {"query": GB1, "header": "t of GB1", "predict": {"num_recycle": 3}}
    costs = [StageCost("predict", 1.5, 9)]
    record = DoneRecord("t", "0" * 64, settings, "auto", [result], costs, ["a warning"], facts)
    record.write(finished / "t.done.json")
    staged = replace(result, extras=("recycles",))

    def copied(read: Callable[[TargetFiles], object], source: Path = finished) -> Callable[[Path], None]:
        """Return a reader of the whole result with one file replaced."""

        def read_copy(path: Path) -> None:
            out = path.parent / "out"
            target = out / source.name
            if not target.exists():
                shutil.copytree(source, target)
            original = (target / path.name).read_bytes()
            shutil.copy(path, target / path.name)
            try:
                read(TargetFiles(source.name, out))
            finally:
                (target / path.name).write_bytes(original)

        return read_copy

    def report(files: TargetFiles) -> None:
        make_report(files, read_done(files), ReportSettings(True, False))

    def records(files: TargetFiles) -> None:
        read_finished(files)
        out = files.folder.parent
        summary = RunSummary(out, "default", Shard(), ["t"])
        summary.models([])
        summary.write([])
        summary.log([], out / "failures.jsonl")
        index_rows(out)

    def staged_results(path: Path) -> None:
        for kind in staged.kinds:
            (path.parent / unranked_name(kind, TAG)).touch()
        read_staged_results(path.parent)

    pair, many = (target_files(write_complex(folder / name, name), name) for name in ("pair", "many"))
    a, c = ("MGLAK" * 3)[:12], "MGLAKMG"
    rows = [f"{a}{a[:-1]}X{c}", f"{a[:5]}ac{'-' * 19}{c}", f"{a}{'-' * 19}", f"{'-' * 24}{c}"]
    paired = "".join(f">{number}\n{row}\n" for number, row in enumerate(rows))
    pair.path("alignment").write_text(f"#12,12,7\t1,1,1\n{paired}")
    # the mmCIF file is read where there is no PDB file
    many.model_path("pdb", 1, COMPLEX_TAG).unlink()
    done = (finished / "t.done.json").read_bytes()
    scores, structure, a3m, m8 = (
        next(finished.glob(pattern))
        for pattern in ("*_scores_rank_001_*.json", "*_rank_001_*.pdb", "*.a3m", "*.m8")
    )
    return [
        Kind("done.json", "t.done.json", [done], copied(records), "json"),
        Kind("done.json in report", "t.done.json", [done], copied(report), "json"),
        Kind(
            "result.json", f"{TAG}.result.json", [json.dumps(asdict(staged)).encode()], staged_results, "json"
        ),
        Kind("scores in report", scores.name, [scores.read_bytes()], copied(report), "json"),
        Kind("structure in report", structure.name, [structure.read_bytes()], copied(report)),
        Kind("alignment in report", a3m.name, [a3m.read_bytes()], copied(report)),
        Kind("hits in report", m8.name, [m8.read_bytes()], copied(report)),
        *(
            Kind(f"{name} of a complex", path.name, [path.read_bytes()], copied(report, path.parent), syntax)
            for name, path, syntax in (
                ("scores", pair.model_path("scores", 1, COMPLEX_TAG), "json"),
                ("structure", pair.model_path("pdb", 1, COMPLEX_TAG), ""),
                ("contacts", pair.model_path("contacts", 1, COMPLEX_TAG), ""),
                ("alignment", pair.path("alignment"), ""),
                ("mmcif", many.model_path("cif", 1, COMPLEX_TAG), ""),
            )
        ),
    ]  # fmt: skip
