"""Every kind is declared once."""

import ast
from pathlib import Path

import cotenant
from cotenant.kube.api import objects
from cotenant.kube.api.resources import PODS

SOURCE = Path(cotenant.__file__).parent


def test_kinds_are_declared_in_one_module():
    elsewhere = [
        f"{file.relative_to(SOURCE)}:{node.lineno}"
        for file in SOURCE.rglob("*.py")
        if file != SOURCE / "kube" / "api" / "resources.py"
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Resource"
    ]
    assert elsewhere == []


def test_a_kind_can_be_read_as_another_type():
    body = b'{"metadata": {"name": "a"}, "spec": {"dnsPolicy": "Default"}}'
    assert PODS.decode(body).metadata.name == "a"
    assert PODS.raw.decode(body)["spec"] == {"dnsPolicy": "Default"}
    assert PODS.read_as(objects.Generic).decode(body).spec == {"dnsPolicy": "Default"}
    assert PODS.raw.path("web", "a") == PODS.path("web", "a")
