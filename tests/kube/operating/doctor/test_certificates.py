"""Certificates that are missing, damaged, expired, or of another authority."""

from dataclasses import replace
from datetime import timedelta

import pytest
from kube.operating.clusters import NOW
from kube.operating.well import DATA, KEPT, WANTED, found, kinds

from cotenant.kube.certificates import renewal
from cotenant.kube.certificates.renewal import NOTHING, CertificateSet


def test_certificates_that_have_ended_or_are_damaged():
    after = {"now": NOW + timedelta(days=100), "lease": None}
    assert kinds(**after) == ["not-led", "certificate", "certificate"]
    assert kinds(certificates={**DATA, "tls.crt": "AAAA"}) == ["certificate"]
    late = NOW + timedelta(days=80)
    (serving, scheduler) = [each for each in found(now=late) if each.kind == "certificate"]
    assert serving.severity == scheduler.severity == "warning"
    assert kinds(certificates=None) == ["no-certificates"]


def test_a_certificate_beside_the_key_of_another():
    other = renewal.to_data(renewal.renewed(CertificateSet(), WANTED, NOW))
    (finding,) = found(certificates={**DATA, "tls.key": other["tls.key"]})
    assert "the serving certificate" in finding.found
    assert "does not belong to the key beside it" in finding.found


def test_a_certificate_of_another_authority():
    other = renewal.to_data(renewal.renewed(CertificateSet(), WANTED, NOW))
    strange = {**DATA, "scheduler.crt": other["scheduler.crt"], "scheduler.key": other["scheduler.key"]}
    (finding,) = found(certificates=strange)
    assert "is not signed by the authority beside it" in finding.found


def test_a_certificate_for_other_names():
    wanted = replace(WANTED, names=("elsewhere",))
    named = renewal.renewed(replace(KEPT, serving=NOTHING), wanted, NOW)
    (finding,) = found(certificates=renewal.to_data(named))
    assert "is not for cotenant-extender.cotenant-system.svc, cotenant-webhook" in finding.found


@pytest.mark.parametrize("damage", ["", "AAAA", "not base64!", "LS0tLS0="])
def test_whatever_stands_in_the_secret(damage):
    wrong = dict.fromkeys(DATA, damage)
    assert {"certificate", "ca-bundle"} == set(kinds(certificates=wrong))
