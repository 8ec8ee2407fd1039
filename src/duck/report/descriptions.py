"""Sentences about a run: the request, the method and the verdict, for readers without ML."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from duck.audits.next_step import audit_command, audit_obstacle
from duck.audits.verdict import FORGOTTEN, NO_VERDICT, NOT_FORGOTTEN, Audit, Tier
from duck.printable import counted
from duck.report.formats import format_interval, format_percent, format_seconds
from duck.report.records import StoredRun
from duck.report.results import Result, shorten_list
from duck.sample_ids import FILE as SAMPLE_IDS_FILE
from duck.scenarios import ForgetClasses, ForgetFraction, ForgetRandomClasses, ForgetSamples
from duck.unlearning import Epoch

REFERENCE_METHODS = ("original", "retrained")
SPLITS = {
    "forget": "Forgotten training samples",
    "retain": "Retained training samples",
    "forget_test": "Unseen samples of the forgotten classes",
    "retain_test": "Unseen samples of the retained classes",
    "test": "All unseen samples",
}
STRONGER_TIER: dict[str, Tier] = {"quick": "oracle", "oracle": "full"}


class VerdictText(NamedTuple):
    """A verdict in words. The headline is complete without the rest."""

    state: str
    """Selects the sign and the colour."""
    headline: str
    reasons: list[str]
    command: str = ""
    """The command that tests more."""


def describe_request(stored: StoredRun) -> str:
    """Describe what was to be forgotten, with numbers, and what was forgotten earlier.

    Sample ids are not shown, because they can name persons.
    """
    requests = [
        f"{earlier.request} (accuracy {format_percent(earlier.before)} before this request, "
        f"{format_percent(earlier.after)} after it)"
        for earlier in stored.run.earlier
    ]
    note = f" Forgotten earlier: {', '.join(requests)}." if requests else ""
    return _describe_present_request(stored) + note


def _describe_present_request(stored: StoredRun) -> str:
    samples = stored.run.samples
    count = f"{samples['forget']:,} of {samples['forget'] + samples['retain']:,} training samples"
    seed = f"chosen at random with seed {stored.run.experiment.seed}"
    names = forgotten_class_names(stored)
    class_list = shorten_list(_quote(names))
    match stored.result.request:
        case ForgetClasses():
            word = "class" if len(names) == 1 else "classes"
            return f"Forget all samples of the {word} {class_list}: {count}."
        case ForgetRandomClasses():
            label = stored.result.request_label
            return f"Forget all samples of {label}, {seed} ({class_list}): {count}."
        case ForgetFraction(fraction=fraction):
            return f"Forget {100 * fraction:g} % of the training samples, {seed}: {count}."
        case ForgetSamples():
            return f"Forget {count}, chosen by id. The ids are in {SAMPLE_IDS_FILE} of the run."
    return f"Forget {stored.result.request_label}: {count}."


def forgotten_class_names(stored: StoredRun) -> list[str]:
    """Return the classes of the request, by name if the run stores names."""
    request = stored.result.request
    if not isinstance(request, ForgetClasses | ForgetRandomClasses):
        return []
    known = stored.class_names
    names = [
        known[index] if index < len(known) else str(index) for index in stored.forgotten_classes
    ]
    if not names and isinstance(request, ForgetClasses):
        return [str(name) for name in request.classes]
    return names


def full_class_list(stored: StoredRun) -> list[str]:
    """Return all classes of the request if `describe_request` shortens them, else nothing."""
    names = _quote(forgotten_class_names(stored))
    return names if shorten_list(names) != ", ".join(names) else []


def describe_action(stored: StoredRun) -> str:
    """Describe which method was applied to which model, to how many samples, and how long."""
    result = stored.result
    samples = stored.run.samples
    training = stored.run.experiment.training
    preparation = ""
    if result.prepare_seconds:
        time = format_seconds(result.prepare_seconds)
        preparation = f", after {time} of preparation that later requests can reuse"
    return (
        f"The method {result.method} was applied to a {training.model} trained on "
        f"{training.data}. It processed {samples['processed']:,} of the "
        f"{counted(samples['forget'], 'sample')} in {format_seconds(result.seconds)}{preparation}."
    )


def describe_changes(stored: StoredRun) -> list[str]:
    """Describe how the accuracies on forgotten and on retained data changed."""
    result = stored.result
    sentences = []
    for split in dict.fromkeys((result.forget_split, "forget", result.retain_split)):
        before = result.accuracy(split, result.original)
        after = result.accuracy(split)
        if before is not None and after is not None:
            change = f"{format_percent(before.value)} before, {format_interval(after)} after"
            sentences.append(f"{SPLITS[split]}: accuracy {change}.")
    return sentences


def describe_verdict(stored: StoredRun) -> VerdictText:
    """Describe the verdict of the audit. A model that lost too much accuracy comes first."""
    verdict = _describe_audit(stored)
    if stored.run.status != "damaged":
        return verdict
    loss = str(stored.run.kept_accuracy)
    return VerdictText("damaged", loss, [verdict.headline, *verdict.reasons], verdict.command)


def _describe_audit(stored: StoredRun) -> VerdictText:
    audit = stored.audit
    if audit is None:
        return _describe_missing_audit(stored)
    tier = audit.tier
    reasons = list(audit.reasons)
    if audit.verdict == FORGOTTEN:
        headline = (
            f"Forgotten. No attack of the {tier} audit could distinguish this model from one "
            "that was trained without the samples."
        )
        return VerdictText("forgotten", headline, reasons)
    if audit.verdict == NOT_FORGOTTEN:
        headline = f"Not forgotten. The {tier} audit found traces of the samples in the model."
        return VerdictText("not-forgotten", headline, reasons)
    return _describe_no_verdict(stored, audit)


def _describe_missing_audit(stored: StoredRun) -> VerdictText:
    audit_state = (
        "The stored audit cannot be read." if stored.has_unreadable_audit else "Not audited."
    )
    headline = (
        f"{audit_state} Accuracies alone cannot show that samples were forgotten: a model that "
        "only hides its answers has the same accuracies."
    )
    obstacle = audit_obstacle(stored.run.samples)
    if obstacle:
        return VerdictText("no-audit", headline, [obstacle])
    return VerdictText("no-audit", headline, [], _audit_command(stored, "oracle"))


def _describe_no_verdict(stored: StoredRun, audit: Audit) -> VerdictText:
    tier, reasons = audit.tier, list(audit.reasons)
    if audit.powered is False:
        headline = (
            f"No verdict. The {tier} audit was not powered: on these data it cannot distinguish "
            "a model that remembers from one that has forgotten."
        )
        return VerdictText("no-verdict", headline, reasons)
    headline = f"No verdict. The {tier} audit found no trace, but cannot show that there is none."
    stronger = STRONGER_TIER.get(tier)
    command = _audit_command(stored, stronger) if stronger else ""
    return VerdictText("no-verdict", headline, reasons, command)


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
    incomplete = [run for run in runs if _has_unprocessed_samples(run)]
    method_count = "one method" if len(methods) == 1 else f"{len(methods)} methods"
    completeness = (
        f"{len(incomplete)} of them left samples out."
        if incomplete
        else "Every method that changes the model processed all samples."
    )
    return f"{counted(len(runs), 'run')} of {method_count}: {', '.join(methods)}. {completeness}"


def _has_unprocessed_samples(stored: StoredRun) -> bool:
    samples = stored.run.samples
    return samples["processed"] < samples["forget"] and stored.result.method != "original"


def describe_verdicts(runs: Sequence[StoredRun]) -> VerdictText:
    """Count the verdicts of many runs. The worst verdict selects the colour.

    Originals and retrained models are for comparison and are counted separately.
    """
    judged = [run for run in runs if run.result.method not in REFERENCE_METHODS]
    comparison = _describe_references(runs) if judged else ""
    judged = judged or list(runs)
    damaged = sum(run.run.status == "damaged" for run in judged)
    loss = f" Too much accuracy lost: {counted(damaged, 'run')}." if damaged else ""
    counts = Counter(run.verdict for run in judged)
    if set(counts) == {"no audit"}:
        return _describe_no_audits(judged, loss)
    labels = {
        NOT_FORGOTTEN: "not forgotten",
        NO_VERDICT: "without verdict",
        "no audit": "without a readable audit" if _has_unreadable(judged) else "not audited",
        FORGOTTEN: "forgotten",
    }
    worst = next(verdict for verdict in labels if counts[verdict])
    numbers = [f"{counts[verdict]} {label}" for verdict, label in labels.items() if counts[verdict]]
    state = "damaged" if damaged and worst != NOT_FORGOTTEN else worst.replace(" ", "-")
    headline = f"Of {counted(len(judged), 'run')}: {', '.join(numbers)}.{loss}{comparison}"
    return VerdictText(state, headline, [])


def _describe_references(runs: Sequence[StoredRun]) -> str:
    counts = Counter(run.result.method for run in runs if run.result.method in REFERENCE_METHODS)
    numbers = [f"{count} {name}" for name, count in counts.items()]
    return f" For comparison: {', '.join(numbers)}." if numbers else ""


def _describe_no_audits(runs: Sequence[StoredRun], loss: str) -> VerdictText:
    texts = [_describe_missing_audit(run) for run in runs]
    # An audit command is more useful than the obstacle of the first run.
    text = next((text for text in texts if text.command), texts[0])
    audit_state = (
        "No audit of these runs can be read."
        if _has_unreadable(runs)
        else "None of these runs was audited."
    )
    explanation = text.headline.partition(". ")[2]
    headline = f"{audit_state} {explanation}{loss}"
    return text._replace(state="damaged" if loss else text.state, headline=headline)


def _has_unreadable(runs: Sequence[StoredRun]) -> bool:
    return any(run.has_unreadable_audit for run in runs)


def describe_curves(result: Result, history: Sequence[Epoch]) -> str:
    """Describe the accuracy curves for readers who cannot see them."""
    last = history[-1]
    forget, retain = result.original.get("forget"), result.original.get("retain")
    return (
        f"Over {len(history)} epochs accuracy on the forgotten samples goes from "
        f"{format_percent(forget)} to {format_percent(last.forget)}, on the retained samples "
        f"from {format_percent(retain)} to {format_percent(last.retain)}."
    )


def _quote(names: Sequence[str]) -> list[str]:
    return [f"“{name}”" for name in names]
