"""Whether a server is to be given requests. Pure: time is an argument."""

from __future__ import annotations

from typing import Final, Literal

__all__ = ["FIRST_WAIT_S", "LONGEST_WAIT_S", "Breaker", "Condition"]

#: Time until a server that is down is looked at again, at first and at most; it doubles.
FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 30.0
#: Failures in a row after which a server that can be reached counts as down.
FAILURES: Final = 3

#: ``due``: down, and it is time to look again.
Condition = Literal["up", "down", "due"]


class Breaker:
    """What is known of one server from the requests it was given."""

    __slots__ = ("_failures", "_until_s", "_wait_s", "up")

    def __init__(self) -> None:
        self.up = True
        self._failures = 0
        self._wait_s = FIRST_WAIT_S
        self._until_s = 0.0

    def condition(self, now_s: float) -> Condition:
        """Whether it may be given a request."""
        if self.up:
            return "up"
        return "due" if now_s >= self._until_s else "down"

    def claim(self, now_s: float) -> None:
        """Somebody looks whether it is back; nobody else does before the next wait is over."""
        self._until_s = now_s + self._wait_s
        self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)

    def failed(self, now_s: float, *, unreachable: bool) -> bool:
        """It failed a request, or a look; gives whether it is down since now."""
        self._failures += 1
        if not self.up or not (unreachable or self._failures >= FAILURES):
            return False
        self.up = False
        self.claim(now_s)
        return True

    def alive(self) -> bool:
        """It gave a sign of life; gives whether it is up since now.

        That proves little: the next failure is enough, and waits go on from where they were.
        """
        was_up, self.up = self.up, True
        if not was_up:
            self._failures = FAILURES - 1
        return not was_up

    def answered(self) -> None:
        """It answered a request.

        While it is down that is one sent before it went: only a look says whether it is back.
        """
        if self.up:
            self._failures = 0
            self._wait_s = FIRST_WAIT_S
