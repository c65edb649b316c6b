"""Asks for every function in every way, and says where the answer lies.

    lookups.py NAME,NAME,... EXPORTED,EXPORTED,...

cuGetProcAddress is asked for each NAME with every version and all flags, dlsym for each EXPORTED. An answer
is a result code and an offset in the library that it lies in, the same in every process.
"""

from __future__ import annotations

import ctypes
import functools
import sys

from report import report

VERSIONS = (
    *(2000, 2010, 3000, 3010, 3020, 4000, 5000, 6000, 6050, 7000, 7050, 8000, 9000, 9020),
    *(10000, 10010, 10020, 11000, 11010, 11020, 11030, 11040, 11060, 11080),
    *(
        12000,
        12010,
        12020,
        12030,
        12040,
        12050,
        12060,
        12080,
        12090,
        13000,
        13010,
        13020,
        13030,
        13040,
        99000,
    ),
)
FLAGS = (0, 1, 2)

library = ctypes.CDLL("libcuda.so.1")


def mapped() -> list[tuple[int, int, str]]:
    """Returns first address, end and name of each library of this process."""
    spans: dict[str, tuple[int, int]] = {}
    with open("/proc/self/maps") as maps:
        for line in maps:
            words = line.split()
            if len(words) > 5 and words[5].startswith("/"):
                low, high = (int(word, 16) for word in words[0].split("-"))
                first, _ = spans.get(words[5], (low, high))
                spans[words[5]] = (first, high)
    return [(low, high, path) for path, (low, high) in spans.items()]


LIBRARIES = mapped()


@functools.cache
def place(address: int) -> str:
    if not address:
        return "nothing"
    for low, high, path in LIBRARIES:
        if low <= address < high:
            kind = "driver" if "libcuda.so" in path else "shim" if "libcotenant" in path else path
            return f"{kind}+{address - low:#x}"
    return "elsewhere"


def main() -> None:
    names, exported = (word.split(",") for word in sys.argv[1:3])
    answers = {
        f"dlsym {name}": place(ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0)
        for name in exported
        if hasattr(library, name)
    }
    ways = [way for way in ("cuGetProcAddress", "cuGetProcAddress_v2") if hasattr(library, way)]
    for way in ways:
        ask = getattr(library, way)
        for name in names:
            text = name.encode()
            for version in VERSIONS:
                for flags in FLAGS:
                    found, status = ctypes.c_void_p(), ctypes.c_int(-1)
                    extra = (ctypes.byref(status),) if way.endswith("_v2") else ()
                    code = ask(text, ctypes.byref(found), version, ctypes.c_uint64(flags), *extra)
                    answers[f"{way} {name} {version} {flags}"] = (
                        f"{code} {status.value} {place(found.value or 0)}"
                    )
    report(str(len(answers)), answers)


main()
