"""The agent serves the certificate that the server issued, from when the kubelet has mounted it."""

from __future__ import annotations

import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from kube.handshakes import client, shake

from cotenant.kube.agent.certificate import ServingCertificate
from cotenant.kube.agent.context import NodeContext
from cotenant.kube.certificates.certificates import issue_serving, new_authority
from cotenant.kube.certificates.key_pair import KeyPair
from cotenant.kube.settings import Settings

NOW = datetime.now(UTC)
NAME = "cotenant-agent.gpus.svc"
AUTHORITY = new_authority(NOW, timedelta(days=100))


def issued() -> KeyPair:
    return issue_serving(AUTHORITY, [NAME], NOW, timedelta(days=9))


def mount(folder, pair: KeyPair) -> None:
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)


def part_with(folder) -> ServingCertificate:
    settings = Settings()
    settings = replace(settings, agent=replace(settings.agent, certificate=str(folder)))
    context = NodeContext(settings, None, None, None, None, {}, node="n1", cards=None)
    part = ServingCertificate(context)
    assert context.use(ServingCertificate) is part
    return part


def verified(part: ServingCertificate) -> str:
    """Returns the serial number of the certificate that a scraper verifies."""
    return shake(part.server_context(), client(AUTHORITY.certificate), NAME)["serialNumber"]


def encrypts(part: ServingCertificate) -> None:
    anyone = client(AUTHORITY.certificate)
    anyone.check_hostname = False
    anyone.verify_mode = ssl.CERT_NONE
    shake(part.server_context(), anyone, NAME)


def test_a_scraper_verifies_what_the_server_issued(tmp_path, caplog):
    mount(tmp_path, issued())
    assert verified(part_with(tmp_path))
    assert not [each for each in caplog.records if each.levelname == "WARNING"]


def test_without_one_the_agent_serves_a_self_signed_one_and_says_so_once(tmp_path, caplog):
    part = part_with(tmp_path / "not mounted")
    for _ in range(3):
        part.reload()
    encrypts(part)
    with pytest.raises(ssl.SSLCertVerificationError):
        verified(part)
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "scrapers cannot verify this agent" in warnings[0]


def test_one_that_is_mounted_later_is_served_to_the_next_connection(tmp_path):
    part = part_with(tmp_path)
    listening = part.server_context()
    mount(tmp_path, issued())
    part.reload()
    first = verified(part)
    mount(tmp_path, issued())
    part.reload()
    assert verified(part) != first
    assert part.server_context() is listening, "the listener keeps its context"


@pytest.mark.parametrize("half", ["tls.crt", "tls.key"])
@pytest.mark.parametrize("content", [b"", b"damaged", issued().certificate, None], ids=str)
def test_in_the_middle_of_a_renewal_the_last_one_is_served(tmp_path, half, content):
    mount(tmp_path, issued())
    part = part_with(tmp_path)
    first = verified(part)
    if content is None:
        (tmp_path / half).unlink()
    else:
        (tmp_path / half).write_bytes(content)
    part.reload()
    assert verified(part) == first
    mount(tmp_path, issued())
    part.reload()
    assert verified(part) != first


def test_files_that_cannot_be_served_at_the_start_leave_a_self_signed_one(tmp_path):
    mount(tmp_path, KeyPair(b"damaged", b"damaged"))
    part = part_with(tmp_path)
    encrypts(part)
    mount(tmp_path, issued())
    part.reload()
    verified(part)
