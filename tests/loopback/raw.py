"""A server that writes whatever bytes a test wants, as long as the client takes them."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


@contextlib.contextmanager
def raw_server(pieces: Callable[[bytes], Iterable[bytes]]) -> Iterator[str]:
    """Serve one answer a connection on a free port of 127.0.0.1, and yield the base address.

    Parameters
    ----------
    pieces
        Gets the head of the request; what it returns is sent piece by piece.
    """
    stopped = threading.Event()
    threads: list[threading.Thread] = []

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(10)
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(65536)
            for piece in pieces(head):
                if stopped.is_set():
                    return
                connection.sendall(piece)

    def accept() -> None:
        while not stopped.is_set():
            with contextlib.suppress(TimeoutError):
                connection, _ = listener.accept()
                threads.append(threading.Thread(target=answer, args=(connection,), daemon=True))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.02)
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stopped.set()
            for thread in (accepting, *threads):
                thread.join(5)
