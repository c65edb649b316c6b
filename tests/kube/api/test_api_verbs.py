"""Reading and writing on a real API server: what is guarded is refused when it should be."""

import asyncio
import signal
from datetime import UTC, datetime, timedelta

import pytest

from cotenant.kube.api.client import Selection
from cotenant.kube.api.errors import AlreadyExists, Conflict, Invalid, NotFound, Unreachable
from cotenant.kube.api.patches import Guard, pointer
from cotenant.kube.api.resources import CONFIG_MAPS, DEPLOYMENTS, EVENTS, LEASES, NODES, PODS

pytestmark = pytest.mark.asyncio
RAW_PODS = PODS.raw


def pod(name, **meta):
    sidecar = {"name": "side", "image": "i", "restartPolicy": "Always"}
    main = {
        "name": "main",
        "image": "i",
        "env": [{"name": "A", "value": "1"}],
        "resources": {"limits": {"cotenant.dev/gpu-memory": "4Gi"}},
    }
    return {
        "metadata": {"name": name, **meta},
        "spec": {"containers": [main], "initContainers": [sidecar], "schedulerName": "cotenant"},
    }


async def test_a_pod_as_it_is_read(client, namespace):
    before = datetime.now(UTC) - timedelta(seconds=2)
    made = await client.create(PODS, pod("a", labels={"x": "y"}, annotations={"k": "v"}), namespace)
    read = await client.get(PODS, "a", namespace)
    assert read == made
    assert (read.metadata.name, read.metadata.namespace) == ("a", namespace)
    assert read.metadata.uid
    assert read.metadata.resource_version
    assert (read.metadata.labels, read.metadata.annotations) == ({"x": "y"}, {"k": "v"})
    assert before < read.metadata.creation_timestamp < datetime.now(UTC) + timedelta(seconds=2)
    assert read.metadata.deletion_timestamp is None
    assert (read.spec.node_name, read.spec.scheduler_name, read.status.phase) == ("", "cotenant", "Pending")
    (main,), (side,) = read.spec.containers, read.spec.init_containers
    assert main.resources.limits == main.resources.requests == {"cotenant.dev/gpu-memory": "4Gi"}
    assert [e.name for e in main.env] == ["A"]
    assert side.restart_policy == "Always"


async def test_what_is_there_twice_or_not_at_all(client, namespace):
    await client.create(PODS, pod("a"), namespace)
    with pytest.raises(AlreadyExists, match=f"create pods {namespace}/a: already there"):
        await client.create(PODS, pod("a"), namespace)
    with pytest.raises(NotFound, match=f'get pods {namespace}/b: not found: pods "b" not found'):
        await client.get(PODS, "b", namespace)
    with pytest.raises(Invalid, match="Invalid value"):
        await client.create(PODS, pod("Not_A_Name"), namespace)


async def test_lists_in_pages_by_labels_and_by_node(client, namespace, node):
    for n in range(7):
        await client.create(PODS, pod(f"p{n}", labels={"odd": str(n % 2)}), namespace)
    here = Selection(namespace)
    whole = await client.list(PODS, here)
    paged = await client.list(PODS, here, page=2)
    cached = await client.list(PODS, here, newest=False)
    assert [p.metadata.name for p in whole.items] == [f"p{n}" for n in range(7)]
    assert paged.items == whole.items
    assert len(cached.items) <= 7
    assert int(paged.resource_version) >= int(whole.items[-1].metadata.resource_version)
    odd = await client.list(PODS, Selection(namespace, labels="odd=1"))
    assert [p.metadata.name for p in odd.items] == ["p1", "p3", "p5"]
    await client.bind("p4", namespace, "n1", guard=Guard())
    on_node = await client.list(PODS, Selection(namespace, fields="spec.nodeName=n1"))
    assert [p.metadata.name for p in on_node.items] == ["p4"]


async def test_a_list_outlives_the_forgetting_of_its_first_page(
    client, namespace, control_plane, monkeypatch
):
    for n in range(6):
        await client.create(CONFIG_MAPS, {"metadata": {"name": f"c{n}"}}, namespace)
    read, reads = client._read, []

    async def read_and_forget(asked, path, query, within, **more):
        reads.append(dict(query))
        answer = await read(asked, path, query, within, **more)
        if len(reads) == 1:
            await client.create(CONFIG_MAPS, {"metadata": {"name": "late"}}, namespace)
            control_plane.compact()
        return answer

    monkeypatch.setattr(client, "_read", read_and_forget)
    found = await client.list(CONFIG_MAPS, Selection(namespace), page=2)
    names = [c.metadata.name for c in found.items]
    assert len(names) == len(set(names)) >= 6


