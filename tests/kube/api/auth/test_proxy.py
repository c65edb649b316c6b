"""Which API servers are reached through a proxy, as client-go decides it."""

import pytest

from cotenant.kube.api.auth import kubeconfig
from cotenant.kube.api.auth.access import in_cluster
from cotenant.kube.api.auth.proxy import Proxy, proxy_from_environment, proxy_from_url
from cotenant.kube.api.errors import BadKubeconfig

SERVER = "https://api.example.com:6443"


@pytest.mark.parametrize(
    ("environ", "url"),
    [
        ({}, None),
        ({"HTTPS_PROXY": ""}, None),
        ({"HTTPS_PROXY": "http://p:3128"}, "http://p:3128"),
        ({"https_proxy": "http://p:3128"}, "http://p:3128"),
        ({"HTTPS_PROXY": "http://upper:1", "https_proxy": "http://lower:2"}, "http://upper:1"),
        ({"HTTPS_PROXY": "", "https_proxy": "http://lower:2"}, "http://lower:2"),
        ({"HTTP_PROXY": "http://p:3128"}, None),
        ({"ALL_PROXY": "http://p:3128"}, None),
        ({"HTTPS_PROXY": "p:3128"}, "http://p:3128"),
        ({"HTTPS_PROXY": "10.0.0.1:3128"}, "http://10.0.0.1:3128"),
        ({"HTTPS_PROXY": "p"}, "http://p:80"),
        ({"HTTPS_PROXY": "https://p"}, "https://p:443"),
        ({"HTTPS_PROXY": "http://[fd00::1]:3128/"}, "http://[fd00::1]:3128"),
    ],
)
def test_the_environment_names_a_proxy(environ, url):
    assert proxy_from_environment(SERVER, environ) == (None if url is None else Proxy(url))


def test_a_server_without_tls_has_a_variable_of_its_own():
    environ = {"HTTP_PROXY": "http://plain:1", "HTTPS_PROXY": "http://tls:2"}
    assert proxy_from_environment("http://api.example.com", environ) == Proxy("http://plain:1")
    assert proxy_from_environment("https://api.example.com", environ) == Proxy("http://tls:2")


@pytest.mark.parametrize(
    "server", ["https://localhost:6443", "https://127.0.0.1", "https://127.8.9.1", "https://[::1]:6443", "https://[::ffff:127.0.0.1]"]
)  # fmt: skip
def test_loopback_never_goes_through_the_environments_proxy(server):
    assert proxy_from_environment(server, {"HTTPS_PROXY": "http://p:1"}) is None


@pytest.mark.parametrize(
    ("no_proxy", "server", "excluded"),
    [
        ("*", SERVER, True),
        ("example.com", SERVER, True),
        ("EXAMPLE.com", SERVER, True),
        ("api.example.com", SERVER, True),
        (".example.com", SERVER, True),
        ("*.example.com", SERVER, True),
        ("ample.com", SERVER, False),
        ("other.com, example.com ,", SERVER, True),
        (",,", SERVER, False),
        ("", SERVER, False),
        (".api.example.com", SERVER, False),
        ("*.api.example.com", SERVER, False),
        ("example.com:6443", SERVER, True),
        ("example.com:443", SERVER, False),
        ("example.com:443", "https://api.example.com", True),
        ("10.0.0.0/8", "https://10.96.0.1:443", True),
        ("10.0.0.0/8", "https://11.96.0.1:443", False),
        ("10.0.0.0/8", SERVER, False),
        ("10.0.0.7/8", "https://10.96.0.1:443", True),
        ("10.0.0.0/99", "https://10.96.0.1:443", False),
        ("10.96.0.1", "https://10.96.0.1:443", True),
        ("10.96.0.1:443", "https://10.96.0.1:443", True),
        ("10.96.0.1:6443", "https://10.96.0.1:443", False),
        ("10.96.0", "https://10.96.0.1:443", False),
        ("fd00::/8", "https://[fd00::1]:443", True),
        ("fd00::1", "https://[fd00::1]:443", True),
        ("[fd00::1]:443", "https://[fd00::1]:443", True),
        ("[fd00::1]:6443", "https://[fd00::1]:443", False),
    ],
)
def test_no_proxy_excludes_hosts_domains_addresses_and_networks(no_proxy, server, excluded):
    for name in ("NO_PROXY", "no_proxy"):
        environ = {"HTTPS_PROXY": "http://p:1", name: no_proxy}
        assert (proxy_from_environment(server, environ) is None) is excluded


def test_user_and_password_are_sent_and_never_shown():
    proxy = proxy_from_url("http://us%40er:s3%3Acr3t@p:3128", "proxy-url")
    assert proxy.url == "http://p:3128"
    assert proxy.authorization == "Basic dXNAZXI6czM6Y3IzdA=="  # us@er:s3:cr3t
    assert proxy.authorization not in repr(proxy)


@pytest.mark.parametrize("text", ["socks5://us3r:s3cr3t@p:1080", "socks5h://us3r:s3cr3t@p"])
def test_a_socks_proxy_is_refused_by_its_name(text):
    with pytest.raises(BadKubeconfig, match=r"HTTPS_PROXY: socks5h? proxies are not supported") as caught:
        proxy_from_environment(SERVER, {"HTTPS_PROXY": text})
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["ftp://us3r:s3cr3t@p", "http://us3r:s3cr3t@", "http://us3r:s3cr3t@p:x", "http://us3r:s3cr3t@p:0", "http://[us3r:s3cr3t"]
)  # fmt: skip
def test_what_is_not_a_proxys_address_is_named_by_its_place(text):
    with pytest.raises(BadKubeconfig, match=r"https_proxy: not the address of a proxy") as caught:
        proxy_from_environment(SERVER, {"https_proxy": text})
    assert "s3cr3t" not in str(caught.value)


def config(tmp_path, cluster):
    path = tmp_path / "config"
    path.write_text(
        f"{{current-context: c, contexts: [{{name: c, context: {{cluster: k}}}}], clusters: [{{name: k, cluster: {{{cluster}}}}}]}}"
    )
    return path


def test_proxy_url_wins_over_the_environment_even_where_no_proxy_excludes(tmp_path):
    environ = {"HTTPS_PROXY": "http://env:1", "NO_PROXY": "*"}
    path = config(tmp_path, "server: 'https://127.0.0.1:6443', proxy-url: 'http://u:p@file:2'")
    assert kubeconfig.find(environ, path=path).proxy == proxy_from_url("http://u:p@file:2", "")


def test_without_proxy_url_the_environment_decides(tmp_path):
    path = config(tmp_path, f"server: '{SERVER}'")
    assert kubeconfig.find({"HTTPS_PROXY": "http://env:1"}, path=path).proxy == Proxy("http://env:1")
    assert kubeconfig.find({}, path=path).proxy is None


@pytest.mark.parametrize("text", ["p:3128", "socks5://p:1", "file:///x"])
def test_a_wrong_proxy_url_is_named_by_file_and_field(tmp_path, text):
    path = config(tmp_path, f"server: '{SERVER}', proxy-url: '{text}'")
    with pytest.raises(BadKubeconfig, match=r"config: clusters\[k\].cluster.proxy-url: "):
        kubeconfig.find({}, path=path)


def test_a_pod_reaches_the_api_server_as_its_environment_says(tmp_path):
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text("x")
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443", "HTTPS_PROXY": "p:1"}
    assert in_cluster(environ, tmp_path).proxy == Proxy("http://p:1")
    assert in_cluster({**environ, "NO_PROXY": "10.96.0.0/12,.svc"}, tmp_path).proxy is None
