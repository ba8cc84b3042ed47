"""An iterator of the changes of Kubernetes objects: keepwatch watch, as a process."""

import json
import logging
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Literal, Optional, Union

from ._program import KeepwatchError, find_program

_log = logging.getLogger("keepwatch")


@dataclass(frozen=True)
class Change:
    """An object was added, modified or deleted. The id is the same in every repetition of an event."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    revision: str
    id: str
    resource: str
    object: dict[str, Any]  #: of a deletion within a gap: apiVersion, kind and metadata only


@dataclass(frozen=True)
class Synced:
    """The events so far add up to the state at this revision, of count objects."""

    type: Literal["SYNCED"]
    revision: str
    count: int
    resources: tuple[str, ...] = ()  #: the types that are complete


@dataclass(frozen=True)
class Gap:
    """The history between two revisions is lost; the events up to the next Synced are the difference."""

    type: Literal["GAP"]
    from_revision: str
    to_revision: str
    reason: str  #: expired, downtime or rewind
    resource: str = ""  #: the type whose history is lost


@dataclass(frozen=True)
class Bookmark:
    """Everything up to this revision was delivered. Only with the flag --bookmarks."""

    type: Literal["BOOKMARK"]
    revision: str
    resources: tuple[str, ...] = ()


Event = Union[Change, Synced, Gap, Bookmark]


def watch(
    types: str, *flags: str, state: Union[str, "os.PathLike[str]", None] = None, program: Optional[str] = None
) -> "Watch":
    """Watches types as the command line does: watch("pods,deployments.apps", "-A", "-l", "app=web", state="web.state").

    With state, a folder, the watch resumes where the last one ended. An event counts as handled when the next one is
    requested, or by Watch.acknowledge. Whatever is killed in between, this process or keepwatch, an event that was not
    handled comes again, with the same id; so do handled ones of the same batch. What was deleted meanwhile comes as
    DELETED.
    """
    return Watch(types, *flags, state=state, program=program)


class Watch(Iterator[Event]):
    """Yields events until the program ends. Use it as a context manager, or close it. See watch.

    One thread uses a watch; another one may close it, which ends the iteration.
    """

    def __init__(
        self, types: str, *flags: str, state: Union[str, "os.PathLike[str]", None] = None, program: Optional[str] = None
    ) -> None:
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._unacknowledged = 0
        self._messages: list[str] = []
        command = [find_program(program), "watch", types, *flags, "--acknowledge"]
        if state is not None:
            command += ["--state", os.fspath(state)]
        pipe = subprocess.PIPE
        # A session of its own: an interrupt at the terminal is for the consumer, whose end ends the program.
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=-1, start_new_session=True
        )
        self._reader = threading.Thread(target=_read_messages, args=(self._process.stderr, self._messages), daemon=True)
        self._reader.start()

    def __next__(self) -> Event:
        """Acknowledges the last event, and waits for the next one. Raises KeepwatchError if the program fails."""
        self.acknowledge()
        while True:
            process = self._process
            if process is None:
                break
            try:
                line = process.stdout.readline()  # type: ignore[union-attr]
            except ValueError:  # another thread has closed it
                break
            if not line.endswith(b"\n"):  # the end; a line that is cut off comes again
                if self._process is not None:  # close() was not the reason
                    self._end(process)
                break
            self._unacknowledged += 1
            event = _decode(json.loads(line))
            if event is not None:
                return event
            self.acknowledge()
        raise StopIteration

    def acknowledge(self) -> None:
        """Marks the last event as handled, before the next one is requested: for a consumer that ends after it."""
        process = self._process
        if process is None or self._unacknowledged == 0:
            return
        try:
            process.stdin.write(b"\n" * self._unacknowledged)  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
        except (BrokenPipeError, ValueError):
            pass  # the program has ended, and reading shows why, or another thread has closed the pipe
        self._unacknowledged = 0

    def close(self) -> None:
        """Ends the program. An event that was not acknowledged comes again in the next watch with this state."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.stdin.close()  # type: ignore[union-attr]
        except BrokenPipeError:
            pass
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()  # type: ignore[union-attr]
        # A program that was killed may leave a credential plugin, which has stderr, too, as long as it runs.
        self._reader.join(timeout=5)

    def __enter__(self) -> "Watch":
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        code = process.wait()
        self.close()
        if code < 0:
            raise KeepwatchError(f"keepwatch watch was killed by signal {-code}", code)
        if code > 0:
            raise KeepwatchError(
                self._messages[-1] if self._messages else f"keepwatch watch has ended with exit code {code}", code
            )


def _read_messages(stderr: IO[bytes], last: list[str]) -> None:
    """Logs the program's messages, and keeps the last. It does not refer to the Watch, which is closed when unused."""
    with stderr:
        for line in stderr:
            text = line.decode(errors="replace").rstrip()
            if not text.startswith("See 'keepwatch "):  # which follows a wrong flag
                last[:] = [text[len("keepwatch: ") :] if text.startswith("keepwatch: ") else text]
            _log.info("%s", text)


def _decode(line: dict[str, Any]) -> Optional[Event]:
    """Returns the event of a line, or None for a type that a later version has added."""
    kind = line["type"]
    if kind in ("ADDED", "MODIFIED", "DELETED"):
        return Change(kind, line["revision"], line["id"], line["resource"], line["object"])
    if kind == "SYNCED":
        return Synced(kind, line["revision"], line["count"], tuple(line.get("resources", ())))
    if kind == "GAP":
        return Gap(kind, line["from"], line["to"], line["reason"], line.get("resource", ""))
    if kind == "BOOKMARK":
        return Bookmark(kind, line["revision"], tuple(line.get("resources", ())))
    return None
