"""Fixtures of a Kubernetes API server for tests: keepwatch serve, with its data in memory and simulated pods."""

import os
import subprocess
import time

import pytest
from kubernetes import client, config


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory):
    """Starts a server for all tests, and returns the path of its kubeconfig."""
    folder = tmp_path_factory.mktemp("keepwatch")
    path, log = folder / "kubeconfig", folder / "log"
    with log.open("w") as stderr:
        server = subprocess.Popen(
            [os.environ.get("KEEPWATCH", "keepwatch"), "serve", "--simulate", "--listen", "127.0.0.1:0", "--kubeconfig-out", path],
            stderr=stderr,
        )
    try:
        while not path.exists():  # the server writes it when it is ready
            assert server.poll() is None, log.read_text()
            time.sleep(0.01)
        yield path
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def namespace(kubeconfig):
    """Makes a namespace for one test."""
    config.load_kube_config(str(kubeconfig))
    core = client.CoreV1Api()
    made = core.create_namespace({"metadata": {"generateName": "test-"}})
    yield made.metadata.name
    core.delete_namespace(made.metadata.name)


@pytest.fixture
def advance(kubeconfig):
    """Returns a function that moves the time of the pods forward by a duration, like "90s"."""
    config.load_kube_config(str(kubeconfig))
    api = client.ApiClient()

    def advance(by):
        request = api.param_serialize(
            "POST", "/keepwatch/simulation/advance", query_params=[("by", by)], auth_settings=["BearerToken"]
        )
        response = api.call_api(*request)
        response.read()
        return api.response_deserialize(response, {"200": "object"}).data["time"]

    return advance
