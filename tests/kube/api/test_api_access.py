"""Every way to be somebody, on a real API server."""

import asyncio
import contextlib
import json
import os

import pytest
from kube.apiserver import certificate_data, certificate_files

from cotenant.kube.api.auth import kubeconfig
from cotenant.kube.api.auth.access import in_cluster
from cotenant.kube.api.client import Client
from cotenant.kube.api.connection import ConnectionSettings
from cotenant.kube.api.errors import Forbidden, NoCredential, Unauthorized, Untrusted
from cotenant.kube.api.objects import Generic
from cotenant.kube.api.resources import NAMESPACES, NODES, PODS, Resource

pytestmark = pytest.mark.asyncio
ACCOUNTS = Resource(Generic, "ServiceAccount", "serviceaccounts")
ROLE_BINDINGS = Resource(
    Generic, "ClusterRoleBinding", "clusterrolebindings", group="rbac.authorization.k8s.io", namespaced=False
)
REVIEWS = Resource(
    Generic, "SelfSubjectReview", "selfsubjectreviews", group="authentication.k8s.io", namespaced=False
)
WRONG = "wr0ng-s3cr3t"


async def who(client):
    review = await client.create(REVIEWS, {})
    return review.status["userInfo"]["username"]


@pytest.fixture
def reach(control_plane, first):
    """A client for what a kubeconfig says of its user."""

    def reach(user=None, cluster=None, server=first[1], **context):
        path = control_plane.kubeconfig(server, user, cluster, **context)
        return Client(kubeconfig.find({}, path=path), ConnectionSettings(request=5))

    return reach


@pytest.fixture
def token(client, namespace):
    """Makes tokens of a service account that may read pods."""

    async def token(account="reader"):
        await client.apply(ACCOUNTS, {"metadata": {"name": account}}, "test", namespace)
        role = {
            "kind": "ClusterRole",
            "name": "system:kube-scheduler",
            "apiGroup": "rbac.authorization.k8s.io",
        }
        subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
        binding = {"metadata": {"name": f"{namespace}-{account}"}, "roleRef": role, "subjects": [subject]}
        await client.apply(ROLE_BINDINGS, binding, "test")
        tokens = Resource(Generic, "TokenRequest", f"serviceaccounts/{account}/token")
        wanted = {"apiVersion": "authentication.k8s.io/v1", "spec": {"expirationSeconds": 600}}
        return (await client.create(tokens, wanted, namespace)).status["token"]

    return token


async def test_certificates_in_files_and_in_place(control_plane, reach):
    for user in (certificate_files(control_plane.admin), certificate_data(control_plane.admin)):
        async with reach(user) as client:
            assert await who(client) == "admin"


async def test_a_token_of_a_service_account(reach, token, namespace):
    async with reach({"token": await token()}) as client:
        assert await who(client) == f"system:serviceaccount:{namespace}:reader"
        for _ in range(50):  # the server's authorizer learns of the new binding a moment later
            with contextlib.suppress(Forbidden):
                await client.list(PODS)
                break
            await asyncio.sleep(0.1)
        await client.list(PODS)
        with pytest.raises(Forbidden, match="create nodes forged: not allowed: nodes is forbidden"):
            await client.create(NODES, {"metadata": {"name": "forged"}})


async def test_a_token_that_is_rejected_is_read_again_from_its_file(reach, token, namespace, tmp_path):
    path = tmp_path / "token"
    path.write_text(WRONG)
    async with reach({"tokenFile": str(path)}) as client:
        with pytest.raises(Unauthorized) as caught:
            await who(client)
        assert WRONG not in str(caught.value)
        path.write_text(await token())
        assert (
            await who(client) == f"system:serviceaccount:{namespace}:reader"
        )  # at once: the old one was rejected


