"""Exports in child processes that are killed, or find the disk full, at one step.

A step is one change on disk: a file opened for writing, half of its content written, flushed,
renamed or deleted, a folder made or flushed. Between two steps nothing on disk changes, so to die
right after one is to die right before the next. Steps are noticed by Python's audit events, so that
no way of writing a file goes unnoticed. Each child is forked from a server that has imported
everything and has no threads.
"""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import signal
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

WRITING = os.O_WRONLY | os.O_RDWR
CHANGES = {"os.rename": "rename", "os.remove": "remove", "os.mkdir": "mkdir", "os.rmdir": "rmdir"}
NEEDS_SPACE = ("open", "half", "mkdir")
SERVER = multiprocessing.get_context("forkserver")
PRELOADED = (
    "netrc pyarrow.acero pyarrow.dataset balance_analysis.fill.imports tests.archive.exporting"
)
SERVER.set_forkserver_preload([*PRELOADED.split(), "tests.archive.crashing", "tests.waits"])

Mode = Literal["kill", "full", "nobody", "none"]


@dataclass
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

    killed: bool = False
    steps: list[tuple[str, str]] = field(default_factory=list)
    error: str | None = None
    errno: int | None = None
    said: str = ""


def export_in_child(
    url: str, folder: Path, *, mode: Mode = "none", step: int = -1, **options: Any
) -> Outcome:
    """Run an export in a child; a folder in place of an address is imported as segments.

    Parameters
    ----------
    mode
        What happens right before a step: the child is killed by SIGKILL; the disk is full from then
        on. "nobody": the child gives up all rights from the beginning on.
    step
        Which, from 0.
    """
    outcome, (said, say) = Outcome(), SERVER.Pipe(duplex=False)
    steps = Steps(say, str(folder), mode, step)
    child = SERVER.Process(target=_run, args=(steps, url, options))
    child.start()
    say.close()
    with said, contextlib.suppress(EOFError):
        while True:
            match said.recv():
                case dict(ended):
                    vars(outcome).update(ended)
                case taken:
                    outcome.steps.append(taken)
    child.join()
    outcome.killed = child.exitcode < 0
    child.close()
    return outcome


class Steps:
    """Counts the steps in a child, and does at one of them what was ordered."""

    def __init__(self, say: Connection, folder: str, mode: Mode, step: int) -> None:
        self.say, self.folder, self.mode, self._at, self._count = say, folder, mode, step, 0

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & WRITING and self.is_inside(path):
                self.take("open", path)
        elif event in CHANGES and self.is_inside(arguments[0]):
            path = Path(arguments[0])
            if event != "os.mkdir" or not path.exists():
                self.take(CHANGES[event], path)

    def take(self, kind: str, path: Any) -> None:
        number, self._count = self._count, self._count + 1
        self.say.send((kind, Path(path).name))
        if self.mode == "full" and number >= self._at and kind in NEEDS_SPACE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.mode == "kill" and number == self._at:
            os.kill(os.getpid(), signal.SIGKILL)

    def is_inside(self, path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self.folder)

    def install(self) -> None:
        """Let every change on disk be a step; content is written half by half."""

        def write_bytes(path: Path, data: bytes) -> int:
            half = len(data) // 2
            with path.open("wb", buffering=0) as file:
                file.write(data[:half])
                if self.is_inside(path):
                    self.take("half", path)
                return half + file.write(data[half:])

        def write_text(path: Path, data: str, *_: object, **__: object) -> int:
            return write_bytes(path, data.encode())

        def fsync(handle: int) -> None:
            # What a process has written outlives it, flushed or not.
            self.take("fsync", Path(f"/proc/self/fd/{handle}").readlink())

        Path.write_bytes, Path.write_text, os.fsync = write_bytes, write_text, fsync
        sys.addaudithook(self.audit)


def _run(steps: Steps, url: str, options: dict[str, Any]) -> None:
    """Export in this process, and send the steps and how it ended."""
    import balance_analysis as ba  # noqa: PLC0415 - only children export
    from tests.archive.exporting import run_export  # noqa: PLC0415
    from tests.waits import without_waits  # noqa: PLC0415

    if steps.mode == "nobody" and os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    steps.install()
    try:
        with without_waits():
            if url.startswith("http"):
                run_export(url, Path(steps.folder), **options)
            else:
                ba.import_segments(steps.folder, url, **options)
    except BaseException as error:  # noqa: BLE001 - the test gets it
        said = "".join(traceback.format_exception_only(error))
        number = getattr(error, "errno", None)
        steps.say.send({"error": type(error).__name__, "errno": number, "said": said})
