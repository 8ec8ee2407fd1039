"""duck audit: attack an unlearned model and print the verdict."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from duck.audits.options import AuditOptions
from duck.audits.verdict import FORGOTTEN, NO_VERDICT, NOT_FORGOTTEN
from duck.cli import exit_codes
from duck.cli.console import CONSOLE, emit, say, write
from duck.cli.parsing import parse
from duck.commands.audit import RunAudit, audit_run

EXIT_CODES = {
    FORGOTTEN: exit_codes.DONE,
    NOT_FORGOTTEN: exit_codes.FAILED,
    NO_VERDICT: exit_codes.NO_VERDICT,
}


@dataclass
class AuditFlags:
    """Attack an unlearned model and judge whether it forgot, with intervals and controls.

    quick: the model alone, seconds. The verdict is "not forgotten" or "no verdict".

    oracle: compares with models retrained without the samples. They are trained now and stored
    next to the run, or given with --retrained.

    full: also with a pool of models: U-LiRA, LiRA, RMIA, ε, KLoM, memorisation.

    The result of each tier is stored as audit-TIER.json in the folder of the run. A report shows
    the highest that has a verdict. Exit codes: 0 forgotten; 1 not forgotten, or the run lost too
    much accuracy; 2 wrong input; 3 no verdict.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a run of `duck forget`."""
    audit: AuditOptions = field(default_factory=AuditOptions)
    json: bool = False
    """Print the content of the file to stdout instead of a table."""


def main(argv: list[str]) -> int:
    args = parse(AuditFlags, argv, "audit")
    found = audit_run(args.run, args.audit, CONSOLE)
    if args.json:
        emit(found.audit.to_dict())
    else:
        write(found.audit)
    found.check_current()
    if found.not_stored:
        say(found.not_stored)
    return _exit_code(found)


def _exit_code(found: RunAudit) -> int:
    if found.run.status == "damaged":
        say(str(found.run.kept_accuracy))
        return exit_codes.FAILED
    return EXIT_CODES[found.audit.verdict]
