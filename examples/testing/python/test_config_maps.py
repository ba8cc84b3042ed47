"""Tests against the server of conftest.py: KEEPWATCH=bin/keepwatch pytest examples/testing/python"""

import pytest
from kubernetes import client, watch


def test_conflict(namespace):
    core = client.CoreV1Api()
    first = core.create_namespaced_config_map(namespace, {"metadata": {"name": "a"}, "data": {"k": "1"}})
    core.patch_namespaced_config_map("a", namespace, {"data": {"k": "2"}})
    first.data["k"] = "3"
    with pytest.raises(client.ApiException) as error:
        core.replace_namespaced_config_map("a", namespace, first)
    assert error.value.status == 409


def test_watch(namespace):
    core = client.CoreV1Api()
    version = core.list_namespaced_config_map(namespace).metadata.resource_version
    core.create_namespaced_config_map(namespace, {"metadata": {"name": "a"}})
    core.delete_namespaced_config_map("a", namespace)
    events = []
    follow = watch.Watch()
    # The selection leaves out kube-root-ca.crt, which every namespace receives soon after its creation.
    selection = {"field_selector": "metadata.name=a", "resource_version": version, "timeout_seconds": 60}
    for event in follow.stream(core.list_namespaced_config_map, namespace, **selection):
        events.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            follow.stop()
    assert events == [("ADDED", "a"), ("DELETED", "a")]