@pytest.mark.parametrize("how", ["merge", "json", "apply", "status"])
async def test_a_guarded_change_hits_only_the_object_that_was_meant(client, namespace, how):
    made = await client.create(PODS, pod("a"), namespace)

    async def change(guard, value="1"):
        changes = {"metadata": {"annotations": {"k/x": value}}}
        if how == "merge":
            return await client.merge_patch(PODS, "a", changes, namespace, guard=guard)
        if how == "status":
            return await client.merge_patch(PODS, "a", changes, namespace, guard=guard, subresource="status")
        if how == "apply":
            body = {"metadata": {"name": "a", **changes["metadata"]}}
            return await client.apply(PODS, body, "cotenant", namespace, guard=guard)
        steps = [
            {
                "op": "add",
                "path": pointer("metadata", "annotations"),
                "value": changes["metadata"]["annotations"],
            }
        ]
        return await client.json_patch(PODS, "a", steps, namespace, guard=guard)

    for wrong in (
        Guard("another"),
        Guard(resource_version="1"),
        Guard("another", made.metadata.resource_version),
    ):
        with pytest.raises(Conflict) as caught:
            await change(wrong)
        assert not caught.value.uncertain
    changed = await change(Guard.of(made))
    assert changed.metadata.annotations == {"k/x": "1"}
    assert changed.metadata.uid == made.metadata.uid
    with pytest.raises(Conflict):
        await change(Guard.of(made), "2")
    await change(Guard(made.metadata.uid), "2")
    assert (await client.get(PODS, "a", namespace)).metadata.annotations == {"k/x": "2"}


async def test_a_removal_in_a_merge_and_a_wrong_step_in_a_json_patch(client, namespace):
    await client.create(PODS, pod("a", annotations={"k": "v", "l": "w"}), namespace)
    changed = await client.merge_patch(PODS, "a", {"metadata": {"annotations": {"k": None}}}, namespace)
    assert changed.metadata.annotations == {"l": "w"}
    with pytest.raises(Invalid):
        await client.json_patch(PODS, "a", [{"op": "remove", "path": "/metadata/annotations/zz"}], namespace)


async def test_apply_owns_what_it_sets_and_gives_way_only_when_forced(client, namespace):
    def body(value):
        return {"metadata": {"name": "c"}, "data": {"shared": value}}

    await client.apply(CONFIG_MAPS, body("one"), "first", namespace)
    await client.apply(CONFIG_MAPS, body("one"), "first", namespace)
    with pytest.raises(Conflict, match="first"):
        await client.apply(CONFIG_MAPS, body("two"), "second", namespace)
    assert (await client.apply(CONFIG_MAPS, body("two"), "second", namespace, force=True)).data == {
        "shared": "two"
    }
    left = await client.apply(CONFIG_MAPS, {"metadata": {"name": "c"}}, "second", namespace)
    assert left.data == {}


async def test_a_node_is_given_capacity_through_its_status(client, node):
    assert not node.spec.unschedulable
    changes = {
        "metadata": {"annotations": {"cotenant.dev/gpus": "[]"}},
        "status": {
            "capacity": {"cotenant.dev/gpu-memory": str(80 << 30)},
            "addresses": [{"type": "Hostname", "address": "h"}],
        },
    }
    await client.merge_patch(NODES, "n1", changes, subresource="status")
    read = await client.get(NODES, "n1")
    assert read.status.capacity == {"cotenant.dev/gpu-memory": "85899345920"}
    assert read.metadata.annotations["cotenant.dev/gpus"] == "[]"
    assert read.status.addresses[0].address == "h"
    await client.merge_patch(NODES, "n1", {"spec": {"unschedulable": True}})
    assert (await client.get(NODES, "n1")).spec.unschedulable


async def test_bind_gives_node_and_annotations_at_once_or_nothing(client, namespace, node):
    made = await client.create(PODS, pod("a"), namespace)
    grant = {"cotenant.dev/grant": "{}"}
    for wrong in (Guard("another", made.metadata.resource_version), Guard(made.metadata.uid, "1")):
        with pytest.raises(Conflict):
            await client.bind("a", namespace, "n1", guard=wrong, annotations=grant)
    untouched = await client.get(PODS, "a", namespace)
    assert untouched == made
    await client.bind("a", namespace, "n1", guard=Guard.of(made), annotations=grant)
    bound = await client.get(PODS, "a", namespace)
    assert bound.spec.node_name == "n1"
    assert bound.metadata.annotations == grant
    with pytest.raises(Conflict):
        await client.bind("a", namespace, "n2", guard=Guard())
    with pytest.raises(NotFound):
        await client.bind("b", namespace, "n1", guard=Guard())


