"""How long ``autospec report`` takes and how large its page is, for a study of many trials.

The study is synthetic: its figures come from a formula (``tests/report/synthetic.py``), but the
program's own writer wrote it, request records included. Timed is the whole command in a process of
its own, imports and all, after one run that is not counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.report.synthetic import write_study

_PROGRAM = "from autospec.cli import main; main()"
_MOST_S, _MOST_MIB = 5.0, 3.0


def main() -> int:
    """Write the study, time the command, say whether the goals are met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        study, page = Path(folder, "study"), Path(folder, "report.html")
        write_study(study, options.trials)
        study_mib = sum(file.stat().st_size for file in study.iterdir()) / 2**20
        seconds = [_run(study, page) for _ in range(options.repeats + 1)][1:]
        page_mib = page.stat().st_size / 2**20
    result = {
        "trials": options.trials,
        "study_mib": round(study_mib, 1),
        "median_s": round(statistics.median(seconds), 2),
        "slowest_s": round(max(seconds), 2),
        "page_mib": round(page_mib, 2),
        "met": max(seconds) <= _MOST_S and page_mib <= _MOST_MIB,
    }
    if options.json:
        print(json.dumps(result))
    else:
        print(
            f"synthetic study of {options.trials} trials ({study_mib:.0f} MiB): "
            f"{result['median_s']} s (slowest {result['slowest_s']} s; goal {_MOST_S:g}), "
            f"page {result['page_mib']} MiB (goal {_MOST_MIB:g})"
        )
    return 0 if result["met"] else 1


def _run(study: Path, page: Path) -> float:
    began = time.perf_counter()
    command = [sys.executable, "-c", _PROGRAM, "report", str(study), "-o", str(page)]
    subprocess.run(command, check=True, timeout=120, capture_output=True)  # noqa: S603 -- our own
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
