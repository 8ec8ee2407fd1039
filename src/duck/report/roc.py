"""ROC curves and their axes."""

from duck.audits.verdict import RocCurve
from duck.report.looks import INK
from duck.report.plots import Axis, Line, round_digits

LOWEST_RATE = 1e-3
ALL_RATES = Axis("false-positive rate", -0.02, 1.02), Axis("true-positive rate", -0.02, 1.02)
LOW_RATES = (
    Axis("false-positive rate", LOWEST_RATE, 1, log=True),
    Axis("true-positive rate", LOWEST_RATE, 1, log=True),
)
CHANCE = Line("chance", [1e-4, 1], [1e-4, 1], INK, dashed=True)


def roc_line(name: str, curve: RocCurve, max_points: int, color: str, dashed: bool = False) -> Line:
    """Return a ROC curve with at most this many points, evenly spaced, with both ends.

    Stored curves already have more points at low rates.
    """
    last = len(curve.fpr) - 1
    rows = list(range(last + 1))
    if last >= max_points:
        rows = [round(place * last / (max_points - 1)) for place in range(max_points)]
    fpr, tpr = ([round_digits(rates[row]) for row in rows] for rates in (curve.fpr, curve.tpr))
    return Line(name, fpr, tpr, color, dashed)
