"""The audits of one run as one verdict: every command that shows a verdict uses this rule."""

from collections.abc import Sequence
from dataclasses import replace

from duck.audits.verdict import NO_VERDICT, NOT_FORGOTTEN, TIERS, Audit, file_of


def strongest_audit(audits: Sequence[Audit]) -> Audit | None:
    """Return the audit of the highest tier that has a verdict; if none has, the highest tier.

    Its reasons also say that a higher tier has no verdict, and why a lower tier found "not
    forgotten". `not_tested` is that of the highest tier.
    """
    if not audits:
        return None
    chosen = max(audits, key=lambda audit: (audit.verdict != NO_VERDICT, _rank(audit)))
    undecided = undecided_tier(audits)
    reasons = [*chosen.reasons, *([undecided] if undecided else [])]
    for audit in audits:
        if audit.verdict == NOT_FORGOTTEN and _rank(audit) < _rank(chosen):
            tier = f"{audit.tier.capitalize()} tier, {audit.verdict}"
            new = [why for why in audit.reasons if not any(why in known for known in reasons)]
            reasons += [f"{tier}: {reason}" for reason in new]
    # Each tier repeats the attacks of those below it.
    not_tested = max(audits, key=_rank).not_tested
    return replace(chosen, reasons=tuple(reasons), not_tested=not_tested)


def undecided_tier(audits: Sequence[Audit]) -> str:
    """Return a sentence if the highest tier has no verdict and a lower one has; else ""."""
    highest = max(audits, key=_rank)
    if highest.verdict != NO_VERDICT or all(audit.verdict == NO_VERDICT for audit in audits):
        return ""
    return f"The {highest.tier} audit, in {file_of(highest.tier)}, ended without a verdict."


def _rank(audit: Audit) -> int:
    return TIERS.index(audit.tier)
