"""A bad file of workloads is refused with file, workload, field and remedy; a good one is what it says."""

import json
from pathlib import Path

import pytest
import yaml

from cotenant.core.demand import Demand
from cotenant.core.errors import BadInput
from cotenant.core.units import Memory
from cotenant.local.scalers.file import Declared, read_file

GIB = 1 << 30
QUEUE = {"http": {"url": "http://localhost:1/", "path": "depth", "inFlight": "working"}}


def workload(**fields):
    given = {
        "command": ["python", "worker.py"],
        "gpuMemory": "4Gi",
        "replicas": {"max": 2},
        "backlog": {"queue": QUEUE},
    }
    return {name: value for name, value in {**given, **fields}.items() if value is not ...}


@pytest.fixture
def read(tmp_path):
    def call(content):
        path = tmp_path / "w.yaml"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return read_file(path)

    return call


def test_a_workload_is_read_and_survives_json(read, tmp_path):
    fields = {
        "environment": {"MODEL": "x"},
        "scaleDownThreshold": "15m",
        "terminationGracePeriod": "1m",
        "ready": {"after": "20s"},
        "priority": 3,
    }
    (found,) = read({"workloads": {"room-scene": workload(**fields)}})
    assert (found.name, found.file, found.poll) == ("room-scene", tmp_path / "w.yaml", 2.0)
    assert found.spec.demand == Demand(Memory(bytes=4 * GIB))
    assert (found.spec.grace_seconds, found.spec.ready.seconds) == (60.0, 20.0)
    assert found.spec.policy().idle.threshold == 900.0
    assert Declared.from_json(found.to_json()) == found


def test_options_of_run_ask_for_the_same_demand(read):
    fields = {"gpus": 2, "gpuCompute": 30, "gpuModel": ["A100", "H100"], "gpu": ["0"], "placement": "spread"}
    (found,) = read({"workloads": {"a": workload(**fields)}})
    assert found.spec.run_options() == [
        "--gpu-memory=4Gi",
        "--gpus=2",
        "--gpu-compute=30",
        "--gpu-model=A100,H100",
        "--gpu=0",
        "--placement=spread",
        "--enforce=enforce",
        "--priority=0",
    ]


def test_what_a_running_replica_cannot_change_is_its_template(read):
    def template(**fields):
        return read({"workloads": {"a": workload(**fields)}})[0].spec.template

    assert template() == template(replicas={"max": 9}, scaleDownThreshold="1h", priority=4)
    changed = [
        {"command": ["python", "other.py"]},
        {"environment": {"A": "1"}},
        {"gpuMemory": "5Gi"},
        {"gpuMemory": ..., "whole": 1},
        {"workingDirectory": "/"},
    ]
    assert len({template(), *(template(**each) for each in changed)}) == len(changed) + 1


