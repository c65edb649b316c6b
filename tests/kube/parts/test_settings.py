"""A part brings its section of the settings, and processes with other parts leave it alone."""

import pytest
from kube.server.example import Example, ExampleSettings

from cotenant.core.errors import BadInput
from cotenant.kube.agent.parts import PARTS as AGENT_PARTS
from cotenant.kube.parts.part import section
from cotenant.kube.parts.settings import settings_type
from cotenant.kube.server.parts import PARTS as SERVER_PARTS
from cotenant.kube.settings import Settings
from cotenant.settings.loading import read_settings
from cotenant.settings.reference import explanations, settings_reference

WITH_EXAMPLE = settings_type((*SERVER_PARTS, Example))


def test_the_sections_of_our_own_parts_are_declared_where_commands_find_them_by_name() -> None:
    assert settings_type((*SERVER_PARTS, *AGENT_PARTS)) is Settings


def test_a_parts_section_is_read_like_any_other() -> None:
    settings = read_settings(
        WITH_EXAMPLE, {"example": {"pause": "2m"}}, {"COTENANT__EXAMPLE__GREETING": "hi"}
    )
    assert section(settings, ExampleSettings) == ExampleSettings("hi", 120.0)
    with pytest.raises(BadInput, match=r"example.pause: '2' is not a duration"):
        read_settings(WITH_EXAMPLE, {"example": {"pause": "2"}}, {})


def test_a_parts_section_is_explained_like_any_other() -> None:
    assert explanations(WITH_EXAMPLE)["example"] == "Greets versions of workloads."
    assert '# What is said to each.\ngreeting = "hello"' in settings_reference(WITH_EXAMPLE())


def test_a_section_of_another_process_is_reported_and_left_to_it() -> None:
    unknown: list[str] = []
    settings = read_settings(Settings, {"example": {"x": 1}}, {"COTENANT__EXAMPLE__Y": "2"}, unknown.append)
    assert (settings, unknown) == (Settings(), ["example"])
    with pytest.raises(LookupError, match="ExampleSettings: no part"):
        section(settings, ExampleSettings)


@pytest.mark.parametrize(
    ("data", "words"),
    [({"lines": {}}, "did you mean line?"), ({"patience": "1s"}, "there is no such setting")],
)
def test_a_slip_is_still_a_mistake(data: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words.replace("?", r"\?")):
        read_settings(Settings, data, {}, lambda _: None)
