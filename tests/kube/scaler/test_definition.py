"""The CustomResourceDefinition on a real API server: what it accepts, what it refuses and in which words, what kubectl shows."""

import asyncio
import contextlib
import subprocess
from typing import Any

import pages
import pytest
import pytest_asyncio
import yaml
from cluster.testbed import places
from kube.scaler.specs import ACCEPTED, MISSPELT, REFUSED, spec

from cotenant.kube.api.errors import KubeError, NotFound
from cotenant.kube.api.objects import Generic
from cotenant.kube.api.resources import Resource
from cotenant.kube.scaler.definition import definition
from cotenant.kube.scaler.resource import GPU_SCALERS, read_spec

DEFINITIONS = Resource(
    Generic,
    "CustomResourceDefinition",
    "customresourcedefinitions",
    group="apiextensions.k8s.io",
    namespaced=False,
)
NAME = "gpuscalers.cotenant.dev"


@pytest_asyncio.fixture
async def scalers(client):
    """The API server serves GpuScalers, as the chart declares them: a moment after it says that they are Established."""
    body = {"metadata": {"name": NAME}, "spec": definition()}
    try:
        await client.get(DEFINITIONS, NAME)
    except NotFound:
        await client.create(DEFINITIONS, body)
    for _ in range(200):
        found = await client.get(DEFINITIONS, NAME)
        if any(
            each["type"] == "Established" and each["status"] == "True"
            for each in found.status.get("conditions") or ()
        ):
            with contextlib.suppress(NotFound):
                await client.list(GPU_SCALERS)
                break
        await asyncio.sleep(0.05)
    return found


def scaler(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "cotenant.dev/v1alpha1",
        "kind": "GpuScaler",
        "metadata": {"name": name},
        "spec": spec,
    }


@pytest.fixture
def kubectl(control_plane, first, namespace):
    if not places.binary("kubectl").exists():
        pytest.skip("no kubectl: `make testbed` builds it")
    config = control_plane.kubeconfig(first[1])

    def run(*arguments: str, manifest: str = "") -> str:
        command = [places.binary("kubectl"), f"--kubeconfig={config}", f"--namespace={namespace}", *arguments]
        done = subprocess.run(
            list(map(str, command)), input=manifest, capture_output=True, text=True, check=False, timeout=60
        )
        return done.stdout + done.stderr

    return run


@pytest.mark.asyncio
async def test_every_field_of_the_definition_is_kept_by_the_api_server(scalers):
    """A schema that is not structural, or a rule that may cost too much, would not be Established."""
    conditions = {each["type"]: each for each in scalers.status["conditions"]}
    assert conditions["Established"]["status"] == "True"
    assert "NonStructuralSchema" not in conditions
    kept = scalers.spec["versions"][0]["schema"]["openAPIV3Schema"]
    assert kept == definition()["versions"][0]["schema"]["openAPIV3Schema"]


@pytest.mark.asyncio
async def test_what_is_valid_is_accepted(client, namespace, scalers):
    for number, (case, given) in enumerate(ACCEPTED.items()):
        try:
            made = await client.create(GPU_SCALERS.raw, scaler(f"s{number}", given), namespace)
        except KubeError as error:
            raise AssertionError(case) from error
        assert made["spec"]["mode"] in {"act", "observe"}
        assert made["spec"]["replicas"]["min"] == given["replicas"].get("min", 0)


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.asyncio
async def test_what_is_not_is_refused_with_a_sentence(client, namespace, scalers, case: str):
    given, sentence, _ = REFUSED[case]
    with pytest.raises(KubeError) as refused:
        await client.create(GPU_SCALERS.raw, scaler("refused", given), namespace)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("case", MISSPELT)
@pytest.mark.asyncio
async def test_kubectl_refuses_a_field_that_nobody_knows(kubectl, scalers, case: str):
    given, sentence, _ = MISSPELT[case]
    assert sentence in kubectl("apply", "-f", "-", manifest=yaml.safe_dump(scaler("misspelt", given)))


@pytest.mark.asyncio
async def test_a_target_is_for_good_and_the_rest_may_change(client, namespace, scalers):
    await client.create(GPU_SCALERS.raw, scaler("s", spec()), namespace)
    with pytest.raises(KubeError, match=r"the target cannot be replaced.*create another GpuScaler"):
        await client.merge_patch(GPU_SCALERS.raw, "s", {"spec": {"target": {"name": "other"}}}, namespace)
    changed = await client.merge_patch(GPU_SCALERS.raw, "s", {"spec": {"replicas": {"max": 9}}}, namespace)
    assert changed["spec"]["replicas"] == {"min": 0, "max": 9}
    assert changed["metadata"]["generation"] == 2


