"""The audit: gaps, duplicates and late messages, and whether each loss was reported.

The messages of a session and topic are numbered without gaps, so an archive can be checked against itself: each number
must be there once, in a message or in a loss that the bus, the recorder or a repair has reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.spark.pipelines.audit_results import summary, verdicts
from ipcbus.spark.pipelines.pipeline import Pipeline
from ipcbus.spark.pipelines.sequence_runs import COLUMNS, TABLE, merge, sequence_runs

if TYPE_CHECKING:
    from ipcbus.spark.pipelines.pipeline import Tables


def pipeline(*, order: bool = False) -> Pipeline:
    """Returns the pipeline `audit`.

    Args:
        order: check the order of all messages, not only where numbers are missing or come twice. Takes about ten times
            as long; without it, `late` is null where nothing else is wrong.
    """
    return Pipeline(
        name="audit",
        columns=COLUMNS,
        events=True,
        partials=lambda rows: {TABLE: sequence_runs(rows, order=order)},
        merge={TABLE: merge},
        results=_results,
    )


def _results(tables: Tables) -> Tables:
    account = verdicts(tables[TABLE])
    return {"audit": account, "summary": summary(account)}
