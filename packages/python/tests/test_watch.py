"""Tests of the watch against a real server: what a consumer receives, whatever is killed."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from kubernetes import client, config

import keepwatch
from keepwatch import Change, Gap, Synced

DEADLINE = 300


@pytest.fixture(autouse=True)
def discovery_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECACHEDIR", str(tmp_path / "cache"))


class Objects:
    """The ConfigMaps of a server with the label app=NAME."""

    def __init__(self, server, app, monkeypatch):
        monkeypatch.setenv("KUBECONFIG", server.kubeconfig)
        config.load_kube_config(server.kubeconfig)
        self.core, self.app = client.CoreV1Api(), app

    def create(self, name, **data):
        metadata = {"name": name, "labels": {"app": self.app}}
        self.core.create_namespaced_config_map("default", {"metadata": metadata, "data": data})

    def patch(self, name, **data):
        self.core.patch_namespaced_config_map(name, "default", {"data": data})

    def delete(self, name):
        self.core.delete_namespaced_config_map(name, "default")

    def watch(self, *flags, **options):
        return keepwatch.watch("configmaps", "-l", f"app={self.app}", *flags, **options)


@pytest.fixture
def objects(keepwatch_server, request, monkeypatch):
    return Objects(keepwatch_server, request.node.name.replace("_", "-")[:60], monkeypatch)


def name(event):
    return f"{event.type} {event.object['metadata']['name']}" if isinstance(event, Change) else event.type


def test_events(objects, tmp_path):
    objects.create("events-a", text="1")
    with objects.watch() as events:
        added, synced = next(events), next(events)
        assert (
            name(added) == "ADDED events-a" and added.resource == "configmaps" and added.object["data"] == {"text": "1"}
        )
        assert added.id == added.object["metadata"]["uid"] + "/" + added.revision
        assert synced == Synced("SYNCED", synced.revision, 1, ("configmaps",))
        objects.patch("events-a", text="2")
        objects.delete("events-a")
        assert [name(next(events)), name(next(events))] == ["MODIFIED events-a", "DELETED events-a"]


def test_several_types(objects):
    events = list(keepwatch.watch("configmaps,pods", "-l", "app=none", "--until-synced"))
    assert events == [Synced("SYNCED", events[0].revision, 0, ("configmaps", "pods"))]


def test_what_was_not_acknowledged_comes_again(objects, tmp_path):
    state = tmp_path / "state"
    objects.create("again-a")
    with objects.watch(state=state) as events:
        first = next(events)
    for event in objects.watch(state=state):
        assert event == first
        break  # not acknowledged
    for event in objects.watch(state=str(state)):
        assert event == first
        # the program's end without an error, by --until-synced below, ends the iteration
        break
    with objects.watch(state=state) as events:
        assert next(events) == first and isinstance(next(events), Synced)
        events.acknowledge()
    objects.delete("again-a")
    assert [name(e) for e in objects.watch("--until-synced", state=state)] == ["DELETED again-a", "SYNCED"]
    assert [name(e) for e in objects.watch("--until-synced", state=state)] == ["SYNCED"]


def test_a_killed_program(objects, tmp_path):
    objects.create("program-a")
    events = objects.watch(state=tmp_path / "state")
    first = next(events)
    os.kill(events._process.pid, signal.SIGKILL)
    with pytest.raises(keepwatch.KeepwatchError, match="was killed by signal 9") as error:
        list(events)
    assert error.value.code == -signal.SIGKILL
    assert list(events) == []  # it has ended
    with objects.watch(state=tmp_path / "state") as events:
        assert next(events) == first


def test_errors(objects, tmp_path):
    with pytest.raises(keepwatch.KeepwatchError, match='the server doesn\'t have a resource type "nonsense"') as error:
        next(keepwatch.watch("nonsense"))
    assert error.value.code == 1
    with pytest.raises(keepwatch.KeepwatchError, match="unknown flag: --nonsense") as error:
        next(keepwatch.watch("pods", "--nonsense"))
    assert error.value.code == 2
    with pytest.raises(keepwatch.KeepwatchError, match="^{.*doesn't have a resource type"):
        next(keepwatch.watch("nonsense", "--log-format", "json"))
    with objects.watch(state=tmp_path / "state") as events:
        next(events)
        with pytest.raises(keepwatch.KeepwatchError, match="is in use by another keepwatch"):
            next(objects.watch(state=tmp_path / "state"))
    with pytest.raises(keepwatch.KeepwatchError, match="belongs to another stream"):
        next(keepwatch.watch("configmaps", "-l", "a=b", state=tmp_path / "state"))


def test_texts_and_large_objects(objects):
    text = "line\nline\r\n\u2028\u2029\x85 \"'\\ 猫 🐈"
    objects.create("large", text=text, large="é" * 500_000)  # the line has more than 1 MiB
    with objects.watch() as events:
        data = next(events).object["data"]
        assert data["text"] == text and data["large"] == "é" * 500_000


def test_a_slow_consumer_stops_the_program(objects, tmp_path):
    """The program waits for the consumer, and is not ended by it; nothing is lost."""
    with objects.watch(state=tmp_path / "state") as events:
        assert isinstance(next(events), Synced)
        for i in range(40):
            objects.create(f"slow-{i}", large="x" * 100_000)
        for i in range(40):
            objects.delete(f"slow-{i}")
        got = [name(next(events)) for _ in range(80)]
    assert got == [f"ADDED slow-{i}" for i in range(40)] + [f"DELETED slow-{i}" for i in range(40)]


def test_close_ends_the_program(objects):
    for i in range(40):
        objects.create(f"close-{i}", large="x" * 100_000)  # more than a pipe holds: the program is writing
    events = objects.watch()
    next(events)
    process = events._process
    events.close()
    assert process.returncode == 0
    assert list(events) == []


def test_closing_in_another_thread_ends_the_iteration(objects):
    events = objects.watch()
    next(events)
    reading, stdout = threading.Event(), events._process.stdout

    class Stdout:
        close = stdout.close

        def readline(self):
            reading.set()
            return stdout.readline()

    events._process.stdout = Stdout()
    closing = threading.Thread(target=lambda: (reading.wait(DEADLINE), events.close()))
    closing.start()
    assert list(events) == []
    closing.join()


def test_close_does_not_wait_for_a_process_that_has_stderr(objects, tmp_path):
    """A credential plugin, for example, whose stderr is the program's. It ends when the test writes the file."""
    program, go = tmp_path / "program", tmp_path / "go"
    program.write_text(
        f"#!/bin/sh\n[ \"$1\" = version ] && exec {keepwatch.find_program()} version\n"
        f"(while [ ! -e {go} ]; do sleep 0.1; done) <&- >&- &\nexec {keepwatch.find_program()} \"$@\"\n"
    )
    program.chmod(0o755)
    events = objects.watch(program=str(program))
    next(events)
    try:
        closing = threading.Thread(target=events.close)
        closing.start()
        closing.join(DEADLINE)
        assert not closing.is_alive()
    finally:
        go.touch()