@pytest.mark.asyncio
async def test_the_status_is_written_apart_and_keeps_the_memory(client, namespace, scalers):
    await client.create(GPU_SCALERS.raw, {**scaler("s", spec()), "status": {"replicas": 5}}, namespace)
    assert "status" not in await client.get(GPU_SCALERS.raw, "s", namespace)
    memory = {"version": 1, "rates": [[1.5, 2], [3, 4.25]], "none": None, "deep": {"a": {"b": [1]}}}
    status = {
        "observedGeneration": 1,
        "replicas": 2,
        "desired": 3,
        "backlog": "2.4s",
        "state": "ScalingUp",
        "since": "2026-01-02T03:04:05Z",
        "message": "3 replicas",
        "memory": memory,
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Active", "message": "ok", "observedGeneration": 1}
        ],
    }
    await client.merge_patch(
        GPU_SCALERS.raw, "s", {"status": status, "spec": {"mode": "observe"}}, namespace, subresource="status"
    )
    read = await client.get(GPU_SCALERS, "s", namespace)
    assert read.spec["mode"] == "act"
    assert {**read.status.memory, "none": None} == memory
    assert (read.status.desired, read.status.state, read.status.conditions[0].type) == (
        3,
        "ScalingUp",
        "Ready",
    )


@pytest.mark.asyncio
async def test_the_examples_of_the_docs_are_accepted(client, namespace, scalers, kubectl):
    texts = pages.manifests("gpuscaler")
    documents = [each for text in texts for each in yaml.safe_load_all(text)]
    examples = [each for each in documents if each["kind"] == "GpuScaler"]
    assert len(examples) >= 7
    for each in documents:
        answer = kubectl("apply", "-f", "-", manifest=yaml.safe_dump(each))
        assert answer.rstrip().endswith(("created", "unchanged", "configured")), answer
    for each in examples:
        assert read_spec(await client.get(GPU_SCALERS, each["metadata"]["name"], namespace)).target.name


@pytest.mark.asyncio
async def test_kubectl_get_shows_what_people_ask_for(client, namespace, scalers, kubectl):
    await client.create(GPU_SCALERS.raw, scaler("room", spec()), namespace)
    status = {
        "replicas": 2,
        "desired": 3,
        "backlog": "2.4s",
        "state": "ScalingUp",
        "since": "2026-01-02T03:04:05Z",
        "message": "12 messages wait",
    }
    await client.merge_patch(GPU_SCALERS.raw, "room", {"status": status}, namespace, subresource="status")
    head, row = kubectl("get", "gpuscalers").splitlines()
    assert head.split() == ["NAME", "TARGET", "REPLICAS", "DESIRED", "BACKLOG", "STATE", "SINCE"]
    assert row.split()[:6] == ["room", "room-scene", "2", "3", "2.4s", "ScalingUp"]
    assert row.split()[6].endswith(("d", "y", "h"))
    wide = kubectl("get", "gsc", "-o", "wide").splitlines()
    assert wide[0].split()[-5:] == ["KIND", "MIN", "MAX", "MODE", "MESSAGE"]
    assert "12 messages wait" in wide[1]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("gpuscaler", "Sizes a workload from its backlog"),
        ("gpuscaler.spec.backlog", "The queue in which work waits"),
        ("gpuscaler.spec.backlog.target", "from 100ms to 1h"),
        ("gpuscaler.spec.backlog.queue.inFlight.slots", "replicas whose GPU is at work"),
        ("gpuscaler.spec.scaleDownThreshold", "or auto"),
        ("gpuscaler.status.message", "The last decision in one sentence"),
    ],
)
@pytest.mark.asyncio
async def test_kubectl_explains_every_field(kubectl, scalers, path: str, words: str):
    for _ in range(50):  # the API server publishes its schema a moment after it serves the kind
        told = " ".join(kubectl("explain", path).split())
        if words in told:
            return
        await asyncio.sleep(0.2)
    raise AssertionError(told)


def test_every_field_has_an_explanation():
    def walk(schema: dict[str, Any], path: str) -> None:
        if path not in {"", ".metadata"}:
            assert schema.get("description", "").strip(), path
        for name, inside in schema.get("properties", {}).items():
            walk(inside, f"{path}.{name}")
        if "items" in schema:
            for name, inside in schema["items"].get("properties", {}).items():
                walk(inside, f"{path}[].{name}")

    walk(definition()["versions"][0]["schema"]["openAPIV3Schema"], "")


def test_every_text_and_number_of_the_spec_has_bounds():
    def walk(schema: dict[str, Any], path: str) -> None:
        if schema["type"] == "string" and "enum" not in schema:
            assert "maxLength" in schema, path
        if schema["type"] in {"integer", "number"}:
            assert {"minimum", "maximum"} <= set(schema), path
        if schema["type"] == "array":
            assert "maxItems" in schema, path
        for name, inside in schema.get("properties", {}).items():
            walk(inside, f"{path}.{name}")

    walk(definition()["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"], "spec")
