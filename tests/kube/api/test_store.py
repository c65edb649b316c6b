"""The store against a model: whatever is listed and watched, its consumers see a state that only ever moves along
the truth, one change at a time.
"""

from hypothesis import given
from hypothesis import strategies as st

from cotenant.kube.api.objects import Meta, Pod
from cotenant.kube.api.store import Change, Store


def pod(uid, version, name="p", namespace="web"):
    return Pod(metadata=Meta(name=name, namespace=namespace, uid=uid, resource_version=str(version)))


class Mirror:
    """A consumer that rebuilds the state from changes alone, and complains of any that makes no sense."""

    def __init__(self):
        self.state = {}
        self.told = []

    def __call__(self, change: Change):
        uid = change.object.metadata.uid
        self.told.append((change.kind, uid, change.object.metadata.resource_version))
        if change.kind == "added":
            assert uid not in self.state
            assert change.before is None
        else:
            assert change.before == self.state[uid]
        if change.kind == "deleted":
            del self.state[uid]
        else:
            assert self.state.get(uid) != change.object
            self.state[uid] = change.object


def watched():
    store, mirror = Store(), Mirror()
    store.subscribe(mirror)
    return store, mirror


def test_a_state_that_is_known_tells_nothing():
    store, mirror = watched()
    store.put(pod("a", 1))
    store.put(pod("a", 1))
    store.put(pod("a", 2))
    store.replace([pod("a", 2)])
    assert mirror.told == [("added", "a", "1"), ("modified", "a", "2")]


def test_a_name_given_to_another_object_is_a_deletion_and_an_addition():
    store, mirror = watched()
    store.put(pod("a", 1))
    store.put(pod("b", 5))
    assert mirror.told == [("added", "a", "1"), ("deleted", "a", "1"), ("added", "b", "5")]
    assert store.named("p", "web") == pod("b", 5)
    store.remove(pod("a", 9))  # its own deletion comes late and must not take the new one along
    assert store.named("p", "web") == pod("b", 5)
    assert len(mirror.told) == 3


def test_a_list_tells_deletions_before_what_came_anew():
    store, mirror = watched()
    store.replace([pod("a", 1, "one"), pod("b", 2, "two")])
    mirror.told.clear()
    store.replace([pod("c", 9, "three"), pod("b", 7, "two")])
    assert mirror.told == [("deleted", "a", "1"), ("added", "c", "9"), ("modified", "b", "7")]


def test_a_deletion_carries_the_last_state():
    store, _ = watched()
    told = []
    store.put(pod("a", 1))
    store.subscribe(told.append)
    store.remove(pod("a", 2))
    assert [(c.kind, c.object.metadata.resource_version, c.before) for c in told] == [
        ("added", "1", None),
        ("deleted", "2", pod("a", 1)),
    ]


def test_who_comes_late_is_told_everything_once_and_who_leaves_nothing_more():
    store, first = watched()
    store.replace([pod("a", 1, "one"), pod("b", 2, "two")])
    late = Mirror()
    leave = store.subscribe(late)
    store.remove(pod("a", 3, "one"))
    leave()
    store.put(pod("b", 4, "two"))
    assert late.told == [("added", "a", "1"), ("added", "b", "2"), ("deleted", "a", "3")]
    assert first.state == {"b": pod("b", 4, "two")}


def test_a_consumer_finds_in_the_store_what_it_is_told():
    store = Store()
    agreed = []
    store.subscribe(
        lambda change: agreed.append((store.get(change.object.metadata.uid) is None, change.kind))
    )
    store.replace([pod("a", 1, "one"), pod("b", 2, "two")])
    store.replace([pod("b", 3, "two")])
    assert agreed == [(False, "added"), (False, "added"), (True, "deleted"), (False, "modified")]


names = st.sampled_from("pqr")
steps = st.lists(
    st.one_of(
        st.tuples(st.just("create"), names),
        st.tuples(st.just("touch"), names),
        st.tuples(st.just("delete"), names),
        st.tuples(st.just("look"), st.sampled_from(["list", "events", "again"])),
    ),
    max_size=60,
)


@given(steps)
def test_consumers_follow_the_truth_whatever_they_miss_or_hear_twice(steps):
    """`events` delivers everything since the last look, `again` repeats the newest events first, and `list` stands
    for a relist after everything in between was missed.
    """
    store, mirror = watched()
    truth, log, version, seen = {}, [], 0, 0
    for what, which in [*steps, ("look", "list")]:
        if what == "look":
            if which == "list":
                store.replace(list(truth.values()))
            else:
                for kind, object in log[max(0, seen - 1) if which == "again" else seen :]:
                    (store.remove if kind == "deleted" else store.put)(object)
            seen = len(log)
            assert mirror.state == {p.metadata.uid: p for p in truth.values()}
            assert {p.metadata.uid: p for p in store} == mirror.state
            assert all(store.named(p.metadata.name, "web") == p for p in truth.values())
            continue
        version += 1
        before = truth.get(which)
        if what == "create" and before is None:
            truth[which] = pod(f"{which}{version}", version, which)
            log.append(("added", truth[which]))
        elif what == "touch" and before is not None:
            truth[which] = pod(before.metadata.uid, version, which)
            log.append(("modified", truth[which]))
        elif what == "delete" and before is not None:
            del truth[which]
            log.append(("deleted", pod(before.metadata.uid, version, which)))
