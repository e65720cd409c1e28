"""The lock file next to a server's socket."""

import os
from pathlib import Path

import pytest

from foldcli.server.socket_file import claim_socket
from msa.base.errors import InputError


def test_foreign_files_are_not_used_as_locks(tmp_path: Path) -> None:
    victim, lock = tmp_path / "victim", tmp_path / "s.sock.lock"
    victim.write_text("content")
    for link in (os.symlink, os.link):
        link(victim, lock)
        reason = r"s\.sock\.lock: is .* not used as a lock"
        with pytest.raises(InputError, match=reason), claim_socket(tmp_path / "s.sock"):
            pass
        assert victim.read_text() == "content"
        lock.unlink()
    os.mkfifo(lock)
    with pytest.raises(InputError, match="not used as a lock"), claim_socket(tmp_path / "s.sock"):
        pass
    lock.unlink()
    with claim_socket(tmp_path / "s.sock"):
        assert lock.read_text() == f"{os.getpid()}\n"
    assert os.listdir(tmp_path) == ["victim"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_lock_of_another_user_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "s.sock.lock"
    lock.touch()
    os.chown(lock, 12345, -1)
    with pytest.raises(InputError, match="not a file of this user"), claim_socket(tmp_path / "s.sock"):
        pass
