"""Databases fetched from a local server that drops connections, and from copies of files."""
# ruff: noqa: F811

import gzip
import hashlib
import random
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest

from features.templates.library.library import StructureLibrary
from foldcli.databases.fetch import DatabaseFetch, fetch_database
from foldcli.databases.sources import BUILT_IN, read_sources
from msa.base.errors import InputError, MissingError
from msa.database.build import BuildSettings
from msa.database.database import TargetDatabase
from tests.command_process import run_foldcli
from tests.foldcli.params.conftest import keys, mirror, tar_of  # noqa: F401
from tests.foldcli.params.mirror import Mirror, start
from tests.msa.mmseqs.writer import write

_LETTERS = "ACDEFGHIKLMNPQRSTVWY"


@pytest.fixture(scope="module")
def fasta() -> bytes:
    draw = random.Random(3)
    records = (f">p{number} x\n{''.join(draw.choices(_LETTERS, k=200))}\n" for number in range(1500))
    return gzip.compress("".join(records).encode(), mtime=0)


@pytest.fixture
def checksums(mirror: Mirror, keys: tuple[Path, Path]) -> Iterator[Mirror]:
    """Start a second server, for a Metalink."""
    second = Mirror()
    server = start(second, keys)
    yield second
    server.shutdown()
    server.server_close()


def metalink(name: str, content: bytes) -> bytes:
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return (
        '<?xml version="1.0"?><metalink xmlns="http://www.metalinker.org/"><files>'
        f'<file name="other.gz"><verification><hash type="md5">{"0" * 32}</hash></verification></file>'
        f'<file name="{name}"><size>{len(content)}</size><verification>'
        f'<hash type="md5">{digest}</hash></verification></file></files></metalink>'
    ).encode()


def table(path: Path, **values: str) -> Path:
    file = path / "sources.toml"
    file.write_text("[own]\n" + "".join(f'{key} = "{value}"\n' for key, value in values.items()))
    return file


def fetch(path: Path, *options: object) -> "tuple[int, str]":
    result = run_foldcli(
        ["db", "fetch", "own", "-o", path / "db", "--sources", path / "sources.toml", *options]
    )
    assert "Traceback" not in result.stderr
    return result.returncode, result.stderr


def test_broken_connections_are_resumed(
    mirror: Mirror,
    checksums: Mirror,
    fasta: bytes,
    tmp_path: Path,
) -> None:
    mirror.content, mirror.drops = fasta, [50_000, 0, 60_000]
    checksums.content = metalink("params.tar", fasta)
    table(tmp_path, url=mirror.url, checksums=checksums.url)
    code, log = fetch(tmp_path, "--retries", 0)
    assert code == 4 and not (tmp_path / "db").exists()
    assert (tmp_path / "db.fetch" / "params.tar.part").stat().st_size == 50_000
    code, log = fetch(tmp_path)
    assert code == 0, log
    assert [request.get("Range") for request in mirror.requests] == [
        None, "bytes=50000-", "bytes=50000-", "bytes=110000-",
    ]  # fmt: skip
    assert "1,500 sequences, 300,000 residues" in log and "no checksum" not in log
    assert len(TargetDatabase.open(tmp_path / "db")) == 1500
    assert not (tmp_path / "db.fetch").exists()
    assert fetch(tmp_path)[0] == 2
    assert fetch(tmp_path, "--overwrite", "--keep")[0] == 0
    assert (tmp_path / "db.fetch" / "params.tar.part").is_file()


def test_wrong_content_is_removed(
    mirror: Mirror,
    checksums: Mirror,
    fasta: bytes,
    tmp_path: Path,
) -> None:
    mirror.content, checksums.content = fasta, metalink("params.tar", fasta[:-1])
    table(tmp_path, url=mirror.url, checksums=checksums.url)
    code, log = fetch(tmp_path)
    assert code == 3 and "its MD5 is" in log and "the download was removed" in log
    assert not (tmp_path / "db").exists() and not (tmp_path / "db.fetch").exists()


def test_unreachable_checksums_are_said(mirror: Mirror, fasta: bytes, tmp_path: Path) -> None:
    mirror.content = fasta
    table(tmp_path, url=mirror.url, checksums="https://localhost:1/RELEASE.metalink")
    code, log = fetch(tmp_path)
    assert code == 0 and "checksums cannot be read" in log and "no checksum to compare with" in log


