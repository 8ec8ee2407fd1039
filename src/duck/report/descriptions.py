"""What a run was asked, did, and is judged to be, in sentences for a reader who knows no machine learning."""

from collections import Counter
from datetime import UTC, datetime
from typing import NamedTuple

from duck.audits.next_step import audit_command, audit_obstacle
from duck.audits.verdict import Tier
from duck.metrics import KeptAccuracy
from duck.printable import counted
from duck.report.numbers import Measured
from duck.report.records import Entry, Stored, shortened
from duck.sample_ids import FILE as FILE_OF_IDS
from duck.scenarios import ForgetClasses, ForgetFraction, ForgetRandomClasses, ForgetSamples

YARDSTICKS = ("original", "retrained")
SPLITS = {
    "forget": "Forgotten training samples",
    "retain": "Retained training samples",
    "forget_test": "Unseen samples of the forgotten classes",
    "retain_test": "Unseen samples of the retained classes",
    "test": "All unseen samples",
}


class Verdict(NamedTuple):
    """`state` chooses sign and colour; the headline alone must be true and enough."""

    state: str
    headline: str
    reasons: list[str]
    command: str = ""
    """Which would tell more."""


def asked(stored: Stored) -> str:
    """Who was to be forgotten, with numbers, and what was forgotten earlier. Ids are not repeated: they may name persons."""
    earlier = [
        f"{one['request']} ({100 * one['before']:.1f} % right before this request, {100 * one['after']:.1f} % after it)"
        for one in stored.run.earlier
    ]
    return _asked_now(stored) + (f" Forgotten earlier: {', '.join(earlier)}." if earlier else "")


def _asked_now(stored: Stored) -> str:
    request, samples = stored.entry.request, stored.run.samples
    count = f"{samples['forget']:,} of {samples['forget'] + samples['retain']:,} training samples"
    match request:
        case ForgetClasses():
            names = gone(stored)
            return f"Forget everything of the {'class' if len(names) == 1 else 'classes'} {shortened(_quoted(names))}: {count}."
        case ForgetRandomClasses():
            drawn = f"drawn with seed {stored.run.experiment.seed}"
            which = shortened(_quoted(gone(stored)))
            return f"Forget everything of {stored.entry.asked}, {drawn} ({which}): {count}."
        case ForgetFraction(fraction=fraction):
            return f"Forget a random {100 * fraction:g} % of the training samples, drawn with seed {stored.run.experiment.seed}: {count}."
        case ForgetSamples():
            return f"Forget {count}, chosen by id (which ones: {FILE_OF_IDS} of the run)."
    return f"Forget {stored.entry.asked}: {count}."


def gone(stored: Stored) -> list[str]:
    """The classes that were to go, by name where the run keeps names."""
    request = stored.entry.request
    if not isinstance(request, ForgetClasses | ForgetRandomClasses):
        return []
    names = [
        stored.names[index] if index < len(stored.names) else str(index)
        for index in stored.forgotten
    ]
    return names or (list(map(str, request.classes)) if isinstance(request, ForgetClasses) else [])


def whole_list(stored: Stored) -> list[str]:
    """The same, where `asked` cannot show all of it."""
    names = _quoted(gone(stored))
    return names if shortened(names) != ", ".join(names) else []


def done(stored: Stored) -> str:
    """By which method, on what, how completely and how fast."""
    run, entry, made = stored.run, stored.entry, stored.run.experiment.training
    before = (
        f", after {seconds(entry.prepare_seconds)} of preparation that later requests can reuse"
        if entry.prepare_seconds
        else ""
    )
    return (
        f"The method {entry.method} was applied to a {made.model} that had been trained on {made.data}. "
        f"It processed {run.samples['processed']:,} of the {counted(run.samples['forget'], 'sample')} in {seconds(entry.seconds)}{before}."
    )


def changed(stored: Stored) -> list[str]:
    """The two numbers that everyone asks for first."""
    entry, said = stored.entry, []
    for name in dict.fromkeys((entry.gone_name, "forget", entry.kept_name)):
        before, after = entry.measured(name, entry.original), entry.measured(name)
        if before is not None and after is not None:
            said.append(
                f"{SPLITS[name]}: {percent(before.value)} recognised before, {interval(after)} after."
            )
    return said


def verdict(stored: Stored) -> Verdict:
    """Of the audit; where there was none, that. A model that lost too much accuracy is said first, whatever an audit found."""
    found = _audit_verdict(stored)
    if stored.run.status != "damaged":
        return found
    lost = str(KeptAccuracy(**stored.run.kept_accuracy or {}))
    return Verdict("damaged", lost, [found.headline, *found.reasons], found.command)


def _audit_verdict(stored: Stored) -> Verdict:
    audit = stored.audit
    if audit is None:
        known = "The audit that was made cannot be read." if stored.audit_unread else "Not audited."
        headline = f"{known} Accuracies alone cannot show that samples were forgotten: a model that hides an answer has the same ones."
        obstacle = audit_obstacle(stored.run.samples)
        return Verdict(
            "no-audit",
            headline,
            [obstacle] if obstacle else [],
            "" if obstacle else _audit(stored, "oracle"),
        )
    tier, reasons = audit.get("tier", ""), [str(reason) for reason in audit.get("reasons", ())]
    if audit["verdict"] == "forgotten":
        headline = f"Forgotten. No attack of the {tier} audit could tell this model from one that never saw the samples."
        return Verdict("forgotten", headline, reasons)
    if audit["verdict"] == "not forgotten":
        return Verdict(
            "not-forgotten",
            f"Not forgotten. The {tier} audit found traces of the samples in the model.",
            reasons,
        )
    if audit.get("powered", False) is False:
        headline = f"No verdict. The {tier} audit was not powered: on these data it could not have told remembering from forgetting."
        return Verdict("no-verdict", headline, reasons)
    stronger: Tier | None = {"quick": "oracle", "oracle": "full"}.get(tier)  # type: ignore[assignment]
    command = _audit(stored, stronger) if stronger else ""
    return Verdict(
        "no-verdict",
        f"No verdict. The {tier} audit found no trace, but cannot show that there is none.",
        reasons,
        command,
    )


