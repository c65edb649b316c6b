"""Workers that take messages from a real Redis, sized by `cotenant up`."""

import sys
from pathlib import Path

import pytest
import redis
from signals import servers

WORKER = Path(__file__).with_name("redis_worker.py")


@pytest.fixture
def server(tmp_path):
    made = servers.Redis(tmp_path / "redis")
    made.start()
    yield made
    made.stop()


def test_a_burst_is_worked_off_by_several_replicas_and_then_the_cards_are_free(workloads, until, server):
    backlog = {
        "target": "2s",
        "queue": {
            "redis": {"url": f"redis://127.0.0.1:{server.port}", "list": "jobs"},
            "inFlight": {"list": "jobs:working"},
        },
        "processingTime": {"fixed": "500ms"},
    }
    command = [sys.executable, str(WORKER), str(server.port), "0.5"]
    workloads.up(work=workloads.workload(*command, gpuMemory="2Gi", backlog=backlog, scaleDownThreshold="3s"))
    assert workloads.scaler()["state"] == "Idle"
    with redis.Redis(port=server.port) as client:
        client.rpush("jobs", *range(40))
        until(lambda: len(workloads.replicas()) == 3)
        until(lambda: int(client.get("jobs:done") or 0) == 40, 60)
        until(lambda: not workloads.machine.rows(), 60)
        assert (client.llen("jobs"), client.llen("jobs:working")) == (0, 0), "no message was cut off"
    assert workloads.scaler()["state"] == "Idle"
    assert {each["code"] for each in workloads.machine.listing("history")["ended"]} == {143}


def test_a_wrong_password_is_reported_and_a_file_beside_the_workloads_has_the_right_one(
    workloads, until, tmp_path
):
    server = servers.Redis(tmp_path / "redis", "requirepass secret")
    server.start()
    try:
        secret = tmp_path / "secrets" / "queue" / "password"
        secret.parent.mkdir(parents=True)
        secret.write_text("wrong\n")
        reference = {"secret": {"name": "queue", "key": "password"}}
        redis_list = {"url": f"redis://127.0.0.1:{server.port}", "list": "jobs", "passwordFrom": reference}
        backlog = {"queue": {"redis": redis_list, "inFlight": {"slots": True}}}
        workloads.up(work=workloads.workload(backlog=backlog))
        found = workloads.scaler()
        assert found["state"] == "NoMetric"
        assert "wrong" not in found["reason"].replace("WRONGPASS", "")
        workloads.kill()
        secret.write_text("secret\n")
        workloads.up()
        until(lambda: workloads.scaler()["state"] == "Idle")
        with redis.Redis(port=server.port, password="secret") as client:
            client.rpush("jobs", 1)
        until(lambda: workloads.scaler()["ready"] == 1)
    finally:
        server.stop()
