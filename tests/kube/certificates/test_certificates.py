"""Certificates are what TLS takes, and there is at every moment one that every client trusts."""

from __future__ import annotations

import base64
import shutil
import ssl
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given, settings
from hypothesis import strategies as st
from kube.handshakes import client, shake

from cotenant.kube.api.auth.tls import NotAKeyPair
from cotenant.kube.certificates import certificates, renewal
from cotenant.kube.certificates.key_pair import KeyPair
from cotenant.kube.certificates.live_context import LiveContext, server_context
from cotenant.kube.certificates.renewal import (
    CertificatePolicy,
    CertificateSet,
    from_data,
    is_signed,
    renewed,
    to_data,
)

NAMES = ("cotenant-webhook", "cotenant-webhook.gpus.svc", "10.1.2.3", "fd00::1")
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
AGENT_NAMES = ("cotenant-agent", "cotenant-agent.gpus.svc")
POLICY = CertificatePolicy(NAMES, AGENT_NAMES, 90 * DAY, 3650 * DAY, timedelta(seconds=10))
NOW = datetime.now(UTC).replace(microsecond=0)


def fresh(now: datetime = NOW, policy: CertificatePolicy = POLICY) -> CertificateSet:
    return renewed(CertificateSet(), policy, now)


def stored(kept: CertificateSet) -> CertificateSet:
    """After its way through the Secret."""
    read = from_data(to_data(kept))
    assert read == kept
    return read


def ends(pair: KeyPair) -> datetime:
    certificate = certificates.read(pair.certificate)
    assert certificate is not None
    return certificates.validity(certificate).not_after


@pytest.fixture
def serving() -> tuple[LiveContext, CertificateSet]:
    kept, live = fresh(), LiveContext()
    live.serve(kept.serving, kept.bundle)
    return live, kept


@pytest.mark.parametrize("name", NAMES)
def test_a_strict_client_trusts_the_server_by_each_of_its_names(serving: Any, name: str) -> None:
    live, kept = serving
    shake(live.context(client_certificates=False), client(kept.bundle), name)


def test_a_client_does_not_trust_it_by_another_name_or_another_authority(serving: Any) -> None:
    live, kept = serving
    context = live.context(client_certificates=False)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake(context, client(kept.bundle), "other.svc")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(context, client(fresh().bundle), NAMES[0])


def test_the_scheduler_is_let_in_and_nobody_else(serving: Any) -> None:
    live, kept = serving
    context = live.context(client_certificates=True)
    shake(context, client(kept.bundle, kept.scheduler), NAMES[0])
    for other in (None, fresh().scheduler, kept.serving, kept.agent):
        with pytest.raises(ssl.SSLError):
            shake(context, client(kept.bundle, other), NAMES[0])


def test_what_is_served_changes_in_a_context_that_is_in_use(serving: Any) -> None:
    live, kept = serving
    open_, closed = live.context(client_certificates=False), live.context(client_certificates=True)
    other = fresh()
    live.serve(other.serving, other.bundle)
    assert live.context(client_certificates=False) is open_
    shake(open_, client(other.bundle), NAMES[0])
    shake(closed, client(other.bundle, other.scheduler), NAMES[0])
    with pytest.raises(ssl.SSLError):
        shake(closed, client(other.bundle, kept.scheduler), NAMES[0])  # its authority is trusted no more


def test_a_listener_without_a_certificate_refuses_and_lives() -> None:
    live = LiveContext()
    context = live.context(client_certificates=False)
    kept = fresh()
    with pytest.raises(ssl.SSLError):
        shake(context, client(kept.bundle), NAMES[0])
    live.serve(kept.serving, kept.bundle)
    shake(context, client(kept.bundle), NAMES[0])


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl command")
def test_openssl_verifies_the_chains(tmp_path: Path) -> None:
    kept = fresh()
    files = {
        "bundle": kept.bundle,
        "serving": kept.serving.certificate,
        "scheduler": kept.scheduler.certificate,
        "agent": kept.agent.certificate,
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)

    def verify(name: str, purpose: str, *more: str) -> bool:
        options = ["-x509_strict", "-purpose", purpose, *more, "-CAfile", str(tmp_path / "bundle")]
        command = ["openssl", "verify", *options, str(tmp_path / name)]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    assert verify("serving", "sslserver", "-verify_hostname", "cotenant-webhook.gpus.svc")
    assert verify("serving", "sslserver", "-verify_ip", "10.1.2.3")
    assert verify("scheduler", "sslclient")
    assert verify("agent", "sslserver", "-verify_hostname", "cotenant-agent.gpus.svc")
    assert not verify("agent", "sslserver", "-verify_hostname", "cotenant-webhook.gpus.svc")
    assert not verify("agent", "sslclient")
    assert not verify("serving", "sslclient")
    assert not verify("scheduler", "sslserver")
    assert not verify("serving", "sslserver", "-verify_hostname", "other.svc")


