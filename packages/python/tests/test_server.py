"""Tests with the fixture, as users write them, and of what it promises."""

import json
import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import pytest
from kubernetes import client, config

import keepwatch

DEADLINE = 300


@pytest.fixture
def core(keepwatch_server):
    config.load_kube_config(keepwatch_server.kubeconfig)
    return client.CoreV1Api()


def test_an_old_version_cannot_replace_a_newer_one(core):
    first = core.create_namespaced_config_map("default", {"metadata": {"name": "a"}})
    core.patch_namespaced_config_map("a", "default", {"data": {"k": "1"}})
    with pytest.raises(client.ApiException) as error:
        core.replace_namespaced_config_map("a", "default", first)
    assert error.value.status == 409


def test_url_token_and_authority(keepwatch_server):
    request = urllib.request.Request(
        keepwatch_server.url + "/api/v1/namespaces/default",
        headers={"Authorization": "Bearer " + keepwatch_server.token},
    )
    context = ssl.create_default_context(cadata=keepwatch_server.certificate_authority.decode())
    with urllib.request.urlopen(request, context=context) as response:
        assert json.load(response)["metadata"]["name"] == "default"


def test_a_server_stops(tmp_path):
    with keepwatch.Server("--simulate") as server:
        assert accepts(server.url)
    assert not accepts(server.url)
    assert not os.path.exists(server.kubeconfig)


def test_a_wrong_flag():
    with pytest.raises(keepwatch.KeepwatchError, match="unknown flag: --nonsense"):
        keepwatch.Server("--nonsense")


@pytest.mark.parametrize("token", ["123456", "true", "it's"])
def test_a_token_that_yaml_may_quote(token):
    with keepwatch.Server("--token", token) as server:
        assert server.token == token


def test_the_server_of_a_killed_process_ends():
    code = "import keepwatch, time; s = keepwatch.Server(); print(s.url, flush=True); time.sleep(1e6)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().strip()
        assert accepts(url)
        process.kill()
    until = time.monotonic() + DEADLINE
    while accepts(url):
        assert time.monotonic() < until, "the server still runs"
        time.sleep(0.05)


def accepts(url):
    address = urllib.parse.urlsplit(url)
    try:
        socket.create_connection((address.hostname, address.port)).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize(
    "printed, message",
    [
        ("keepwatch v0.1.7 (go1.26.8, linux/amd64)", None),
        ("keepwatch (devel) (go1.26.8, linux/amd64)", None),
        ("keepwatch v0.0.0-20261128000000-0123456789ab (go1.26.8, linux/amd64)", None),
        (
            "keepwatch v0.2.0 (go1.26.8, linux/amd64)",
            r"is keepwatch v0.2.0, but this package is made for v0.1: install keepwatch v0.1",
        ),
        ("watchkeeper v0.1.0", "is not keepwatch"),
    ],
)
def test_versions(tmp_path, monkeypatch, printed, message):
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho '{printed}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("KEEPWATCH", str(program))
    if message is None:
        assert keepwatch.find_program() == str(program)
    else:
        with pytest.raises(keepwatch.KeepwatchError, match=message):
            keepwatch.find_program()


def test_a_missing_program(tmp_path, monkeypatch):
    monkeypatch.delenv("KEEPWATCH", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        keepwatch.KeepwatchError, match="keepwatch is no program: install keepwatch v0.1, and put it on the PATH"
    ):
        keepwatch.find_program()
    (tmp_path / "keepwatch").write_text("#!/bin/sh\necho 'keepwatch (devel)'\n")
    (tmp_path / "keepwatch").chmod(0o755)
    assert keepwatch.find_program() == str(tmp_path / "keepwatch")


def test_flags_of_the_fixture(tmp_path):
    (tmp_path / "conftest.py").write_text("""
import pytest

@pytest.fixture(scope="session")
def keepwatch_flags():
    return ["--simulate"]
""")
    (tmp_path / "test_nodes.py").write_text("""
from kubernetes import client, config

def test_nodes(keepwatch_server):
    config.load_kube_config(keepwatch_server.kubeconfig)
    assert [node.metadata.name for node in client.CoreV1Api().list_node().items] == ["node-1"]
""")
    run = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert run.returncode == 0, run.stdout
