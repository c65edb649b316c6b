"""What a pod may ask for, and what it sees without asking."""

import time
from collections.abc import Iterator

import pytest
from cluster.policies.pods import NODE, RUNTIME_CLASS, gpu, plain
from cluster.testbed.api import Api, Object, Refused

from cotenant.dialects import names
from cotenant.dialects.registry import Dialects
from cotenant.kube.admission.mutation import mutate
from cotenant.kube.admission.settings import AdmissionSettings


@pytest.mark.parametrize("policy", ["grants", "bindings", "demands", "modes", "cards", "server", "nodes"])
def test_a_policy_is_well_typed(api: Api, policy: str):
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/cotenant-{policy}"
    checked = api.until(path, lambda seen: "typeChecking" in seen.get("status", {}))["status"]["typeChecking"]
    assert checked.get("expressionWarnings", []) == []


class TestADemand:
    @pytest.mark.parametrize(
        "resource", [names.GPU_MEMORY, names.GPU, "aliyun.com/gpu-mem", "volcano.sh/gpu-number"]
    )
    def test_that_the_webhook_has_not_seen_is_refused(self, author: Api, pods: str, resource: str):
        unseen = plain("unseen")
        unseen["spec"]["containers"][0]["resources"] = {"limits": {resource: "1"}}
        with pytest.raises(Refused, match=r"403.*webhook has not seen this pod"):
            author.create(pods, unseen)

    def test_of_an_init_container_too(self, author: Api, pods: str):
        asking = {"name": "first", "image": "none", "resources": {"limits": {names.GPU_MEMORY: "1"}}}
        with pytest.raises(Refused, match="webhook has not seen this pod"):
            author.create(pods, plain("unseen", initContainers=[asking]))

    def test_of_a_slot_alone_is_refused(self, author: Api, pods: str):
        slot = plain("slot")
        slot["spec"]["containers"][0]["resources"] = {"limits": {names.GPU_SLOT: "1"}}
        with pytest.raises(Refused, match="webhook has not seen this pod"):
            author.create(pods, slot)

    def test_of_two_slots_is_refused(self, author: Api, pods: str):
        two = gpu("two")
        for kind in ("limits", "requests"):
            two["spec"]["containers"][0]["resources"][kind][names.GPU_SLOT] = "2"
        with pytest.raises(Refused, match="webhook has not seen this pod"):
            author.create(pods, two)

    def test_goes_through_the_scheduler(self, author: Api, pods: str):
        placed = gpu("placed")
        placed["spec"]["nodeName"] = NODE
        with pytest.raises(Refused, match=r"403.*spec.nodeName"):
            author.create(pods, placed)

    @pytest.mark.parametrize("value", ["all", "0", ""])
    def test_does_not_say_itself_which_cards_it_sees(self, author: Api, pods: str, value: str):
        greedy = gpu("greedy")
        greedy["spec"]["containers"][0]["env"].append({"name": names.VISIBLE_DEVICES, "value": value})
        with pytest.raises(Refused, match=r"403.*NVIDIA_VISIBLE_DEVICES"):
            author.create(pods, greedy)

    def test_does_not_say_it_for_a_container_that_asks_for_nothing(self, author: Api, pods: str):
        greedy = gpu("greedy")
        greedy["spec"]["containers"].append({"name": "aside", "image": "none"})
        with pytest.raises(Refused, match=r"403.*NVIDIA_VISIBLE_DEVICES"):
            author.create(pods, greedy)
        path = "metadata.annotations['devices.cotenant.dev/main']"
        own = {"name": names.VISIBLE_DEVICES, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        greedy["spec"]["containers"][1]["env"] = [own]
        with pytest.raises(Refused, match=r"403.*NVIDIA_VISIBLE_DEVICES"):
            author.create(pods, greedy)

    def test_as_the_webhook_leaves_it_is_admitted(self, author: Api, pods: str):
        whole = {"limits": {"volcano.sh/gpu-number": "1"}}
        share = {"limits": {"aliyun.com/gpu-mem": "3"}}
        made = plain("all-kinds")
        made["spec"]["containers"] = [
            {"name": "one", "image": "none", "resources": whole},
            {"name": "two", "image": "none", "resources": share},
            {"name": "none", "image": "none"},
        ]
        made["spec"]["initContainers"] = [
            {"name": "first", "image": "none", "resources": {"limits": {names.GPU_MEMORY: "9Gi"}}},
            {"name": "beside", "image": "none", "restartPolicy": "Always", "resources": share},
            {"name": "last", "image": "none"},
        ]
        author.create(pods, mutate(made, AdmissionSettings(), Dialects()).pod)

    def test_of_none_is_no_concern(self, author: Api, pods: str):
        author.create(pods, plain("plain"))
        bare = plain("bare", {})
        bare["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1"}, "requests": {"memory": "1Mi"}}
        author.create(pods, bare)


