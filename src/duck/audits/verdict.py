"""The outcome of an audit: verdict, reasons, numbers, controls, and what was not tested."""

import textwrap
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from duck import files
from duck.errors import BadInput
from duck.records import Count, InvalidRecord, check_equal_lengths, read_record, to_plain
from duck.types import Estimate

Tier = Literal["quick", "oracle", "full"]
TIERS: tuple[Tier, ...] = get_args(Tier)
"""The weakest first."""
Unit = Literal["%", "nats", "AUC", "steps", "score", "distance"]
Question = Literal["remembers", "exposed", "differs"]
"""Remembers: does the model know the forget samples as the original does? Exposed: do they stand
out in any direction? Differs: is the model unlike retrained ones elsewhere?"""
Answer = Literal["yes", "no", "undecided"]
Verdict = Literal["forgotten", "not forgotten", "no verdict"]
FORGOTTEN: Verdict = "forgotten"
NOT_FORGOTTEN: Verdict = "not forgotten"
NO_VERDICT: Verdict = "no verdict"
NO_RETAIN_DATA = (
    "An audit compares with retain samples, and the request has all training samples: give some "
    "others that the model was trained on."
)
MODELS = ("original", "unlearned", "retrained")
DEFAULT_MODELS = 6
"""Retrained models. One more than an interval needs: each of them is judged by five others."""
RETRAINED_ACCURACY = "retrained accuracy"
"""The control that retrained models know the retained samples as well as the original does."""
MARGIN = 0.1
MAX_ADVANTAGE = 0.05
MAX_EPSILON = 1.0
INTERVALS = "Intervals are of each row alone (95 %). p is corrected for all judged rows (Holm)."
WIDTH = 118
TIE = 1e-9


@dataclass(frozen=True)
class Limits:
    """How much may be left in a model that is called forgotten."""

    margin: float = MARGIN
    """Residual memory ρ."""
    max_advantage: float | None = None
    """Membership advantage, 2 AUC - 1, beyond that of retrained models. None: 0.05, or what this
    audit can resolve where that is more."""
    max_epsilon: float = MAX_EPSILON
    """ε of the full tier."""

    def check(self) -> None:
        """Raise an error for values out of range."""
        for name, share in (("margin", self.margin), ("max-advantage", self.max_advantage)):
            if share is not None and not 0 < share < 1:
                raise BadInput(f"The {name} lies between 0 and 1, got {share}.")
        if not self.max_epsilon > 0:
            raise BadInput(f"The max-epsilon must be positive, got {self.max_epsilon}.")

    def above_default(self, tier: Tier) -> list[str]:
        """Return the limits of a tier that are above their default, in words."""
        limits = {"advantage": (self.max_advantage or 0.0, MAX_ADVANTAGE)}
        if tier != "quick":
            limits = {"margin": (self.margin, MARGIN), **limits}
        if tier == "full":
            limits["ε"] = self.max_epsilon, MAX_EPSILON
        return [f"{name} {value:g}" for name, (value, default) in limits.items() if value > default]


@dataclass(frozen=True)
class Limit:
    """The highest value that a measure can show, and the reason in words."""

    value: float
    why: str


@dataclass(frozen=True)
class Row:
    """One measure or attack, with its value for each model.

    For retrained models it is their mean, with the prediction interval of a further one.
    """

    about: str
    unit: Unit
    n: Count
    original: Estimate | None = None
    unlearned: Estimate | None = None
    retrained: Estimate | None = None
    judged: bool = False
    p: float | None = None
    """P-value of the unlearned model, corrected for several tests; None where it is not judged."""
    limit: Limit | None = None
    """None where only the measure itself bounds the value."""

    @property
    def at_limit(self) -> list[str]:
        """The models whose value is at the limit; the true value may be higher."""
        if self.limit is None:
            return []
        intervals: dict[str, Estimate | None] = {name: getattr(self, name) for name in MODELS}
        return [
            name
            for name, interval in intervals.items()
            if interval and interval.value > self.limit.value - TIE
        ]


