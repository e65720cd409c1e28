"""The process that opens the GPU of a search."""

from pathlib import Path

import pytest

from foldcli.pipeline.search import gpu_opening
from foldcli.pipeline.search.gpu_opening import _MANY_QUERY_BYTES, open_gpu_ahead
from msa.base.errors import InputError
from msa.database.build import BuildSettings, build_database
from msa.database.file_names import RESIDUES


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record instead of opening a GPU, which this machine need not have."""
    calls: list[str] = []

    def start(gpu: int, scores: bool) -> None:
        calls.append(f"{'processes' if scores else 'process'} of GPU {gpu}")

    monkeypatch.setattr(gpu_opening, "GpuProcess", start)
    monkeypatch.setattr(gpu_opening, "open_in_background", lambda device: calls.append(device))
    monkeypatch.setattr(gpu_opening, "has_nvidia_hardware", lambda: True)
    return calls


def database(folder: Path, clusters: str | None = None) -> Path:
    (folder / "t.fasta").write_text(">a\nMKTAYIAKQRQISFVK\n>b\nMKTAYIAKQR\n")
    table = None
    if clusters is not None:
        table = folder / "clusters.tsv"
        table.write_text(clusters)
    build_database([folder / "t.fasta"], folder / "db", BuildSettings(mask=False, clusters=table, threads=1))
    return folder / "db"


def test_process_is_started_for_a_database_above_the_limit(
    tmp_path: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = database(tmp_path)
    size = (folder / RESIDUES).stat().st_size
    cases = [
        (size - 1, "cuda", "process of GPU 0"), (size - 1, "auto", "process of GPU 0"),
        (size - 1, "cuda:2", "process of GPU 2"), (size - 1, "cuda:2,3", "cuda:2,3"),
        (size - 1, "cpu", "cpu"), (size, "cuda", "cuda"), (None, "cuda", "cuda"),
    ]  # fmt: skip
    for limit, device, expected in cases:
        monkeypatch.setenv("FOLDCLI_GPU_MEMORY", "" if limit is None else str(limit))
        open_gpu_ahead(str(folder), device)
        assert opened.pop() == expected and not opened
    monkeypatch.setenv("FOLDCLI_GPU_MEMORY", "1")
    for other in ("missing", "t.fasta"):
        open_gpu_ahead(str(tmp_path / other), "cuda")
        assert opened.pop() == "cuda"
    monkeypatch.setenv("FOLDCLI_GPU_MEMORY", "much")
    with pytest.raises(InputError, match="FOLDCLI_GPU_MEMORY is 'much'"):
        open_gpu_ahead(str(folder), "cuda")


def test_databases_with_clusters_may_need_less_memory(
    tmp_path: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDCLI_GPU_MEMORY", "1")
    open_gpu_ahead(str(database(tmp_path, "a\ta\na\tb\n")), "cuda")
    assert opened == ["cuda"]


def test_process_is_started_for_many_queries(
    tmp_path: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "few.fasta").write_bytes(bytes(_MANY_QUERY_BYTES - 1))
    (tmp_path / "one.fasta").write_bytes(b"A")
    (tmp_path / "folder").mkdir()
    db, few, one = (str(tmp_path / name) for name in ("db", "few.fasta", "one.fasta"))
    for queries in ([few], [one, one], ["-", str(tmp_path / "folder"), str(tmp_path / "missing"), few]):
        open_gpu_ahead(db, "cuda", queries)
        assert opened.pop() == "cuda" and not opened
    for device in ("auto", "cuda:0"):
        open_gpu_ahead(db, device, [few, one])
        assert opened.pop() == "processes of GPU 0" and not opened
    for device in ("cpu", "cuda:0,1"):
        open_gpu_ahead(db, device, [few, one])
        assert opened.pop() == device
    monkeypatch.setattr(gpu_opening, "has_nvidia_hardware", lambda: False)
    open_gpu_ahead(db, "auto", [few, one])
    assert opened.pop() == "auto"
