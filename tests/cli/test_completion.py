"""Completion as shells ask for it: what is offered while somebody types."""

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

COTENANT = [sys.executable, "-m", "cotenant.cli.main"]


@pytest.fixture
def environ(tmp_path):
    """`cotenant` in PATH, simulated cards, a cluster that does not answer."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "cotenant"
    script.write_text(f"#!{sys.executable}\nfrom cotenant.cli.main import main\n\nmain()\n")
    script.chmod(0o755)
    contexts = [{"name": name, "context": {"cluster": "c"}} for name in ("production", "staging")]
    clusters = [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}]
    config = tmp_path / "config"
    config.write_text(json.dumps({"current-context": "staging", "contexts": contexts, "clusters": clusters}))
    return {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "COTENANT_HOME": str(tmp_path / "home"),
        "KUBECONFIG": str(config),
    }


@pytest.fixture
def offered(environ):
    """What bash offers after these words."""

    def ask(*words):
        line = " ".join(words)
        script = (
            f'eval "$(cotenant completion bash)"; COMP_WORDS=(cotenant {line}); COMP_CWORD={len(words)}; '
            '_cotenant_completion cotenant; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            ["bash", "-c", script], env=environ, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.stderr in ("", "bash: line 1: compopt: not currently executing completion function\n")
        return done.stdout.split()

    return ask


def test_bash_completes_commands_options_and_choices(offered):
    assert offered("st") == ["stop", "status", "standin"]
    assert "--gpu-memory" in offered("run", "--g")
    assert offered("run", "--enforce", "''") == ["observe", "warn", "enforce"]
    assert offered("completion", "z") == ["zsh"]


def test_bash_completes_job_names(environ, offered, tmp_path):
    assert offered("--simulate", "2x16GiB", "stop", "''") == []
    assert not (tmp_path / "home").exists(), "nothing is created by a question"
    given = {**environ, "COTENANT_SIMULATE": "2x16GiB"}
    run = [*COTENANT, "run", "--gpu-memory", "1Gi", "--name", "train-7", "--", "sh", "-c", "echo up; read x"]
    with subprocess.Popen(run, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        job.stdout.readline()
        for command in ("stop", "resize"):
            assert offered("--simulate", "2x16GiB", command, "tr") == ["train-7"]
        assert offered("stop", "--simulate", "2x16GiB", "''") == ["train-7"]
        job.stdin.close()


def test_bash_completes_gpus_and_contexts(offered):
    found = offered("--simulate", "2x16GiB", "run", "--gpu", "''")
    assert found[:2] == ["0", "1"]
    assert [each[:4] for each in found[2:]] == ["GPU-", "GPU-"]
    assert offered("status", "--context", "p") == ["production"]
    assert offered("--context", "s") == ["staging"]


def test_a_cluster_that_does_not_answer_offers_nothing(offered):
    asked = (("explain", "''"), ("drain", "''"), ("status", "''"), ("-n", "''"))
    with ThreadPoolExecutor(len(asked)) as hands:
        assert list(hands.map(lambda words: offered(*words), asked)) == [[]] * len(asked)


def test_kubectl_is_answered_in_its_own_form(environ):
    def ask(*words):
        code = "import sys; from cotenant.cli.completion import complete_for_kubectl; complete_for_kubectl()"
        line = [sys.executable, "-c", code, *words]
        return subprocess.run(
            line, env=environ, capture_output=True, text=True, check=True
        ).stdout.splitlines()

    *words, directive = ask("")
    assert [word.split("\t")[0] for word in words][:2] == ["status", "explain"]
    assert directive == ":4"
    assert ask("explain", "--context", "prod") == ["production", ":4"]
    assert "gpus" not in " ".join(ask("g"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_the_shell_reads(environ, shell):
    done = subprocess.run(
        [*COTENANT, "completion", shell], env=environ, capture_output=True, text=True, check=True
    )
    assert "_COTENANT_COMPLETE" in done.stdout
    assert done.stderr == ""
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True)


LISTS = {
    "/api/v1/namespaces/team/pods": [
        {"metadata": {"name": "web", "namespace": "team"}},
        {"metadata": {"name": "train-0", "namespace": "team", "annotations": {"cotenant.dev/grant": "{}"}}},
    ],
    "/api/v1/pods": [{"metadata": {"name": "other", "namespace": "b"}}],
    "/api/v1/namespaces": [{"metadata": {"name": "team"}}],
}


class ApiServer(http.server.BaseHTTPRequestHandler):
    """As much of one as completion asks for."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        found = {"metadata": {"resourceVersion": "1"}, "items": LISTS.get(self.path.partition("?")[0], [])}
        body = json.dumps({"gitVersion": "v1.37.1"} if self.path == "/version" else found).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_pods_and_namespaces_are_completed_those_with_a_grant_first(environ, offered):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), ApiServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        config = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "namespace": "team"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        }
        Path(environ["KUBECONFIG"]).write_text(json.dumps(config))
        assert offered("explain", "''") == ["train-0", "web"]
        assert offered("-n", "team", "explain", "w") == ["web"]
        assert offered("explain", "-A", "''") == ["other"]
        assert offered("status", "-n", "t") == ["team"]
        server.shutdown()