def test_a_certificate_begins_an_hour_ago() -> None:
    kept = fresh()
    for pair in (kept.authority, kept.serving, kept.scheduler, kept.agent):
        certificate = certificates.read(pair.certificate)
        assert certificate is not None
        assert certificate.not_valid_before_utc == NOW - HOUR
    assert ends(kept.serving) == NOW + 90 * DAY


def test_a_very_long_name_is_in_the_certificate_in_full() -> None:
    long = f"{'w' * 63}.{'n' * 63}.svc.cluster.local"
    kept = fresh(policy=replace(POLICY, names=(long,)))
    live = LiveContext()
    live.serve(kept.serving, kept.bundle)
    shake(live.context(client_certificates=False), client(kept.bundle), long)


def test_keys_are_not_shown() -> None:
    kept = fresh()
    assert "PRIVATE" not in repr(kept)
    assert "PRIVATE" not in str(kept.authority)
    assert b"PRIVATE" not in kept.bundle


def test_good_ones_are_left_alone() -> None:
    kept = stored(fresh())
    assert renewed(kept, POLICY, NOW) is not None
    for days in (0, 1, 30, 59):
        assert renewed(kept, POLICY, NOW + days * DAY) == kept


def test_certificates_are_renewed_when_a_third_is_left_by_the_same_authority() -> None:
    kept = fresh()
    later = renewed(stored(kept), POLICY, NOW + 61 * DAY)
    assert later.authority == kept.authority
    assert later.bundle == kept.bundle
    assert ends(later.serving) == ends(later.scheduler) == ends(later.agent) == NOW + 151 * DAY


def test_over_thirty_years_every_client_of_the_last_year_trusts_what_is_served() -> None:
    """A client may have read the bundle up to a year and a half ago: kube-scheduler reads it when it starts."""
    kept, bundles, writes = fresh(), [], 0
    authorities = set()
    for days in range(0, 30 * 365, 10):
        now = NOW + days * DAY
        better = renewed(stored(kept), POLICY, now)
        writes += better != kept
        kept = better
        bundles.append(kept.bundle)
        authorities.add(kept.authority.certificate)
        for bundle in {*bundles[-54:]}:
            assert is_signed(kept.serving.certificate, bundle)
            assert is_signed(kept.scheduler.certificate, bundle)
            assert is_signed(kept.agent.certificate, bundle)
        for pair in (kept.serving, kept.scheduler, kept.agent, kept.authority):
            assert ends(pair) > now + 20 * DAY
        assert len(certificates.read_all(kept.bundle)) <= 2
    assert len(authorities) == 5
    assert writes < 30 * 365 / 50 + 20


