"""Pods, people and programs that the policies are tried with."""

from cluster import chart
from cluster.testbed.api import Api, Object
from cluster.testbed.controlplane import ControlPlane

from cotenant.dialects import names
from cotenant.dialects.registry import Dialects
from cotenant.kube.admission.mutation import mutate
from cotenant.kube.admission.settings import AdmissionSettings

NATIVE = [*names.SERVER_ONLY, *(f"{prefix}main" for prefix in names.SERVER_ONLY_PREFIXES)]
OF_DIALECTS = [each for dialect in Dialects().on for each in dialect.pod_annotations]
GRANT = dict.fromkeys([*NATIVE, *OF_DIALECTS], "as the server wrote it")
RUNTIME_CLASS = "nvidia"
NODE = "granting"
"""Where pods are bound. It has no kubelet, not even a hollow one, so nothing happens to them there."""
TOKEN = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}


def plain(name: str, annotations: dict[str, str] | None = None, **spec: object) -> Object:
    """A pod that asks for no GPU."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **({} if annotations is None else {"annotations": annotations})},
        "spec": {"containers": [{"name": "main", "image": "none"}], "schedulerName": "nobody", **spec},
    }


def gpu(name: str, annotations: dict[str, str] | None = None, **spec: object) -> Object:
    """A pod that asks for GPU, as the webhook leaves it; with annotations that it would have taken off."""
    made = plain(name, **spec)
    made["spec"]["containers"][0]["resources"] = {"limits": {names.GPU_MEMORY: "4Gi"}}
    made = mutate(made, AdmissionSettings(), Dialects()).pod
    if annotations is not None:
        made["metadata"]["annotations"] = annotations
    return made


def as_account(control_plane: ControlPlane, account: str, bound: Object | None = None) -> Api:
    path = f"/api/v1/namespaces/{chart.NAMESPACE}/serviceaccounts/{account}/token"
    spec = {"boundObjectRef": bound} if bound else {}
    token = control_plane.api.create(path, {**TOKEN, "spec": spec})["status"]["token"]
    return Api(control_plane.host, control_plane.authority.pair.certificate, token=token)


def may(client: Api, verb: str, resource: str, namespace: str = "", name: str = "", group: str = "") -> bool:
    resource, _, sub = resource.partition("/")
    asked = {"verb": verb, "resource": resource, "subresource": sub, "group": group, "name": name}
    review = {"spec": {"resourceAttributes": {**asked, "namespace": namespace}}}
    answer = client.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def grant(server: Api, pods: str, name: str, node: str = NODE) -> Object:
    """As the server binds: one request that brings the node and the annotations."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    server.create(
        f"{pods}/{name}/binding", {"metadata": {"name": name, "annotations": GRANT}, "target": target}
    )
    return server.get(f"{pods}/{name}")
