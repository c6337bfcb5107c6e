"""Exports in child processes that are killed, or find the disk full, at one step.

A step is one change on disk: a file opened for writing, half of its content written, flushed,
renamed or deleted, a folder made or flushed. Between two steps nothing on disk changes, so to die
right after one is to die right before the next. Steps are noticed by Python's audit events, so that
no way of writing a file goes unnoticed.

`python -m tests.archive.crashing` is a server that has imported everything, has no threads, and
forks a child for each export.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import signal
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
WRITING = os.O_WRONLY | os.O_RDWR
CHANGES = {"os.rename": "rename", "os.remove": "remove", "os.mkdir": "mkdir", "os.rmdir": "rmdir"}
NEEDS_SPACE = ("open", "half", "mkdir")

Mode = Literal["kill", "full", "nobody", "none"]


@dataclass(frozen=True)
class Outcome:
    """How a child ended.

    Attributes
    ----------
    killed
        Whether a signal ended it.
    steps
        What it did on disk, up to its end: of each step its kind and the file's name.
    error, errno
        The name of the exception that ended the export, and its number in the system.
    said
        The message of the exception.
    """

    killed: bool
    steps: list[list[str]]
    error: str | None = None
    errno: int | None = None
    said: str = ""


class Crasher:
    """The server, as the tests see it."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.archive.crashing"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(10)

    def export(
        self,
        url: str,
        folder: Path,
        *,
        mode: Mode = "none",
        step: int = -1,
        **options: Any,
    ) -> Outcome:
        """Run an export in a child; a folder in place of an address is imported as segments.

        Parameters
        ----------
        mode
            What happens right before a step: the child is killed by SIGKILL; the disk is full from
            then on. "nobody": the child gives up all rights from the beginning on.
        step
            Which, from 0.
        """
        order = {"url": url, "folder": str(folder), "mode": mode, "step": step}
        self._process.stdin.write(json.dumps({**order, "options": options}) + "\n")
        self._process.stdin.flush()
        return Outcome(**json.loads(self._process.stdout.readline()))


class Steps:
    """Counts the steps in a child, and does at one of them what the order says."""

    def __init__(self, order: dict[str, Any], log: int) -> None:
        self._order, self._log, self._count = order, log, 0
        self.folder = order["folder"]

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & WRITING and self._is_inside(path):
                self.take("open", path)
        elif event in CHANGES and self._is_inside(arguments[0]):
            path = Path(arguments[0])
            if event != "os.mkdir" or not path.exists():
                self.take(CHANGES[event], path)

    def take(self, kind: str, path: Any) -> None:
        number, self._count = self._count, self._count + 1
        os.write(self._log, (json.dumps([kind, Path(path).name]) + "\n").encode())
        self._act(kind, number)

    def _act(self, kind: str, number: int) -> None:
        mode, at = self._order["mode"], self._order["step"]
        if mode == "full" and number >= at and kind in NEEDS_SPACE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if number != at:
            return
        if mode == "kill":
            os.kill(os.getpid(), signal.SIGKILL)

    def _is_inside(self, path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self.folder)


def _install(steps: Steps) -> None:
    """Let every change on disk be a step; content is written half by half."""

    def write_bytes(path: Path, data: bytes) -> int:
        half = len(data) // 2
        with path.open("wb", buffering=0) as file:
            file.write(data[:half])
            if steps._is_inside(path):
                steps.take("half", path)
            return half + file.write(data[half:])

    def write_text(path: Path, data: str, *_: object, **__: object) -> int:
        return write_bytes(path, data.encode())

    def fsync(handle: int) -> None:
        # What a process has written outlives it, flushed or not.
        steps.take("fsync", Path(f"/proc/self/fd/{handle}").readlink())

    Path.write_bytes, Path.write_text, os.fsync = write_bytes, write_text, fsync
    sys.addaudithook(steps.audit)


def _run(order: dict[str, Any], log: int) -> dict[str, Any]:
    """Export in this process, and return how it ended."""
    import balance_analysis as ba  # noqa: PLC0415 - only the server exports
    from tests.archive.exporting import run_export  # noqa: PLC0415

    if order["mode"] == "nobody" and os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    _install(Steps(order, log))
    try:
        if order["url"].startswith("http"):
            run_export(order["url"], Path(order["folder"]), **order["options"])
        else:
            ba.import_segments(ba.Archive(order["folder"]), order["url"], **order["options"])
    except BaseException as error:  # noqa: BLE001 - the test gets it
        number = getattr(error, "errno", None)
        said = "".join(traceback.format_exception_only(error))
        return {"error": type(error).__name__, "errno": number, "said": said}
    return {}


def _fork(order: dict[str, Any]) -> dict[str, Any]:
    reading, writing = os.pipe()
    steps_out, log = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.close(steps_out)
        with contextlib.suppress(BaseException):
            os.write(writing, json.dumps(_run(order, log)).encode())
        os._exit(0)
    os.close(writing)
    os.close(log)
    with open(steps_out) as lines, open(reading) as pipe:  # noqa: PTH123 - pipes
        steps = [json.loads(line) for line in lines]
        content = pipe.read()
    _, status = os.waitpid(child, 0)
    ended = json.loads(content) if content else {}
    return {"killed": os.WIFSIGNALED(status), "steps": steps, **ended}


def _orders() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)


def main() -> None:
    """Serve until the tests close the pipe."""
    import netrc  # noqa: F401, PLC0415 - imported here once, for all children

    import pyarrow.acero  # noqa: PLC0415
    import pyarrow.dataset  # noqa: F401, PLC0415

    import balance_analysis.fill.imports  # noqa: F401, PLC0415
    import tests.archive.exporting  # noqa: F401, PLC0415
    from tests.waits import without_waits  # noqa: PLC0415

    gc.freeze()  # so that children share what is there
    with without_waits():
        for order in _orders():
            print(json.dumps(_fork(order)), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