def test_anchors_and_merges_are_understood(read):
    text = """
    workloads:
      a: &base
        command: [x]
        gpuMemory: 1Gi
        replicas: {max: 1}
        backlog: {queue: {http: {url: "http://localhost:1/", path: depth, inFlight: working}}}
      b: {<<: *base, gpuMemory: 2Gi}
    """
    assert [each.spec.gpu_memory for each in read(text)] == ["1Gi", "2Gi"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "it has no workloads: write them like workloads:"),
        ("- a", "it has no workloads"),
        ("workloads: {}", "workloads: it names no workload"),
        ("a: [", "this is no YAML in line 1"),
        ("workloads: {a: 1, a: 2}", "'a' is there twice: remove one"),
        ({"workload": {}}, "'workload': there is no such field; there are workloads, poll"),
        ({"a": {"command": ["x"]}}, "indent it below `workloads:`"),
        ({"poll": 5, "workloads": {}}, "poll: 5 is not a duration: write it like 2s"),
        ({"poll": "1h", "workloads": {}}, "poll: '1h' is not from 100ms to 5m"),
        ({"workloads": {"A b": workload()}}, "workloads.'A b': this is not the name of a workload"),
        ({"workloads": {"a" * 51: workload()}}, "this is not the name of a workload"),
        ({"workloads": {"declared": workload()}}, "workloads.declared: a file of Cotenant has this name"),
        ("workloads: {a: !!bool x}", "this is no YAML"),
        ("workloads: {a: !!timestamp x}", "this is no YAML"),
        ('workloads: {a: !!int ""}', "this is no YAML"),
        ({"workloads": {"a": workload(command=["x", "\0"])}}, "a.command: a NUL character is in it"),
        ({"workloads": {"a": workload(ready={"command": ["x", "\0"]})}}, "a.ready.command: a NUL character is in it"),
        (json.dumps({"workloads": {"a": workload(command=["x", "\ud800"])}}), "a.command: '\\ud800' has half of a character"),
        (json.dumps({"workloads": {"a": workload(environment={"A": "\udfff"})}}), "a.environment: '\\udfff' has half"),
        ({"workloads": {"a": None}}, "workloads.a: None is not an object"),
        ({"workloads": {"a": workload(command=...)}}, "workloads.a.command: this field is required"),
        ({"workloads": {"a": workload(command="python x")}}, "a.command: 'python x' is not a list"),
        ({"workloads": {"a": workload(command=[])}}, "a.command: [] has 0 entries; it needs at least 1"),
        ({"workloads": {"a": workload(command=[""])}}, "a.command: the program is an empty text"),
        ({"workloads": {"a": workload(command=["x", 1])}}, 'a.command[1]: 1 is not a text: put it in quotes: "1"'),
        ({"workloads": {"a": workload(comand=["x"])}}, "a.comand: there is no such field: did you mean command?"),
        ({"workloads": {"a": workload(target={})}}, "a.target: there is no such field"),
        ({"workloads": {"a": workload(environment={"P": 80})}}, 'a.environment.P: 80 is not a text: put it in quotes: "80"'),
        ({"workloads": {"a": workload(environment={"A-B": "1"})}}, "a.environment: 'A-B' is not the name of a variable"),
        ({"workloads": {"a": workload(gpuMemory=...)}}, "a.gpuMemory: say what each replica needs: gpuMemory: 4Gi, or whole: 1"),
        ({"workloads": {"a": workload(gpuMemory="4")}}, "a.gpuMemory:"),
        ({"workloads": {"a": workload(gpuMemory="4gi")}}, "did you mean 4Gi?"),
        ({"workloads": {"a": workload(whole=1)}}, "a.whole: a whole GPU brings all its memory"),
        ({"workloads": {"a": workload(whole=0)}}, "a.whole: 0 is not from 1 to 1024"),
        ({"workloads": {"a": workload(gpuMemory=..., whole=1, gpus=2)}}, "a.gpus: it splits gpuMemory"),
        ({"workloads": {"a": workload(gpuMemory=..., whole=1, gpuCompute=5)}}, "a.gpuCompute: a whole GPU brings all"),
        ({"workloads": {"a": workload(replicas={"min": 3, "max": 2})}}, "a.replicas.min: 3 is more than max"),
        ({"workloads": {"a": workload(scaleDownThreshold="15")}}, "a.scaleDownThreshold: '15' is not a duration"),
        ({"workloads": {"a": workload(terminationGracePeriod="25h")}}, "a.terminationGracePeriod: '25h' is not from"),
        ({"workloads": {"a": workload(ready={})}}, "a.ready: give either command or after"),
        ({"workloads": {"a": workload(ready={"after": "1"})}}, "a.ready.after: '1' is not a duration"),
        ({"workloads": {"a": workload(backlog={"queue": {}})}}, "a.backlog.queue"),
        (
            {"workloads": {"a": workload(backlog={"queue": {"redis": {"url": "redis://h", "list": "l"}}})}},
            "a second sample is required",
        ),
        ("workloads: {a: " + "[" * 60 + "]" * 60 + "}", "nested deeper than 30"),
        ("a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)), "more than 100000 values"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)  # fmt: skip
def test_a_fault_is_named_with_its_remedy(read, tmp_path, content, words):
    with pytest.raises(BadInput) as error:
        read(content)
    assert words in str(error.value)
    assert str(error.value).startswith(f"{tmp_path / 'w.yaml'}: ")


def test_the_same_file_by_another_path_is_the_same(read, tmp_path, monkeypatch):
    (found,) = read({"workloads": {"a": workload()}})
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    (again,) = read_file(Path("../w.yaml"))
    assert again == found


def test_every_fault_of_every_workload_is_reported_at_once(read):
    with pytest.raises(BadInput) as error:
        read({"workloads": {"a": workload(whole=1), "b": workload(command=...), "c": workload()}})
    assert len(str(error.value).splitlines()) == 2


def test_a_file_that_is_not_there_or_too_large(tmp_path):
    with pytest.raises(BadInput, match="it cannot be read: No such file or directory"):
        read_file(tmp_path / "none.yaml")
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (2 << 20))
    with pytest.raises(BadInput, match="larger than 1 MiB"):
        read_file(large)
