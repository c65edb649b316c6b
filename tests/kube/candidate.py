"""A process that wants to lead: writes, a hundred times a second, whether it believes to, and in which term."""

import asyncio
import sys
import time
from pathlib import Path
from typing import TextIO

from cotenant.kube.api.auth import kubeconfig
from cotenant.kube.api.client import Client
from cotenant.kube.api.election import Election, LeaseSettings

SETTINGS = {"duration": 4, "margin": 1.0, "renew_every": 0.8, "look_every": 0.5}


async def main(config: str, namespace: str, written: TextIO) -> None:
    async with Client(kubeconfig.find({}, path=Path(config))) as client:
        election = Election(client, LeaseSettings(name="server", namespace=namespace, **SETTINGS))
        running = asyncio.create_task(election.run())
        # Leave the lease when asked to, as a server does.
        asyncio.get_running_loop().add_signal_handler(15, running.cancel)
        while not running.done():
            before = time.monotonic()
            leads = election.leading()
            if leads:
                election.took_over(election.term)
            written.write(f"{before:.6f} {int(leads)} {election.term}\n")
            await asyncio.sleep(0.01)


if __name__ == "__main__":
    with Path(sys.argv[3]).open("w", buffering=1) as log:
        asyncio.run(main(sys.argv[1], sys.argv[2], log))
