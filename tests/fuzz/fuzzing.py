"""Mutation of files, and readers of them run in worker processes; shared by inputs.py and databases.py.

A case is a kind of file and a number, which determines the mutations. Workers are forked, so that a case
takes milliseconds; one that dies of a signal, or that takes too long, is replaced.
"""

import faulthandler
import io
import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any

from foldcli.errors import ExitCode, describe, exit_code_of, is_bug

SECONDS_PER_CASE = 20
MEMORY_PER_CASE = 2 << 30
_MAX_BYTES = 4 << 20
_CASES_PER_WORKER = 200
_CONTROL = bytes(range(32)) + b"\x7f"
_HUGE_NUMBERS = (
    b"9" * 5000, b"-1", b"0", b"1e999", b"NaN", b"99999999999999999999", b"2147483648",
    b"18446744073709551616",
)  # fmt: skip
_INSERTIONS = (
    *_HUGE_NUMBERS,
    b"\0", b"\x1b[31m", b"\r\n", b"\n\n", b"\t", b"\xff\xfe", b"\xef\xbb\xbf", "\u2028\x85é".encode(),
    b"*", b"-", b">", b"#", b"'", b'"', b"\\", b'"\\ud800"', b'"\\UFFFFFFFF"',
    b"null", b"[]", b"{}", b"&a [*a]",
    b"!!python/object:x ", b"[" * 3000, b"{" * 3000, b"(" * 300, b'{"a":' * 2000, b"A" * 100_000,
    b"GNU.sparse.size=9",
)  # fmt: skip
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
# stand for texts that json.dumps does not write
_RAW_JSON = {
    '"@digits"': "9" * 5000, '"@deep"': "[" * 3000 + "]" * 3000, '"@nan"': "NaN", '"@infinity"': "-Infinity",
    '"@float"': "1e999", '"@surrogate"': '"\\ud800"',
}  # fmt: skip
_ODD_VALUES = (
    None, True, -1, 0, 1e308, 10**30, "", "\0", "\x1b[31m", "../../x", "a" * 5000,
    [], {}, [[]], [None], {"": None}, *(key[1:-1] for key in _RAW_JSON),
)  # fmt: skip


class CaseTimeout(BaseException):
    """The time limit of a case; no Exception, so that no reader catches it."""


@dataclass(frozen=True)
class Kind:
    """A kind of file, and its reader.

    Args:
        name: short name.
        file_name: name of the mutated files.
        samples: valid contents.
        read: reads a file of this name; raises foldcli's errors.
        container: "zip" or "json" to mutate the members or values as well as the bytes; "" for bytes only.
    """

    name: str
    file_name: str
    samples: Sequence[bytes]
    read: Callable[[Path], object]
    container: str = ""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one case.

    Args:
        result: "read", "refused", or the kind of failure: "traceback", "message", "memory", "time", "crash".
        detail: the error's one line, or where a failure comes from.
    """

    result: str
    detail: str = ""

    @property
    def failed(self) -> bool:
        """True unless the file was read, or refused in one line that names it."""
        return self.result not in ("read", "refused")


def mutated(kind: Kind, number: int) -> bytes:
    """Return the content of a case."""
    random = Random(f"{kind.name} {number}")
    data = random.choice(kind.samples)
    if kind.container and random.random() < 0.6:
        structured = {"zip": _mutate_zip, "json": _mutate_json}[kind.container](data, random)
        if structured is not None:
            return structured
    return _mutate_bytes(data, kind.samples, random)


def _mutate_bytes(data: bytes, samples: Sequence[bytes], random: Random) -> bytes:
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        data = random.choice(_MUTATIONS)(data, samples, random)[:_MAX_BYTES]
    return data


def _flip(data: bytes, samples: Sequence[bytes], random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 3, 20)) if changed else 0):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _overwrite(data: bytes, samples: Sequence[bytes], random: Random) -> bytes:
    start = random.randint(0, len(data))
    size = random.choice((1, 2, 4, 8))
    value = random.choice(
        (b"\0" * size, b"\xff" * size, b"\x7f" + b"\xff" * (size - 1), random.randbytes(size))
    )
    return data[:start] + value + data[start + size :]


def _truncate(data: bytes, samples: Sequence[bytes], random: Random) -> bytes:
    return data[: random.randint(0, len(data))]


def _cut(data: bytes, samples: Sequence[bytes], random: Random) -> bytes:
    start, end = sorted(random.randint(0, len(data)) for _ in range(2))
    return data[:start] + data[end:]


def _duplicate(data: bytes, samples: Sequence[bytes], random: Random) -> bytes:
    start, end = sorted(random.randint(0, len(data)) for _ in range(2))
    return data[:end] + data[start:end] * random.choice((1, 1, 2, 20)) + data[end:]


def _splice(data: bytes, samples: Sequence[bytes], random: Random) -> bytes:
    other = random.choice(samples)
    return data[: random.randint(0, len(data))] + other[random.randint(0, len(other)) :]


def _insert(data: bytes, samples: Sequence[bytes], random: Random) -> bytes:
    start = random.randint(0, len(data))
    control = bytes([random.choice(_CONTROL)])
    return data[:start] + random.choice((control, random.choice(_INSERTIONS))) + data[start:]


def _change_number(data: bytes, samples: Sequence[bytes], random: Random) -> bytes:
    numbers = list(_NUMBER.finditer(data[:100_000]))
    if not numbers:
        return _insert(data, samples, random)
    start, end = random.choice(numbers).span()
    return data[:start] + random.choice(_HUGE_NUMBERS) + data[end:]


def _swap_lines(data: bytes, samples: Sequence[bytes], random: Random) -> bytes:
    lines = data.split(b"\n")
    i, k = (random.randrange(len(lines)) for _ in range(2))
    lines[i], lines[k] = lines[k], lines[i]
    return b"\n".join(lines)


_MUTATIONS = (_flip, _overwrite, _truncate, _cut, _duplicate, _splice, _insert, _change_number, _swap_lines)


def _mutate_zip(data: bytes, random: Random) -> bytes | None:
    """Return the archive with a member changed, removed, repeated or renamed, and right checksums."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    index = random.randrange(len(members))
    name, content = members[index]
    change = random.choice(("content", "content", "header", "header", "remove", "repeat", "rename"))
    if change == "content":
        members[index] = name, _mutate_bytes(content, [content], random)
    elif change == "header":
        # mutations of all of a large array seldom reach its header
        members[index] = name, _mutate_bytes(content[:128], [content[:128]], random) + content[128:]
    elif change == "remove":
        del members[index]
    elif change == "repeat":
        members.append((name, content))
    else:
        members[index] = name + random.choice(("x", "\0", "/../x", "\x1b")), content
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return stream.getvalue()


