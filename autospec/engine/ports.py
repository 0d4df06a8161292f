"""The port that a server will listen on."""

from __future__ import annotations

import secrets
import socket
from typing import Final

from autospec.errors import PortTakenError

__all__ = ["PORTS", "choose_port"]

#: Below the range from which systems take the near end of outgoing connections, since minutes pass
#: between the choice of a port and the server's listening on it.
PORTS: Final = range(21000, 30000)


def choose_port(host: str, asked: int | None = None) -> int:
    """The port asked for, or a free one.

    Raises:
        PortTakenError: it is in use, or none is free.
    """
    if asked is not None:
        if not _is_free(host, asked):
            raise PortTakenError(f"port {asked} on {host} is in use; choose another or none")
        return asked
    for _ in range(200):
        port = PORTS[secrets.randbelow(len(PORTS))]
        if _is_free(host, port):
            return port
    raise PortTakenError(f"no free port found from {PORTS[0]} to {PORTS[-1]}")


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers bind: a port whose last connections are still winding down counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