def _audit(stored: Stored, tier: Tier) -> str:
    """Evidence travels: of the machine's folders only the last part stays, and the original's weights are not named."""
    return audit_command(stored.run, stored.folder.name, tier)


def all_asked(runs: list[Stored]) -> list[str]:
    """The requests of many runs, each once."""
    counts = Counter(
        (run.entry.asked_whole, run.entry.asked, run.run.experiment.training.data) for run in runs
    )
    return [
        f"Forget {asked} of {data} ({count} {'run' if count == 1 else 'runs'})"
        for (_, asked, data), count in counts.items()
    ]


def all_done(runs: list[Stored]) -> str:
    """By whom, and whether all of it."""
    methods = sorted({run.entry.method for run in runs})
    some = [
        run
        for run in runs
        if run.run.samples["processed"] < run.run.samples["forget"]
        and run.entry.method != "original"
    ]
    whole = (
        f"{len(some)} of them left samples out."
        if some
        else "Each that changes the model processed every sample."
    )
    of = "one method" if len(methods) == 1 else f"{len(methods)} methods"
    return f"{counted(len(runs), 'run')} of {of}: {', '.join(methods)}. {whole}"


def verdicts(runs: list[Stored]) -> Verdict:
    """Of many runs: how many of each; the worst gives the colour. Yardsticks, which show what an audit can tell, are named apart."""
    beside = Counter(run.entry.method for run in runs if run.entry.method in YARDSTICKS)
    judged = [run for run in runs if run.entry.method not in YARDSTICKS] or runs
    counts = Counter(run.verdict for run in judged)
    damaged = sum(run.run.status == "damaged" for run in judged)
    lost = f" Too much accuracy lost: {counted(damaged, 'run')}." if damaged else ""
    if set(counts) == {"no audit"}:
        found = [_audit_verdict(run) for run in judged]
        alone = next((one for one in found if one.command), found[0])
        said = (
            "No audit of these runs can be read."
            if any(run.audit_unread for run in judged)
            else "None of these runs was audited."
        )
        state = "damaged" if damaged else alone.state
        return alone._replace(
            state=state, headline=f"{said} {alone.headline.partition('. ')[2]}{lost}"
        )
    unread = (
        "without an audit that can be read"
        if any(run.audit_unread for run in judged)
        else "not audited"
    )
    named = {
        "not forgotten": "not forgotten",
        "no verdict": "without verdict",
        "no audit": unread,
        "forgotten": "forgotten",
    }
    worst = next(name for name in named if counts[name])
    said = ", ".join(f"{counts[name]} {text}" for name, text in named.items() if counts[name])
    yardsticks = (
        f" Beside them, as yardsticks: {', '.join(f'{count} {name}' for name, count in beside.items())}."
        if beside
        else ""
    )
    state = "damaged" if damaged and worst != "not forgotten" else worst.replace(" ", "-")
    return Verdict(
        state,
        f"Of {counted(len(judged), 'run')}: {said}.{lost}{yardsticks if judged is not runs else ''}",
        [],
    )


def curve_words(entry: Entry, history: list[dict[str, float]]) -> str:
    """The curves for those who cannot see them."""
    last = history[-1]
    start = entry.original.get("forget"), entry.original.get("retain")
    return (
        f"Over {len(history)} epochs accuracy on the forgotten samples goes from {percent(start[0])} to {percent(last['forget'])}, "
        f"on the retained samples from {percent(start[1])} to {percent(last['retain'])}."
    )


def moment(created: str) -> str:
    """2026-11-15 10:00 UTC"""
    return (
        datetime.fromisoformat(created).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
        if created
        else "an unknown time"
    )


def percent(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def points(value: float | None) -> str:
    """A difference of accuracies."""
    if value is None:
        return "–"
    return "0.0" if abs(value) < 5e-4 else f"{100 * value:+.1f}".replace("-", "−")


def signed(value: float, digits: int = 4) -> str:
    """+0.0304, −0.0001"""
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")


def interval(measured: Measured | None) -> str:
    """97.6 % [93.8, 99.1]"""
    if measured is None:
        return "–"
    if measured.low is None or measured.high is None:
        return percent(measured.value)
    return f"{percent(measured.value)} [{100 * measured.low:.1f}, {100 * measured.high:.1f}]"


def number(measured: Measured | None, digits: int = 3) -> str:
    """0.987 [0.961, 1.002]"""
    if measured is None:
        return "–"
    if measured.low is None or measured.high is None:
        return f"{measured.value:.{digits}f}"
    return f"{measured.value:.{digits}f} [{measured.low:.{digits}f}, {measured.high:.{digits}f}]"


def seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 100 else f"{value / 60:.1f} min"


def _quoted(names: list[str]) -> list[str]:
    return [f"“{name}”" for name in names]
