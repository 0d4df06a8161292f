"""Read a study with pandas: one row a trial, and one a pass.

python examples/read_study.py STUDY
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pandas as pd

from autospec.tune.study import Study


def frames(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Trials, and the passes of those that were measured."""
    with Study.open(folder) as study:
        trials = pd.DataFrame(
            {**dataclasses.asdict(trial), "config": trial.config.label} for trial in study.trials()
        )
        passes = pd.DataFrame(
            {
                "trial": trial.id,
                "config": trial.config.label,
                "part": run.part,
                "concurrency": run.concurrency,
                "output_throughput": run.output_throughput,
            }
            for trial in study.trials()
            if trial.state == "complete"
            for run in study.outline(trial.id).runs
        )
    return trials, passes


def main(folder: str) -> None:
    """Print how the trials ended and the median throughput of the best five."""
    trials, passes = frames(Path(folder))
    print(trials["state"].value_counts().to_string())
    table = passes.pivot_table(
        index="config", columns="concurrency", values="output_throughput", aggfunc="median"
    )
    best = trials.dropna(subset=["value"]).sort_values("value", ascending=False)["config"]
    print(table.loc[best.drop_duplicates().head(5)].round(1).to_string())


if __name__ == "__main__":
    main(sys.argv[1])
