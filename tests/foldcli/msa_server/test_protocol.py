"""Answers of the server: states, bad input, limits, users, restarts."""

import base64
import json
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from foldcli.msa_server import app
from foldcli.msa_server.results import ResultFiles
from foldcli.msa_server.tickets import Ticket, TicketJob, TicketQueue
from foldcli.msa_server.worker import SearchStages, Worker
from foldcli.pipeline.targets.locks import TargetLocks
from tests.foldcli.exports.conftest import GB1, UBIQUITIN
from tests.foldcli.msa_server.conftest import QUERY, TIMEOUT, Client, Starter

NOBODY = "A" * 38


def test_equal_requests_share_a_ticket(client: Client) -> None:
    first, second = client.submit(), client.submit()
    assert first[0] == second[0] == 200 and first[1]["id"] == second[1]["id"] and len(first[1]["id"]) == 38
    assert client.wait(first[1]["id"]) == "COMPLETE"
    assert client.submit() == (200, {"id": first[1]["id"], "status": "COMPLETE"})
    others = {client.submit(mode="all")[1]["id"], client.submit(mode="", kind="pair")[1]["id"]}
    assert len({first[1]["id"], *others}) == 3


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({}, "query: empty file"),
        ({"q": "MKV"}, "query:1: not a FASTA file: text before the first header line ('>')"),
        ({"q": ">101\nMK1V\n"}, "query:2:3: '1' is not a residue letter"),
        ({"q": f">101\n{GB1}:{GB1}\n"}, "'101' has 2 protein chains"),
        ({"q": ">101\nXXXXXXXX\n"}, "none of the twenty residues"),
        ({"q": QUERY, "mode": "env-m8output"}, "unknown mode 'm8output'"),
    ],
)
def test_invalid_sequences_are_errors(client: Client, data: dict[str, str], reason: str) -> None:
    code, body = client.call("/ticket/msa", data)
    answer = json.loads(body)
    assert code == 200 and answer["status"] == "ERROR" and reason in answer["reason"]
    assert client.state(answer["id"]) == "UNKNOWN"


@pytest.mark.parametrize(
    ("path", "code", "body"),
    [
        ("/ticket/msa", 400, b"Invalid ID\n"),
        ("/ticket/short", 400, b"Invalid ID\n"),
        (f"/ticket/{NOBODY}", 200, f'{{"id":"{NOBODY}","status":"UNKNOWN"}}'.encode()),
        ("/result/download/short", 400, b"Invalid ID\n"),
        (f"/result/download/{NOBODY}", 400, b"the ticket is UNKNOWN, not COMPLETE\n"),
        ("/other", 404, b"Not Found"),
    ],
)
def test_unknown_tickets(client: Client, path: str, code: int, body: bytes) -> None:
    assert client.call(path) == (code, body)
    assert client.call("/" + path) == (code, body)


def test_forms_whose_type_is_wrong_are_read(client: Client) -> None:
    data = urllib.parse.urlencode({"q": QUERY, "mode": "env"}).encode()
    code, answer = client.call("/ticket/msa", data, **{"Content-Type": "application/json"})
    assert code == 200 and json.loads(answer)["id"] == client.submit()[1]["id"]
    assert client.call("/ticket/msa", b"a=1&" * 200) == (400, b"Max number of fields exceeded\n")


def test_forms_with_files(client: Client) -> None:
    part = 'Content-Disposition: form-data; name="{}"{}\r\n\r\n{}\r\n'
    parts = [part.format("q", '; filename="q.fasta"', QUERY), part.format("mode", "", "env")]
    body = "".join(f"--limit\r\n{each}" for each in parts) + "--limit--\r\n"
    kind = "multipart/form-data; boundary=limit"
    code, answer = client.call("/ticket/msa", body.encode(), **{"Content-Type": kind})
    assert code == 200 and json.loads(answer)["id"] == client.submit()[1]["id"]


def test_limits_and_maintenance(start: Starter, tmp_path: Path) -> None:
    server = start(tmp_path, searches=False, max_waiting=3)
    client = server.client
    assert client.submit() == (200, {"id": client.submit()[1]["id"], "status": "PENDING"})
    code, answer = client.submit(mode="all")
    assert code == 429 and answer["status"] == "RATELIMIT" and "2 sequences" in answer["reason"]
    assert client.submit(f">1\n{GB1}\n")[1]["status"] == "PENDING"
    code, answer = client.submit(f">1\n{'A' * (1 << 16)}\n")
    assert code == 413 and answer["status"] == "ERROR"
    # more than fits into the buffers of a connection
    code, answer = client.submit(f">1\n{'A' * (1 << 24)}\n")
    assert code == 413 and "the limit is 65536" in answer["reason"]
    (tmp_path / "maintenance").touch()
    assert client.submit(mode="nofilter")[0] == 503 and client.call("/health")[0] == 503
    assert client.submit(mode="nofilter")[1]["status"] == "MAINTENANCE"
    (tmp_path / "maintenance").unlink()
    lines = client.call("/metrics")[1].decode().splitlines()
    assert 'foldcli_submissions_total{status="RATELIMIT"} 1' in lines
    assert "foldcli_waiting_tickets 2" in lines and "foldcli_waiting_sequences 3" in lines
    assert json.loads(client.call("/health")[1])["waiting"] == 2


