"""How much detail each run gets, so that the page stays small enough to send."""

from typing import NamedTuple

from duck.report.records import Contents

MAX_PAGE_BYTES = 8_000_000
"""A larger page is slow to open and hard to send."""
PAGE_POINTS = 16_000
"""Points of all clouds together, and of all ROC curves together."""
PAGE_SHAP_IMAGES = 24
"""Images with SHAP maps on a page."""
MAX_CLOUD_POINTS = 1_500
MAX_SHAP_IMAGES = 6
MAX_CURVE_POINTS = 200
MIN_CURVE_POINTS = 20
FULL_DETAIL_POINTS = 60
"""With fewer points per cloud or curve, a page of many runs leaves out the less important panels:
clouds of test samples and ROC curves on linear axes."""


class PageBudget(NamedTuple):
    """The most that the page shows of one run."""

    cloud_points: int
    """Points of a t-SNE map."""
    shap_images: int = MAX_SHAP_IMAGES
    """Images with SHAP maps, of a run or of a bias removal."""
    curve_points: int = MAX_CURVE_POINTS
    """Points of a ROC curve."""

    @property
    def table_classes(self) -> int:
        """Classes that a table lists."""
        return 24 if self.cloud_points >= FULL_DETAIL_POINTS else 8


def plan_budget(contents: Contents) -> PageBudget:
    """Divide the room of the page between the runs and the bias removals."""
    clouds = 0
    curves = 0
    for run in contents.runs:
        clouds += sum(map(len, run.analysis.tsne.values()))
        # Each curve is drawn in two panels.
        curves += 2 * sum(map(len, run.roc.values()))
    explained = sum(bool(run.shap_images) for run in contents.runs)
    explained += sum(bool(removal.maps) for removal in contents.removals)
    curve_points = min(MAX_CURVE_POINTS, PAGE_POINTS // max(1, curves))
    return PageBudget(
        cloud_points=min(MAX_CLOUD_POINTS, PAGE_POINTS // max(1, clouds)),
        shap_images=min(MAX_SHAP_IMAGES, PAGE_SHAP_IMAGES // max(1, explained)),
        curve_points=max(MIN_CURVE_POINTS, curve_points),
    )