def test_copies_by_hand(fasta: bytes, tmp_path: Path) -> None:
    copy = tmp_path / "copy.gz"
    copy.write_bytes(fasta)
    table(tmp_path, url="https://example.org/a.fasta.gz", sha256="0" * 64)
    code, log = fetch(tmp_path, "--from", copy)
    assert code == 3 and f"{copy}: its SHA-256 is" in log and copy.is_file()
    code, log = fetch(tmp_path, "--from", copy, "--sha256", hashlib.sha256(fasta).hexdigest())
    assert code == 0 and copy.is_file(), log
    assert len(TargetDatabase.open(tmp_path / "db")) == 1500


def test_nucleic_acids_of_the_pdb_are_left_out(tmp_path: Path) -> None:
    text = (
        ">100d_A mol:na length:10  DNA/RNA (5'-R(*CP*)-D(*CP*)-3')\nCCGGCGCCGG\n"
        ">101m_A mol:protein length:12  MYOGLOBIN\nMVLSEGEWQLVL\n>102d_A mol:na length:4\nCGCG\n"
    )
    (tmp_path / "seqres.gz").write_bytes(gzip.compress(text.encode()))
    table(tmp_path, url="https://example.org/seqres.gz", kind="seqres")
    assert fetch(tmp_path, "--from", tmp_path / "seqres.gz")[0] == 0
    database = TargetDatabase.open(tmp_path / "db")
    assert [database.id(index) for index in range(len(database))] == ["101m_A"]


def test_rna_makes_a_database_of_rna(tmp_path: Path) -> None:
    (tmp_path / "rna.gz").write_bytes(gzip.compress(b">URS1 tRNA\nGCGGATTTAGCTCAGTTGGGAGAGC\n"))
    table(tmp_path, url="https://example.org/rna.gz", kind="rna")
    assert fetch(tmp_path, "--from", tmp_path / "rna.gz")[0] == 0
    database = TargetDatabase.open(tmp_path / "db")
    assert (database.manifest.molecule, database.sequence(0)) == ("rna", "GCGGAUUUAGCUCAGUUGGGAGAGC")


def test_mmseqs_database_in_a_tar(tmp_path: Path) -> None:
    name = write(tmp_path / "env_seq", [("a first", "MKVLAAGIVG"), ("b second", "MVLSEGEWQLVL")])
    files = {f"x/{path.name}": path.read_bytes() for path in tmp_path.glob(f"{name.name}*")}
    (tmp_path / "env.tar.gz").write_bytes(gzip.compress(tar_of(files | {"x/env_aln": b"not needed"})))
    table(tmp_path, url="https://example.org/env.tar.gz", kind="mmseqs", member="env_seq")
    code, log = fetch(tmp_path, "--from", tmp_path / "env.tar.gz")
    assert code == 0, log
    database = TargetDatabase.open(tmp_path / "db")
    assert {database.header(index) for index in range(2)} == {"a first", "b second"}
    (tmp_path / "half.tar.gz").write_bytes((tmp_path / "env.tar.gz").read_bytes()[:-40])
    code, log = fetch(tmp_path, "--from", tmp_path / "half.tar.gz", "--overwrite")
    assert code == 3 and "half.tar.gz" in log
    assert len(TargetDatabase.open(tmp_path / "db")) == 2 and not (tmp_path / "db.fetch").exists()


def test_rows_of_an_hhsuite_database_in_a_tar(mirror: Mirror, tmp_path: Path) -> None:
    alignments = (
        b"#c1\n>ss_pred\nHHHH\n>c1_consensus\nMKVLAA\n>a first\nMKV-LAAgi\n>b\nMKVLA.A\n\0"
        b">d_consensus\nMVLS\n>e last\nMVL\nSEGE\n\0"
    )
    files = {"x/db_a3m.ffdata": alignments, "x/db_a3m.ffindex": b"", "x/db_hhm.ffdata": b">no\nMMMM\n\0"}
    mirror.content = gzip.compress(tar_of(files))
    mirror.drops = [100]
    digest = hashlib.sha256(mirror.content).hexdigest()
    table(tmp_path, url=mirror.url, kind="hhsuite", sha256=digest)
    code, log = fetch(tmp_path)
    assert code == 0 and len(mirror.requests) == 2 and "remark" not in log, log
    database = TargetDatabase.open(tmp_path / "db")
    rows = {database.header(index): database.sequence(index) for index in range(len(database))}
    assert rows == {"a first": "MKVLAAGI", "b": "MKVLAA", "e last": "MVLSEGE"}
    (tmp_path / "other.tar").write_bytes(tar_of({"x/db_hhm.ffdata": b""}))
    table(tmp_path, url="https://example.org/other.tar", kind="hhsuite")
    code, log = fetch(tmp_path, "--from", tmp_path / "other.tar", "--overwrite")
    assert code == 3 and "other.tar: the archive has no alignments (*_a3m.ffdata)" in log
    assert len(TargetDatabase.open(tmp_path / "db")) == 3


