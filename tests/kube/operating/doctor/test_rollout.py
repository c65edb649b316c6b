"""When a restart of a Deployment is over."""

import asyncio
import itertools

import pytest
from kube.operating.clusters import NOW
from kube.operating.doctor.wellapi import SPACE, deployment
from kube.operating.well import WELL

from cotenant.core.checkup import NotRepaired
from cotenant.kube.api.resources import PODS
from cotenant.kube.operating.doctor import rollout


def test_a_restart_is_waited_for(api):
    body = deployment("cotenant-server")
    assert rollout.is_done(body)
    assert not rollout.is_done({**body, "metadata": {"generation": 3}}), "the controller has not seen it"
    for late in ({"updatedReplicas": 0}, {"replicas": 2}, {"availableReplicas": 0}):
        assert not rollout.is_done({**body, "status": {**body["status"], **late}})


def test_a_server_that_is_still_ending_keeps_the_restart_from_being_over(api):
    times = itertools.count(step=50)
    asyncio.run(rollout.wait(api, WELL, "cotenant-server", clock=lambda: next(times)))
    ending = api.raw(PODS, "cotenant-server-1", SPACE)["metadata"]
    ending["deletionTimestamp"] = NOW.isoformat()
    with pytest.raises(
        NotRepaired, match="kubectl rollout status -n cotenant-system deployment/cotenant-server"
    ):
        asyncio.run(rollout.wait(api, WELL, "cotenant-server", clock=lambda: next(times)))
