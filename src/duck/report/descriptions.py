"""Sentences about runs: the request, the method and the verdict, for readers without ML."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from duck.audits.next_step import audit_command, audit_obstacle
from duck.audits.verdict import FORGOTTEN, NO_VERDICT, NOT_FORGOTTEN, Tier
from duck.printable import counted
from duck.report.formats import format_percent
from duck.report.records import Contents, StoredRun
from duck.report.results import shorten_list
from duck.sample_ids import FILE as SAMPLE_IDS_FILE
from duck.scenarios import ForgetClasses, ForgetFraction, ForgetRandomClasses, ForgetSamples

REFERENCE_METHODS = ("original", "retrained")
SPLITS = {
    "forget": "Forgotten training samples",
    "retain": "Retained training samples",
    "forget_test": "Unseen samples of the forgotten classes",
    "retain_test": "Unseen samples of the retained classes",
    "test": "All unseen samples",
}
STRONGER_TIER: dict[Tier, Tier] = {"quick": "oracle", "oracle": "full"}
HEADLINES = {
    FORGOTTEN: "Forgotten. No attack of the {} audit could distinguish this model from one that "
    "was trained without the samples.",
    NOT_FORGOTTEN: "Not forgotten. The {} audit found traces of the samples in the model.",
    NO_VERDICT: "No verdict. The {} audit found no trace, but cannot show that there is none.",
    "not powered": "No verdict. The {} audit was not powered: on these data it cannot distinguish "
    "a model that remembers from one that has forgotten.",
}
WHY_AUDIT = (
    "Accuracies alone cannot show that samples were forgotten: a model that only hides its answers "
    "has the same accuracies."
)
NO_AUDITS = "None of these runs was audited."


class VerdictText(NamedTuple):
    """A verdict in words. The headline is complete without the rest."""

    state: str
    """Selects the sign and the colour."""
    headline: str
    reasons: Sequence[str] = ()
    command: str = ""
    """The command that tests more."""


def page_title(contents: Contents) -> str:
    """Return the title of the page."""
    runs, removals = contents.runs, contents.removals
    bench = [result for result in contents.bench if result.is_unlearning]
    if not runs and (bench or not removals):
        count = f": {counted(len(bench), 'run')}" if bench else ""
        return f"Unlearning bench{count}"
    names = [run.run.experiment.training.data for run in runs]
    names = names or [removal.record.data for removal in removals]
    data = ", ".join(dict.fromkeys(names))
    if len(runs) == 1:
        return f"Unlearning report: {runs[0].result.request_label} of {data}"
    if runs:
        return f"Unlearning report: {len(runs)} runs on {data}"
    if len(removals) > 1:
        return f"Bias removal report: {len(removals)} on {data}"
    record = removals[0].record
    return f"Bias removal report: “{record.true}” labelled “{record.wrong}” in {data}"


def describe_request(stored: StoredRun) -> str:
    """Describe what was to be forgotten, with numbers, and what was forgotten earlier.

    Sample ids are not shown, because they can name persons.
    """
    samples = stored.run.samples
    count = f"{samples['forget']:,} of {samples['forget'] + samples['retain']:,} training samples"
    seed = f"chosen at random with seed {stored.run.experiment.seed}"
    label = stored.result.request_label
    names = forgotten_class_names(stored)
    match stored.result.request:
        case ForgetClasses():
            word = "class" if len(names) == 1 else "classes"
            text = f"Forget all samples of the {word} {shorten_list(names)}: {count}."
        case ForgetRandomClasses():
            text = f"Forget all samples of {label}, {seed} ({shorten_list(names)}): {count}."
        case ForgetFraction(fraction=fraction):
            text = f"Forget {100 * fraction:g} % of the training samples, {seed}: {count}."
        case ForgetSamples():
            text = f"Forget {count}, chosen by id. The ids are in {SAMPLE_IDS_FILE} of the run."
        case _:
            text = f"Forget {label}: {count}."
    earlier = [
        f"{one.request} (accuracy {format_percent(one.before)} before this request, "
        f"{format_percent(one.after)} after it)"
        for one in stored.run.earlier
    ]
    return f"{text} Forgotten earlier: {', '.join(earlier)}." if earlier else text


def forgotten_class_names(stored: StoredRun) -> list[str]:
    """Return the classes of the request in quotes, by name if the run stores names."""
    request = stored.result.request
    if not isinstance(request, ForgetClasses | ForgetRandomClasses):
        return []
    names = [stored.class_name(index) for index in stored.forgotten_classes]
    if not names and isinstance(request, ForgetClasses):
        names = [str(name) for name in request.classes]
    return [f"“{name}”" for name in names]


def full_class_list(stored: StoredRun) -> list[str]:
    """Return all classes of the request if `describe_request` shortens them, else nothing."""
    names = forgotten_class_names(stored)
    return names if shorten_list(names) != ", ".join(names) else []


def describe_verdict(stored: StoredRun) -> VerdictText:
    """Describe the verdict of the audit. A model that lost too much accuracy comes first."""
    text = _describe_audit(stored)
    if stored.run.status != "damaged":
        return text
    reasons = [text.headline, *text.reasons]
    return VerdictText("damaged", str(stored.run.kept_accuracy), reasons, text.command)


def _describe_audit(stored: StoredRun) -> VerdictText:
    audit = stored.audit
    if audit is None:
        state = (
            "The stored audit cannot be read." if stored.has_unreadable_audit else "Not audited."
        )
        return VerdictText("no-audit", f"{state} {WHY_AUDIT}", *_first_audit(stored))
    is_unpowered = audit.verdict == NO_VERDICT and audit.powered is False
    command = ""
    if audit.verdict == NO_VERDICT and not is_unpowered and audit.tier in STRONGER_TIER:
        command = _audit_command(stored, STRONGER_TIER[audit.tier])
    headline = HEADLINES["not powered" if is_unpowered else audit.verdict].format(audit.tier)
    return VerdictText(audit.verdict.replace(" ", "-"), headline, audit.reasons, command)


def _first_audit(stored: StoredRun) -> tuple[list[str], str]:
    """Return the reasons why a run cannot be audited, or the command that audits it."""
    obstacle = audit_obstacle(stored.run.samples)
    return ([obstacle], "") if obstacle else ([], _audit_command(stored, "oracle"))


def _audit_command(stored: StoredRun, tier: Tier) -> str:
    """Return the audit command, with folders by their last part and without weights.

    A report is sent to others, and paths of this machine can name persons.
    """
    return audit_command(stored.run, stored.folder.name, tier)


def list_requests(runs: Sequence[StoredRun]) -> list[str]:
    """List the requests of many runs, each once."""
    counts = Counter(
        (run.result.request_text, run.result.request_label, run.run.experiment.training.data)
        for run in runs
    )
    return [
        f"Forget {label} of {data} ({counted(count, 'run')})"
        for (_, label, data), count in counts.items()
    ]


def describe_actions(runs: Sequence[StoredRun]) -> str:
    """Describe which methods many runs used, and whether they processed every sample."""
    methods = sorted({run.result.method for run in runs})
    changed = [run.run.samples for run in runs if run.result.method != "original"]
    incomplete = sum(samples["processed"] < samples["forget"] for samples in changed)
    completeness = "Every method that changes the model processed all samples."
    if incomplete:
        completeness = f"{incomplete} of them left samples out."
    method_count = "one method" if len(methods) == 1 else f"{len(methods)} methods"
    return f"{counted(len(runs), 'run')} of {method_count}: {', '.join(methods)}. {completeness}"


def describe_verdicts(runs: Sequence[StoredRun]) -> VerdictText:
    """Count the verdicts of many runs. The worst verdict selects the colour.

    Originals and retrained models are for comparison and are counted separately.
    """
    references = Counter(run.result.method for run in runs)
    numbers = [f"{references[name]} {name}" for name in references if name in REFERENCE_METHODS]
    judged = [run for run in runs if run.result.method not in REFERENCE_METHODS]
    comparison = f" For comparison: {', '.join(numbers)}." if judged and numbers else ""
    judged = judged or list(runs)
    damaged = sum(run.run.status == "damaged" for run in judged)
    loss = f" Too much accuracy lost: {counted(damaged, 'run')}." if damaged else ""
    is_unreadable = any(run.has_unreadable_audit for run in judged)
    counts = Counter(run.verdict for run in judged)
    if set(counts) == {"no audit"}:
        # An audit command is more useful than the obstacle of the first run.
        reasons, command = max(map(_first_audit, judged), key=lambda advice: bool(advice[1]))
        audits = "No audit of these runs can be read." if is_unreadable else NO_AUDITS
        headline = f"{audits} {WHY_AUDIT}{loss}"
        return VerdictText("damaged" if loss else "no-audit", headline, reasons, command)
    labels = {
        NOT_FORGOTTEN: "not forgotten",
        NO_VERDICT: "without verdict",
        "no audit": "without a readable audit" if is_unreadable else "not audited",
        FORGOTTEN: "forgotten",
    }
    verdicts = [verdict for verdict in labels if counts[verdict]]
    state = "damaged" if damaged and verdicts[0] != NOT_FORGOTTEN else verdicts[0].replace(" ", "-")
    texts = [f"{counts[verdict]} {labels[verdict]}" for verdict in verdicts]
    headline = f"Of {counted(len(judged), 'run')}: {', '.join(texts)}.{loss}{comparison}"
    return VerdictText(state, headline)