@dataclass(frozen=True)
class Evidence:
    """One measure as an answer to a question. 0: as retrained models."""

    measure: str
    value: float
    low: float
    """The ends of the interval that is compared with the limit. It is corrected for the number of
    measures."""
    high: float
    limit: float
    p: float
    """How often a retrained model lies as far out, corrected by Holm's method."""
    answer: Answer


@dataclass(frozen=True)
class Grade:
    """The answer to a question, and the measure that decided it."""

    answer: Answer
    measure: str
    value: float | None
    """None, as the ends: the question cannot be measured on these data."""
    low: float | None
    high: float | None
    limit: float
    sentence: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Power:
    """What an audit recognises with a power of 80 %."""

    memory: float | None
    """The smallest residual memory. None: the original does not differ from retrained models."""
    share: float | None = None
    """The smallest share of the forget set that a model keeps, by planted models. None: there are
    none, or no share is recognised."""
    is_bound: bool = False
    """Whether the planted model with the smallest share is recognised: `share` is that share then,
    and smaller ones may be recognised as well."""
    planted: Mapping[str, float] = field(default_factory=dict)
    """Residual memory of each planted model, by its share such as "0.3"."""


@dataclass(frozen=True)
class Control:
    """A model whose verdict is known, and the verdict that the audit gave."""

    expected: str
    got: str
    passed: bool


@dataclass(frozen=True)
class RocCurve:
    """True-positive rates of an attack at its false-positive rates."""

    fpr: list[float]
    tpr: list[float]

    def __post_init__(self) -> None:
        check_equal_lengths(self, "fpr", "tpr")


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The outcome of an audit. Printing it gives the full text."""

    subject: str = ""
    """What was to be forgotten, and by which method."""
    verdict: Verdict
    powered: bool | None = False
    """Whether the controls came out as expected. False: the audit cannot decide on these data.
    None: the tier has no controls."""
    tier: Tier
    reasons: tuple[str, ...] = ()
    attacks: Mapping[str, Row] = field(default_factory=dict)
    controls: Mapping[str, Control] = field(default_factory=dict)
    roc: Mapping[str, Mapping[str, RocCurve]] = field(default_factory=dict)
    """The ROC curves of each attack on each model."""
    not_tested: tuple[str, ...] = ()
    models: int = 0
    """The number of retrained models."""
    grades: Mapping[Question, Grade] = field(default_factory=dict)
    """The answers to the three questions. Empty where there are too few retrained models."""
    power: Power | None = None
    """None: there are too few retrained models to state it."""
    limits: Limits | None = None
    """The limits behind the verdict. None: they are not known."""
    in_words: tuple[str, ...] = ()
    """What an attacker can do, a sentence each."""
    next_steps: tuple[str, ...] = ()
    """What to do now, a sentence each; commands are complete."""
    seconds: float = 0.0
    date: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the audit as plain data for JSON."""
        return to_plain(self)

    @property
    def verdict_in_words(self) -> str:
        """The verdict, with the limits that are above their default."""
        limits = self.limits.above_default(self.tier) if self.limits else []
        within = f" within the {', '.join(limits)}" if limits else ""
        return f"{self.verdict}{within}"

    def __str__(self) -> str:
        # "Not forgotten" by a lower tier needs no powered comparison with retrained models.
        unpowered = self.powered is False and self.verdict != NOT_FORGOTTEN
        powered = ", audit not powered" if unpowered else ""
        return "\n".join(
            [
                f"Verdict ({self.tier} tier): {self.verdict_in_words}{powered}.",
                *textwrap.wrap(self.subject, WIDTH),
                *_listed("Why:", self.reasons),
                *_listed("What an attacker can do:", self.in_words),
                *_memory(self),
                "",
                *_table(self),
                *_limits(self),
                *_controls(self),
                *_listed("Not tested:", self.not_tested),
                *_listed("What to do next:", self.next_steps),
            ]
        )


def describe_final(audit: Audit) -> str:
    """Return the verdict of the final audit of an assured run; without one, why there is none."""
    why = f" {audit.reasons[0]}" if audit.verdict == NO_VERDICT and audit.reasons else ""
    return f"Final audit ({audit.tier} tier): {audit.verdict_in_words}.{why}"


