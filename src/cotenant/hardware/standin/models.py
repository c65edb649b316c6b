"""Lists the GPU models that the stand-in driver can simulate, with the figures of the real ones.

`total` is what nvidia-smi shows, `reserved` is the part that the driver keeps: programs see the difference as
the GPU's memory. Drivers differ in the last few MiB, and so may these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Profile:
    """A size of MIG instance that a model can be cut into."""

    memory: int
    """Bytes."""
    slices: int
    """Of the card's 7 compute slices."""
    memory_slices: int
    """Of the card's 8 memory slices."""
    multiprocessors: int


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    """As the driver calls it."""
    total: int
    reserved: int
    capability: tuple[int, int]
    multiprocessors: int
    watts: int
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    unified: bool = False
    """It has no memory of its own: it has the host's, whatever that is here, and NVML does not report it."""


def _profiles(rows: str) -> dict[str, Profile]:
    """From lines of name (with the compute slices), memory in MiB, memory slices, multiprocessors."""
    found = {}
    for row in rows.strip().splitlines():
        name, mib, memory_slices, multiprocessors = row.split()
        found[name] = Profile(int(mib) * MIB, int(name[0]), int(memory_slices), int(multiprocessors))
    return found


_A100_40 = """
1g.5gb   4864 1 14
1g.10gb  9856 2 14
2g.10gb  9984 2 28
3g.20gb 20096 4 42
4g.20gb 20096 4 56
7g.40gb 40320 8 98
"""
_A100_80 = """
1g.10gb  9728 1 14
1g.20gb 19968 2 14
2g.20gb 19968 2 28
3g.40gb 40192 4 42
4g.40gb 40192 4 56
7g.80gb 80640 8 98
"""
_H100_80 = """
1g.10gb  9984 1  16
1g.20gb 20096 2  26
2g.20gb 20096 2  32
3g.40gb 40448 4  60
4g.40gb 40448 4  64
7g.80gb 80896 8 132
"""
_H200 = """
1g.18gb   16384 1  16
1g.35gb   33024 2  26
2g.35gb   33024 2  32
3g.71gb   71168 4  60
4g.71gb   71168 4  64
7g.141gb 142336 8 132
"""

MODELS: Mapping[str, Model] = {
    "A10": Model("NVIDIA A10", 23028 * MIB, 307 * MIB, (8, 6), 72, 150),
    "A100-40GB": Model(
        "NVIDIA A100-SXM4-40GB", 40960 * MIB, 424 * MIB, (8, 0), 108, 400, _profiles(_A100_40)
    ),
    "A100-80GB": Model(
        "NVIDIA A100-SXM4-80GB", 81920 * MIB, 768 * MIB, (8, 0), 108, 400, _profiles(_A100_80)
    ),
    "GB10": Model("NVIDIA GB10", 0, 0, (12, 1), 48, 140, unified=True),
    "H100-80GB": Model(
        "NVIDIA H100 80GB HBM3", 81559 * MIB, 551 * MIB, (9, 0), 132, 700, _profiles(_H100_80)
    ),
    "H200": Model("NVIDIA H200", 143771 * MIB, 616 * MIB, (9, 0), 132, 700, _profiles(_H200)),
    "L4": Model("NVIDIA L4", 23034 * MIB, 455 * MIB, (8, 9), 58, 72),
    "L40S": Model("NVIDIA L40S", 46068 * MIB, 582 * MIB, (8, 9), 142, 350),
    "P100": Model("Tesla P100-PCIE-16GB", 16384 * MIB, 105 * MIB, (6, 0), 56, 250),
    "RTX-3090": Model("NVIDIA GeForce RTX 3090", 24576 * MIB, 318 * MIB, (8, 6), 82, 350),
    "RTX-4090": Model("NVIDIA GeForce RTX 4090", 24564 * MIB, 347 * MIB, (8, 9), 128, 450),
    "T4": Model("Tesla T4", 15360 * MIB, 430 * MIB, (7, 5), 40, 70),
    "V100-16GB": Model("Tesla V100-SXM2-16GB", 16384 * MIB, 236 * MIB, (7, 0), 80, 300),
    "V100-32GB": Model("Tesla V100-SXM2-32GB", 32768 * MIB, 266 * MIB, (7, 0), 80, 300),
}


def sized(memory: int, label: str) -> Model:
    """A card of no real model: all of its memory is there for programs."""
    return Model(f"NVIDIA Stand-in {label}", memory, 0, (8, 0), 108, 400)