def _mutate_json(data: bytes, random: Random) -> bytes | None:
    """Return the document with one value replaced, removed or repeated; None if it has no values."""
    document = json.loads(data)
    containers: list[Any] = []

    def collect(value: Any) -> None:
        if isinstance(value, dict | list) and value:
            containers.append(value)
            for item in value.values() if isinstance(value, dict) else value:
                collect(item)

    collect(document)
    if not containers:
        return None
    container = random.choice(containers)
    key = random.choice(list(container) if isinstance(container, dict) else range(len(container)))
    change = random.choice(("replace", "replace", "replace", "remove", "key"))
    if change == "replace":
        container[key] = random.choice(_ODD_VALUES)
    elif change == "remove" or isinstance(container, list):
        del container[key]
    else:
        container[random.choice(("", "\x1b", "x" * 300))] = container.pop(key)
    text = json.dumps(document)
    for placeholder, raw in _RAW_JSON.items():
        text = text.replace(placeholder, raw)
    return text.encode()


def run_case(kind: Kind, number: int, folder: Path) -> Outcome:
    """Run one case in this process, without limits; `folder` receives the file."""
    path = folder / kind.file_name
    path.write_bytes(mutated(kind, number))
    try:
        kind.read(path)
    except MemoryError:
        return Outcome("memory", _origin(kind))
    except CaseTimeout:
        return Outcome("time", _origin(kind))
    except Exception as error:
        message = describe(error)
        if is_bug(error) or exit_code_of(error) not in (ExitCode.BAD_INPUT, ExitCode.MISSING):
            where = traceback.extract_tb(error.__traceback__)[-1]
            return Outcome(
                "traceback", f"{type(error).__name__} in {where.filename}:{where.lineno}: {message:.150}"
            )
        if (
            "\n" in message
            or len(message) > 1000
            or not (path.name in message or str(path.parent) in message)
        ):
            return Outcome("message", f"{type(error).__name__}: {message[:150]!r}")
        return Outcome("refused", message)
    return Outcome("read")


def _origin(kind: Kind) -> str:
    return f"while reading {kind.name}"


