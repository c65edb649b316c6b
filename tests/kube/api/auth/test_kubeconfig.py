"""Kubeconfig files as people have them, and broken ones: each message names the file and the field, and no secret."""

import asyncio
import base64
import os
from pathlib import Path

import pytest

from cotenant.kube.api.auth import kubeconfig
from cotenant.kube.api.auth.access import checked_server, in_cluster
from cotenant.kube.api.auth.credential_file import READ_AGAIN, CredentialFile
from cotenant.kube.api.auth.credentials import Credential
from cotenant.kube.api.auth.exec_plugin import ExecCredentials
from cotenant.kube.api.errors import BadKubeconfig, NoCredential

SECRET = "s3cr3t-t0k3n"


def config(user="", cluster="server: https://h:6443", context="", current="c"):
    return f"""
apiVersion: v1
kind: Config
current-context: {current}
clusters:
- name: k
  cluster: {{{cluster}}}
users:
- name: u
  user: {{{user}}}
contexts:
- name: c
  context: {{cluster: k, user: u{context}}}
"""


@pytest.fixture
def write(tmp_path):
    def write(text, name="config"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def current(access) -> Credential:
    return asyncio.run(access.credentials.current())


def test_a_context_names_cluster_user_and_namespace(write):
    path = write(
        config(
            f"token: {SECRET}", "server: 'https://h:6443/base/', tls-server-name: other", ", namespace: ns"
        )
    )
    access = kubeconfig.find({}, path=path)
    assert (access.server, access.namespace, access.server_name) == ("https://h:6443/base", "ns", "other")
    assert access.verify
    assert current(access).token == SECRET
    assert SECRET not in repr(access)
    assert SECRET not in repr(current(access))
    assert SECRET not in repr(access.credentials)


def test_verification_can_be_turned_off(write):
    assert not kubeconfig.find(
        {}, path=write(config("", "server: https://h, insecure-skip-tls-verify: true"))
    ).verify


def test_certificates_in_place_win_over_files_and_paths_are_relative_to_their_file(write, tmp_path):
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).write_text(f"file {name}")
    files = "client-certificate: cert.pem, client-key: key.pem"
    path = write(config(files, "server: https://h, certificate-authority: ca.pem"))
    access = kubeconfig.find({}, path=path)
    assert access.authority.read() == b"file ca.pem"
    assert (current(access).certificate, current(access).key) == (b"file cert.pem", b"file key.pem")
    data = {name: base64.b64encode(f"in place {name}".encode()).decode() for name in ("cert", "key")}
    path = write(config(f"{files}, client-certificate-data: {data['cert']}, client-key-data: {data['key']}"))
    assert current(kubeconfig.find({}, path=path)) == Credential("", b"in place cert", b"in place key")


def test_a_token_file_is_read_again(write, tmp_path):
    (tmp_path / "token").write_text("one\n")
    access = kubeconfig.find({}, path=write(config(f"token: {SECRET}, tokenFile: token")))
    assert current(access).token == "one"
    (tmp_path / "token").write_text("two\n")
    assert current(access).token == "one"
    access.credentials.rejected(current(access))
    assert current(access).token == "two"


def test_a_file_is_read_again_after_a_while_and_a_gap_in_its_rotation_does_no_harm(tmp_path):
    path, now = tmp_path / "token", [100.0]
    path.write_text("one")
    material = CredentialFile("token", path=path, clock=lambda: now[0])
    assert material.read() == b"one"
    path.write_text("two")
    assert material.read() == b"one"
    now[0] += READ_AGAIN
    assert material.read() == b"two"
    for gap in (lambda: path.write_text(""), path.unlink):
        gap()
        now[0] += READ_AGAIN
        assert material.read() == b"two"
    path.write_text("three")
    now[0] += READ_AGAIN
    assert material.read() == b"three"


def test_files_are_merged_and_the_first_wins_entry_by_entry(write, tmp_path):
    (tmp_path / "deep").mkdir()
    first = write(
        "current-context: b\nclusters: null\nusers:\n- {name: u, user: {token: first}}\ncontexts: null\n", "1"
    )
    second = write(
        config("token: second, as: somebody", "server: https://two, certificate-authority: ca"), "deep/2"
    )
    third = write(config("", "server: https://three", current="c").replace("name: c\n", "name: b\n"), "3")
    (tmp_path / "deep" / "ca").write_text("the second's")
    paths = os.pathsep.join(["", str(first), str(tmp_path / "missing"), str(second), str(third)])
    access = kubeconfig.find(
        {"KUBECONFIG": paths}
    )  # context b of the third file, cluster of the second, user of the first
    assert access.server == "https://two"
    assert access.authority.read() == b"the second's"
    assert current(access).token == "first"
    assert access.headers == {}
    assert kubeconfig.find({"KUBECONFIG": paths}, context="c").server == "https://two"


