"""The stand-in as NVIDIA's container runtime shows cards: those that are named, numbered from 0, and no others."""

import pytest
from standin.test_cards import NVML, SEEN

RUNTIME = {"COTENANT_STANDIN_RUNTIME": "1"}
NVML_SEEN = (
    NVML
    + """
handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
print(*[nvml.nvmlDeviceGetMemoryInfo(each).total // GIB for each in handles])
assert [nvml.nvmlDeviceGetIndex(each) for each in handles] == list(range(len(handles)))
"""
)


def seen(machine, **environment):
    """By CUDA, and by NVML; they agree."""
    nvml = machine.run(NVML_SEEN, **environment).strip()
    count = machine.run("print(cuda.cuInit(0)[0].name)", **environment).strip()
    cuda = machine.run(SEEN, **environment).strip() if count == "CUDA_SUCCESS" else ""
    return cuda, nvml


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ("0", "1"),
        ("2", "3"),
        ("2,0", "1 3"),
        (" 1 , 2 ", "2 3"),
        ("all", "1 2 3"),
        ("ALL", "1 2 3"),
        ("1,1", "2"),
        ("7,1", "2"),
        ("", ""),
        ("void", ""),
        ("none", ""),
        ("GPU-ffffffff", ""),
        ("-1", ""),
        ("0:0", ""),
    ],
)
def test_a_container_has_the_cards_that_are_named(standin, named, shown):
    machine = standin("1x1GiB,1x2GiB,1x3GiB")
    assert seen(machine, NVIDIA_VISIBLE_DEVICES=named, **RUNTIME) == (shown, shown)


def test_a_container_for_which_nothing_is_named_has_none(standin):
    machine = standin("2x1GiB")
    assert seen(machine, **RUNTIME) == ("", "")


def test_uuids_are_names_when_they_are_whole(standin):
    machine = standin("1x1GiB,1x2GiB,1x3GiB")
    both = f"{machine.uuids[2]},{machine.uuids[1].lower()}"
    assert seen(machine, NVIDIA_VISIBLE_DEVICES=both, **RUNTIME) == ("2 3", "2 3")
    assert seen(machine, NVIDIA_VISIBLE_DEVICES=machine.uuids[1][:12], **RUNTIME) == ("", "")


def test_without_the_runtime_the_variable_means_nothing(standin):
    machine = standin("1x1GiB,1x2GiB")
    assert seen(machine, NVIDIA_VISIBLE_DEVICES="1") == ("1 2", "1 2")


def test_cuda_chooses_among_the_cards_that_the_container_has(standin):
    machine = standin("1x1GiB,1x2GiB,1x3GiB")
    for chosen, shown in [
        ("1", "3"),
        ("1,0", "3 2"),
        (machine.uuids[2], "3"),
        ("2", ""),
        (machine.uuids[0], ""),
    ]:
        found = seen(machine, NVIDIA_VISIBLE_DEVICES="1,2", CUDA_VISIBLE_DEVICES=chosen, **RUNTIME)
        assert found == (shown, "2 3"), chosen


def test_cards_of_others_cannot_be_found_by_any_name(standin):
    machine = standin("1x1GiB,1x2GiB")
    code = f"""
own = nvml.nvmlDeviceGetHandleByIndex(0)
assert nvml.nvmlDeviceGetUUID(own) == {machine.uuids[1]!r}
bus = nvml.nvmlDeviceGetPciInfo(own).busId
assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByPciBusId(bus)) == {machine.uuids[1]!r}
assert nvml.nvmlDeviceGetMinorNumber(own) == 1
for find, name in [
    (nvml.nvmlDeviceGetHandleByIndex, 1),
    (nvml.nvmlDeviceGetHandleByUUID, {machine.uuids[0]!r}),
    (nvml.nvmlDeviceGetHandleByPciBusId, "00000000:01:00.0"),
]:
    try: find(name)
    except nvml.NVMLError: continue
    print("found", name)
"""
    assert machine.run(NVML + code, NVIDIA_VISIBLE_DEVICES="1", **RUNTIME) == ""


@pytest.mark.parametrize("by", ["uuid", "index"])
def test_a_container_may_have_one_instance_of_a_card(standin, by):
    machine = standin("1xT4,1xA100-80GB/3g.40gb+2g.20gb")
    second = machine.uuids[3]
    named = {"NVIDIA_VISIBLE_DEVICES": second if by == "uuid" else "1:1", **RUNTIME}
    code = """
card = nvml.nvmlDeviceGetHandleByIndex(0)
assert nvml.nvmlDeviceGetCount() == 1 and nvml.nvmlDeviceGetMigMode(card) == [1, 1]
print(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, 0)))
try: nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, 1)
except nvml.NVMLError_NotFound: print("no other")
"""
    assert machine.run(NVML + code, **named).splitlines() == [second, "no other"]
    assert machine.run(SEEN, **named).strip() == "19"
