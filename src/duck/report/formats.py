"""Numbers and times as the page prints them."""

import math
from datetime import UTC, datetime

from duck.types import Estimate

MISSING = "–"


def format_time(created: str) -> str:
    """Format a moment: 2026-11-15 10:00 UTC."""
    if not created:
        return "an unknown time"
    return datetime.fromisoformat(created).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def format_percent(value: float | None) -> str:
    """Format a share: 97.6 %."""
    return MISSING if value is None else f"{100 * value:.1f} %"


def format_points(value: float | None) -> str:
    """Format a difference of accuracies in percentage points: −2.5."""
    if value is None:
        return MISSING
    return "0.0" if abs(value) < 5e-4 else format_signed(100 * value, 1)


def format_signed(value: float, digits: int = 4) -> str:
    """Format a number with its sign: +0.0304, −0.0001."""
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")


def format_number(
    estimate: Estimate | None, digits: int = 3, scale: float = 1, unit: str = ""
) -> str:
    """Format a number with its interval: 0.987 [0.961, 1.002]."""
    if estimate is None or math.isnan(estimate.value):
        return MISSING
    value = f"{scale * estimate.value:.{digits}f}{unit}"
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value} [{scale * estimate.low:.{digits}f}, {scale * estimate.high:.{digits}f}]"


def format_interval(estimate: Estimate | None) -> str:
    """Format a share with its interval: 97.6 % [93.8, 99.1]."""
    return format_number(estimate, 1, 100, " %")


def format_seconds(value: float) -> str:
    """Format a duration: 41.00 s, 2.5 min."""
    return f"{value:.2f} s" if value < 100 else f"{value / 60:.1f} min"
