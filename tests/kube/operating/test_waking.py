"""`cotenant wake` brings a released workload back to what it was."""

import asyncio

import pytest
from kube.fakeapi import FakeApi, after, refused

from cotenant.core.errors import BadInput
from cotenant.dialects import names
from cotenant.kube.api.errors import Forbidden
from cotenant.kube.api.resources import DEPLOYMENTS, REPLICATION_CONTROLLERS
from cotenant.kube.operating.waking import wake
from cotenant.kube.scaler.resource import GPU_SCALERS


def put(api, resource=DEPLOYMENTS, name="a", replicas=0, released=None):
    notes = {} if released is None else {names.RELEASED_REPLICAS: released}
    api.put(
        resource, {"metadata": {"name": name, "annotations": notes}, "spec": {"replicas": replicas}}, "web"
    )


def woken(api, asked, replicas=None):
    return asyncio.run(wake(api, asked, "web", replicas))


def test_it_gets_the_replicas_that_it_had_and_the_note_is_taken_off():
    api = FakeApi()
    put(api, released="3")
    assert woken(api, "a").sentence == "deployment web/a: scaled from 0 to 3"
    assert api.raw(DEPLOYMENTS, "a", "web")["spec"]["replicas"] == 3
    assert api.raw(DEPLOYMENTS, "a", "web")["metadata"]["annotations"] == {}


def test_of_two_with_one_name_the_released_one_is_meant_unless_the_kind_is_given():
    api = FakeApi()
    put(api, replicas=1)
    put(api, REPLICATION_CONTROLLERS, released="2")
    assert woken(api, "a").kind == "ReplicationController"
    assert woken(api, "deploy/a").sentence == "deployment web/a has 1 replicas already: nothing to wake"
    assert woken(api, "rc/a").before == 2


def test_another_number_may_be_asked_for():
    api = FakeApi()
    put(api)
    assert woken(api, "a", 2).replicas == 2


def test_one_that_runs_is_left_alone_whatever_number_is_asked_for():
    api = FakeApi()
    put(api, replicas=5)
    assert woken(api, "a", 2).sentence == "deployment web/a has 5 replicas already: nothing to wake"
    assert api.raw(DEPLOYMENTS, "a", "web")["spec"]["replicas"] == 5


def test_rights_to_the_kind_that_it_is_are_enough():
    api = FakeApi()
    put(api, released="3")
    api.fates["get statefulsets"] = [refused(Forbidden("get: forbidden"))] * 2
    assert woken(api, "a").replicas == 3
    with pytest.raises(Forbidden):
        woken(api, "other")


def scaled(api, name="s", target="a", kind="Deployment", minimum=0, **spec):
    spec = {
        "target": {"apiVersion": "apps/v1", "kind": kind, "name": target},
        "replicas": {"min": minimum, "max": 8},
        "backlog": {"queue": {"nats": {"url": "nats://q", "stream": "a", "consumer": "b"}}},
        **spec,
    }
    api.put(GPU_SCALERS, {"metadata": {"name": name}, "spec": spec}, "web")


@pytest.mark.parametrize(
    ("minimum", "threshold", "replicas", "until"),
    [
        (0, "15m", 1, "until its load changes, or until it has been idle for 15m from now"),
        (3, "auto", 3, "until its load changes, or until it has been idle for as long as it has learned"),
        (0, None, 1, "until its load changes"),
    ],
)
def test_what_a_gpu_scaler_has_released_gets_its_minimum_and_it_is_said_for_how_long(
    minimum, threshold, replicas, until
):
    api = FakeApi()
    put(api)
    scaled(api, "other", "b")
    scaled(api, "watches", minimum=7, mode="observe")
    scaled(api, minimum=minimum, **({} if threshold is None else {"scaleDownThreshold": threshold}))
    said = woken(api, "a")
    assert said.sentence == f"deployment web/a: scaled from 0 to {replicas}; GpuScaler s keeps that {until}"
    assert said.to_json()["scaler"] == "s"
    assert api.raw(DEPLOYMENTS, "a", "web")["spec"]["replicas"] == replicas


def test_a_number_that_was_asked_for_or_noted_counts_before_the_scalers_minimum():
    api = FakeApi()
    scaled(api, minimum=2)
    put(api)
    assert woken(api, "a", 5).sentence.startswith("deployment web/a: scaled from 0 to 5; GpuScaler s keeps")
    put(api, released="3")
    assert woken(api, "a").replicas == 3


def test_who_may_not_list_gpu_scalers_says_how_many():
    api = FakeApi()
    put(api)
    scaled(api)
    api.fates["list gpuscalers"] = [refused(Forbidden("no", code=403))] * 2
    with pytest.raises(BadInput, match="cotenant wake deployment/a --replicas 1"):
        woken(api, "a")
    assert woken(api, "a", 2).sentence == "deployment web/a: scaled from 0 to 2"


def test_somebody_who_changes_it_at_the_same_time_is_not_overwritten():
    api = FakeApi()
    put(api, released="3")
    api.fates["patch"] = [after(lambda api: put(api, replicas=5))]
    assert woken(api, "a").replicas == 5
    assert api.raw(DEPLOYMENTS, "a", "web")["spec"]["replicas"] == 5


@pytest.mark.parametrize(
    ("asked", "released", "replicas", "said"),
    [
        ("b", None, None, "no Deployment or StatefulSet"),
        ("job/a", None, None, "are not scaled to zero by Cotenant"),
        ("a", None, None, "cotenant wake deployment/a --replicas 1"),
        ("a", "many", None, "is not a number of replicas"),
        ("a", "3", 0, "--replicas: 0 is not from 1"),
    ],
)
def test_bad_input_names_its_remedy(asked, released, replicas, said):
    api = FakeApi()
    put(api, released=released)
    with pytest.raises(BadInput, match=said):
        woken(api, asked, replicas)