def test_structures_in_a_tar_make_a_library(tmp_path: Path) -> None:
    structure = Path(__file__).parents[2] / "features/templates/data/1a8o.cif.gz"
    files = {f"mmcif_files/{structure.name}": structure.read_bytes()}
    (tmp_path / "pdb.tar").write_bytes(tar_of(files | {"mmcif_files/bad.cif": b"data_x\n"}))
    table(tmp_path, url="https://example.org/pdb.tar", kind="structures")
    code, log = fetch(tmp_path, "--from", tmp_path / "pdb.tar")
    assert code == 0 and "bad.cif" in log and "from 1 of 2 files" in log, log
    assert len(StructureLibrary.open(tmp_path / "db")) > 0 and not (tmp_path / "db.fetch").exists()


def test_disk_space_is_checked_first(
    mirror: Mirror,
    fasta: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mirror.content = fasta
    source = read_sources(table(tmp_path, url=mirror.url))["own"]
    settings = DatabaseFetch(
        source, tmp_path / "db", mirror.url, None, None, 0, False, BuildSettings(threads=1)
    )
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(0, 0, (64 << 20) + 5 * len(fasta) - 1))
    with pytest.raises(MissingError, match=r"need about 64\.9 MB of disk space, and 64\.\d MB are free"):
        fetch_database(settings)
    assert not list(tmp_path.glob("db*"))
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(0, 0, (64 << 20) + 5 * len(fasta)))
    assert fetch_database(settings).sequences == 1500


def test_the_table_and_its_extension(tmp_path: Path) -> None:
    known = read_sources()
    assert {"uniref30", "uniref50", "uniref90", "swissprot", "small_bfd", "pdb_seqres"} < set(known)
    assert all(each.url.startswith("https://") and each.description for each in known.values())
    own = read_sources(table(tmp_path, url="https://example.org/a.gz", description="mine"))
    assert next(iter(own)) == "own" and own["own"].file_name == "a.gz" and len(own) == len(known) + 1
    result = run_foldcli(["db", "list", "--sources", tmp_path / "sources.toml"])
    assert result.returncode == 0 and result.stdout.startswith("own\tmine\thttps://example.org/a.gz\n")
    assert BUILT_IN.name == "sources.toml"


@pytest.mark.parametrize(
    "text, reason",
    [
        ("[own", "not valid TOML"),
        ("own = 1", "'own' is not a table"),
        ("[own]\nurl = 'https://x.org/a'\nurls = 'x'", "unknown key 'urls'"),
        ("[own]\nkind = 'fasta'", "has no url"),
        ("[own]\nurl = 'https://x.org/a'\nkind = 'hhm'", "kind: expected fasta"),
        ("[own]\nurl = 'https://x.org/a'\nkind = 'mmseqs'", "needs a member"),
        ("[own]\nurl = 3", "url: unexpected value 3"),
        ("[own]\nurl = 'https://x.org/a'\nexpansion = nan", "expansion: expected a number from 0"),
        ("[own]\nurl = 'https://x.org/a'\nexpansion = -1", "expansion: expected a number from 0"),
        ("[own]\nurl = 'https:///a'", "is not a valid address"),
    ],
)
def test_damaged_tables_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "sources.toml").write_text(text)
    with pytest.raises(InputError, match=r"sources\.toml: ") as error:
        read_sources(tmp_path / "sources.toml")
    assert reason in str(error.value)


def test_refused_commands(tmp_path: Path) -> None:
    table(tmp_path, url="http://example.org/a.gz")
    assert "could be forged" in fetch(tmp_path)[1]
    result = run_foldcli(["db", "fetch", "nothing", "-o", tmp_path / "db"])
    assert result.returncode == 2 and "known are swissprot, " in result.stderr