def _work(kind: Kind, numbers: Sequence[int], folder: str, connection: Connection) -> None:
    """Run cases in a worker process, and send (number, outcome) after each."""
    virtual = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (virtual + MEMORY_PER_CASE, virtual + MEMORY_PER_CASE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, _raise_timeout)
    faulthandler.disable()
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    for number in numbers:
        signal.setitimer(signal.ITIMER_REAL, SECONDS_PER_CASE)
        try:
            outcome = run_case(kind, number, Path(folder))
        except CaseTimeout:
            outcome = Outcome("time", _origin(kind))
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.send((number, outcome))
    connection.close()
    os._exit(0)


def _raise_timeout(number: int, frame: object) -> None:
    raise CaseTimeout


class _Worker:
    """A process that runs cases of one kind."""

    def __init__(self, kind: Kind, numbers: Sequence[int]) -> None:
        self.kind, self.numbers, self.done = kind, numbers, 0
        self.folder = tempfile.mkdtemp(prefix="fuzz-")
        self.connection, other = multiprocessing.Pipe(duplex=False)
        self.last = time.monotonic()
        context = multiprocessing.get_context("fork")
        self.process = context.Process(target=_work, args=(kind, numbers, self.folder, other), daemon=True)
        self.process.start()
        other.close()

    def receive(self) -> tuple[int, Outcome] | None:
        """Return the next case and its outcome; None once the process has ended."""
        try:
            number, outcome = self.connection.recv()
        except (EOFError, OSError):
            return None
        self.done += 1
        self.last = time.monotonic()
        return number, outcome

    def close(self) -> int | None:
        """End the process; return the number of the signal that ended it, if one did."""
        if time.monotonic() - self.last > SECONDS_PER_CASE:
            self.process.kill()
        self.process.join()
        self.connection.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        code = self.process.exitcode or 0
        return -code if code < 0 else None


def run_cases(
    kinds: Iterable[Kind], cases: int, workers: int, first: int = 0
) -> dict[str, dict[int, Outcome]]:
    """Run cases of all kinds.

    Args:
        kinds: the kinds of files.
        cases: number of cases of each kind.
        workers: processes.
        first: number of the first case.

    Returns:
        The outcomes by kind and number.
    """
    kinds = list(kinds)
    outcomes: dict[str, dict[int, Outcome]] = {kind.name: {} for kind in kinds}
    numbers = range(first, first + cases)
    pending = [
        (kind, numbers[start : start + _CASES_PER_WORKER])
        for kind in kinds
        for start in range(0, cases, _CASES_PER_WORKER)
    ]
    running: list[_Worker] = []
    while pending or running:
        while pending and len(running) < workers:
            running.append(_Worker(*pending.pop(0)))
        ready = wait([worker.connection for worker in running], timeout=1)
        for worker in list(running):
            late = time.monotonic() - worker.last > 2 * SECONDS_PER_CASE
            if worker.connection not in ready and not late:
                continue
            received = None if late else worker.receive()
            if received is not None:
                outcomes[worker.kind.name][received[0]] = received[1]
                continue
            running.remove(worker)
            number = worker.close()
            if worker.done < len(worker.numbers):
                case = worker.numbers[worker.done]
                reason = f"signal {number}" if number is not None else "the process ended"
                outcomes[worker.kind.name][case] = Outcome("time" if late else "crash", reason)
                pending.insert(0, (worker.kind, worker.numbers[worker.done + 1 :]))
    return outcomes


def print_table(outcomes: dict[str, dict[int, Outcome]]) -> int:
    """Print the number of outcomes of each kind and the distinct failures; return the number of failures."""
    columns = ("read", "refused", "traceback", "message", "memory", "time", "crash")
    print(f"{'kind':22}{'cases':>8}" + "".join(f"{column:>11}" for column in columns))
    total: Counter[str] = Counter()
    for name, by_number in outcomes.items():
        counts = Counter(outcome.result for outcome in by_number.values())
        total += counts
        _print_row(name, counts, columns)
    _print_row("all", total, columns)
    failures: dict[tuple[str, str], list[int]] = {}
    for name, by_number in outcomes.items():
        for number, outcome in sorted(by_number.items()):
            if outcome.failed:
                key = f"{outcome.result}: {outcome.detail}"
                failures.setdefault((name, re.sub(r"\d{6,}|0x\w+", "N", key)), []).append(number)
    for (name, detail), numbers in failures.items():
        print(f"{name} {numbers[0]} ({len(numbers)} cases): {detail}")
    return sum(map(len, failures.values()))


def _print_row(name: str, counts: Counter[str], columns: Sequence[str]) -> None:
    print(f"{name:22}{counts.total():>8}" + "".join(f"{counts[column]:>11}" for column in columns))
