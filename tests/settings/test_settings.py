"""Settings are read exactly, or stop the start with the field's name."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.errors import BadInput
from cotenant.dialects.aliyun import Aliyun
from cotenant.dialects.volcano import Volcano
from cotenant.kube.settings import Settings
from cotenant.settings.loading import load_settings, read_settings
from cotenant.settings.reference import explanations, settings_reference


def read(text: str = "", **environ: str) -> Settings:
    return read_settings(Settings, tomllib.loads(text), environ)


def refused(text: str = "", **environ: str) -> str:
    with pytest.raises(BadInput) as error:
        read(text, **environ)
    return str(error.value)


def test_an_empty_file_is_all_defaults() -> None:
    assert read() == Settings()
    assert load_settings(Settings, None, {}) == Settings()


def test_a_file_says_what_differs(tmp_path: Path) -> None:
    file = tmp_path / "cotenant.toml"
    file.write_text(
        """
        namespace = "gpus"
        [admission]
        runtime_class = "nvidia"
        replaced_schedulers = ["volcano"]
        [line]
        patience = "1m30s"
        [agent]
        context_memory = "300Mi"
        [dialects.aliyun]
        unit = "MiB"
        [dialects.nvidia]
        enabled = true
        """
    )
    settings = load_settings(Settings, file, {})
    assert settings.namespace == "gpus"
    assert settings.admission.runtime_class == "nvidia"
    assert settings.admission.replaced_schedulers == ("volcano",)
    assert settings.line.patience == 90.0
    assert settings.line.retry == Settings().line.retry
    assert settings.agent.context_memory == 300 * 2**20
    assert settings.dialects.aliyun == Aliyun(unit="MiB")
    assert settings.dialects.nvidia.enabled


def test_a_tmpfs_can_be_switched_off_as_its_explanation_says() -> None:
    settings = read('[agent]\nslots_size = "0"\n[mps]\nsize = "0"')
    assert (settings.agent.slots_size, settings.mps.size) == (0, 0)


def test_the_environment_goes_over_the_file() -> None:
    settings = read(
        'namespace = "file"\n[line]\nretry = "9s"\npatience = "9s"',
        COTENANT__NAMESPACE="environment",
        COTENANT__LINE__PATIENCE="2m",
        COTENANT__DIALECTS__VOLCANO__MEMORY_FACTOR="10",
        COTENANT__DIALECTS__ALIYUN__ENABLED="false",
        COTENANT__ADMISSION__REPLACED_SCHEDULERS="volcano, default-scheduler",
        COTENANT__WEBHOOK__PORT="9443",
    )
    assert settings.namespace == "environment"
    assert settings.line.patience == 120.0
    assert settings.line.retry == 9.0
    assert settings.dialects.volcano == Volcano(memory_factor=10)
    assert not settings.dialects.aliyun.enabled
    assert settings.admission.replaced_schedulers == ("volcano", "default-scheduler")
    assert settings.webhook.port == 9443


def test_variables_of_others_are_not_settings() -> None:
    """Kubernetes sets COTENANT_PORT and more for a Service of our name; COTENANT_HOME is for one machine."""
    assert (
        read(
            COTENANT_PORT="tcp://10.0.0.1:443",
            COTENANT_SERVICE_HOST="10.0.0.1",
            COTENANT_PORT_443_TCP_ADDR="10.0.0.1",
            COTENANT_HOME="/tmp/x",
            PATH="/bin",
        )
        == Settings()
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("patience = 1", "patience: there is no such setting: there are namespace, "),
        ('[lines]\npatience = "60s"', "lines: there is no such setting: did you mean line?"),
        ('[line]\npatiense = "60s"', "line.patiense: there is no such setting: did you mean patience?"),
        (
            "[dialects.aliyun]\nunits = 1",
            "dialects.aliyun.units: there is no such setting: did you mean unit?",
        ),
        (
            "[dialects.hami]\nenabled = true",
            "dialects.hami: there is no such setting: there are aliyun, volcano, nvidia",
        ),
        ('[dialects.aliyun]\nunit = "MB"', "dialects.aliyun.unit: 'MB' is not one of GiB, MiB"),
        ("[dialects.aliyun]\nunit = 1", "dialects.aliyun.unit: 1 is not one of GiB, MiB"),
        ("[dialects.aliyun]\nunit = []", "dialects.aliyun.unit: [] is not one of GiB, MiB"),
        ('[dialects.aliyun]\nenabled = "yes"', "dialects.aliyun.enabled: 'yes' is neither true nor false"),
        ("[dialects.aliyun]\nenabled = 1", "dialects.aliyun.enabled: 1 is neither true nor false"),
        ('[dialects.aliyun]\nenabled = "true"', "dialects.aliyun.enabled: 'true' is neither true nor false"),
        ("[dialects.volcano]\nmemory_factor = 0", "dialects.volcano.memory_factor: 0 is not a number of MiB"),
        (
            "[dialects.volcano]\nmemory_factor = 1.5",
            "dialects.volcano.memory_factor: 1.5 is not a whole number",
        ),
        (
            "[dialects.volcano]\nmemory_factor = true",
            "dialects.volcano.memory_factor: True is not a whole number",
        ),
        (
            '[dialects.volcano]\nmemory_factor = "1"',
            "dialects.volcano.memory_factor: '1' is not a whole number",
        ),
        ("[line]\npatience = 60", 'line.patience: 60 is not a text: write it like "60s"'),
        ('[line]\npatience = "60"', "line.patience: '60' is not a duration: write it like"),
        ('[line]\npatience = "soon"', "line.patience: 'soon' is not a duration"),
        ('[line]\nretry = "0s"', "line.retry: '0s' is less than 0.1s"),
        ("[webhook]\nport = 0", "webhook.port: 0 is not from 1 to 65535"),
        ("[webhook]\nport = 70000", "webhook.port: 70000 is not from 1 to 65535"),
        ('[webhook]\nport = "8443"', "webhook.port: '8443' is not a whole number"),
        (
            '[webhook]\ncertificate_lifetime = "365d"\nauthority_lifetime = "700d"',
            "webhook.authority_lifetime: it must be at least ten times certificate_lifetime",
        ),
        (
            '[webhook]\nextra_names = ["ok.example", "a b"]',
            "webhook.extra_names: 'a b' is neither a DNS name",
        ),
        ("namespace = 1", "namespace: 1 is not a text"),
        ('namespace = ""', "namespace: a name is needed"),
        ('[admission]\nscheduler = ""', "admission.scheduler: a name is needed"),
        (
            '[admission]\nreplaced_schedulers = "volcano"',
            "admission.replaced_schedulers: 'volcano' is not a list of texts",
        ),
        (
            "[admission]\nreplaced_schedulers = [1]",
            "admission.replaced_schedulers: [1] is not a list of texts",
        ),
        ('admission = "yes"', "admission: this is a section: give the settings in it"),
        ("line = [1]", "line: this is a section"),
        ("[[line]]\n", "line: this is a section"),
        ("[namespace]\nx = 1", "namespace: {'x': 1} is not a text"),
        ('[agent]\ncontext_memory = "lots"', "agent.context_memory: 'lots' is not an amount of memory"),
        ('[agent]\ncontext_memory = "0"', "agent.context_memory: '0' must be more than zero"),
        ('[mps]\ndaemons = "both"', "mps.daemons: 'both' is not one of off, node, card"),
        ('[mps]\npinned_memory = "1.5G"', "mps.pinned_memory: '1.5G' is not a whole number with M or G"),
        ("[mps]\nactive_thread_percentage = 101", "mps.active_thread_percentage: 101 is not from 1 to 100"),
        ('[agent]\nmode = "strict"', "agent.mode: 'strict' is not one of observe, warn, enforce"),
        ('[agent]\nsimulate = "2xTitan"', "agent.simulate: simulated GPUs: no model 'Titan'"),
        ('[agent]\nslots = "run"', "agent.slots: 'run' is not the absolute path of a folder"),
        ('[agent]\nnode = "A node"', "agent.node: 'A node' is not the name of a node"),
        ('[agent]\naddress = "localhost"', "agent.address: 'localhost' is not an IP address"),
        ('[leader]\nduration = "1s"', "leader.duration: '1s'"),
        ('log_level = "loud"', "log_level: 'loud' is not one of debug, info, warning, error"),
        ("native = 1", "native: there is no such setting"),
        ("[dialects.native]\nenabled = false", "dialects.native: there is no such setting"),
    ],
)
def test_what_is_wrong_in_the_file_is_told_by_field(text: str, words: str) -> None:
    assert words in refused(text)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (
            "COTENANT__LINE__PATIENSE",
            "60s",
            "COTENANT__LINE__PATIENSE: there is no such setting: did you mean patience?",
        ),
        ("COTENANT__LINES__PATIENCE", "60s", "lines: there is no such setting: did you mean line?"),
        ("COTENANT__LINE__PATIENCE", "60", "COTENANT__LINE__PATIENCE: '60' is not a duration"),
        ("COTENANT__LINE__PATIENCE", "", "COTENANT__LINE__PATIENCE: '' is not a duration"),
        ("COTENANT__WEBHOOK__PORT", "x", "COTENANT__WEBHOOK__PORT: 'x' is not a whole number"),
        ("COTENANT__WEBHOOK__PORT", "-1", "COTENANT__WEBHOOK__PORT: '-1' is not from 1 to 65535"),
        ("COTENANT__WEBHOOK__PORT", "9" * 5000, "COTENANT__WEBHOOK__PORT: '9999"),
        ("COTENANT__WEBHOOK__PORT", "\u0661", "COTENANT__WEBHOOK__PORT: '\\u0661' is not a whole number"),
        (
            "COTENANT__DIALECTS__ALIYUN__ENABLED",
            "1",
            "COTENANT__DIALECTS__ALIYUN__ENABLED: '1' is neither true nor false",
        ),
        (
            "COTENANT__DIALECTS__ALIYUN__UNIT",
            "TiB",
            "COTENANT__DIALECTS__ALIYUN__UNIT: 'TiB' is not one of GiB, MiB",
        ),
        ("COTENANT__LINE", "x", "COTENANT__LINE: this is a section"),
        ("COTENANT__", "x", "COTENANT__: there is no such setting"),
        ("COTENANT__NAMESPACE__X", "x", "namespace: {'x': 'x'} is not a text"),
        ("COTENANT__LINE__PATIENCE__X", "x", "line.patience: {'x': 'x'} is not a text"),
    ],
    ids=lambda text: text[:50],
)
def test_what_is_wrong_in_the_environment_is_told_by_variable(name: str, value: str, words: str) -> None:
    assert words in refused(**{name: value})


def test_a_variable_that_contradicts_the_shape_of_the_file_is_told() -> None:
    assert "COTENANT__LINE: this is not the name of a setting" in refused(
        '[line]\nretry = "1s"', COTENANT__LINE="x"
    )
    assert "COTENANT__NAMESPACE__X: this is not the name of a setting" in refused(
        'namespace = "a"', COTENANT__NAMESPACE__X="x"
    )


def test_all_that_is_wrong_is_told_at_once() -> None:
    message = refused('nonsense = 1\n[line]\npatience = "x"\nretry = "y"', COTENANT__WEBHOOK__PORT="z")
    for name in ("nonsense", "line.patience", "line.retry", "COTENANT__WEBHOOK__PORT"):
        assert f"{name}: " in message


def test_what_follows_from_a_mistake_is_not_told_as_another() -> None:
    message = refused('[admission]\nscheduler = ""\nreplaced_schedulers = 3')
    assert "admission.replaced_schedulers" in message
    assert "a name is needed" not in message


@pytest.mark.parametrize(
    "content", [b"[line", b"a = 1\na = 2", b"\xff\xfe", b"x = " + b"[" * 20000, b'namespace = "\x00"']
)
def test_a_file_that_is_no_toml_is_told_by_name(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "cotenant.toml"
    file.write_bytes(content)
    with pytest.raises(BadInput, match=r"settings: .*cotenant.toml cannot be read: "):
        load_settings(Settings, file, {})


def test_a_file_that_is_not_there_is_told_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"settings: .*missing.toml cannot be read"):
        load_settings(Settings, tmp_path / "missing.toml", {})
    with pytest.raises(BadInput, match=r"settings: .* cannot be read"):
        load_settings(Settings, tmp_path, {})


def sections(section: Any) -> Iterator[Any]:
    yield section
    for each in fields(section):
        if is_dataclass(getattr(section, each.name)):
            yield from sections(getattr(section, each.name))


def test_every_setting_is_explained() -> None:
    for section in sections(Settings()):
        told = explanations(type(section))
        for each in fields(section):
            assert told.get(each.name), f"{type(section).__name__}.{each.name} has no docstring"


def test_the_reference_reads_as_the_defaults_and_has_them_all() -> None:
    text = settings_reference(Settings())
    assert read(text) == Settings()
    data = tomllib.loads(text)
    for section in sections(Settings()):
        for each in fields(section):
            assert each.name in text
    assert set(data) == {each.name for each in fields(Settings)}


def test_settings_do_not_change() -> None:
    with pytest.raises(AttributeError):
        Settings().namespace = "x"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Settings().dialects.aliyun.unit = "MiB"  # type: ignore[misc]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["line", "patience", "dialects", "aliyun", "unit", "port"]), inner)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([each.name for each in fields(Settings)]), values))
def test_anything_is_read_or_refused(data: Mapping[str, Any]) -> None:
    try:
        settings = read_settings(Settings, data, {})
    except BadInput as error:
        message = str(error)
        assert message.startswith("settings: ")
        return
    assert isinstance(settings, Settings)
