"""`cotenant server`, `cotenant settings` and what every service does at its start and its end."""

import os
import signal
import subprocess
import sys
import textwrap
import tomllib
from dataclasses import dataclass
from unittest.mock import patch

import pytest

from cotenant.cli import main
from cotenant.kube.settings import Settings
from cotenant.settings.loading import load_settings, read_settings

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: it
contexts: [{name: it, context: {cluster: it, user: it}}]
clusters: [{name: it, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: it, user: {token: secret-token}}]
"""


@pytest.fixture
def environ(tmp_path):
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("COTENANT", "KUBE")) and key != "POD_IP"
    }
    return {**kept, "KUBECONFIG": str(tmp_path / "kubeconfig"), "HOME": str(tmp_path)}


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def cotenant(environ, monkeypatch, capsys):
    def call(*words, **env):
        with patch.dict(os.environ, {**environ, **env}, clear=True), monkeypatch.context() as patched:
            patched.setattr(sys, "argv", ["cotenant", *map(str, words)])
            code = main.call()
        return Done(code, *capsys.readouterr())

    return call


def test_the_settings_that_are_printed_can_be_read_back(cotenant, tmp_path):
    done = cotenant("settings")
    assert done.returncode == 0
    assert read_settings(Settings, tomllib.loads(done.stdout), {}) == Settings()
    file = tmp_path / "settings.toml"
    file.write_text(done.stdout)
    assert load_settings(Settings, file, {}) == Settings()
    assert "# " in done.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[line]\npatience = "soon"', "line.patience"),
        ("[line]\npatience = 60", "line.patience"),
        ('[line]\npatiense = "60s"', "did you mean patience"),
        ("[webhook]\nport = 0", "webhook.port"),
        ('[agent]\nsimulate = "2xNothing"', "agent.simulate"),
        ("[dialects.volcano]\nmemory_factor = 0", "dialects.volcano"),
        ("nonsense", "settings.toml"),
    ],
)
def test_a_bad_file_stops_the_start_and_names_the_field(cotenant, tmp_path, text, said):
    file = tmp_path / "settings.toml"
    file.write_text(text)
    done = cotenant("server", "--settings", file)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_all_that_is_wrong_is_told_at_once(cotenant, tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('namespace = 1\n[extender]\nport = 70000\n[leader]\nduration = "1s"')
    done = cotenant("server", COTENANT_SETTINGS=str(file), COTENANT__LINE__RETRY="never")
    assert done.returncode == 2
    for field in ("namespace", "extender.port", "leader.duration", "COTENANT__LINE__RETRY"):
        assert field in done.stderr


def test_a_file_that_is_not_there(cotenant, tmp_path):
    done = cotenant("server", "--settings", tmp_path / "none.toml")
    assert done.returncode == 2
    assert "none.toml" in done.stderr


@pytest.mark.parametrize("address", ["", "nonsense", "0.0.0.0", "::"])
def test_a_server_that_others_cannot_find_does_not_start(cotenant, address):
    done = cotenant("server", POD_IP=address)
    assert done.returncode == 2
    assert "server.address" in done.stderr
    assert "POD_IP" in done.stderr


def test_without_a_cluster_it_says_where_it_looked(cotenant, tmp_path):
    done = cotenant("server", KUBECONFIG=str(tmp_path / "none"), POD_IP="127.0.0.1")
    assert done.returncode == 2
    assert "none" in done.stderr


def test_help_teaches(cotenant):
    done = cotenant("server", "--help")
    assert done.returncode == 0
    for taught in ("--settings", "cotenant settings", "POD_IP", "SIGTERM", "COTENANT__LINE__PATIENCE=90s"):
        assert taught in done.stdout
    assert "COTENANT__LINE__PATIENCE" in cotenant("settings", "--help").stdout


def service(environ, body: str, *words: str) -> subprocess.Popen:
    """A program that serves by the given body of `async def serve(settings, access)`."""
    program = f"""
        import asyncio, sys
        from cotenant.cli import main, service
        from cotenant.core.errors import CotenantError, NoRoom
        import click

        async def serve(settings, access):
{textwrap.indent(textwrap.dedent(body), " " * 12)}

        @click.command()
        @service.settings_option
        def command(settings):
            service.run_service(settings, (), serve)

        main.COMMANDS["it"] = "it"
        main._Table.get_command = lambda *_: command
        sys.argv[1:] = ["it"]
        sys.exit(main.call())
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *words],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_it_tidy_up_and_end_well(environ, number):
    process = service(
        environ,
        """
        print("up", flush=True)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(asyncio.sleep(60))
        finally:
            await asyncio.sleep(0.05)
            print("tidy", flush=True)
        """,
    )
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert out == "tidy\n"
    assert process.returncode == 0
    assert number.name in err
    assert "Traceback" not in err


def test_an_error_of_one_of_its_parts_ends_it_with_that_message(environ):
    process = service(
        environ,
        """
        async def fails():
            await asyncio.sleep(0.01)
            raise NoRoom("this is why")
        async with asyncio.TaskGroup() as tasks:
            async with asyncio.TaskGroup() as inner:
                inner.create_task(fails())
                inner.create_task(asyncio.sleep(60))
        """,
    )
    _, err = process.communicate(timeout=30)
    assert process.returncode == 75
    assert err.splitlines()[-1] == "cotenant: this is why"
    assert "Traceback" not in err


def test_a_bug_is_not_hidden(environ):
    process = service(environ, "raise ZeroDivisionError('a bug')")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "ZeroDivisionError: a bug" in err


def test_the_level_of_the_log_is_a_setting(environ):
    body = "import logging; logging.getLogger('cotenant').info('this'); logging.getLogger('cotenant').error('that')"
    _, err = service({**environ, "COTENANT__LOG_LEVEL": "error"}, body).communicate(timeout=30)
    assert "that" in err
    assert "this" not in err
