"""Tests of predictions on two hosts, which are network namespaces of this machine connected by a cable.

They need root, as in a container, and the programs `ip` and `unshare`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.command_process import best_scores, run_foldcli
from tests.networks import tiny_version, write_parameters

PORT = 29500
OPTIONS = [
    "--models",
    "3",
    "--device",
    "cpu",
    "--threads",
    "1",
    "--no-templates",
    "--no-plots",
    "--no-report",
]
# long enough to be interrupted
MANY_PASSES = ["--num-recycle", "300"]
# within which the other ranks end if one fails
MAX_SECONDS = 30


def can_create_hosts() -> bool:
    """Return True if this process may create network namespaces."""
    if os.geteuid() != 0 or not all(shutil.which(name) for name in ("ip", "unshare")):
        return False
    name = f"foldcli-probe-{os.getpid()}"
    created = subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode == 0
    if created:
        subprocess.run(["ip", "netns", "delete", name], check=True)
    return created


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_create_hosts(), reason="needs the right to create network namespaces"),
]


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@dataclass(frozen=True)
class Host:
    """A network namespace with a host name and an address.

    Args:
        name: both of the namespace and of the host.
        address: on the cable between the hosts.
        interface: this end of the cable.
    """

    name: str
    address: str
    interface: str

    def start(self, rendezvous: "Host", arguments: list[object], log: Path) -> subprocess.Popen[bytes]:
        """Start torchrun with one rank of `foldcli predict` on this host, in a session of its own."""
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
        torchrun += [
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            f"{rendezvous.name}:{PORT}",
            "--rdzv-id",
            "fold",
        ]
        command = [*torchrun, "-m", "foldcli", "predict", *map(str, arguments), *OPTIONS]
        script = 'hostname "$1" && shift && exec "$@"'
        inside = ["ip", "netns", "exec", self.name, "unshare", "--uts", "sh", "-c", script, "sh", self.name]
        with log.open("wb") as stream:
            return subprocess.Popen(
                [*inside, *command],
                stdout=stream,
                stderr=stream,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    """Two hosts that know each other's name, connected by a cable."""
    number = os.getpid() % 10**6
    names = [f"foldcli{index}-{number}" for index in (1, 2)]
    pair = Host(names[0], "10.77.0.1", f"fc1{number}"), Host(names[1], "10.77.0.2", f"fc2{number}")
    known = "127.0.0.1 localhost\n" + "".join(f"{host.address} {host.name}\n" for host in pair)
    files = [Path("/etc/netns", host.name) for host in pair]
    try:
        for host, folder in zip(pair, files, strict=True):
            ip("netns", "add", host.name)
            ip("-n", host.name, "link", "set", "lo", "up")
            folder.mkdir(parents=True)
            (folder / "hosts").write_text(known)
        first, second = pair
        ip("link", "add", first.interface, "netns", first.name, "type", "veth",
           "peer", "name", second.interface, "netns", second.name)  # fmt: skip
        for host in pair:
            ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", host.interface)
            ip("-n", host.name, "link", "set", host.interface, "up")
        yield pair
    finally:
        for host, folder in zip(pair, files, strict=True):
            subprocess.run(["ip", "netns", "delete", host.name], capture_output=True)
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def inputs(tmp_path: Path) -> list[Path]:
    """Write parameters into tmp_path / "params", and return the alignments of a target."""
    write_parameters(tmp_path / "params", tiny_version("model_3_ptm"))
    alignment = tmp_path / "a.a3m"
    alignment.write_text(">a\nMKVLAAGIVWDEFHYTRSPQMKVLAAGIVWDEF\n>b\nMKVLSAGIVWDEYHYTRSPQMKILAAGIV-DEF\n")
    return [alignment]


def messages(log: Path) -> str:
    return "\n".join(line for line in log.read_text().splitlines() if line.startswith("foldcli: error"))


def rank_of(torchrun: subprocess.Popen[bytes]) -> int:
    """Return the process of the rank that torchrun has started."""
    children = Path(f"/proc/{torchrun.pid}/task/{torchrun.pid}/children").read_text().split()
    (rank,) = [int(pid) for pid in children if "predict" in Path(f"/proc/{pid}/cmdline").read_text()]
    return rank