class TestAMode:
    def test_is_not_relaxed_by_a_pod(self, author: Api, pods: str, namespace: str):
        relaxed = (
            f"less strict than enforce.*kubectl label namespace {namespace} cotenant.dev/enforce=observe"
        )
        with pytest.raises(Refused, match=f"403.*{relaxed}"):
            author.create(pods, gpu("lax", {names.ENFORCE: "observe"}))
        author.create(pods, gpu("strict", {names.ENFORCE: "enforce"}))
        with pytest.raises(Refused, match="less strict than enforce"):
            author.patch(f"{pods}/strict", {"metadata": {"annotations": {names.ENFORCE: "warn"}}})

    def test_is_what_the_namespace_says_or_stricter(self, api: Api, author: Api, pods: str, namespace: str):
        api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {names.ENFORCE: "warn"}}})
        end = time.monotonic() + 10
        while True:
            try:
                author.create(pods, gpu("warned", {names.ENFORCE: "warn"}))
                break
            except Refused:
                assert time.monotonic() < end
                time.sleep(0.1)
        author.create(pods, gpu("enforced", {names.ENFORCE: "enforce"}))
        with pytest.raises(Refused, match="observe is less strict than warn"):
            author.create(pods, gpu("observed", {names.ENFORCE: "observe"}))

    @pytest.mark.parametrize("label", ["Enforce", "strict", "observed", ""])
    def test_is_not_relaxed_where_the_namespace_says_what_is_no_mode(
        self, api: Api, author: Api, pods: str, namespace: str, label: str
    ):
        """The agent takes the pod's own mode first, so the namespace's slip would let every pod choose."""
        api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {names.ENFORCE: label}}})
        time.sleep(0.5)
        for mode in ("observe", "warn"):
            with pytest.raises(Refused, match=rf"403.*{mode} is less strict than enforce"):
                author.create(pods, gpu("lax", {names.ENFORCE: mode}))
        author.create(pods, gpu("strict", {names.ENFORCE: "enforce"}))

    def test_is_not_relaxed_by_a_binding(self, api: Api, pods: str):
        api.create(pods, gpu("bound"))
        body = {
            "metadata": {"name": "bound", "annotations": {names.ENFORCE: "observe"}},
            "target": {"kind": "Node", "name": NODE},
        }
        with pytest.raises(Refused, match=r"403.*less strict than enforce"):
            api.create(f"{pods}/bound/binding", body)


class TestCards:
    @pytest.fixture(autouse=True)
    def _runtime_class(self, api: Api) -> Iterator[None]:
        path = "/apis/node.k8s.io/v1/runtimeclasses"
        api.create(path, {"metadata": {"name": RUNTIME_CLASS}, "handler": "nvidia"})
        yield
        api.delete(f"{path}/{RUNTIME_CLASS}")

    def test_are_not_shown_to_a_pod_that_does_not_ask(self, author: Api, pods: str):
        with pytest.raises(Refused, match=r"403.*spec.runtimeClassName: nvidia shows the node's cards"):
            author.create(pods, plain("peeping", runtimeClassName=RUNTIME_CLASS))
        author.create(pods, gpu("asking", runtimeClassName=RUNTIME_CLASS))

    def test_of_nvidias_own_plugin_are_its_own(self, author: Api, pods: str):
        theirs = plain("theirs", runtimeClassName=RUNTIME_CLASS)
        theirs["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        author.create(pods, theirs)
        theirs["metadata"]["name"] = "sneaking"
        theirs["spec"]["nodeName"] = NODE
        with pytest.raises(Refused, match=r"403.*runtimeClassName"):
            author.create(pods, theirs)

    @pytest.mark.parametrize(
        ("limits", "is_theirs"),
        [
            ({"nvidia.com/gpu": "0"}, False),
            ({"nvidia.com/x": "0"}, False),
            ({"nvidia.com/x": "1"}, False),
            ({"nvidia.com/hostdev": "1"}, False),
            ({"nvidia.com/gpu": "0", "nvidia.com/mig-1g.5gb": "0"}, False),
            ({"nvidia.com/mig-1g.5gb": "2"}, True),
            ({"nvidia.com/gpu.shared": "1"}, True),
            ({"nvidia.com/x": "0", "nvidia.com/gpu": "1"}, True),
        ],
    )
    def test_of_nvidias_own_plugin_are_asked_for_by_an_amount_of_gpus(
        self, author: Api, pods: str, limits: dict[str, str], is_theirs: bool
    ):
        """Anything else could be had on one of our nodes, and shows all cards there."""
        made = plain("theirs", runtimeClassName=RUNTIME_CLASS)
        made["spec"]["containers"][0]["resources"] = {"limits": limits}
        if is_theirs:
            author.create(pods, made)
            return
        with pytest.raises(Refused, match=r"403.*shows the node's cards"):
            author.create(pods, made)

    def test_are_seen_by_those_who_run_the_cluster(self, api: Api):
        path = "/api/v1/namespaces/kube-system/pods"
        made = plain("monitor", runtimeClassName=RUNTIME_CLASS, serviceAccountName="default")
        api.until("/api/v1/namespaces/kube-system/serviceaccounts/default", lambda _: True)
        api.create(path, made)
        api.delete(f"{path}/monitor", gracePeriodSeconds=0)

    def test_are_not_shown_to_a_container_that_is_added_later(self, api: Api, pods: str):
        api.create(pods, gpu("trainer"))

        def add(name: str, env: list[Object]) -> None:
            body = {"spec": {"ephemeralContainers": [{"name": name, "image": "none", "env": env}]}}
            api.patch(f"{pods}/trainer/ephemeralcontainers", body, kind="strategic")

        for env in ([], [{"name": names.VISIBLE_DEVICES, "value": "all"}]):
            with pytest.raises(Refused, match=r"403.*kubectl debug --env=NVIDIA_VISIBLE_DEVICES=void"):
                add("peeping", env)
        add("debugger", [{"name": names.VISIBLE_DEVICES, "value": "void"}])
