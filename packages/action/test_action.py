"""Runs the steps of action.yml as a runner of GitHub does: inputs, files for variables and outputs, bash's options."""

import functools
import hashlib
import http.server
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import tarfile
import threading

import pytest
import yaml
from kubernetes import client, config

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ["KEEPWATCH"]).resolve()


class Runner:
    """A job. The files have the names that the runner gives them."""

    def __init__(self, folder):
        self.folder = folder
        self.files = {name: folder / name for name in ("GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_PATH")}
        for file in self.files.values():
            file.touch()
        self.environment = {}

    def run(self, inputs, **environment):
        """Runs the action, and returns the process of its last step."""
        action = yaml.safe_load((ROOT / "action.yml").read_text())
        assert action["runs"]["using"] == "composite" and set(inputs) <= set(action["inputs"])
        given = {name: inputs.get(name, of["default"]) for name, of in action["inputs"].items()}
        for step in action["runs"]["steps"]:
            script = self.folder / "step.sh"
            script.write_text(step["run"])
            assert step["shell"] == "bash"
            env = {name: self.evaluate(value, given) for name, value in step["env"].items()}
            env.update({name: str(file) for name, file in self.files.items()})
            env.update(
                PATH=os.environ["PATH"], RUNNER_TEMP=str(self.folder), GITHUB_ACTION_PATH=str(ROOT), **environment
            )
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
                env=env,
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=300,
            )
            if done.returncode:
                break
        return done

    @staticmethod
    def evaluate(value, inputs):
        def expression(match):
            for term in match[1].split("||"):
                kind, name = term.strip().split(".")
                found = inputs[name] if kind == "inputs" else {"action_ref": "main"}[name]
                if found:
                    return found
            return ""

        return re.sub(r"\$\{\{ (.*?) \}\}", expression, value)

    def values(self, name):
        return dict(line.split("=", 1) for line in self.files[name].read_text().splitlines())

    def check(self):
        """Checks what the next steps have, and ends the server."""
        variables, outputs = self.values("GITHUB_ENV"), self.values("GITHUB_OUTPUT")
        try:
            assert outputs["kubeconfig"] == variables["KUBECONFIG"]
            config.load_kube_config(variables["KUBECONFIG"])
            assert client.CoreV1Api().read_namespace("default").metadata.name == "default"
            path = self.files["GITHUB_PATH"].read_text().strip()
            assert shutil.which(pathlib.Path(variables["KEEPWATCH"]).name, path=path) == variables["KEEPWATCH"]
            return client.CoreV1Api()
        finally:
            self.pid = int(outputs["pid"])


@pytest.fixture
def runner(tmp_path):
    made = Runner(tmp_path)
    made.pid = 0
    yield made
    if made.pid:
        os.kill(made.pid, signal.SIGTERM)


def test_a_program_of_the_workflow(runner):
    (runner.folder / "built").mkdir()
    (runner.folder / "built" / "keepwatch").symlink_to(PROGRAM)
    done = runner.run({"path": "built/keepwatch", "flags": "--simulate --authorization-mode RBAC"})
    assert done.returncode == 0, done.stdout
    core = runner.check()
    assert [node.metadata.name for node in core.list_node().items] == ["node-1"]  # of --simulate


def test_flags_in_several_lines(runner):
    done = runner.run({"path": str(PROGRAM), "flags": "--simulate\n--authorization-mode RBAC\n"})
    assert done.returncode == 0, done.stdout
    core = runner.check()
    assert [node.metadata.name for node in core.list_node().items] == ["node-1"]
    with open(f"/proc/{runner.pid}/cmdline", encoding="utf-8") as command:
        assert command.read().split("\0")[-4:] == ["--simulate", "--authorization-mode", "RBAC", ""]


def test_judge_in_a_workflow(runner):
    """The step of docs/judge.md, after the action."""
    [step] = re.findall(r"^- run: (keepwatch judge .*?)  +#", (ROOT / "docs/judge.md").read_text(), re.M)
    for name, source in {"config/crd": "examples/widgets.yaml", "testdata/judge": "examples/judge/workload/1-create.yaml"}.items():
        (runner.folder / name).mkdir(parents=True)
        shutil.copy(ROOT / source, runner.folder / name)
    (runner.folder / "bin").mkdir()
    (runner.folder / "bin/manager").symlink_to("/bin/false")
    (runner.folder / "built").mkdir()
    (runner.folder / "built" / "keepwatch").symlink_to(PROGRAM)
    done = runner.run({"path": "built/keepwatch"})
    assert done.returncode == 0, done.stdout
    runner.check()
    path = runner.files["GITHUB_PATH"].read_text().strip() + ":" + os.environ["PATH"]
    env = {**os.environ, **runner.values("GITHUB_ENV"), "PATH": path}
    done = subprocess.run(["bash", "-e", "-c", step], cwd=runner.folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "\ndied" in done.stdout, done.stdout + done.stderr
    assert {"report.html", "report.txt", "report.json", "report.xml", "operator.log"} <= set(os.listdir(runner.folder / "judge"))


@pytest.fixture
def releases(tmp_path):
    """A server with the release v0.1.0, as make release lays it out."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    name = f"keepwatch-{platform.system().lower()}-{machine}.tar.gz"
    release = tmp_path / "releases" / "v0.1.0"
    release.mkdir(parents=True)
    with tarfile.open(release / name, "w:gz", compresslevel=1) as archive:
        archive.add(ROOT / "LICENSE", "LICENSE")
        archive.add(PROGRAM, "keepwatch")
    digest = hashlib.sha256((release / name).read_bytes()).hexdigest()
    (release / "SHA256SUMS").write_text(f"{'0' * 64}  keepwatch-image.tar\n{digest}  {name}\n")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=tmp_path / "releases")
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield release, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_release(runner, releases):
    done = runner.run({"version": "v0.1.0"}, KEEPWATCH_RELEASES=releases[1])
    assert done.returncode == 0, done.stdout
    assert runner.values("GITHUB_ENV")["KEEPWATCH"].endswith("/bin/keepwatch")
    runner.check()


def test_a_wrong_checksum(runner, releases):
    sums = releases[0] / "SHA256SUMS"
    sums.write_text(re.sub(r"^[0-9a-f]{8}", "01234567", sums.read_text(), flags=re.MULTILINE))
    done = runner.run({"version": "v0.1.0"}, KEEPWATCH_RELEASES=releases[1])
    assert done.returncode == 1 and "::error" in done.stdout and "has another checksum" in done.stdout, done.stdout
    assert runner.values("GITHUB_ENV") == {}


@pytest.mark.parametrize(
    "inputs, message",
    [
        ({}, 'give the input version, such as v0.1.0, or path: "main" is no release'),
        ({"version": "v0.9.0"}, "/v0.9.0/keepwatch-"),
        ({"path": "no/keepwatch"}, "no/keepwatch, is no program"),
        (
            {"path": str(PROGRAM), "flags": "--nonsense"},
            "keepwatch serve has ended: keepwatch: unknown flag: --nonsense",
        ),
        (
            {"path": str(PROGRAM), "flags": "--simulate\n--nonsense"},
            "keepwatch serve has ended: keepwatch: unknown flag: --nonsense",
        ),
    ],
)
def test_errors(runner, releases, inputs, message):
    done = runner.run(inputs, KEEPWATCH_RELEASES=releases[1])
    assert done.returncode == 1 and "::error" in done.stdout and message in done.stdout, done.stdout
    assert runner.values("GITHUB_ENV") == {}
