"""A Kubernetes API server for tests: keepwatch serve, as a process, with its data in memory."""

import base64
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
from types import TracebackType
from typing import Optional

from ._program import KeepwatchError, find_program


class Server:
    """Starts a server on a free port of 127.0.0.1, and waits until it is ready. Flags are those of keepwatch serve.

    Use it as a context manager, or stop it. It also ends when this process ends, however it ends.
    """

    url: str  #: https://127.0.0.1:PORT
    token: str  #: the administrator's bearer token
    kubeconfig: str  #: the path of a file
    certificate_authority: bytes  #: PEM

    def __init__(self, *flags: str, program: Optional[str] = None) -> None:
        self._folder = tempfile.mkdtemp(prefix="keepwatch-")
        self._process: Optional[subprocess.Popen[bytes]] = None
        try:
            self._start(find_program(program), flags)
        except BaseException:
            self.stop()
            raise

    def _start(self, program: str, flags: "tuple[str, ...]") -> None:
        folder = pathlib.Path(self._folder)
        kubeconfig, log = folder / "kubeconfig", folder / "log"
        fixed = ("serve", "--listen", "127.0.0.1:0", "--kubeconfig-out", str(kubeconfig), "--end-with-parent")
        with log.open("wb") as stderr:
            # A session of its own: after an interrupt at the terminal, fixtures still clean up on the server.
            self._process = subprocess.Popen(
                [program, *fixed, *flags],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                start_new_session=True,
            )
        while not kubeconfig.exists():  # the server writes it when it is ready
            code = self._process.poll()
            if code is not None:
                raise KeepwatchError(f"keepwatch serve has ended: {log.read_text(errors='replace').strip()}", code)
            time.sleep(0.01)
        text = kubeconfig.read_text()
        self.kubeconfig = str(kubeconfig)
        self.url = _field(text, "server")
        self.token = _field(text, "token")
        self.certificate_authority = base64.b64decode(_field(text, "certificate-authority-data"))

    def stop(self) -> None:
        """Ends the server, whose data are gone then."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.stop()


def _field(kubeconfig: str, name: str) -> str:
    """Returns a field of the kubeconfig that the server writes, which has one cluster and one user."""
    found = re.search(rf"^[ -]*{name}: (\S+)$", kubeconfig, re.MULTILINE)
    if found is None:
        raise KeepwatchError(f"the kubeconfig of keepwatch serve has no {name}")
    value = found[1]
    if value.startswith('"'):  # what would be a number, for example
        return str(json.loads(value))
    return value[1:-1].replace("''", "'") if value.startswith("'") else value