def test_requests_for_a_state_wait_for_the_answer(
    start: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start(tmp_path, searches=False)
    ticket_id = server.client.submit()[1]["id"]
    monkeypatch.setattr(app, "_HOLD_SECONDS", 0.1)
    assert server.client.state(ticket_id) == "PENDING"
    monkeypatch.setattr(app, "_HOLD_SECONDS", TIMEOUT)
    with ThreadPoolExecutor() as clients:
        states = [clients.submit(server.client.state, ticket_id) for _ in range(3)]
        time.sleep(0.3)
        assert not any(state.done() for state in states)
        server.queue.fail(server.queue.waiting()[0], "failed")
        assert [state.result() for state in states] == ["ERROR"] * 3


def test_tickets_that_cannot_be_written_do_not_wait(start: Starter, tmp_path: Path) -> None:
    ticket_id = start(tmp_path / "written", searches=False).client.submit()[1]["id"]
    server = start(tmp_path / "full", searches=False, max_waiting=2)
    (tmp_path / "full" / ticket_id / "job.json").mkdir(parents=True)
    code, answer = server.client.submit()
    assert code == 503 and answer["status"] == "MAINTENANCE" and not server.queue.waiting()
    assert server.client.submit(mode="all")[1]["status"] == "PENDING"


def test_tickets_of_an_ended_server_are_answered(start: Starter, tmp_path: Path) -> None:
    ended = start(tmp_path, searches=False).client
    waiting = [ended.submit(f">{number}\n{UBIQUITIN[number:]}\n")[1]["id"] for number in range(4)]
    (tmp_path / waiting[0] / ".result.tar.gz.half").touch()
    (tmp_path / ("D" * 38)).mkdir()
    (tmp_path / ("D" * 38) / "job.json").write_text("{")
    client = start(tmp_path).client
    assert [client.wait(each) for each in waiting] == ["COMPLETE"] * 4
    assert client.state("D" * 38) == "UNKNOWN"


def test_failed_tickets_tell_so_and_can_be_repeated(start: Starter, tmp_path: Path) -> None:
    query = f">1\n{UBIQUITIN[5:]}\n"
    ticket_id = start(tmp_path, searches=False).client.submit(query)[1]["id"]
    (tmp_path / ticket_id / "result.tar.gz").mkdir()
    client = start(tmp_path).client
    assert client.wait(ticket_id) == "ERROR"
    assert "result.tar.gz" in (tmp_path / ticket_id / "error.txt").read_text()
    (tmp_path / ticket_id / "result.tar.gz").rmdir()
    assert client.submit(query)[1]["status"] == "PENDING" and client.wait(ticket_id) == "COMPLETE"
    assert not (tmp_path / ticket_id / "error.txt").exists()


def test_users(start: Starter, tmp_path: Path) -> None:
    url = start(tmp_path, searches=False, secrets={"ada": "s:1", "bob": "t2", "eve": "ü"}).url

    def code(**headers: str) -> int:
        return Client(url, headers).call(f"/ticket/{NOBODY}")[0]

    def basic(text: str, encoding: str = "utf-8") -> dict[str, str]:
        return {"Authorization": "Basic " + base64.b64encode(text.encode(encoding)).decode()}

    assert code(**basic("ada:s:1")) == code(Authorization="Bearer t2") == code(**{"X-API-Key": "s:1"}) == 200
    assert code(**basic("eve:ü")) == code(**basic("eve:ü", "latin-1")) == 200
    assert code() == code(**basic("ada:t2")) == code(**basic("ada:")) == code(Authorization="Basic ü") == 401
    assert code(**{"X-API-Key": ""}) == code(Authorization="Bearer t") == 401
    assert Client(url).call("/health")[0] == 200
    assert Client(url).call("/ticket/msa", {"q": QUERY}) == (401, b"Unauthorized\n")
    assert Client(url, basic("bob:t2")).submit()[0] == 200
    (path,) = tmp_path.glob("*/job.json")
    assert json.loads(path.read_text())["client"] == "bob"


def test_clients_take_turns_and_absent_ones_come_last(stages: SearchStages, tmp_path: Path) -> None:
    queue = TicketQueue(tmp_path, 1000)
    worker = Worker(queue, stages, ResultFiles(None), TargetLocks(None), 1e6)  # type: ignore[arg-type]
    worker._residues_per_second = 1e6

    def submit(client: str, *lengths: int, mode: str = "env") -> Ticket:
        query = "".join(f">{n}\n{UBIQUITIN[:n]}\n" for n in lengths)
        queue.submit(f"{client}{lengths[0]}", TicketJob("msa", mode, query, client, time.time()))
        return next(each for each in queue.waiting() if each.id == f"{client}{lengths[0]}")

    absent = submit("a", 20)
    absent._last_seen -= 100
    submit("b", 30, 31, 32)
    submit("c", 40)
    submit("b", 33, mode="all")
    assert [len(query.sequence) for _, query in worker._next_batch()] == [30, 40, 31, 32, 20]
    queue.state("a20")
    assert [len(query.sequence) for _, query in worker._next_batch()] == [20, 30, 40, 31, 32]
    worker._residues_per_second = 15
    assert [len(query.sequence) for _, query in worker._next_batch()] == [20, 30]


def test_answered_tickets_are_removed(client: Client, start: Starter, tmp_path: Path) -> None:
    server = start(tmp_path)
    ticket_id = server.client.submit()[1]["id"]
    assert server.client.wait(ticket_id) == "COMPLETE"
    server.queue.prune(1000)
    assert server.client.state(ticket_id) == "COMPLETE"
    server.queue.prune(-1)
    assert server.client.state(ticket_id) == "UNKNOWN" and not any(tmp_path.iterdir())
