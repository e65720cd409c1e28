"""Shards partition the targets, whatever their order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldcli.inputs.shard import Shard

names = st.lists(st.text(max_size=5), unique=True)


@settings(deadline=None)
@given(names=names, count=st.integers(1, 7), data=st.data())
def test_shards_partition_the_targets(names: list[str], count: int, data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(names))
    parts = [[n for n, _ in Shard(i, count).select((n, None) for n in shuffled)] for i in range(1, count + 1)]
    assert sorted(name for part in parts for name in part) == sorted(names)
    assert parts == [
        [n for n, _ in Shard(i, count).select((n, None) for n in names)] for i in range(1, count + 1)
    ]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("text", ["", "1", "0/3", "4/3", "a/b", "1/0", "-1/3", "1/3/5"])
def test_invalid_shards_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"I/N|1 ≤ I ≤ N"):
        Shard.parse(text)


def test_a_shard_without_targets_is_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert Shard(2, 3).select([("a", None)]) == Shard(1, 3).select([]) == []
    assert caplog.messages == ["shard 2/3 has no targets; there are 1 in all"]
