"""Credential plugins as real programs: shell scripts that print what a test wants."""

import asyncio
import json
import os
import time
from datetime import UTC, datetime

import pytest

from cotenant.kube.api.auth.credentials import Credential
from cotenant.kube.api.auth.exec_plugin import ExecCredentials, ExecPlugin
from cotenant.kube.api.errors import NoCredential

pytestmark = pytest.mark.asyncio
SECRET = "s3cr3t-t0k3n"
V1 = "client.authentication.k8s.io/v1"


def printed(**status):
    return json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status})


@pytest.fixture
def script(tmp_path):
    """A plugin that counts its runs, keeps what it was told, and does what `body` says."""

    def script(body, **more):
        path = tmp_path / "login"
        path.write_text(
            f"#!/bin/sh\necho run >> {tmp_path}/runs\nprintf '%s' \"$KUBERNETES_EXEC_INFO\" > {tmp_path}/told\n{body}\n"
        )
        path.chmod(0o755)
        return ExecCredentials(
            ExecPlugin("config: users[u].user.exec", str(path), **more), terminal=lambda: False
        )

    return script


@pytest.fixture
def runs(tmp_path):
    return lambda: len((tmp_path / "runs").read_text().split())


async def test_what_it_prints_is_the_credential(script, tmp_path):
    text = printed(token=SECRET, clientCertificateData="cert", clientKeyData="key")
    credentials = script(
        f"echo '{text}' $1 >&2; echo '{text}'; test \"$1$X\" = argvalue", args=("arg",), env={"X": "value"}
    )
    assert await credentials.current() == Credential(SECRET, b"cert", b"key")
    assert SECRET not in repr(credentials)
    told = json.loads((tmp_path / "told").read_text())
    assert told == {"apiVersion": V1, "kind": "ExecCredential", "spec": {"interactive": False}}


async def test_it_is_told_of_the_cluster_if_it_asked(script, tmp_path):
    await script(f"echo '{printed(token='t')}'", cluster={"server": "https://h"}).current()
    assert json.loads((tmp_path / "told").read_text())["spec"]["cluster"] == {"server": "https://h"}


async def test_it_runs_once_for_many_and_again_only_when_its_credential_ends(script, runs):
    ends = datetime(2030, 1, 1, tzinfo=UTC)
    credentials = script(
        f"sleep 0.1; echo '{printed(token='t', expirationTimestamp='2030-01-01T00:00:00Z')}'"
    )
    now = [ends.timestamp() - 60]
    credentials.now = lambda: now[0]
    await asyncio.gather(*(credentials.current() for _ in range(10)))
    assert runs() == 1
    now[0] = ends.timestamp() - 11
    await credentials.current()
    assert runs() == 1
    now[0] = ends.timestamp() - 9
    await credentials.current()
    assert runs() == 2


async def test_a_rejected_credential_is_asked_for_anew_once(script, runs):
    credentials = script(f"echo '{printed(token='t')}'")
    first = await credentials.current()
    credentials.rejected(first)
    credentials.rejected(Credential("an older one"))
    await credentials.current()
    credentials.rejected(Credential("an older one"))
    await credentials.current()
    assert runs() == 2


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (f"echo {SECRET}", "printed something that is not an ExecCredential"),
        (
            f'echo \'{{"status": {{"token": ["{SECRET}"]}}}}\'',
            r"not an ExecCredential \(Expected `str \| null`, got `array`",
        ),
        (f"echo '{printed(token=SECRET).replace('/v1', '/v1beta1')}'", "printed another kind or version"),
        (f"echo '{printed(token=SECRET).replace('ExecC', 'C')}'", "printed another kind or version"),
        (f"echo '{printed().replace('status', 'other')}'", "printed no status"),
        (f"echo '{printed()}'", "printed neither a token nor a certificate"),
        (f"echo '{printed(clientKeyData=SECRET)}'", "a key without its certificate"),
        (f"echo '{printed(token=SECRET + ' ' + SECRET)}'", "status.token: not a bearer token"),
        (f"echo {SECRET}; exit 3", "login exited with code 3"),
        ("printf '\\377'", "printed something that is not an ExecCredential"),
    ],
)
async def test_what_goes_wrong_is_named_without_what_was_printed(script, body, named):
    with pytest.raises(NoCredential, match=named) as caught:
        await script(body).current()
    assert str(caught.value).startswith("config: users[u].user.exec: ")
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


async def test_a_plugin_that_is_missing_says_how_to_get_it():
    plugin = ExecPlugin("config: users[u].user.exec", "no-such-plugin", install_hint="apt install it")
    with pytest.raises(
        NoCredential, match=r"exec.command: no-such-plugin cannot be run: No such file.*\napt install it"
    ):
        await ExecCredentials(plugin).current()


async def test_a_plugin_that_hangs_is_ended(script, tmp_path):
    credentials = script(f"echo $$ > {tmp_path}/pid; exec sleep 60")
    credentials.longest = 0.5
    began = time.monotonic()
    with pytest.raises(NoCredential, match="has not finished after 0 s"):
        await credentials.current()
    assert time.monotonic() - began < 5
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_a_plugin_that_needs_a_person_is_not_started_without_one(script, tmp_path):
    with pytest.raises(NoCredential, match="needs a terminal, and there is none"):
        await script(f"echo '{printed(token='t')}'", interactive="Always").current()
    assert not (tmp_path / "runs").exists()


async def test_who_gives_up_waiting_does_not_end_the_run_for_the_others(script, runs):
    credentials = script(f"sleep 0.5; echo '{printed(token='t')}'")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(credentials.current(), 0.1)
    assert await credentials.current() == Credential("t")
    assert runs() == 1


async def test_after_a_run_that_failed_there_is_another(script, runs, tmp_path):
    credentials = script(f"test -e {tmp_path}/later && echo '{printed(token='t')}'")
    with pytest.raises(NoCredential, match="exited with code 1"):
        await credentials.current()
    (tmp_path / "later").touch()
    assert await credentials.current() == Credential("t")
    assert runs() == 2
