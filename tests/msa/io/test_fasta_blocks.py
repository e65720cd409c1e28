"""The compiled FASTA parser equals a simple one for all block boundaries, and counts unusual content."""

import io

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from msa import alphabet
from msa.base.errors import InputError
from msa.io import fasta_blocks
from msa.io.fasta_blocks import ODDITIES, FastaBlock, ParsedBlock, parse_block, read_blocks


def parsed(content: bytes, size: int = 1 << 20) -> list[ParsedBlock]:
    return [parse_block(block) for block in read_blocks(io.BytesIO(content), "in", size)]


def as_pairs(blocks: list[ParsedBlock]) -> list[tuple[bytes, str]]:
    pairs = []
    for block in blocks:
        residue = header = 0
        for length, header_length in zip(block.lengths, block.header_lengths, strict=True):
            name = block.headers[header : header + header_length].tobytes()
            pairs.append((name, alphabet.decode(block.residues[residue : residue + length])))
            residue, header = residue + length, header + header_length
        assert (residue, header) == (len(block.residues), len(block.headers))
    return pairs


def counts(blocks: list[ParsedBlock]) -> dict[str, int]:
    total = np.sum([block.oddities for block in blocks], axis=0)
    return {name: count for name, count in zip(ODDITIES, total.tolist(), strict=True) if count}


def simple_parse(content: bytes) -> tuple[list[tuple[bytes, str]], dict[str, int]]:
    """Parse valid content one record and one character at a time."""
    pairs, count = [], dict.fromkeys(ODDITIES, 0)
    for record in (b"\n" + content).split(b"\n>")[1:]:
        header, _, body = record.partition(b"\n")
        text = "".join(body.decode("ascii").split())
        count["gap_characters"] += text.count("-") + text.count(".")
        text = text.replace("-", "").replace(".", "")
        sequence = text.rstrip("*")
        count["end_stops"] += len(text) - len(sequence)
        count["inner_stops"] += sequence.count("*")
        count["lower_case_letters"] += sum(c.islower() for c in sequence)
        if sequence:
            pairs.append((header.strip(b" \t\r\v\f").translate(CLEANED), sequence.upper().replace("*", "X")))
        else:
            count["empty_sequences"] += 1
    return pairs, {name: number for name, number in count.items() if number}


CONTROL = bytes({*range(1, 32), 127} - {9})
CLEANED = bytes.maketrans(CONTROL, bytes(32 if byte in b"\1\r\v\f" else 95 for byte in CONTROL))
HEADERS = st.binary(max_size=12).map(lambda b: b.translate(None, b"\0\n"))
BODIES = st.text("ACDEFGHIKLMNPQRSTVWYBZXUOJacx*-. \t\r\n", max_size=40).map(str.encode)
CONTENTS = st.lists(st.tuples(HEADERS, BODIES), min_size=1, max_size=8).map(
    lambda pairs: b"".join(b">" + header + b"\n" + body + b"\n" for header, body in pairs)
)


@settings(deadline=None)  # the first example compiles
@given(CONTENTS, st.integers(1, 60))
@example(b">a\nMKV\n>b\nAC", 7)
@example(b">a\n\n>b\n\n", 1)
@example(b"\n\n>a\nM*-*K*-*\n", 3)
@example(b">a\nMKV\n>", 1 << 20)
def test_equals_simple_parser_for_all_block_boundaries(content: bytes, size: int) -> None:
    pairs, count = simple_parse(content)
    blocks = parsed(content, size)
    assert as_pairs(blocks) == pairs
    assert counts(blocks) == count


@settings(deadline=None)
@given(CONTENTS, st.integers(1, 60))
def test_blocks_cover_the_content(content: bytes, size: int) -> None:
    blocks = list(read_blocks(io.BytesIO(content), "in", size))
    assert b"".join(block.data for block in blocks) == content
    line = 1
    for block in blocks:
        assert block.data.startswith(b">")
        assert block.first_line == line
        line += block.data.count(b"\n")


def test_blocks_are_cut_at_a_header_on_a_read_boundary() -> None:
    content = b">header\nMKVLAAG\n" * 100  # after the first line, every second read of 8 bytes ends a record
    assert [len(block.data) for block in read_blocks(io.BytesIO(content), "in", 8)] == [16] * 100


@pytest.mark.parametrize("size", [1, 5, 1 << 20])
@pytest.mark.parametrize(
    ("content", "location", "reason"),
    [
        (b"", "in", "empty file"),
        (b" \r\n\n", "in", "empty file"),
        (b"\n\nMKV\n>a\n", "in:3", "text before the first header"),
        (b"\0\1\2", "in:1", "binary data"),
        (b">a\nMKV\n>b\nMK7\n", "in:4:3", "'7' is not a residue letter"),
        (b"\n>a\nMKV\n>b\nMK>V\n", "in:5:3", "'>' is not a residue letter"),
        (b">a\nMKV\n>b\xff\0\nMKV\n", "in:3:4", "binary data"),
        (b">a\nMKV\n>b\nMKV\nMKV\xc3\n", "in:5:4", "byte 0xc3 is not a residue letter"),
    ],
)
def test_invalid_input_is_reported_with_its_location(
    content: bytes, location: str, reason: str, size: int
) -> None:
    with pytest.raises(InputError) as caught:
        parsed(content, size)
    assert str(caught.value).startswith(f"{location}: ")
    assert reason in str(caught.value)


def test_records_are_limited_in_size_but_titin_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    titin = b">titin\n" + b"MKVLA\n" * 8000
    assert as_pairs(parsed(titin, 1000)) == [(b"titin", "MKVLA" * 8000)]
    monkeypatch.setattr(fasta_blocks, "MAX_RECORD_BYTES", 10_000)
    with pytest.raises(InputError, match="in:3: a record of more than"):
        parsed(b">a\nMKV\n" + titin, 1000)


def test_id_hashes_depend_only_on_the_first_word() -> None:
    block = parse_block(FastaBlock("in", 1, b">a one\nM\n>a\ttwo\nM\n>a\nM\n>ab\nM\n>\nM\n>b a\nM\n> a\nM\n"))
    hashes = block.id_hashes.tolist()
    assert hashes[0] == hashes[1] == hashes[2] == hashes[6]
    assert len(set(hashes)) == 4


def test_id_hashes_of_numbered_ids_do_not_collide() -> None:
    content = b"".join(b">UniRef50_%d\nM\n" % number for number in range(100_000))
    block = parse_block(FastaBlock("in", 1, content))
    assert len(np.unique(block.id_hashes)) == 100_000
    assert len(np.unique(block.id_hashes % np.uint64(1 << 32))) > 99_990


def test_every_letter_is_preserved() -> None:
    letters = bytes(range(ord("A"), ord("Z") + 1))
    residues = parse_block(FastaBlock("in", 1, b">a\n" + letters + letters.lower())).residues
    assert alphabet.decode(residues) == letters.decode() * 2