def kill(process: int) -> None:
    """Kill a process that may have ended."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def test_hosts_predict_a_target_together(
    hosts: tuple[Host, Host], inputs: list[Path], tmp_path: Path
) -> None:
    shared = [*inputs, "--params", tmp_path / "params"]
    logs = [tmp_path / "1.log", tmp_path / "2.log"]
    # only rank 0 needs the alignments
    arguments = [[*shared, "-o", tmp_path / "two"], ["missing.a3m", *shared[-2:], "-o", tmp_path / "other"]]
    processes = [
        host.start(hosts[0], given, log) for host, given, log in zip(hosts, arguments, logs, strict=True)
    ]
    assert [process.wait(120) for process in processes] == [0, 0], logs[0].read_text()
    assert not (tmp_path / "other").exists()
    assert run_foldcli(["predict", *shared, *OPTIONS, "-o", tmp_path / "one"]).returncode == 0
    scores = [best_scores(tmp_path / name / "a") for name in ("one", "two")]
    assert np.allclose(scores[0]["plddt"], scores[1]["plddt"], atol=0.011)
    assert np.allclose(scores[0]["pae"], scores[1]["pae"], atol=0.011)
    assert json.loads((tmp_path / "two/a/a.done.json").read_text())["facts"]["gpus_per_target"] == 2


def test_host_with_other_parameters_is_refused(
    hosts: tuple[Host, Host], inputs: list[Path], tmp_path: Path
) -> None:
    shutil.copytree(tmp_path / "params", tmp_path / "other")
    (file,) = (tmp_path / "other").glob("*.npz")
    arrays = dict(np.load(file))
    np.savez(file, **(arrays | {name: arrays[name] + 1 for name in list(arrays)[:1]}))
    processes = [
        host.start(
            hosts[0],
            [*inputs, "--params", tmp_path / params, "-o", tmp_path / "out"],
            tmp_path / f"{host.name}.log",
        )
        for host, params in zip(hosts, ("params", "other"), strict=True)
    ]
    assert all(process.wait(60) != 0 for process in processes)
    message = messages(tmp_path / f"{hosts[0].name}.log")
    assert f"rank 1 on {hosts[1].name} has parameters with hash" in message
    assert f"rank 0 on {hosts[0].name} has" in message
    assert not (tmp_path / "out").exists()


@pytest.mark.long
@pytest.mark.parametrize("failure", ["killed", "stopped", "unplugged"])
def test_other_host_ends_if_one_fails(
    hosts: tuple[Host, Host], inputs: list[Path], tmp_path: Path, failure: str
) -> None:
    arguments = [*inputs, "--params", tmp_path / "params", "-o", tmp_path / "out", *MANY_PASSES]
    logs = [tmp_path / "1.log", tmp_path / "2.log"]
    with ExitStack() as ends:
        processes = []
        for host, log in zip(hosts, logs, strict=True):
            processes.append(host.start(hosts[0], arguments, log))
            ends.callback(kill, processes[-1].pid)
        deadline = time.monotonic() + 60
        while "2 × CPU" not in logs[0].read_text():
            assert time.monotonic() < deadline and processes[0].poll() is None, logs[0].read_text()
            time.sleep(0.1)
        # passes run by then
        time.sleep(2)
        rank = rank_of(processes[1])
        ends.callback(kill, rank)
        if failure == "unplugged":
            ip("-n", hosts[1].name, "link", "set", hosts[1].interface, "down")
        else:
            os.kill(rank, signal.SIGKILL if failure == "killed" else signal.SIGSTOP)
        begin = time.monotonic()
        assert processes[0].wait(60) != 0
        assert time.monotonic() - begin < MAX_SECONDS
        (message,) = messages(logs[0]).splitlines()
        assert message.startswith(f"foldcli: error: rank 1 on {hosts[1].name}: no sign of life for ")
        assert not list(tmp_path.glob("out/a/*.done.json"))
