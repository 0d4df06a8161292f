"""Ends reads of blocking sockets that take too long, with one thread for all of them.

A stream's first byte has a limit of its own, but httpcore keeps one read timeout for a whole body.
Shutting the socket down ends a read that waits in another thread.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import socket
import threading
import time
from typing import Any

__all__ = ["Deadline", "Watchdog"]


class Deadline:
    """One read that must end in time.

    Attributes:
        expired: whether it did not, and was ended.
    """

    __slots__ = ("_lock", "_over", "_sock", "expired")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self._over = False
        self.expired = False

    def met(self) -> None:
        """The read has ended; nothing happens to its socket any more."""
        with self._lock:
            self._over = True

    def expire(self) -> None:
        """End the read, unless it has ended."""
        with self._lock:
            if self._over:
                return
            self.expired = True
            with contextlib.suppress(OSError):
                # That of the plain class: a TLS socket's would take its state from under a reader.
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)


class Watchdog:
    """Watches reads; its thread lives while there are any, and ends with the program."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, Deadline]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def watch(self, network_stream: Any, limit_s: float) -> Deadline | None:
        """Watch a read that is about to begin; None where there is no socket to shut down.

        Args:
            network_stream: httpcore's, from a response's extensions.
            limit_s: time from now.
        """
        get = getattr(network_stream, "get_extra_info", None)
        sock = get("socket") if get is not None else None
        if not isinstance(sock, socket.socket):
            return None
        deadline = Deadline(sock)
        with self._changed:
            entry = (time.monotonic() + limit_s, next(self._numbers), deadline)
            heapq.heappush(self._waiting, entry)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="autospec-deadlines", daemon=True
                )
                self._thread.start()
            elif self._waiting[0] is entry:
                self._changed.notify()
        return deadline

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._thread = None
                    return
                rest_s = self._waiting[0][0] - time.monotonic()
                if rest_s > 0:
                    self._changed.wait(rest_s)
                    continue
                deadline = heapq.heappop(self._waiting)[2]
            deadline.expire()
