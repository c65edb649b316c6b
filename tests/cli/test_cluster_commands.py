"""The commands about a cluster where there is none, or where they are called wrongly."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import warm


@pytest.fixture
def cotenant(tmp_path):
    environ = {key: value for key, value in os.environ.items() if not key.startswith("KUBE")}
    environ |= {"HOME": str(tmp_path), "COTENANT_HOME": str(tmp_path / "home")}

    def call(*words, program="cotenant", env=None):
        done = warm.run(words, env={**environ, **(env or {})}, program=f"/bin/{program}")
        assert "Traceback" not in done.stderr
        return done

    return call


@pytest.fixture
def kubeconfig(tmp_path):
    """Of an API server that does not answer."""
    content = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "abc"}}],
    }
    file = tmp_path / "config"
    file.write_text(json.dumps(content))
    return str(file)


COMMANDS = [
    ["status"],
    ["explain", "p"],
    ["explain"],
    ["drain", "n/0"],
    ["undrain", "n/0"],
    ["wake", "web"],
    ["plan", "defrag"],
    ["doctor", "--cluster"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_without_a_cluster_they_say_what_to_set(cotenant, words):
    done = cotenant(*words)
    assert done.returncode == 2
    assert "set KUBECONFIG" in done.stderr


def test_an_api_server_that_does_not_answer_is_named_with_the_next_step(cotenant, kubeconfig):
    done = cotenant("status", "--kubeconfig", kubeconfig)
    assert done.returncode == 1
    assert "is the API server at https://127.0.0.1:1 up?" in done.stderr
    assert "--context" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["status", "-n", "a", "-A"], "exclude each other"),
        (["status", "-w", "-o", "json"], "--watch"),
        (["status", "--context", "nowhere"], "nowhere"),
        (["explain", "service/web"], "is no kind that makes pods"),
        (["status", "-o", "yaml"], "'table', 'json'"),
        (["plan", "defrag", "--model", "A100"], "--model: say what to open of it"),
        (["plan", "defrag", "--for", "big", "--gpus", "2"], "--for: the pod says what it needs"),
        (["plan", "defrag", "--whole-card", "--gpu-memory", "4Gi"], "--whole-card: a whole GPU brings all"),
        (["plan", "defrag", "--gpu-memory", "lots"], "--gpu-memory"),
        (["plan", "defrag", "--gpus", "0"], "--gpus"),
        (["plan", "defrag", "--max-moves", "1000"], "--max-moves"),
        (["plan", "defrag", "--timeout", "0s"], "--timeout"),
    ],
)
def test_bad_input_exits_2(cotenant, kubeconfig, words, said):
    done = cotenant(*words, env={"KUBECONFIG": kubeconfig})
    assert done.returncode == 2
    assert said in done.stderr


def test_called_by_kubectl_it_says_so_and_examines_the_cluster(cotenant, kubeconfig):
    assert (
        "Usage: kubectl cotenant explain" in cotenant("explain", "--help", program="kubectl-cotenant").stdout
    )
    done = cotenant("doctor", program="kubectl-cotenant", env={"KUBECONFIG": kubeconfig})
    assert done.returncode == 1
    assert "is the API server" in done.stderr


KUBECTLS_OPTIONS = [
    ["-n", "team", "explain", "web"],
    ["--namespace=team", "--kubeconfig", "{kubeconfig}", "explain", "web"],
    ["--context", "here", "status"],
    ["-A", "explain"],
    ["-n", "team", "drain", "n/0"],
    ["drain", "n/0", "-n", "team"],
    ["-n", "team", "explain", "-A"],
    ["--context", "here", "doctor"],
]


def test_kubectls_options_are_taken_before_the_command_too(cotenant, kubeconfig):
    """All at once: each waits for seconds for an API server that is not there."""

    def ask(program, words):
        words = [word.format(kubeconfig=kubeconfig) for word in words]
        return cotenant(*words, program=program, env={"KUBECONFIG": kubeconfig})

    asked = [(program, words) for words in KUBECTLS_OPTIONS for program in ("cotenant", "kubectl-cotenant")]
    with ThreadPoolExecutor(8) as hands:
        for (program, words), done in zip(asked, hands.map(lambda each: ask(*each), asked), strict=True):
            assert done.returncode == 1, (program, words, done.stderr)
            assert "is the API server at https://127.0.0.1:1 up?" in done.stderr, (program, words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--context", "nowhere", "explain", "web"], "nowhere"),
        (["--context", "nowhere", "explain", "web", "--context", "here"], "is the API server"),
        (["-n", "team", "-A", "explain"], "exclude each other"),
        (["-n", "team", "gpus"], "--namespace: `gpus` is not about a cluster"),
        (["--simulate", "1x16GiB", "status"], "--simulate: `status` does not use this machine's GPUs"),
    ],
)
def test_options_before_the_command_count_or_are_refused(cotenant, kubeconfig, words, said):
    done = cotenant(*words, env={"KUBECONFIG": kubeconfig})
    assert done.returncode in (1, 2)
    assert said in done.stderr


def test_the_help_of_kubectls_plugin_is_about_the_cluster(cotenant):
    told = cotenant("--help", program="kubectl-cotenant").stdout
    assert "Usage: kubectl cotenant" in told
    for word in ("machine", "--simulate", "COTENANT_HOME", "cotenant run", "gpus ", "top "):
        assert word not in told, word
    for name in ("status", "explain", "doctor", "drain"):
        assert name in told
        own = cotenant(name, "--help", program="kubectl-cotenant").stdout
        assert f"kubectl cotenant {name}" in own
        assert name == "doctor" or "\n  cotenant " not in own
    refused = cotenant("gpus", program="kubectl-cotenant")
    assert refused.returncode == 2
    assert refused.stderr == "cotenant: `gpus` is not about a cluster: call it as `cotenant gpus`\n"
