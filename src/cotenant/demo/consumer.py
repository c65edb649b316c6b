"""Works on the messages of the demo's queue, one at a time, with a GPU.

consumer.py 3Gi http://127.0.0.1:1234/        hold this much GPU memory; half a second for each message
"""

import json
import sys
import time
import urllib.request
from typing import Any

from worker import VisibleGpu, size  # type: ignore[import-not-found]  # lies beside it when it runs

SECONDS = 0.5
"""For one message."""


def ask(url: str) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=5) as answer:  # noqa: S310
        return json.load(answer)


def main() -> None:
    url = sys.argv[2]
    card = VisibleGpu(size(sys.argv[1]))
    card.step()
    while True:
        if not ask(f"{url}take")["message"]:
            time.sleep(0.1)
            continue
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            card.step()
        ask(f"{url}done")


if __name__ == "__main__":
    main()
