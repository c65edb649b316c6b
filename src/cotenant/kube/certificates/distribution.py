"""Publishes the CA bundle for scrapers (a ConfigMap) and the certificate that agents serve (a Secret).

Both are copies of what the Secret `cotenant-certificates` holds. The agents' certificate has a Secret of its
own, since a kubelet may read every Secret that a pod of its node mounts: no GPU node gets the authority's
key.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Protocol

from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import AlreadyExists, Conflict, NotFound
from cotenant.kube.api.objects import HasMeta
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import CONFIG_MAPS, SECRETS, Resource
from cotenant.kube.certificates.key_pair import KeyPair
from cotenant.kube.logs import get_logger

log = get_logger(__name__)

CA_CONFIG_MAP = "cotenant-ca"
CA_KEY = "ca.crt"
AGENT_SECRET = "cotenant-agent-certificate"  # noqa: S105 - the name of the object
AGENT_CERTIFICATE, AGENT_KEY = "tls.crt", "tls.key"
"""As the type kubernetes.io/tls wants them."""
AGENT_NAME = "cotenant-agent"
"""Agents are verified by the name `cotenant-agent.<namespace>.svc`."""
_ATTEMPTS = 8
"""Tries of one write against other servers that write the same."""


class _HasData(HasMeta, Protocol):
    @property
    def data(self) -> Mapping[str, str]: ...


async def publish_bundle(client: Client, namespace: str, bundle: bytes) -> bool:
    """Returns whether the ConfigMap had to be written."""
    return await _publish(client, CONFIG_MAPS, CA_CONFIG_MAP, namespace, {CA_KEY: bundle.decode("ascii")}, {})


async def publish_agent_certificate(client: Client, namespace: str, pair: KeyPair) -> bool:
    """Returns whether the Secret had to be written."""
    data = {
        key: base64.b64encode(pem).decode()
        for key, pem in ((AGENT_CERTIFICATE, pair.certificate), (AGENT_KEY, pair.key))
    }
    return await _publish(client, SECRETS, AGENT_SECRET, namespace, data, {"type": "kubernetes.io/tls"})


async def _publish(
    client: Client,
    resource: Resource[Any],
    name: str,
    namespace: str,
    data: Mapping[str, str],
    rest: Mapping[str, str],
) -> bool:
    """Creates the object, or writes what differs. Keys that are not ours stay as they are."""
    for _ in range(_ATTEMPTS):
        try:
            found: _HasData = await client.get(resource, name, namespace)
            changes = {key: text for key, text in data.items() if found.data.get(key) != text}
            if not changes:
                return False
            await client.merge_patch(resource, name, {"data": changes}, namespace, guard=Guard.of(found))
        except Conflict:
            continue
        except NotFound:
            meta = {"name": name, "labels": {"app.kubernetes.io/name": "cotenant"}}
            try:
                await client.create(resource, {"metadata": meta, **rest, "data": data}, namespace)
            except AlreadyExists:
                continue
        log.info("published", kind=resource.kind, name=name)
        return True
    raise Conflict(f"{resource.plural} {namespace}/{name}: other writers change it all the time")
