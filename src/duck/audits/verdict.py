"""What an audit says: a verdict in plain words, the numbers behind it, and what was not tested."""

import json
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from duck import files
from duck.errors import BadInput

Tier = Literal["quick", "oracle", "full"]
TIERS: tuple[Tier, ...] = get_args(Tier)
"""The weakest first."""
Unit = Literal["%", "nats", "AUC", "steps", "score", "distance"]
FORGOTTEN, NOT_FORGOTTEN, NO_VERDICT = "forgotten", "not forgotten", "no verdict"
OLD_FILE = "audit.json"
"""Where older versions kept an audit of whatever tier."""
MODELS = ("original", "unlearned", "retrained")
WIDTH = 118
TIE = 1e-9


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval; of retrained models: their mean, and where a further one would fall."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Limit:
    """The most that a measure could have shown, and why in words."""

    value: float
    why: str


@dataclass(frozen=True)
class Row:
    """One measure or attack on the models."""

    about: str
    unit: Unit
    n: int
    original: Interval | None
    unlearned: Interval | None
    retrained: Interval | None
    judged: bool = False
    p: float | None = None
    """Of the unlearned model, corrected for there being several tests; None where it is not judged."""
    limit: Limit | None = None
    """None: nothing but the measure itself bounds it."""

    @property
    def at_limit(self) -> list[str]:
        """The models of which more cannot be said, though it may be true."""
        read = {who: getattr(self, who) for who in MODELS}
        return [
            who
            for who, reading in read.items()
            if reading and self.limit and reading.value > self.limit.value - TIE
        ]


@dataclass(frozen=True)
class Control:
    """A model whose verdict is known beforehand."""

    expected: str
    got: str
    passed: bool


@dataclass(frozen=True)
class Audit:
    """The outcome; printing it tells."""

    subject: str
    """Which method ran on which samples."""
    verdict: str
    powered: bool | None
    """False: the audit could not have told remembering from forgetting on these data. None: no control was there to say."""
    tier: Tier
    reasons: tuple[str, ...]
    attacks: Mapping[str, Row]
    controls: Mapping[str, Control] = field(default_factory=dict)
    roc: Mapping[str, Mapping[str, Mapping[str, list[float]]]] = field(default_factory=dict)
    not_tested: tuple[str, ...] = ()
    models: int = 0
    """Retrained models."""
    seconds: float = 0.0
    date: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(
            [
                *_headline(self),
                "",
                *_table(self),
                *_limits(self),
                *_controls(self),
                *_listed("Not tested:", self.not_tested),
            ]
        )


def file_of(tier: Tier) -> str:
    """Each tier has its own: a weaker audit does not take the place of a stronger one."""
    return f"audit-{tier}.json"


def save(audit: Audit, folder: Path) -> bool:
    """Beside the run it is about, in one step; False where an audit by more retrained models is there, which stays."""
    place = folder / file_of(audit.tier)
    if _models_of(place) > audit.models:
        return False
    try:
        folder.stat()  # a run that is gone is not made anew by its audit
        files.write_json(place, audit.to_dict())
    except OSError as error:
        raise BadInput(
            f"{place} cannot be written: {error.strerror}. The audit was done but not kept."
        ) from error
    return True


def _models_of(place: Path) -> int:
    """Retrained models of a stored audit; 0 where none can be read."""
    try:
        return int(json.loads(files.read_text(place))["models"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _headline(audit: Audit) -> list[str]:
    # A conviction by a lower tier needs no powered comparison with retrained models.
    powered = (
        ", audit not powered" if audit.powered is False and audit.verdict != NOT_FORGOTTEN else ""
    )
    return [
        f"Verdict ({audit.tier} tier): {audit.verdict}{powered}.",
        *_wrapped(audit.subject),
        *_listed("Why:", audit.reasons),
    ]


def _table(audit: Audit) -> list[str]:
    header = ["measure", "n", *MODELS, "judged"]
    found = [
        [name, str(row.n), *(_cell(getattr(row, who), row) for who in MODELS), _judged(row)]
        for name, row in audit.attacks.items()
    ]
    widths = [max(len(line[column]) for line in [header, *found]) for column in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in [header, *found]
    ]


def _limits(audit: Audit) -> list[str]:
    """Under the table: a value at its limit is not a small one."""
    lines = []
    for name, row in audit.attacks.items():
        if row.limit is not None:
            at = (
                f" Here at this limit: {' and '.join(row.at_limit)}; the true value may be far higher."
                if row.at_limit
                else ""
            )
            lines += _wrapped(f"{name}: {row.limit.why}.{at}")
    return ["", *lines] if lines else []


def _cell(reading: Interval | None, row: Row) -> str:
    if reading is None:
        return "-"
    scale, form = (
        (100, "{:.1f}") if row.unit == "%" else (1, "{:.3f}" if row.unit != "steps" else "{:.1f}")
    )
    value = f"{_number(scale * reading.value, form)}{' %' * (row.unit == '%')}"
    if row.limit is not None:
        value = f"{value} (at most {_number(scale * row.limit.value, form)})"
    if reading.low is None or reading.high is None:
        return value
    return f"{value} [{_number(scale * reading.low, form)}, {_number(scale * reading.high, form)}]"


def _number(value: float, form: str) -> str:
    """Without the sign of a zero."""
    text = form.format(value)
    return text if float(text) else text.removeprefix("-")


def _judged(row: Row) -> str:
    if not row.judged:
        return ""
    return "yes" if row.p is None else f"p {p_text(row.p)}"


def p_text(p: float) -> str:
    """Below a millionth the approximations behind a p-value mean nothing more."""
    return f"{p:.2g}" if p >= 1e-6 else "< 1e-6"


def _controls(audit: Audit) -> list[str]:
    if not audit.controls:
        return []
    width = max(map(len, audit.controls))
    lines = [
        f"  {name.ljust(width)}  expected {control.expected}, got {control.got}{'' if control.passed else '  <- the audit got this wrong'}"
        for name, control in audit.controls.items()
    ]
    return ["", "Controls:", *lines]


def _listed(title: str, points: tuple[str, ...]) -> list[str]:
    lines = [
        line
        for point in points
        for line in textwrap.wrap(point, WIDTH, initial_indent="  - ", subsequent_indent="    ")
    ]
    return ["", title, *lines] if points else []


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH)
