"""What the machine must have: driver, libc, and no conflicting preloads."""

import pytest

from cotenant.core.checkup import findings
from cotenant.hardware.enforcers.shim import LIBRARY as SHIM
from cotenant.local.doctor.checkup import SUBJECTS
from cotenant.local.doctor.facts import MachineFacts
from cotenant.local.doctor.libraries import CUDA, NVML, Library, Preload, System


@pytest.mark.parametrize(
    ("cuda", "nvml", "loaded", "driver", "expected"),
    [
        (None, None, True, None, []),
        (None, "no program finds it", True, "no GPU", ["no-nvml"]),
        (None, "no program finds it", False, "no GPU", ["no-nvml"]),
        ("no program finds it", "no program finds it", False, "no GPU", ["no-driver"]),
        (None, None, True, "no GPU: Driver/library version mismatch", ["no-driver"]),
        ("cannot be loaded", None, True, None, ["no-cuda"]),
    ],
)
def test_what_is_missing_of_the_driver(plain_machine, cuda, nvml, loaded, driver, expected):
    libraries_ = (Library(CUDA, cuda), Library(NVML, nvml), Library(SHIM, None))
    seen = System(libraries_, driver_loaded=loaded, musl=None, preloads=())
    facts = MachineFacts(plain_machine.home, seen, driver=driver)
    assert [finding.kind for finding in findings(SUBJECTS, facts)] == expected


def test_musl_and_preloads_are_told(plain_machine):
    seen = System(
        (), driver_loaded=True, musl="sh is made for musl", preloads=(Preload("/x", "here", "is bad"),)
    )
    found = findings(SUBJECTS, MachineFacts(plain_machine.home, seen))
    assert [finding.kind for finding in found] == ["musl", "preload-conflict"]
