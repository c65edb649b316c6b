"""Publishes the CA bundle for scrapers (a ConfigMap) and the certificate that agents serve (a Secret).

Both are copies of what the Secret `cotenant-certificates` holds. The agents' certificate has a Secret of its
own, since a kubelet may read every Secret that a pod of its node mounts: no GPU node gets the authority's
key.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from cotenant.kube.api.client import Client
from cotenant.kube.api.data_objects import write_data
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
    written = await write_data(client, resource, name, namespace, data, rest)
    if written:
        log.info("published", kind=resource.kind, name=name)
    return written