@pytest.mark.parametrize(
    "key",
    [f"{pair}.{half}" for pair in ("ca", "tls", "scheduler", "agent") for half in ("crt", "key")],
)
@pytest.mark.parametrize("damage", ["missing", "garbage", "no base64", "cut", "another's", "twice"])
def test_what_is_damaged_is_made_anew(key: str, damage: str) -> None:
    kept = fresh()
    data, other = to_data(kept), to_data(fresh())
    whole = base64.b64decode(data[key])
    if damage == "missing":
        del data[key]
    else:
        data[key] = {
            "garbage": base64.b64encode(b"\x00\xff-----BEGIN CERTIFICATE-----").decode(),
            "no base64": "*",
            "cut": base64.b64encode(whole[: len(whole) // 2]).decode(),
            "another's": other[key],
            "twice": base64.b64encode(whole + whole).decode(),
        }[damage]
    better = renewed(from_data(data), POLICY, NOW + HOUR)
    for pair in (better.serving, better.scheduler, better.agent):
        assert is_signed(pair.certificate, better.bundle)
    live = LiveContext()
    live.serve(better.serving, better.bundle)
    shake(live.context(client_certificates=True), client(better.bundle, better.scheduler), NAMES[0])
    if key != "ca.crt":
        assert is_signed(better.serving.certificate, kept.bundle), (
            "clients trust it without hearing of anything"
        )
        assert kept.authority.certificate in better.bundle
    assert renewed(stored(better), POLICY, NOW + HOUR) == better


def test_a_set_from_before_agents_had_a_certificate_gets_one_and_nothing_else_changes() -> None:
    kept = fresh()
    older = replace(kept, agent=renewal.NOTHING)
    better = renewed(stored(older), POLICY, NOW + HOUR)
    assert better == replace(older, agent=better.agent)
    assert is_signed(better.agent.certificate, kept.bundle)
    found = certificates.read(better.agent.certificate)
    assert found is not None
    assert certificates.names_of(found) == AGENT_NAMES


def test_an_agents_certificate_alone_does_not_hurry_the_change_of_the_authority() -> None:
    """Servers and kube-scheduler can go on with what they have; only scrapers of agents wait."""
    kept = fresh()
    keyless = replace(kept, authority=replace(kept.authority, key=b""), agent=renewal.NOTHING)
    soon = renewed(stored(keyless), POLICY, NOW + HOUR)
    assert soon.authority.certificate == kept.authority.certificate
    assert soon.agent == renewal.NOTHING
    later = renewed(stored(soon), POLICY, NOW + 2 * HOUR)
    assert is_signed(later.agent.certificate, soon.bundle)


def test_an_authority_without_its_key_is_succeeded_after_the_successor_is_known() -> None:
    kept = fresh()
    lost = replace(kept, authority=KeyPair(kept.authority.certificate, b""))
    first = renewed(lost, POLICY, NOW)
    assert (first.authority, first.serving) == (lost.authority, lost.serving)
    assert len(certificates.read_all(first.bundle)) == 2
    assert renewed(first, POLICY, NOW + timedelta(seconds=9)) == first
    second = renewed(first, POLICY, NOW + timedelta(seconds=10))
    assert second.authority == first.successor
    assert second.serving == lost.serving, "it is good for as long as it was"
    third = renewed(second, POLICY, NOW + 61 * DAY)
    assert is_signed(third.serving.certificate, second.authority.certificate)
    assert is_signed(third.serving.certificate, first.bundle)


def test_a_clock_that_jumps_back_or_ahead_leaves_something_to_serve() -> None:
    kept = fresh()
    for jump in (-400 * DAY, -2 * HOUR, 3 * 365 * DAY, 9 * 365 * DAY, 50 * 365 * DAY):
        better = renewed(kept, POLICY, NOW + jump)
        assert renewal.serving_state(better, POLICY, NOW + jump) == "good"
        assert ends(better.serving) > NOW + jump + 80 * DAY
    assert renewed(kept, POLICY, NOW - 30 * timedelta(minutes=1)) == kept, "small differences do nothing"


def test_a_server_that_wants_another_name_adds_it_and_leaves_those_of_others() -> None:
    one, two = replace(POLICY, names=("a.svc",)), replace(POLICY, names=("b.svc", "10.0.0.1"))
    kept = renewed(fresh(policy=one), two, NOW)
    certificate = certificates.read(kept.serving.certificate)
    assert certificate is not None
    assert set(certificates.names_of(certificate)) == {"a.svc", "b.svc", "10.0.0.1"}
    assert renewed(kept, one, NOW) == renewed(kept, two, NOW) == kept
    later = certificates.read(renewed(kept, two, NOW + 61 * DAY).serving.certificate)
    assert later is not None
    assert certificates.names_of(later) == two.names, "with its next renewal it is for what is wanted then"


def test_an_authority_of_ones_own_signs_too() -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ours")])
    own = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + 3650 * DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    pair = KeyPair(certificates.pem(own), text)
    kept = renewed(CertificateSet(authority=pair), POLICY, NOW)
    assert kept.authority == pair
    assert is_signed(kept.serving.certificate, pair.certificate)


DATA_KEYS = st.sampled_from(renewal.KEYS)
BROKEN = st.sampled_from(["", "*", "LS0tLS0=", base64.b64encode("é".encode()).decode()])
STEPS = st.lists(st.integers(-4000, 4000) | st.tuples(DATA_KEYS, BROKEN | DATA_KEYS), min_size=1, max_size=8)


@settings(max_examples=40)
@given(STEPS)
def test_whatever_happens_to_clock_and_secret_there_is_something_to_serve(steps: list[Any]) -> None:
    now, data = NOW, to_data(fresh())
    for step in steps:
        if isinstance(step, int):
            now += step * DAY
        else:
            key, content = step
            data[key] = data.get(content, "") if content in renewal.KEYS else content
        kept = renewed(from_data(data), POLICY, now)
        assert renewal.serving_state(kept, POLICY, now) in {"good", "due"}
        assert is_signed(kept.scheduler.certificate, kept.bundle)
        again = renewed(stored(kept), POLICY, now)
        assert (again.serving, again.authority) == (kept.serving, kept.authority)
        data = to_data(kept)


def test_a_self_signed_certificate_serves_and_only_who_has_it_trusts_it() -> None:
    own = certificates.issue_self_signed("cotenant-agent", ["node-1", "10.1.2.3"], NOW, DAY)
    for name in ("node-1", "10.1.2.3"):
        trusting = client(own.certificate)
        trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        shake(server_context(own), trusting, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(server_context(own), client(fresh().bundle), "node-1")
    assert ends(own) == NOW + DAY


def test_an_empty_bundle_lets_no_client_in() -> None:
    with pytest.raises((ValueError, ssl.SSLError)):
        server_context(fresh().serving, b"")


def test_a_certificate_with_the_key_of_another_is_not_served() -> None:
    kept = fresh()
    live = LiveContext()
    live.serve(kept.serving, kept.bundle)
    with pytest.raises(NotAKeyPair, match="not a PEM certificate with its own"):
        live.serve(KeyPair(kept.serving.certificate, fresh().serving.key), kept.bundle)
    shake(live.context(client_certificates=False), client(kept.bundle), NAMES[0])
