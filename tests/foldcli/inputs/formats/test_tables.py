"""Tables of queries, as ColabFold reads them: valid and invalid."""

import gzip
from pathlib import Path

import pytest

from foldcli.inputs.queries import read_queries
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord

GB1 = "MTYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"
UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"


def read(path: Path, content: str | bytes) -> list[tuple[str, str]]:
    """Return header and sequence of each query in a file of this content."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    records = read_queries(path)
    assert all(isinstance(record, FastaRecord) for record in records)
    return [(record.header, record.sequence) for record in records if isinstance(record, FastaRecord)]


@pytest.mark.parametrize(
    "text",
    [
        f"id,sequence\na b,{GB1}\nu,{UBIQUITIN.lower()}*\n",
        f'sequence,note,id\r\n{GB1},"x, \ny",a b\r\n\r\n{UBIQUITIN},,u\r\n',
        f"\ufeffID\tSequence\na b\t{GB1}\nu\t{UBIQUITIN}",
        f'"id","sequence"\n"a b","{GB1[:20]}\n{GB1[20:]}"\n"u","{UBIQUITIN}"\n',
    ],
)
def test_table_has_one_query_per_row(tmp_path: Path, text: str) -> None:
    for name in ("q.csv", "q.txt"):
        assert read(tmp_path / name, text) == [("a_b", GB1), ("u", UBIQUITIN)]
    assert read(tmp_path / "q.csv.gz", gzip.compress(text.encode())) == [
        ("a_b", GB1),
        ("u", UBIQUITIN),
    ]


@pytest.mark.parametrize(
    ("text", "location", "reason"),
    [
        ("", "", "empty file"),
        ("id,sequence\n", "", "no row"),
        (f"name,sequence\na,{GB1}\n", ":1", "no column 'id'"),
        (f"id,sequence,Sequence\na,{GB1},{GB1}\n", ":1", "two columns have the name 'sequence'"),
        (f"id,sequence,ID\na,{GB1},b\n", ":1", "two columns have the name 'id'"),
        (f"id,sequence\na,{GB1}\nb,\n", ":3", "no sequence"),
        (f"id,sequence\n,{GB1}\n", ":2", "no id"),
        (f"id,sequence\na,{GB1}\n\nb,{GB1}7\n", ":4", "'7' is not a residue"),
        (f"id,sequence\na,{GB1}\nb,MK-V\n", ":3", "is a gap"),
        # upper case of these letters is ASCII
        ("id,sequence\na,MKıſ\n", ":2", "byte 0xc4 is not a residue"),
        (f"id,sequence\na,{GB1}\nb\n", ":3", "1 fields, but the first line has 2"),
        (f'id,sequence\na,{GB1}\n"b,{GB1}\n', ":3", "not a table"),
        (f"id,sequence,a3mpath\na,{GB1},x.a3m\n", ":2", "a3mpath names an alignment"),
        (b"id,sequence\na,MK\xff\n", ":2", "0xff is not valid UTF-8"),
    ],
)
def test_invalid_table_is_reported_with_its_line(
    tmp_path: Path, text: str | bytes, location: str, reason: str
) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path / "q.csv", text)
    assert str(caught.value).startswith(f"{tmp_path / 'q.csv'}{location}: ")
    assert reason in str(caught.value)
