"""Writes trials without end and says what was committed: the victim of the kill test.

Run as ``python -m tests.tune.write_trials FOLDER``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from autospec.tune.study import Study
from tests.tune.fakes import CANDIDATES, measured


def main(folder: Path) -> None:
    """Create or resume a study, then complete, fail and put back trials until killed."""
    study = Study.open(folder) if (folder / "study.sqlite").exists() else Study.create(folder, {})
    study.recover()
    while True:
        config = CANDIDATES[len(study.trials()) % len(CANDIDATES)]
        trial_id = study.start(config, "tune", "written to be killed")
        if trial_id % 3 == 0:
            study.fail(trial_id, "no luck", "last line\n" * 200, 1.0)
        elif trial_id % 7 == 0:
            study.put_back(trial_id, 1.0)
        else:
            value = float(trial_id)
            study.complete(trial_id, measured(config, {1: [value] * 400}), value, 1.0)
        sys.stdout.write(f"{trial_id}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
