"""Tests of the facts of a target: the keys and their order in done.json, and their pieces."""

import json
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest

from foldcli.outputs import facts as facts_module
from foldcli.outputs.facts import Facts
from msa.base.json_files import to_record

TEMPLATE = {"id": "1xt9_B", "source": "masif", "identity": 0.573, "coverage": 1.0, "evalue": None}
SEARCH = {"hits": 1, "capped": None, "sha256": {"alignment": "8d", "hits": "16"}}
DEVICE = {"waited_for_features_seconds": 0.0, "device": "cpu"}
ACCURACY = {
    "inputs": "no template", "chains": 13, "lddt": 81.3, "percentile_10": 74.9, "percentile_90": 87.7,
    "baseline": 85.3, "plddt_error": 4.7,
}  # fmt: skip
NETWORK = {
    "name": "compact", "version": "1", "licence": "CC", "training_data": "chains", "samples": 9,
    "templates": ["1xt9_B"], "effective_sequences": 1.0, "expected_lddt": ACCURACY, "note": "Network",
}  # fmt: skip
STATES = [{"models": ["a", "b"], "medoid": "b", "tm_score": 1.0}]


@pytest.mark.parametrize(
    "facts",
    [
        {
            "search": SEARCH, "feature_cache_hit": False, "residues": 76, "alignment_rows": 1,
            "templates": [TEMPLATE], "network": NETWORK, "row_clusters": {"rows": [5, 3], "epsilon": 3.5},
            "waited_for_features_seconds": 0.5, "gpus_per_target": 2, "device": "NVIDIA H200",
            "peak_gpu_memory_bytes": 10, "states": STATES,
        },
        # of a complex
        {
            "alignment": "/x/q.a3m", "templates": [{"chain": "A", **TEMPLATE}], "residues": 30,
            "alignment_rows": 5, "chains": 3, **DEVICE,
        },
        {"feature_cache_hit": True, "templates": [], "residues": 30, "alignment_rows": 5, "chains": 3},
        # of molecules
        {
            "search": SEARCH, "residues": 90, "atoms": 400, "alignment_rows": 7, "paired_rows": 0,
            "chains": 2, "templates": [{"chain": "A", **TEMPLATE}], **DEVICE,
        },
    ],
)  # fmt: skip
def test_facts_have_the_keys_and_order_of_done_json(facts: dict[str, Any]) -> None:
    record = to_record(facts, Facts)
    assert json.dumps(record.as_json()) == json.dumps(facts)
    # they cross to the processes that write results
    assert pickle.loads(pickle.dumps(record)) == record


def test_largest_peaks_and_the_last_device_are_kept() -> None:
    facts = Facts(device="cpu", residues=4)
    facts.add_device(Facts(device="GPU", peak_gpu_memory_bytes=7, residues=5))
    facts.add_device(Facts(peak_gpu_memory_bytes=6, gpus_per_target=2))
    facts.add_device(Facts(gpus_per_target=1))
    assert facts == Facts(device="GPU", peak_gpu_memory_bytes=7, gpus_per_target=2, residues=4)


def test_known_facts_replace_others() -> None:
    facts = Facts(device="cpu", residues=4, chains=1, atoms=9)
    known = Facts(residues=5, paired_rows=0)
    assert facts.updated(known) == Facts(device="cpu", residues=5, chains=1, atoms=9, paired_rows=0)


def test_docs_name_every_key(root: Path) -> None:
    text = (root / "docs/outputs.md").read_text()
    section = text[text.index("| fact |") : text.index("## Finished results")]
    kinds = [kind for kind in vars(facts_module).values() if isinstance(kind, msgspec.StructMeta)]
    assert len(kinds) == 7
    missing = [name for kind in kinds for name in kind.__struct_fields__ if f"`{name}`" not in section]
    assert not missing
