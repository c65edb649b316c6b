"""Every error is one line in the same voice: `cotenant: FIELD: what is wrong`, and what to do."""

import os
import re

import pytest
import warm


@pytest.fixture
def cotenant(tmp_path):
    environ = {**os.environ, "COTENANT_HOME": str(tmp_path / "home"), "KUBECONFIG": str(tmp_path / "none")}
    environ.pop("COTENANT_SIMULATE", None)

    def call(*words):
        return warm.run(words, env=environ)

    return call


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--bogus"], "--bogus: no such option"),
        (["run", "--gpuss", "2"], "did you mean --gpu or --gpus"),
        (["run", "--gpus", "two", "--", "true"], "--gpus: 'two' is not a valid integer"),
        (["run", "--gpus"], "--gpus: "),
        (["run", "--gpus", "0", "--", "true"], "cotenant: --gpus: 0 is not the number of GPUs"),
        (["run", "--gpu-memory", "1Gi", "--gpu-compute", "0", "--", "true"], "cotenant: --gpu-compute: 0"),
        (["--simulate", "1x16GiB", "run", "--gpu", "GPU-", "--", "true"], "GPU- asked, no such GPU is here"),
        (["run", "--enforce", "no", "--", "true"], "--enforce: 'no' is not one of"),
        (["stop"], "NAME: is missing"),
        (["stop", "a", "b"], "got unexpected extra argument"),
        (["nonsense"], "no such command 'nonsense'"),
        (["completion", "tcsh"], "SHELL: 'tcsh' is not one of"),
        (["run", "--gpu-memory", "4Q", "--", "true"], "--gpu-memory: "),
        (["explain", "-n", "a", "-A"], "--namespace and --all-namespaces exclude each other"),
        (["--simulate", "2x", "gpus"], "simulated GPUs"),
        (["top", "-n", "0"], "--iterations: "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_one_line_that_begins_with_the_programs_name(cotenant, words, said):
    done = cotenant(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r"cotenant: [^\n]+\n", done.stderr), done.stderr
    assert said in done.stderr
    assert "Error:" not in done.stderr


def test_a_refused_spec_leaves_no_folder(cotenant, tmp_path):
    for words in (
        ["--simulate", "2x", "gpus"],
        ["gpus", "--simulate", "../nonsense"],
        ["demo", "--simulate", "x"],
    ):
        assert cotenant(*words).returncode == 2
    assert not (tmp_path / "home").exists()
