"""docs/frameworks.md: its examples run as they stand, its pods are admitted, its figures are those of the code."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pages
import pytest
import yaml
from shim.slotted import GIB

from cotenant.dialects.registry import Dialects
from cotenant.frameworks import Card, Grant, Share
from cotenant.kube.admission.mutation import mutate
from cotenant.kube.admission.settings import AdmissionSettings
from cotenant.kube.pods.slots import PodDemand

PAGE = pages.read("frameworks")
MIB = 1 << 20


def blocks(language: str, section: str) -> list[str]:
    """The code blocks of a section, as they stand."""
    text = re.split(rf"^##? {re.escape(section)}$", PAGE, maxsplit=1, flags=re.MULTILINE)[1]
    text = re.split(r"^##? ", text, maxsplit=1, flags=re.MULTILINE)[0]
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [content for kind, content in fences if kind == language]


GUIDE_SECTION = "gpushare's guide: TensorFlow"


def fraction_by_the_page(container: int, card: int) -> float:
    example = blocks("python", GUIDE_SECTION)[0]
    environ = {"ALIYUN_COM_GPU_MEM_CONTAINER": str(container), "ALIYUN_COM_GPU_MEM_DEV": str(card)}
    done = subprocess.run(
        [sys.executable, "-I", "-c", example + "\nprint(fraction)"],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def test_the_example_computes_the_fraction_exactly_as_gpushare_s_guide():
    assert fraction_by_the_page(3803, 7606) == round( 3803 * 0.7 / 7606 , 1 ) == 0.3  # fmt: skip
    assert "3803 MiB of 7606 MiB, that is 0.3" in PAGE


def test_what_the_page_says_of_its_rounding_is_so():
    assert "544 MiB of 7606 MiB become 0.1, which is 760 MiB" in PAGE
    assert (fraction_by_the_page(544, 7606), int(0.1 * 7606)) == (0.1, 760)
    assert "1 GiB of 16 GiB becomes 0.0" in PAGE
    assert fraction_by_the_page(1, 16) == 0.0
    small = Grant("gpushare", (Card(1 * GIB, 17 * GIB, 512 * MIB),))
    assert 0 < Share(small, factor=0.7).fraction * 16 * GIB < 1 * GIB, "share() has neither fault"


def test_under_the_shim_the_lines_for_programs_do_nothing(simulated):
    """No framework is installed here: importing one would fail."""
    lines = [*blocks("python", "Use it"), blocks("python", GUIDE_SECTION)[2]]
    assert [each.splitlines()[-1] for each in lines][::2] == [
        "pytorch.limit()",
        "tensorflow.limit(factor=0.7)",
    ]
    told = simulated().ask(
        "\n".join(lines) + "\nimport json; print(json.dumps(mine.fraction))", "--gpu-memory", "4Gi"
    )
    assert told == 1.0


def transcripts() -> Iterator[tuple[str, str]]:
    for block in blocks("", "Use it"):
        command, _, output = block.partition("\n")
        yield command.removeprefix("$ "), output


@pytest.mark.parametrize(("command", "output"), list(transcripts()), ids=["observe", "enforce"])
def test_what_the_page_shows_is_what_is_printed(simulated, command, output):
    words = shlex.split(command)
    assert words[:4] == ["cotenant", "--simulate", "1x16GiB", "run"]
    words = [sys.executable if word == "python" else word for word in words[4:]]
    said = simulated("1x16GiB").run(*words)
    assert re.sub(r"slot \S+, mode", "slot FOLDER, mode", said) == output


def test_the_figures_of_the_table_are_those_of_4gi_of_a_card_of_16gi():
    mine = Share(Grant("slot", (Card(4 * GIB, 16 * GIB, 512 * MIB),), "observe", shim=True))
    rows = PAGE.split("| framework | setting |")[1].split("\n\n")[0]
    for framework in ("pytorch", "jax", "cupy"):
        ((name, value),) = mine.environment(framework, {}).items()
        assert f"`{name}={value}`" in rows
    assert f"`{' '.join(mine.settings('vllm', {}).arguments)}`" in rows
    assert f"set_per_process_memory_fraction({mine.fraction})" in rows


def test_how_small_a_grant_vllm_starts_in_is_said_as_it_is():
    def told(limit: float) -> tuple[str, ...]:
        grant = Grant("slot", (Card(int(limit * GIB), None, 512 * MIB),), "enforce", shim=True)
        return Share(grant).settings("vllm", {}).arguments

    assert "6.25Gi or more" in PAGE
    assert (told(6.25), told(6.24)[1:]) == ((), ("0.91",))
    assert "0.87 for 4Gi" in PAGE
    assert told(4)[1] == "0.87"


def pods(document: Any) -> Iterator[dict[str, Any]]:
    """Every pod in a manifest: itself, or the templates in it."""
    if isinstance(document, dict):
        if document.get("kind") == "Pod":
            yield document
        for key, value in document.items():
            if key == "template" and "spec" in value:
                yield {"apiVersion": "v1", "kind": "Pod", "metadata": {}, **value}
            else:
                yield from pods(value)
    elif isinstance(document, list):
        for each in document:
            yield from pods(each)


def manifests(section: str) -> list[dict[str, Any]]:
    return [document for block in blocks("yaml", section) for document in yaml.safe_load_all(block)]


def admitted(section: str) -> list[PodDemand]:
    """What the webhook reads of the pods of a section; it refuses none and has no doubt."""
    found = []
    for pod in (pod for document in manifests(section) for pod in pods(document)):
        result = mutate(pod, AdmissionSettings(), Dialects())
        assert result.warnings == ()
        found.append(result.demand)
    return found


RECIPES = {
    "Two vLLM servers on a card": [(22 * GIB, 1), (22 * GIB, 1)],
    "Triton": [(12 * GIB, 1)],
    "Jupyter": [(6 * GIB, 1)],
    "torchrun": [(40 * GIB, 2)],
    "Ray": [None, (16 * GIB, 1)],
}


@pytest.mark.parametrize("section", RECIPES)
def test_the_pods_of_a_recipe_ask_for_what_its_text_says(section):
    demands = admitted(section)
    asked = [None if not each.slots else (each.memory, each.demands[0].gpus) for each in demands]
    assert asked == RECIPES[section]
    assert all(len(each.slots) <= 1 for each in demands)


def test_every_manifest_of_the_page_is_in_a_recipe():
    inside = sum(len(blocks("yaml", section)) for section in RECIPES)
    assert inside == len(pages.manifests("frameworks")) == 5


@pytest.mark.parametrize("section", RECIPES)
def test_every_recipe_says_what_was_run_and_what_was_not(section):
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    assert "**Run:**" in text
    assert "**Not run:**" in text
    assert "cotenant run --gpu-memory" in text, "and how it is done on one machine"


def test_two_vllm_servers_fit_the_card_that_is_named():
    (size,) = re.findall(r"an L40S reports (\d+) MiB", PAGE)
    assert sum(each.memory for each in admitted("Two vLLM servers on a card")) <= int(size) * MIB
    assert round(7.6e9 * 2 / GIB, 1) == 14.2
    assert round(0.92 * 22, 1) == 20.2
    assert 4 * GIB // (28 * 4 * 128 * 2 * 2) == 74898
    assert "74,898 tokens" in PAGE


def test_the_commands_for_one_machine_are_understood(simulated):
    """Each with a command that ends at once in place of its own."""
    machine = simulated("2xA100-80GB")
    found = [each.text for each in pages.commands("frameworks") if each.text.startswith("cotenant run ")]
    assert len(found) >= 6
    for text in found:
        options = shlex.split(text.split(" -- ")[0])[2:]
        assert machine.run(*options, "--", sys.executable, "-c", "print('ran')") == "ran\n"