async def test_a_deletion_hits_only_the_object_that_was_meant(client, namespace, node):
    made = await client.create(PODS, pod("a"), namespace)
    with pytest.raises(Conflict):
        await client.delete(PODS, "a", namespace, guard=Guard("another"))
    await client.bind("a", namespace, "n1", guard=Guard())
    await client.delete(PODS, "a", namespace, guard=Guard(made.metadata.uid), grace_seconds=30)
    going = await client.get(PODS, "a", namespace)  # a kubelet would end it; there is none
    assert going.metadata.deletion_timestamp is not None
    assert going.metadata.deletion_grace_period_seconds == 30
    await client.delete(PODS, "a", namespace, guard=Guard(made.metadata.uid), grace_seconds=0)
    with pytest.raises(NotFound):
        await client.delete(PODS, "a", namespace)


async def test_an_eviction_hits_only_the_pod_that_was_meant_and_may_be_asked_about(client, namespace, node):
    made = await client.create(PODS, pod("a"), namespace)
    await client.bind("a", namespace, "n1", guard=Guard())
    own = Guard(made.metadata.uid)
    with pytest.raises((Conflict, Unreachable)):  # it looks again for ten seconds
        await client.evict("a", namespace, guard=Guard("another"), within=1.0)
    await client.evict("a", namespace, guard=own, dry_run=True)
    assert (await client.get(PODS, "a", namespace)).metadata.deletion_timestamp is None
    await client.evict("a", namespace, guard=own)
    going = await client.get(PODS, "a", namespace)  # a kubelet would end it; there is none
    assert going.metadata.deletion_timestamp is not None
    await client.evict("a", namespace, guard=own)  # again, it does no harm
    with pytest.raises(NotFound):
        await client.evict("b", namespace, guard=own)


async def test_leases_events_other_kinds_and_raw_objects(client, namespace):
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 10}}
    assert (await client.create(LEASES, lease, namespace)).spec.holder_identity == "me"
    about = {"kind": "Pod", "namespace": namespace, "name": "a", "uid": "u", "apiVersion": "v1"}
    event = {
        "metadata": {"name": "e"},
        "involvedObject": about,
        "reason": "Waiting",
        "message": "2nd in line",
        "type": "Normal",
    }
    assert (await client.create(EVENTS, event, namespace)).involved_object.uid == "u"
    selector = {"matchLabels": {"a": "b"}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "m", "image": "i"}]}}
    await client.create(
        DEPLOYMENTS,
        {"metadata": {"name": "d"}, "spec": {"selector": selector, "template": template}},
        namespace,
    )
    scaled = await client.merge_patch(DEPLOYMENTS, "d", {"spec": {"replicas": 3}}, namespace)
    assert scaled.spec["replicas"] == 3
    await client.create(PODS, pod("a"), namespace)
    raw = await client.get(RAW_PODS, "a", namespace)
    assert raw["spec"]["containers"][0]["image"] == "i"
    assert "gitVersion" in await client.get_path("/version", dict)


async def test_a_stopped_server_costs_no_more_than_the_calls_time(client, namespace, hurt):
    made = await client.create(PODS, pod("a"), namespace)
    hurt.signal(signal.SIGSTOP)
    began = asyncio.get_running_loop().time()
    with pytest.raises(Unreachable) as caught:
        await client.bind("a", namespace, "n1", guard=Guard.of(made), within=1.0)
    assert asyncio.get_running_loop().time() - began < 2.0
    assert (
        caught.value.uncertain
    )  # it lies in the server's buffers, and may happen as soon as the server wakes
    with pytest.raises(Unreachable) as caught:
        await client.get(PODS, "a", namespace, within=1.0)
    hurt.signal(signal.SIGCONT)
    # A change of the pod is the fence: whatever is still under way is then refused.
    await client.merge_patch(PODS, "a", {"metadata": {"annotations": {"fence": "1"}}}, namespace, within=10)
    after = await client.get(PODS, "a", namespace)
    await asyncio.sleep(1)
    assert (await client.get(PODS, "a", namespace)) == after