def test_without_kubeconfig_the_home_folder_and_then_the_pod_itself(tmp_path, monkeypatch):
    (tmp_path / ".kube").mkdir()
    with pytest.raises(
        BadKubeconfig, match=r"no cluster: nothing in .*\.kube/config, and this is not a pod: set KUBECONFIG"
    ):
        kubeconfig.find({"HOME": str(tmp_path)})
    (tmp_path / ".kube" / "config").write_text(config())
    assert kubeconfig.find({"HOME": str(tmp_path)}).server == "https://h:6443"


def test_a_pod_reaches_its_cluster_by_its_service_account(tmp_path):
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert in_cluster(environ, tmp_path) is None
    for name, text in {"token": "one\n", "ca.crt": "authority", "namespace": "ns\n"}.items():
        (tmp_path / name).write_text(text)
    assert in_cluster({}, tmp_path) is None
    access = in_cluster(environ, tmp_path)
    assert (access.server, access.namespace) == ("https://[fd00::1]:443", "ns")
    assert access.authority.read() == b"authority"
    assert current(access).token == "one"
    (tmp_path / "token").write_text("two\n")
    access.credentials.rejected(current(access))
    assert current(access).token == "two"


def test_whom_to_act_as_goes_into_headers(write):
    user = "token: t, as: jane, as-uid: '7', as-groups: [a, b], as-user-extra: {Sco/pe: [x, y]}"
    assert kubeconfig.find({}, path=write(config(user))).headers == {
        "Impersonate-User": ("jane",),
        "Impersonate-Uid": ("7",),
        "Impersonate-Group": ("a", "b"),
        "Impersonate-Extra-Sco%2Fpe": ("x", "y"),
    }


@pytest.mark.parametrize("text", [r"jane\r\nX-Remote-Group: system:masters", r"ja\0ne", r"ja\tne"])
def test_whom_to_act_as_cannot_bring_headers_of_its_own(write, text):
    with pytest.raises(BadKubeconfig, match="as: a line break or another control character in Imp"):
        kubeconfig.find({}, path=write(config(f'token: t, as: "{text}"')))


def test_a_plugin_is_read_with_its_surroundings(write, tmp_path):
    (tmp_path / "ca").write_text("authority")
    user = (
        "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: ./bin/login, args: [a, b],"
        " env: [{name: X, value: y}], installHint: get it, provideClusterInfo: true}"
    )
    cluster = (
        "server: https://h, certificate-authority: ca,"
        " extensions: [{name: client.authentication.k8s.io/exec, extension: {audience: me}}]"
    )
    credentials = kubeconfig.find({}, path=write(config(user, cluster))).credentials
    assert isinstance(credentials, ExecCredentials)
    plugin = credentials.plugin
    assert Path(plugin.command) == tmp_path / "bin" / "login"
    assert (plugin.args, plugin.env, plugin.interactive) == (("a", "b"), {"X": "y"}, "IfAvailable")
    assert plugin.cluster == {
        "server": "https://h",
        "certificate-authority-data": base64.b64encode(b"authority").decode(),
        "config": {"audience": "me"},
    }
    bare = user.replace("./bin/login", "login").replace(
        "args: [a, b], env: [{name: X, value: y}]", "args: null, env: null"
    )
    assert kubeconfig.find({}, path=write(config(bare))).credentials.plugin.command == "login"


