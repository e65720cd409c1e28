"""The process that opens the GPU of a search."""

from pathlib import Path

import pytest

from foldcli.pipeline.search import gpu_opening
from foldcli.pipeline.search.gpu_opening import _MANY_QUERY_BYTES, are_many, open_gpu


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


def test_process_is_started_for_many_queries(
    tmp_path: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "few.fasta").write_bytes(bytes(_MANY_QUERY_BYTES - 1))
    (tmp_path / "one.fasta").write_bytes(b"A")
    (tmp_path / "folder").mkdir()
    few, one = (str(tmp_path / name) for name in ("few.fasta", "one.fasta"))
    for queries in ([few], [one, one], ["-", str(tmp_path / "folder"), str(tmp_path / "missing"), few]):
        open_gpu("cuda", are_many(queries))
        assert opened.pop() == "cuda" and not opened
    for device in ("auto", "cuda:0"):
        open_gpu(device, are_many([few, one]))
        assert opened.pop() == "processes of GPU 0" and not opened
    for device in ("cpu", "cuda:0,1"):
        open_gpu(device, are_many([few, one]))
        assert opened.pop() == device
    monkeypatch.setattr(gpu_opening, "has_nvidia_hardware", lambda: False)
    open_gpu("auto", are_many([few, one]))
    assert opened.pop() == "auto"
