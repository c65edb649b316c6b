"""Decides who may stop or resize a job: the user who started it, and root.

In a folder that users share, everybody can write the ledger, so a row does not prove who its user is. The
owner of the job's slot does: only the kernel sets it.
"""

from __future__ import annotations

import os

from cotenant.core.errors import CotenantError
from cotenant.local.job import Job


class NotOwner(CotenantError):
    """The job was started by another user."""


def owner(job: Job) -> int | None:
    """Returns the UID of the user who started the job; None once nothing is left of it.

    The slot counts before the process: a command such as sudo runs with another user's rights.
    """
    places = [str(job.slot)] if job.shares else []
    if job.process.alive():
        places.append(f"/proc/{job.process.pid}")
    for place in places:
        try:
            return os.stat(place).st_uid
        except OSError:
            continue
    return None


def check(job: Job, action: str) -> None:
    """Raises NotOwner unless this user may do `action` to the job."""
    user, own = owner(job), os.geteuid()
    if own != 0 and user is not None and user != own:
        who = "root" if user == 0 else f"{job.user} or root"
        raise NotOwner(f"{job.name} belongs to {job.user}: only {who} can {action} it")