async def test_a_pod_speaks_as_its_service_account_and_follows_its_rotating_token(
    control_plane, first, token, namespace, tmp_path
):
    """The kubelet swaps a symlink to a folder; we do the same."""
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": first[1].rsplit(":", 1)[1]}

    def mount(version, text):
        folder = tmp_path / version
        folder.mkdir()
        (folder / "token").write_text(text)
        (folder / "ca.crt").write_bytes(control_plane.authority.pair.certificate.read_bytes())
        (folder / "namespace").write_text(namespace)
        (tmp_path / "next").symlink_to(folder)
        os.rename(tmp_path / "next", tmp_path / "data")

    mount("1", await token())
    async with Client(in_cluster(environ, tmp_path / "data")) as client:
        assert client.access.namespace == namespace
        assert await who(client) == f"system:serviceaccount:{namespace}:reader"
        mount("2", await token("other"))
        client.access.credentials.token.forget()  # as after ten seconds
        assert await who(client) == f"system:serviceaccount:{namespace}:other"


def plugin(path, printed):
    path.write_text(f"#!/bin/sh\necho run >> {path}.runs\ncat {printed}\n")
    path.chmod(0o755)
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(path),
        "interactiveMode": "Never",
    }


def prints(path, **status):
    path.write_text(
        json.dumps(
            {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
        )
    )


async def test_a_plugins_token_and_then_its_certificate(control_plane, reach, token, namespace, tmp_path):
    printed = tmp_path / "printed"
    prints(printed, token=WRONG)
    async with reach({"exec": plugin(tmp_path / "login", printed)}) as client:
        with pytest.raises(Unauthorized) as caught:
            await who(client)
        assert WRONG not in str(caught.value)
        prints(printed, token=await token())
        assert await who(client) == f"system:serviceaccount:{namespace}:reader"
        pair = control_plane.authority.issue("short", user="somebody")
        prints(
            printed, clientCertificateData=pair.certificate.read_text(), clientKeyData=pair.key.read_text()
        )
        client.access.credentials.rejected(await client.access.credentials.current())
        assert await who(client) == "somebody"
        runs = (tmp_path / "login.runs").read_text().count("run")
        await who(client)
        assert (tmp_path / "login.runs").read_text().count("run") == runs


async def test_acting_as_somebody_else(control_plane, reach):
    async with reach(
        {**certificate_files(control_plane.admin), "as": "jane", "as-groups": ["a", "b"]}
    ) as client:
        review = await client.create(REVIEWS, {})
        assert review.status["userInfo"]["username"] == "jane"
        assert {"a", "b"} <= set(review.status["userInfo"]["groups"])


async def test_a_server_that_is_not_the_promised_one_gets_no_credential(
    control_plane, first, reach, tmp_path
):
    (tmp_path / "other").mkdir()
    wrong = type(control_plane.authority)(tmp_path / "other", "ca").pair.certificate
    for cluster, why in [
        ({"certificate-authority": str(wrong)}, "self.signed|unable to get|signature"),
        (
            {
                "certificate-authority": str(control_plane.authority.pair.certificate),
                "tls-server-name": "x.y",
            },
            "mismatch",
        ),
        ({}, "self.signed|unable to get"),
    ]:
        async with reach({"token": WRONG}, cluster) as client:
            with pytest.raises(Untrusted, match=why) as caught:
                await client.list(NAMESPACES)
            assert first[1] in str(caught.value)
    trusted = {
        "certificate-authority": str(control_plane.authority.pair.certificate),
        "tls-server-name": "kube",
    }
    for cluster in (trusted, {"insecure-skip-tls-verify": True}):
        async with reach(certificate_files(control_plane.admin), cluster) as client:
            assert await who(client) == "admin"


@pytest.mark.parametrize("which", ["certificate", "key", "encrypted"])
async def test_certificates_that_are_none_are_named(control_plane, reach, tmp_path, which):
    pair = certificate_files(control_plane.admin)
    broken = tmp_path / "broken.pem"
    text = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGbMFcGCSqGSIb3\n-----END ENCRYPTED PRIVATE KEY-----\n"
    broken.write_text(text if which == "encrypted" else "nonsense")
    pair["client-certificate" if which == "certificate" else "client-key"] = str(broken)
    async with reach(pair) as client:
        with pytest.raises(
            NoCredential, match="client-certificate, client-key: not a PEM certificate with its own"
        ):
            await who(client)
