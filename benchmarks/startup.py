"""What a user waits for before anything happens: ``import autospec`` and ``autospec --help``.

Each is timed in fresh processes, after one run that is not counted. The import is timed inside the
process, without the interpreter's own start; ``--help`` is the whole process, from its start to its
end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

_GOALS_MS = {"import autospec": 150.0, "autospec --help": 350.0}
_IMPORT = "import time; t = time.perf_counter(); import autospec; print(time.perf_counter() - t)"
_HELP = "import sys; sys.argv = ['autospec', '--help']; from autospec.cli import main; main()"


def main() -> int:
    """Time both, say whether the goals are met."""
    parser = argparse.ArgumentParser(description="Time import and --help.")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    imports = [float(_run(_IMPORT)[1]) * 1000 for _ in range(options.repeats + 1)][1:]
    helps = [_run(_HELP)[0] * 1000 for _ in range(options.repeats + 1)][1:]
    met = True
    for (name, goal_ms), found in zip(_GOALS_MS.items(), (imports, helps), strict=True):
        median_ms = statistics.median(found)
        met &= median_ms <= goal_ms
        row = {"what": name, "median_ms": round(median_ms), "slowest_ms": round(max(found))}
        if options.json:
            print(json.dumps(row))
        else:
            print(f"{name}: {median_ms:.0f} ms, slowest {max(found):.0f} (goal {goal_ms:.0f})")
    return 0 if met else 1


def _run(program: str) -> tuple[float, str]:
    """Seconds that a fresh interpreter takes for a program, and what it prints."""
    began = time.perf_counter()
    done = subprocess.run(  # noqa: S603 -- this interpreter
        [sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True
    )
    return time.perf_counter() - began, done.stdout


if __name__ == "__main__":
    sys.exit(main())