V1 = "apiVersion: client.authentication.k8s.io/v1"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("current-context: [", r"config: not YAML at line 2, column 1"),
        (f"users:\n- name: u\n  user: {{token: *{SECRET}}}\n", r"config: not YAML at line 3, column 17"),
        ("users: 7", r"config: Expected `array`, got `int` - at `\$.users`"),
        (config(f"token: [{SECRET}]"), r"config: Expected `str`, got `array` - at `\$.users\[0\].user.token`"),
        (config(current=""), r"config: current-context is not set: choose one of c"),
        (config(current="x"), r"config: no context 'x': there is c"),
        (config(context=", cluster: zz").replace("cluster: k, ", ""), r"config: contexts\[c\].context.cluster: no cluster 'zz'"),
        (config().replace("user: u", "user: v"), r"config: contexts\[c\].context.user: no user 'v'"),
        (config().replace("users:\n- name: u", "users:\n- name: u\n- name: u"), r"config: users\[u\]: twice in one file"),
        (config("", ""), r"config: clusters\[k\].cluster.server: missing"),
        (config("", "server: 'h:6443'"), r"clusters\[k\].cluster.server: not an address like https://host:6443"),
        (config("", f"server: 'https://me:{SECRET}@h'"), r"clusters\[k\].cluster.server: a user or password in the address"),
        (config("", "server: 'https://h:x'"), r"clusters\[k\].cluster.server: not an address"),
        (config("", "server: https://h, proxy-url: socks5://p"), r"clusters\[k\].cluster.proxy-url: socks5 proxies are not supported"),
        (
            config("", f"server: https://h, certificate-authority-data: '!{SECRET}'"),
            r"clusters\[k\].cluster.certificate-authority-data: not base64",
        ),
        (config(f"client-key-data: '!{SECRET}'"), r"users\[u\].user.client-key-data: not base64"),
        (config("client-certificate: a"), r"users\[u\].user.client-key: missing"),
        (config("client-key: a"), r"users\[u\].user.client-certificate: missing"),
        (config(f"username: me, password: {SECRET}"), r"users\[u\].user.username: API servers no longer accept passwords"),
        (config("auth-provider: {name: gcp}"), r"users\[u\].user.auth-provider: removed from Kubernetes: use exec"),
        (config("as-groups: [x]"), r"users\[u\].user.as: missing"),
        (config("exec: {command: x}"), r"users\[u\].user.exec.apiVersion: '' is not one of client.auth"),
        (config("exec: {command: x, apiVersion: client.authentication.k8s.io/v1alpha1}"), r"exec.apiVersion: 'client"),
        (config(f"exec: {{{V1}, interactiveMode: Never}}"), r"exec.command: missing"),
        (config(f"exec: {{{V1}, command: x}}"), r"exec.interactiveMode: '' is not one of Never, IfAvailable, Always"),
        (config(f"exec: {{{V1}, command: x, env: [{{value: v}}]}}"), r"missing required field `name` - at `\$.users"),
        (
            config(f"exec: {{{V1}, command: x, interactiveMode: Never}}, client-key: a, client-certificate: b"),
            r"users\[u\].user.exec: either a plugin or client-certificate, not both",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_named_by_file_and_field_and_shows_no_secret(write, text, named):
    path = write(text)
    with pytest.raises(BadKubeconfig, match=named) as caught:
        kubeconfig.find({}, path=path)
    assert str(path) in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("user", "named"),
    [
        ("tokenFile: nowhere", r"users\[u\].user.tokenFile: .*nowhere cannot be read: No such file"),
        ("tokenFile: empty", r"users\[u\].user.tokenFile: .*empty is empty"),
        (f"token: '{SECRET} and more'", r"users\[u\].user.token: not a bearer token"),
        (f'token: "{SECRET}\\nInjected: yes"', r"users\[u\].user.token: not a bearer token"),
        (
            "client-certificate: nowhere, client-key: empty",
            r"users\[u\].user.client-certificate: .*nowhere cannot be read",
        ),
    ],
)
def test_what_a_field_points_to_is_named_when_it_is_needed(write, tmp_path, user, named):
    write("", "empty")
    access = kubeconfig.find({}, path=write(config(user)))
    with pytest.raises(NoCredential, match=named) as caught:
        current(access)
    assert SECRET not in str(caught.value)


def test_a_file_that_cannot_be_read_is_no_missing_file(tmp_path):
    with pytest.raises(BadKubeconfig, match="cannot be read: Is a directory"):
        kubeconfig.find({"KUBECONFIG": str(tmp_path)})
    with pytest.raises(BadKubeconfig, match="nowhere: no such file"):
        kubeconfig.find({}, path=tmp_path / "nowhere")


@pytest.mark.parametrize(
    "server", ["", "https://", "ftp://h", "https://h?q=1", "https://h:99999999", "/path", "https://["]
)
def test_an_address_is_checked(server):
    with pytest.raises(BadKubeconfig, match="here: not an address"):
        checked_server(server, "here")
