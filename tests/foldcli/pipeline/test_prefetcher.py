"""Making the next thing while the last is used: order, whose error it is, and how much lives at once."""

import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

import numpy as np
import pytest

from features.deterministic import make_features
from features.sampling import SamplingSettings, sample_features
from foldcli.pipeline.job_draws import JobDraws
from foldcli.pipeline.prefetcher import Ahead
from msa.io.alignments import parse_alignment


@pytest.fixture(params=["ahead", "when asked for"])
def background(request: pytest.FixtureRequest) -> Iterator[Executor | None]:
    if request.param == "ahead":
        with ThreadPoolExecutor(1) as pool:
            yield pool
    else:
        yield None


def test_each_take_has_its_own_result_or_error(background: Executor | None) -> None:
    def make(item: int) -> str:
        if item == 2:
            raise ValueError(f"item {item}")
        return str(item)

    ahead = Ahead([1, 2, 3, 4], make, background)
    got = []
    for item in (1, 2, 3, 4):
        if item == 2:
            with pytest.raises(ValueError, match="item 2"):
                ahead.take()
        else:
            got.append(ahead.take())
        ahead.start()
    assert got == ["1", "3", "4"] and ahead.left == 0


def test_the_next_is_made_in_the_background_and_only_when_begun_with() -> None:
    made = []
    with ThreadPoolExecutor(1) as pool:

        def idle() -> None:
            pool.submit(lambda: None).result()

        ahead = Ahead("abc", lambda item: made.append((item, threading.current_thread())) or item, pool)
        assert ahead.take() == "a"
        idle()
        assert [item for item, _ in made] == ["a"]
        ahead.start()
        ahead.start()
        idle()
        assert [item for item, _ in made] == ["a", "b"]
        assert made[1][1] is not threading.current_thread()
        assert ahead.take() == "b" and [item for item, _ in made] == ["a", "b"]


def test_what_needs_nothing_is_passed_over_in_the_background() -> None:
    made = []
    with ThreadPoolExecutor(1) as pool:
        ahead = Ahead([0, 0, 0, 7, 8], lambda item: made.append(item) or (item or None), pool)
        ahead.start()
        for _ in range(8):  # each lets the thread make one more, if it wants to
            pool.submit(lambda: None).result()
        assert made == [0, 0, 0, 7]
        assert [ahead.take() for _ in range(5)] == [None, None, None, 7, 8]
    assert made == [0, 0, 0, 7, 8]


class Thing:
    """Something whose life can be watched."""


def test_two_live_at_once_and_no_more() -> None:
    alive: weakref.WeakSet[Thing] = weakref.WeakSet()
    most = 0

    def make(_: int) -> Thing:
        nonlocal most
        thing = Thing()
        alive.add(thing)
        most = max(most, len(alive))
        return thing

    with ThreadPoolExecutor(1) as pool:
        ahead = Ahead(range(6), make, pool)
        while ahead.left:
            thing = ahead.take()
            ahead.start()
            pool.submit(lambda: None).result()
            del thing
    gc.collect()
    assert most == 2 and len(alive) == 0


@pytest.fixture
def features() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    rows = ["".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY-"), size=30)).replace("-", "A")]
    rows += ["".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY-"), size=30)) for _ in range(60)]
    return make_features([parse_alignment("".join(f">r\n{row}\n" for row in rows).encode())])


def test_jobs_draw_what_their_seed_draws_alone(
    features: dict[str, np.ndarray], background: Executor | None
) -> None:
    with_templates, without = SamplingSettings(20, 30, 4), SamplingSettings(20, 30, 0)
    wanted = [(with_templates, 0), (without, 0), (without, 0), (without, 1)]
    draws = JobDraws(features, wanted, 2, background)
    draws.make_first()
    taken = [draws.take() for _ in wanted]
    assert draws.left == 0
    # models that draw the same are given the same
    assert taken[1] is taken[2] and taken[2] is not taken[3]
    for drawn, (settings, seed) in zip(taken, wanted, strict=True):
        alone = sample_features(features, settings, 2, seed)
        assert drawn.keys() == alone.keys()
        assert all(drawn[name].tobytes() == value.tobytes() for name, value in alone.items())
