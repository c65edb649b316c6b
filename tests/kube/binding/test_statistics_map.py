"""What is kept of ended pods is read as it was written, or ignored and overwritten; it stays small."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube.fakeapi import FakeApi, after
from kube.virtual_time import run

from cotenant.core.demand import Demand, Memory
from cotenant.core.seen_pods import MOST_KINDS, SeenPods
from cotenant.kube.api.election import NotLeading
from cotenant.kube.api.errors import Forbidden
from cotenant.kube.api.resources import CONFIG_MAPS
from cotenant.kube.binding.statistics_map import (
    KEY,
    LARGEST,
    NAME,
    NotStatistics,
    decode,
    encode,
    read_statistics,
    write_statistics,
)
from cotenant.kube.scheduling.pod_statistics import EndedPods

GI = 2**30
HERE = "cotenant-system"


def ended(*demands: Demand, pods: int = 7) -> EndedPods:
    seen = SeenPods.of(demands)
    seen.add((), 500, GI)
    return EndedPods(seen, pods, 1.9e9)


SOME = ended(
    Demand(Memory(4 * GI), gpus=2), Demand(Memory(percent=25)), Demand(whole=2, models=("A100", "H100"))
)


def test_it_is_read_as_it_was_written():
    assert decode(encode(SOME)) == SOME


GOOD = json.loads(encode(SOME))


def other(**changes):
    return json.dumps(GOOD | changes)


def kind(**changes):
    return other(kinds=[{"count": 1, **changes}])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        "\x00",
        "{" * 100_000,
        "nobody's",
        other(version=2),
        other(version="1"),
        other(since=-1),
        other(since="yesterday"),
        other(pods=-1),
        other(pods=2**70),
        other(kinds=None),
        other(kinds=[None]),
        other(kinds=GOOD["kinds"] * MOST_KINDS),
        kind(count=0),
        kind(count=True),
        kind(cpu=-1),
        kind(memory=1.5),
        kind(demand=[]),
        kind(demand={"memory": 0}),
        kind(demand={"memory": GI, "percent": "5"}),
        kind(demand={"memory": 1, "gpus": 2}),
        kind(demand={"percent": "1e999999999"}),
        kind(demand={"percent": "1/0"}),
        kind(demand={"percent": "101"}),
        kind(demand={"gpus": 10**9}),
        kind(demand={"models": "A100"}),
        kind(demand={"models": [" "]}),
        kind(demand={"models": ["x" * 1000]}),
        kind(demand={"models": ["x"] * 100}),
        None,
        7,
    ],
    ids=lambda text: str(text)[-40:],
)
def test_what_nobody_of_us_wrote_is_not_read(text):
    with pytest.raises(NotStatistics, match=NAME):
        decode(text)


@given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["version", "since", "pods", "kinds", "count", "demand"]), inner)))  # fmt: skip
def test_nothing_else_happens_whatever_is_written_there(value):
    with pytest.raises(NotStatistics):
        decode(json.dumps(value))


def test_however_much_was_seen_it_stays_small_and_keeps_what_is_most_frequent():
    models = [tuple(f"{letter * 90}-{at}" for letter in "abcdefgh") for at in range(MOST_KINDS)]
    seen = SeenPods.of([Demand(whole=1, models=each) for each in models])
    often = Demand(Memory(4 * GI))
    for _ in range(10):
        seen.add((often,))
    text = encode(EndedPods(seen, 10**9, 1.9e9))
    assert LARGEST // 2 < len(text.encode()) <= LARGEST
    read = decode(text)
    assert next(iter(read.seen.counts)).demand == often
    assert read.pods == 10**9


async def write(api, what, may_write=lambda: None):
    return await write_statistics(api, HERE, what, may_write)


def test_it_is_written_once_and_read_by_the_next():
    async def main():
        api = FakeApi()
        assert await read_statistics(api, HERE) is None
        assert await write(api, SOME)
        assert api.raw(CONFIG_MAPS, NAME, HERE)["metadata"]["labels"] == {
            "app.kubernetes.io/name": "cotenant"
        }
        assert await read_statistics(api, HERE) == SOME
        assert not await write(api, SOME), "it is there already"
        assert api.written("configmaps") == 1

    run(main())


def test_what_others_wrote_there_is_overwritten_and_their_keys_stay():
    async def main():
        api = FakeApi()
        api.put(CONFIG_MAPS, {"metadata": {"name": NAME}, "data": {KEY: "mine", "note": "theirs"}}, HERE)
        with pytest.raises(NotStatistics):
            await read_statistics(api, HERE)
        await write(api, SOME)
        assert await read_statistics(api, HERE) == SOME
        assert api.raw(CONFIG_MAPS, NAME, HERE)["data"]["note"] == "theirs"

    run(main())


def test_a_write_in_between_is_noticed_and_the_leaders_stands():
    async def main():
        api = FakeApi()
        await write(api, ended(pods=1))

        def late(_):
            api.put(CONFIG_MAPS, {"metadata": {"name": NAME}, "data": {KEY: "late"}}, HERE)

        api.fates["patch configmaps"] = [after(late)]
        await write(api, SOME)
        assert await read_statistics(api, HERE) == SOME
        assert api.count("patch") == 2

    run(main())


def test_who_does_not_lead_any_more_writes_nothing():
    async def main():
        api = FakeApi()

        def lost():
            raise NotLeading("another one leads")

        for _ in range(2):
            before = api.written("configmaps")
            with pytest.raises(NotLeading):
                await write(api, ended(pods=99), lost)
            assert api.written("configmaps") == before
            await write(api, SOME)

    run(main())


def test_what_may_not_be_read_is_an_error_that_says_so():
    async def main():
        api = FakeApi()
        api.forbid("configmaps")
        with pytest.raises(Forbidden):
            await read_statistics(api, HERE)

    run(main())