def test_expired_history(tmp_path, monkeypatch):
    with keepwatch.Server("--watch-history", "1Mi,1s") as server:
        objects = Objects(server, "expired", monkeypatch)
        objects.create("expired-a")
        objects.create("expired-b", text="1")
        with objects.watch(state=tmp_path / "state") as events:
            assert [name(next(events)) for _ in range(3)] == ["ADDED expired-a", "ADDED expired-b", "SYNCED"]
            events.acknowledge()
        objects.delete("expired-a")
        objects.patch("expired-b", text="2")
        for i in range(60):  # the server drops old history when new one comes
            objects.patch("expired-b", large=str(i) + "x" * 100_000)
        events = list(objects.watch("--until-synced", state=tmp_path / "state"))
    kinds = [name(event) for event in events if not isinstance(event, Gap)]
    assert sorted(set(kinds)) == ["DELETED expired-a", "MODIFIED expired-b", "SYNCED"]


def test_a_consumer_that_is_killed_again_and_again_loses_nothing(keepwatch_server, tmp_path, monkeypatch):
    """The consumer, or the program, is killed at random moments while objects are created, changed and deleted."""
    seed = int(os.environ.get("SEED") or random.randrange(1 << 32))
    print("SEED =", seed)
    draw = random.Random(seed)
    objects = Objects(keepwatch_server, "killed", monkeypatch)
    state, handled = tmp_path / "state", tmp_path / "handled"
    command = [sys.executable, str(pathlib.Path(__file__).with_name("consumer.py")), str(state), str(handled), "0.02"]
    want, alive, kills = [], [], 0
    list(objects.watch("--until-synced", state=state))  # from here on every event counts
    consumer = subprocess.Popen(command)
    for step in range(300):
        if draw.random() < 0.6 or not alive:
            alive.append(f"killed-{step}")
            objects.create(alive[-1], large="x" * draw.choice((0, 0, 100_000)))
            want.append("ADDED " + alive[-1])
        elif draw.random() < 0.3:
            changed = draw.choice(alive)
            objects.patch(changed, step=str(step))
            want.append("MODIFIED " + changed)
        else:
            gone = alive.pop(draw.randrange(len(alive)))
            objects.delete(gone)
            want.append("DELETED " + gone)
        if draw.random() < 0.08:
            before = len(events_of(handled))
            for i in range(5):  # it is killed while it handles these
                alive.append(f"killed-{step}-{i}")
                objects.create(alive[-1])
                want.append("ADDED " + alive[-1])
            until = time.monotonic() + DEADLINE
            while len(events_of(handled)) == before:
                assert consumer.poll() is None and time.monotonic() < until, "the consumer handles nothing"
                time.sleep(0.005)
            time.sleep(draw.random() / 8)  # a random moment, on purpose
            os.kill(draw.choice([consumer.pid] + programs(consumer.pid)), signal.SIGKILL)
            consumer.wait()
            kills += 1
            for _ in range(draw.randrange(3)):  # deleted while nobody watches
                if alive:
                    gone = alive.pop()
                    objects.delete(gone)
                    want.append("DELETED " + gone)
            await_unused(state)
            consumer = subprocess.Popen(command)
    try:
        until = time.monotonic() + DEADLINE
        while set(missing(want, handled)):
            assert consumer.poll() is None, "the consumer has ended"
            assert time.monotonic() < until, f"lost: {missing(want, handled)}, after {kills} kills"
            time.sleep(0.05)
    finally:
        consumer.kill()
        consumer.wait()
    assert kills > 5
    assert events_of(handled) == want


def programs(pid):
    """The keepwatch watch of a consumer, on Linux, not a process that finds its version. The consumer ends with it."""
    found = []
    for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            parent = int(file.with_name("stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"\0watch\0" in file.read_bytes():
                found.append(int(file.parent.name))
        except OSError:
            pass  # it has ended
    return found


def events_of(handled):
    """The handled events, without repetitions and without a line that was cut off."""
    seen = {}
    for line in handled.read_text().splitlines() if handled.exists() else []:
        fields = line.split(" ")
        if len(fields) == 3 and "/" in fields[2]:
            seen.setdefault(fields[2], f"{fields[0]} {fields[1]}")
    return list(seen.values())


def missing(want, handled):
    got = events_of(handled)
    return [event for event in want if want.count(event) > got.count(event)]


def await_unused(state):
    """Waits until the program of the killed consumer has ended: it has seen the end of its pipes."""
    until = time.monotonic() + DEADLINE
    while True:
        try:
            with keepwatch.watch("configmaps", "-l", "app=killed", state=state) as events:
                next(events)  # comes again
            return
        except keepwatch.KeepwatchError as error:
            assert "in use" in str(error) and time.monotonic() < until, error
            time.sleep(0.02)
