"""Read a profile and say what it decided.

python examples/inspect_profile.py PROFILE
"""

from __future__ import annotations

import sys

import autospec


def main(path: str) -> None:
    """Print the verdict, the evidence and the flags."""
    profile = autospec.load_profile(path)
    print(f"{profile.verdict.decision}: {profile.verdict.reason}")
    for point in profile.points:
        if point.config == profile.verdict.best and point.vs_plain is not None:
            print(f"  {point.part}, concurrency {point.concurrency}: {point.vs_plain}")
    print(" ".join(profile.to_argv()))


if __name__ == "__main__":
    main(sys.argv[1])
