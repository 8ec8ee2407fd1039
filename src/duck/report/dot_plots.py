"""Points at estimates with their intervals, and panels with a row of points for each name."""

from collections.abc import Sequence
from typing import Any

from duck.report.plots import Axis, Mark, Numbers, Panel, Points
from duck.types import Estimate

Values = Sequence[Estimate | float | None]


def estimate_points(name: str, x: Values, y: Values, *look: Any, **style: Any) -> Points:
    """Return points at estimates or plain numbers. Intervals of the estimates are error bars."""
    style |= {"x_interval": _intervals(x), "y_interval": _intervals(y)}
    return Points(name, _values(x), _values(y), *look, **style)


def row_points(name: str, values: Values, shift: float, *look: Any, **style: Any) -> Points:
    """Return a point for each row of a panel, a little above or below the middle of the row."""
    return estimate_points(
        name, values, [row + shift for row in range(len(values))], *look, **style
    )


def row_panel(
    title: str, marks: Sequence[Mark], x: Axis, names: Sequence[str], row_height: int = 26
) -> Panel:
    """Return a panel with a row for each name."""
    rows = Axis(ticks=names, is_reversed=True)
    return Panel(title, marks, x, rows, row_height * len(names) + 90)


def percent(estimate: Estimate) -> Estimate:
    """Return a share and its interval in percent."""
    ends = (None if end is None else 100 * end for end in (estimate.low, estimate.high))
    return Estimate(100 * estimate.value, *ends)


def _values(numbers: Values) -> list[float | None]:
    return [number.value if isinstance(number, Estimate) else number for number in numbers]


def _intervals(numbers: Values) -> tuple[Numbers, Numbers] | None:
    """Return the lower and the upper ends. Without an interval both are the value."""
    estimates = [number for number in numbers if isinstance(number, Estimate)]
    if all(estimate.low is None for estimate in estimates):
        return None
    low = [one.value if one.low is None else one.low for one in estimates]
    high = [one.value if one.high is None else one.high for one in estimates]
    return low, high