def file_of(tier: Tier) -> str:
    """Return the file name of a tier: a weaker audit does not replace a stronger one."""
    return f"audit-{tier}.json"


def save(audit: Audit, folder: Path) -> bool:
    """Write the audit into the folder of its run, atomically.

    Return False, and write nothing, where an audit by more retrained models is there.
    """
    path = folder / file_of(audit.tier)
    with suppress(InvalidRecord):  # where none can be read, this one is written
        if read_record(path, Audit).models > audit.models:
            return False
    try:
        folder.stat()  # the folder of a deleted run must not be created again
        files.write_json(path, audit.to_dict())
    except OSError as error:
        raise BadInput(
            f"{path} cannot be written: {error.strerror}. The audit was done but not stored."
        ) from error
    return True


def _memory(audit: Audit) -> list[str]:
    """List the residual memory by each measure."""
    grade = audit.grades.get("remembers")
    if grade is None or not grade.evidence:
        return []
    width = max(len(item.measure) for item in grade.evidence)
    lines = [
        f"  {item.measure.ljust(width)}  {item.value:5.2f} [{item.low:.2f}, {item.high:.2f}]"
        for item in grade.evidence
    ]
    return ["", "Residual memory (0: like retrained models, 1: like the original):", *lines]


def _table(audit: Audit) -> list[str]:
    table = [["measure", "n", *MODELS, "judged"]]
    for name, row in audit.attacks.items():
        cells = [_cell(getattr(row, model), row) for model in MODELS]
        judged = "yes" if row.p is None else f"p {p_text(row.p)}"
        table.append([name, str(row.n), *cells, judged if row.judged else ""])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row_cells in table:
        padded = [cell.ljust(width) for cell, width in zip(row_cells, widths, strict=True)]
        lines.append("  ".join(padded).rstrip())
    if any(row.p is not None for row in audit.attacks.values()):
        lines += ["", INTERVALS]
    return lines


def _limits(audit: Audit) -> list[str]:
    """Explain the limits under the table: a value at its limit is not a small one."""
    lines = []
    for name, row in audit.attacks.items():
        if row.limit is not None:
            at_limit = ""
            if row.at_limit:
                models = " and ".join(row.at_limit)
                at_limit = f" Here at this limit: {models}; the true value may be far higher."
            lines += textwrap.wrap(f"{name}: {row.limit.why}.{at_limit}", WIDTH)
    return ["", *lines] if lines else []


def _cell(interval: Estimate | None, row: Row) -> str:
    if interval is None:
        return "-"
    scale = 100 if row.unit == "%" else 1
    form = "{:.1f}" if row.unit in ("%", "steps") else "{:.3f}"
    unit = " %" if row.unit == "%" else ""
    value = f"{_number(scale * interval.value, form)}{unit}"
    if row.limit is not None:
        value = f"{value} (at most {_number(scale * row.limit.value, form)})"
    if interval.low is None or interval.high is None:
        return value
    low, high = _number(scale * interval.low, form), _number(scale * interval.high, form)
    return f"{value} [{low}, {high}]"


def _number(value: float, form: str) -> str:
    """Format a number; a zero has no sign."""
    text = form.format(value)
    return text if float(text) else text.removeprefix("-")


def p_text(p: float) -> str:
    """Format a p-value. Below 1e-6 the approximations behind it are not valid."""
    return f"{p:.2g}" if p >= 1e-6 else "< 1e-6"


def _controls(audit: Audit) -> list[str]:
    if not audit.controls:
        return []
    width = max(map(len, audit.controls))
    lines = []
    for name, control in audit.controls.items():
        mark = "" if control.passed else "  <- the audit got this wrong"
        result = f"expected {control.expected}, got {control.got}{mark}"
        lines.append(f"  {name.ljust(width)}  {result}")
    return ["", "Controls:", *lines]


def _listed(title: str, points: tuple[str, ...]) -> list[str]:
    lines = []
    for point in points:
        lines += textwrap.wrap(
            point,
            WIDTH,
            initial_indent="  - ",
            subsequent_indent="    ",
            # A command is not cut inside a name or a flag.
            break_on_hyphens=False,
            break_long_words=False,
        )
    return ["", title, *lines] if points else []
