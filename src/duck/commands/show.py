"""Read a stored run and the verdict of its audits."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from duck import runs
from duck.audits.next_step import audit_command, verdict_without_audit
from duck.audits.options import AuditOptions
from duck.audits.strongest_audit import strongest_audit, undecided_tier
from duck.audits.verdict import NOT_FORGOTTEN, TIERS, Audit, file_of
from duck.records import InvalidRecord, read_record


@dataclass(frozen=True)
class ShownRun:
    """A stored run, judged by the default limit on the loss of accuracy."""

    run: runs.Run
    record: dict[str, Any]
    """The content of run.json, with digests in place of sample ids."""
    verdict: list[str]
    """What its audits found, as sentences; empty for an original model."""


def show_run(folder: Path) -> ShownRun:
    """Read a stored run and the verdict of its strongest audit, as `duck show` does."""
    record = runs.read_record(folder)
    run = runs.load(folder)
    if run.kept_accuracy:
        judged = {"status": run.status, "kept_accuracy": asdict(run.kept_accuracy)}
        record = {**record, **judged, "notes": run.notes}
    return ShownRun(run, record, _describe_verdict(folder, run) if run.experiment.request else [])


def _describe_verdict(folder: Path, run: runs.Run) -> list[str]:
    """Return the verdict of the strongest stored audit; without one, what the scores show."""
    lines: list[str] = []
    audits: list[Audit] = []
    for tier in TIERS:
        file = folder / file_of(tier)
        try:
            if file.exists():
                audits.append(read_record(file, Audit))
        except (OSError, InvalidRecord):
            command = audit_command(run, str(folder), AuditOptions(tier))
            lines.append(f"{file} cannot be read: run `{command}` again.")
    strongest = strongest_audit(audits)
    if strongest is not None:
        verdict = f"Verdict ({strongest.tier} audit): {strongest.verdict_in_words}."
        return [*lines, f"{verdict} {undecided_tier(audits)}".strip()]
    if run.forgot is False:
        return [*lines, f"Verdict: {NOT_FORGOTTEN}."]
    return [*lines, verdict_without_audit(run, folder)]
