"""Runs real CUDA programs on real drivers, with and without the shim, and compares what they get.

    python -m bench.drivers [--only WORD]... [-o json]

Every version of NVIDIA's libcuda that Debian's suites carry is fetched with apt; libcudart and the frameworks
are fetched with pip. Both use this machine's own configuration, and nothing is installed. A card is not
needed: without one `cuInit` answers 100 (no device), and so must it with the shim. Where a driver cannot be
had, the stand-in plays it. Exits with 1 if anything differs, and with 2 if nothing could be compared.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.drivers import debian, storage, wheels
from bench.drivers.debian import Driver
from bench.drivers.pairs import Machine, Pair, simulated_driver
from bench.drivers.storage import CannotGet
from bench.drivers.wheels import CLIENTS, Client

DEVICES = Path("/dev")
LATER = "drivers of 580 and later"
SHOWN = 6
"""Differences of one pair that are printed; JSON has all."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.drivers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WORD",
        help="only drivers or clients whose name begins with WORD, such as 535, stand-in or cudart; may be "
        f"repeated. Clients: {', '.join(client.name for client in CLIENTS)}",
    )
    parser.add_argument(
        "--driver",
        action="append",
        default=[],
        type=Path,
        metavar="FOLDER",
        help="one more driver: a folder with libcuda.so.1 and libnvidia-ml.so.1",
    )
    parser.add_argument("--small", action="store_true", help="leave out clients of more than 1 GiB")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args()


def chosen(name: str, words: list[str], among: list[str]) -> bool:
    """Whether a name is asked for: words that fit no name of its kind do not restrict that kind."""
    fitting = [word for word in words if any(each.startswith(word) for each in among)]
    return not fitting or any(name.startswith(word) for word in fitting)


def drivers(words: list[str], own: list[Path], missing: dict[str, str]) -> list[Driver]:
    """Returns the drivers that are asked for. Debian's are fetched only if a word may mean one of them."""
    found = [Driver(str(folder), folder.resolve(), "--driver") for folder in own]
    played = simulated_driver()
    others = (played.version, *(client.name for client in CLIENTS), *(driver.version for driver in found))
    clear = [word for word in words if any(each.startswith(word) for each in others)]
    unclear = [word for word in words if word not in clear and not word[:1].isdigit()]
    if unclear:  # a version begins with a digit
        sys.exit(f"--only {unclear[0]}: no driver or client begins so; there are {', '.join(others)}")
    if len(clear) < len(words) or not any(played.version.startswith(word) for word in words):
        found += _fetched(missing)
    found.append(played)
    names = [driver.version for driver in found]
    return [driver for driver in found if chosen(driver.version, words, names)]


def _fetched(missing: dict[str, str]) -> list[Driver]:
    try:
        found, absent = debian.fetch()
    except CannotGet as error:
        missing["Debian's drivers"] = str(error)
        return []
    missing.update(absent)
    if not found or found[-1].order < (580,):
        newest = found[-1].version if found else "missing too"
        missing[LATER] = f"no suite carries one, the newest is {newest}: the stand-in plays 580"
    return found


def environments(
    clients: list[Client], missing: dict[str, str], say: Callable[[str], None]
) -> dict[Client, Path | None]:
    """Returns the clients that can be had, with their virtual environments."""
    found: dict[Client, Path | None] = {}
    for client in clients:
        if not client.packages:
            found[client] = None
            continue
        try:
            say(f"{client.name}: {', '.join(client.packages)}")
            found[client] = wheels.environment(client)
        except CannotGet as error:
            missing[client.name] = str(error)
    return found


def table(pairs: list[Pair], clients: list[str]) -> list[str]:
    rows = [["driver", *clients]]
    for driver in dict.fromkeys(pair.driver for pair in pairs):
        cells = {pair.client: pair.cell for pair in pairs if pair.driver == driver}
        rows.append([driver, *(cells.get(client, "-") for client in clients)])
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ("  ".join(map(str.ljust, row, widths)) for row in rows)
    return [line.rstrip() for line in lines]


def show(pairs: list[Pair], titles: dict[str, str], missing: dict[str, str]) -> None:
    print()
    print("\n".join(table(pairs, list(titles))))
    print("\nA cell is what the client got without and with the shim: one value where they are the same.")
    print(", ".join(f"{name} {version}" for name, version in titles.items() if version))
    for pair in pairs:
        for each in pair.differences[:SHOWN]:
            print(f"DIFFERENT {pair.client} on {pair.driver}: {each}")
        if len(pair.differences) > SHOWN:
            print(f"DIFFERENT {pair.client} on {pair.driver}: and {len(pair.differences) - SHOWN} more")
    for what, why in missing.items():
        print(f"could not get {what}: {why}")
    different = sum(not pair.same for pair in pairs)
    print(f"pairs: {len(pairs)}, of which differ: {different}")


def record(pair: Pair) -> dict[str, object]:
    """Returns a pair as JSON; the answers of both runs only where they are few."""
    runs = {"plain": pair.plain.brief, "shimmed": pair.shimmed.brief}
    answers = dict(pair.plain.answers) if len(pair.plain.answers) <= 64 else len(pair.plain.answers)
    found = dataclasses.asdict(pair)
    return {**found, **runs, "same": pair.same, "answers": answers}


@contextlib.contextmanager
def no_new_device_files() -> Iterator[None]:
    """Removes the device files that libcuda makes as root, also where no driver is behind them: others would
    take them for a driver.
    """
    before = set(DEVICES.glob("nvidia*"))
    try:
        yield
    finally:
        for made in set(DEVICES.glob("nvidia*")) - before:
            with contextlib.suppress(OSError):
                made.unlink()


def main() -> int:
    options = arguments()

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    missing: dict[str, str] = {}
    say(f"fetching into {storage.folder()}")
    clients = [client for client in CLIENTS if not (options.small and client.size > storage.GIB)]
    names = [client.name for client in clients]
    clients = [client for client in clients if chosen(client.name, options.only, names)]
    found = drivers(options.only, options.driver, missing)
    known = [*names, *(driver.version for driver in found)]
    unknown = [word for word in options.only if not any(name.startswith(word) for name in known)]
    if unknown:
        sys.exit(f"--only {unknown[0]}: no driver or client begins so; there are {', '.join(known)}")
    homes = environments(clients, missing, say)
    pairs: list[Pair] = []
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="drivers-") as folder, no_new_device_files():
        machine = Machine(Path(folder))
        for driver in found:
            for client, home in homes.items():
                pairs.append(machine.pair(driver, client, home))
                pair, count = pairs[-1], f"{len(pairs)}/{len(found) * len(homes)}"
                say(f"[{count}] {client.name} on {driver.version}: {pair.cell} ({pair.seconds:.1f} s)")
    titles = {client.name: wheels.version(home, client) if home else "" for client, home in homes.items()}
    if options.output == "json":
        print(json.dumps({"pairs": [record(pair) for pair in pairs], "missing": missing}, indent=1))
    else:
        show(pairs, titles, missing)
    if not pairs:
        return 2
    return 1 if any(not pair.same for pair in pairs) else 0


if __name__ == "__main__":
    sys.exit(main())
