"""A Job that runs for an hour ends in the test at once: the test advances the time."""

from kubernetes import client, watch


def test_job_ends(namespace, advance):
    batch = client.BatchV1Api()
    pod = {"restartPolicy": "Never", "containers": [{"name": "backup", "image": "backup:1"}]}
    annotations = {"simulation.keepwatch.io/run-for": "1h"}
    template = {"metadata": {"annotations": annotations}, "spec": pod}
    batch.create_namespaced_job(namespace, {"metadata": {"name": "backup"}, "spec": {"template": template}})
    running = until(batch, namespace, lambda status: status.ready)
    assert running.completion_time is None
    advance("1h")
    ended = until(batch, namespace, lambda status: status.completion_time)
    assert ended.succeeded == 1
    assert (ended.completion_time - ended.start_time).total_seconds() >= 3600


def until(batch, namespace, reached):
    """Waits until the status of the Job has reached a state, and returns it."""
    follow = watch.Watch()
    for event in follow.stream(batch.list_namespaced_job, namespace, timeout_seconds=60):
        if reached(event["object"].status):
            return event["object"].status
    raise AssertionError("the Job does not reach the state within a minute")
