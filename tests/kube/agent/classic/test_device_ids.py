import pytest

from cotenant.kube.agent.classic import device_ids


def test_every_slot_on_disk_is_among_those_offered():
    assert device_ids.count_for(["slot-0002", "slot-12345", "claim-4b0c", "slot-99"]) == 12346
    assert device_ids.count_for([]) == 0
    offered = [device_ids.device_id(number) for number in (0, 7, 12345)]
    assert [device_ids.check(device) for device in offered] == ["slot-0000", "slot-0007", "slot-12345"]


@pytest.mark.parametrize("device", ["", "..", "slot-1", "slot-0000\n", "claim-4b0c", "GPU-a"])
def test_a_device_that_was_never_offered_is_refused(device):
    with pytest.raises(device_ids.NoSuchDevice, match="slot-0000 and so on"):
        device_ids.check(device)
