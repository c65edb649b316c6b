"""CSV files of nodes and pods, with sizes in bytes or in thousandths of a card, and what is said of bad ones."""

from __future__ import annotations

import gzip
from fractions import Fraction
from pathlib import Path

import pytest

from cotenant.core.demand import Demand, Memory
from cotenant.core.errors import BadInput
from cotenant.core.loss import Spare
from cotenant.simulate.placement.trace import CARD, MILLI, read_trace

GI = 2**30
NODES = """\
name,cpu,memory,gpus,gpu_memory,model,pods
a,64,256Gi,4,16GB,V100-16GB,
b,63500m,1Ti,8,85899345920,A100-80GB,64
"""
PODS = """\
name,cpu,memory,gpus,gpu_memory,model,created,ended
part,500m,1Gi,1,4Gi,,0,10
split,2,8Gi,2,60Gi,A100-40GB | A100-80GB,1,
half,1,1Gi,1,50%,,2,3
whole,8,64Gi,2,,,3,9
alone,1,1Gi,,12Gi,,4,
plain,1,1Gi,0,,,5,6
"""
OPENB_NODES = "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,P100\n"
OPENB_PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\nx,4000,1024,1,460,\n"


def put(folder: Path, nodes: str = NODES, pods: str = PODS) -> tuple[str, str]:
    (folder / "nodes.csv").write_text(nodes)
    (folder / "pods.csv").write_text(pods)
    return str(folder / "nodes.csv"), str(folder / "pods.csv")


def test_sizes_are_read_as_kubernetes_and_vendors_write_them(tmp_path: Path) -> None:
    recording = read_trace(*put(tmp_path))
    a, b = recording.nodes
    assert (len(a.gpus), a.gpus[0].memory, a.has) == (4, 16 * 10**9, Spare(64_000, 256 * GI, 110))
    assert (b.gpus[7].memory, b.gpus[7].model, b.has) == (80 * GI, "A100-80GB", Spare(63_500, 2**40, 64))
    assert [each.pod.demands for each in recording.pods] == [
        (Demand(Memory(bytes=4 * GI)),),
        (Demand(Memory(bytes=60 * GI), 2, models=("A100-40GB", "A100-80GB")),),
        (Demand(Memory(percent=Fraction(50))),),
        (Demand(whole=2),),
        (Demand(Memory(bytes=12 * GI)),),
        (),
    ]
    assert [(each.created, each.ended) for each in recording.pods][:2] == [(0.0, 10.0), (1.0, None)]
    assert recording.sized


def test_thousandths_of_a_card_are_a_part_of_any_card_where_sizes_are_known(tmp_path: Path) -> None:
    nodes, pods = put(tmp_path, OPENB_NODES, OPENB_PODS)
    plain = read_trace(nodes, pods)
    assert (plain.sized, plain.nodes[0].gpus[0].memory) == (False, CARD)
    assert plain.pods[0].pod.demands == (Demand(Memory(bytes=460 * MILLI)),)
    (tmp_path / "nodes.csv").write_text(NODES)
    assert read_trace(nodes, pods).pods[0].pod.demands == (Demand(Memory(percent=Fraction(46))),)


def test_a_file_may_be_zipped_have_quotes_blank_lines_and_columns_in_any_order(tmp_path: Path) -> None:
    put(tmp_path)
    text = '\ufeffMODEL,"gpus",other,cpu,Name,memory,gpu_memory\r\n\r\n"T4",1,"x,y",4,n,1Gi,16Gi\r\n'
    (tmp_path / "n.csv.gz").write_bytes(gzip.compress(text.encode()))
    recording = read_trace(str(tmp_path / "n.csv.gz"), str(tmp_path / "pods.csv"))
    assert [(each.name, each.gpus[0].model, each.has.cpu) for each in recording.nodes] == [("n", "T4", 4000)]


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("nodes", "pods", "said"),
    [
        (
            changed(NODES, ",cpu,", ",cores,"),
            PODS,
            r"nodes: nodes\.csv line 1: no column cpu_milli or cpu in",
        ),
        (changed(NODES, "256Gi", "lots"), PODS, r"nodes\.csv line 2, column memory: 'lots' is not an amount"),
        (
            changed(NODES, "256Gi", "256"),
            PODS,
            r"line 2, column memory: '256' is 256 bytes.*did you mean 256Gi",
        ),
        (changed(NODES, ",4,", ",400,"), PODS, r"line 2, column gpus: '400' is more than 256"),
        (changed(NODES, "\nb,", "\na,"), PODS, r"nodes\.csv line 3: 'a' is there twice: remove a line"),
        (changed(NODES, "\nb,", "\n,"), PODS, r"line 3, column name: '' is no name"),
        (changed(NODES, "16GB,", ","), PODS, r"line 2, column gpu_memory: it is empty.*such as 40Gi"),
        ("name,cpu,memory,gpus\na,1,1Gi,0\n", PODS, r"has no node with a GPU"),
        ("", PODS, r"nodes\.csv is empty"),
        (changed(NODES, "V100-16GB,", "V100-16GB"), PODS, r"line 2: 6 fields, and the first line names 7"),
        (changed(NODES, "V100-16GB", '"V100'), PODS, r"nodes\.csv line 2 is not CSV"),
        (changed(NODES, "model,pods", "model,model"), PODS, r"line 1: two columns 'model'"),
        (
            NODES,
            changed(PODS, "500m", "half"),
            r"pods: pods\.csv line 2, column cpu: 'half' is not an amount",
        ),
        (NODES, changed(PODS, "4Gi", "4"), r"line 2, column gpu_memory: '4' is 4 bytes.*did you mean 4Gi"),
        (NODES, changed(PODS, "4Gi", "-4Gi"), r"line 2, column gpu_memory: '-4Gi' must be more than zero"),
        (NODES, changed(PODS, "50%", "150%"), r"line 4, column gpu_memory: '150%' must be above 0%"),
        (NODES, changed(PODS, "64Gi,2", "64Gi,2000"), r"line 5, column gpus: '2000' is more than 1024"),
        (
            NODES,
            changed(PODS, ",3,9", ",3,2"),
            r"line 5, column ended: '2' is before the pod was created, at 3",
        ),
        (
            NODES,
            changed(PODS, ",3,9", ",soon,9"),
            r"line 5, column created: 'soon' is not a number of seconds",
        ),
        (NODES, "name,cpu,memory,gpus\n", r"pods: .*pods\.csv has no pod below its first line"),
        (NODES, changed(OPENB_PODS, "460", "0"), r"line 2, column gpu_milli: '0' is nothing, and 1 GPUs"),
        (OPENB_NODES, PODS, r"pods\.csv line 2, column gpu_memory: bytes are asked for, and the sizes"),
    ],
)
def test_what_is_wrong_is_said_with_file_line_column_and_remedy(
    tmp_path: Path, nodes: str, pods: str, said: str
) -> None:
    with pytest.raises(BadInput, match=said) as error:
        read_trace(*put(tmp_path, nodes, pods))
    assert str(error.value).startswith(("nodes:", "pods:"))
    assert "\n" not in str(error.value)


def test_more_lines_than_can_be_simulated_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotenant.simulate.placement.trace.MOST_PODS", 5)
    with pytest.raises(BadInput, match=r"pods\.csv has more than 5 lines: use a part of it"):
        read_trace(*put(tmp_path))
