"""Watch a speculative server through the client, with a decision rule of your own.

    python examples/policy_hook.py http://127.0.0.1:30000

Without ``plain_url`` the client only observes: the rule decides, hooks are told, and every request
goes to the one server. Give ``autospec.Client`` a ``plain_url`` and the rule routes.
"""

from __future__ import annotations

import argparse

import autospec
from autospec.client import ResponseReport, RoutingDecision
from autospec.control.policy import Decision, Observation


class FirstFew:
    """Speculates for the first answers only; a rule worth having would look at ``correct``."""

    def __init__(self, answers: int) -> None:
        self.left = answers

    def decide(self, observation: Observation) -> Decision:
        """Say how deep to draft from now on; 0 is plain decoding."""
        if observation.correct:
            self.left -= 1
        if self.left > 0:
            return Decision(1, "the first answers")
        return Decision(0, "5 answers seen")


def main() -> None:
    """Ask, and print what the hooks are told."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--requests", type=int, default=10)
    given = parser.parse_args()

    with autospec.Client(given.url, policy=FirstFew(5), depth=1) as client:

        @client.on_decision
        def decided(decision: RoutingDecision) -> None:
            print(f"{decision.action}: {decision.reason}")

        @client.on_response
        def answered(report: ResponseReport) -> None:
            length = report.accept_length or 1.0
            print(f"{report.path}: {length:.2f} tokens a step, {report.duration_ms:.0f} ms")

        for number in range(given.requests):
            client.generate(f"Tell me a fact about the number {number}.")
        print(client.metrics())


if __name__ == "__main__":
    main()
