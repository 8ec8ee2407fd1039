"""The plots of one run. What was not stored has no plot."""

from collections.abc import Sequence
from itertools import pairwise

from duck.metrics import Confusion
from duck.report.class_table import (
    MAX_PLOT_CLASSES,
    ClassRow,
    choose_classes,
    class_rows,
    confusion_matrices,
)
from duck.report.formats import format_percent
from duck.report.page_budget import PageBudget
from duck.report.plots import (
    Axis,
    Cells,
    Line,
    Panel,
    Plot,
    Points,
    name_plots,
    percent,
    row_panel,
    row_points,
)
from duck.report.plots_analysis import plot_density, plot_features, plot_shap
from duck.report.plots_attacks import plot_run_attacks
from duck.report.records import StoredRun
from duck.report.results import shorten_name
from duck.report.styles import BLUE, GREEN, MODELS, MUTED, VERMILION

CURVES = {
    "forget": ("forgotten samples", VERMILION),
    "retain": ("retained samples", BLUE),
    "holdout": ("holdout (unseen, all classes)", GREEN),
}


def make_plots(stored: StoredRun, budget: PageBudget) -> dict[str, Plot]:
    """Return the plots of a run by the name of their section."""
    plots = (
        plot_curves(stored),
        plot_confusion(stored),
        plot_classes(stored),
        plot_run_attacks(stored, budget.curve_points),
        plot_features(stored, budget.cloud_points),
        plot_density(stored),
        plot_shap(stored, budget.shap_images),
    )
    return name_plots(stored.anchor, plots)


def plot_curves(stored: StoredRun) -> Plot | None:
    """Plot the accuracy after each epoch, starting with the original."""
    history = stored.run.history
    original = stored.result.original
    if not history:
        return None
    lines = []
    for split, (name, color) in CURVES.items():
        shares = [original.get(split), *(getattr(epoch, split) for epoch in history)]
        if any(share is not None for share in shares):
            values = [None if share is None else 100 * share for share in shares]
            lines.append(Line(name, range(len(shares)), values, color, show_points=True))
    for number, (epoch, next_epoch) in enumerate(pairwise(history), 1):
        if epoch.phase != next_epoch.phase:
            lines.append(Line("", [number + 0.5] * 2, [0, 100], MUTED, dashed=True))
    phases = " → ".join(dict.fromkeys(epoch.phase for epoch in history))
    epochs = Axis("epoch (0: the original)", -0.2, len(history) + 0.2, integers_only=True)
    panel = Panel(phases, lines, epochs, Axis("accuracy (%)", -3, 103))
    caption = (
        "Accuracy after each epoch on the forgotten samples, on some of the retained samples and "
        "on the holdout. The model is not trained on the holdout, but a stop rule may use it. "
        "A dotted line marks a new phase."
    )
    alt = (
        f"Over {len(history)} epochs accuracy on the forgotten samples goes from "
        f"{format_percent(original.get('forget'))} to {format_percent(history[-1].forget)}, on the "
        f"retained samples from {format_percent(original.get('retain'))} to "
        f"{format_percent(history[-1].retain)}."
    )
    return Plot("curves", "Accuracy during unlearning", caption, alt, [panel])


def plot_confusion(stored: StoredRun) -> Plot | None:
    """Plot the confusion matrices on unseen samples, before and after."""
    matrices = confusion_matrices(stored)
    if matrices is None:
        return None
    indices = choose_classes(stored)
    names = [shorten_name(stored.class_name(index)) for index in indices]
    predicted = Axis("predicted class", ticks=names)
    true = Axis("true class", ticks=names, is_reversed=True)
    height = max(300, 26 * len(indices) + 90)
    panels = [
        Panel(title, [_confusion_cells(matrix, indices)], predicted, true, height)
        for title, matrix in zip(("Before", "After"), matrices, strict=True)
    ]
    caption = (
        "Unseen samples by their true class (rows) and the class that the model predicts "
        "(columns). The colour is the share of the row."
    )
    if len(indices) < len(stored.class_names):
        caption += (
            f" Shown are {len(indices)} of {len(stored.class_names)} classes: the forgotten ones "
            "and those most often confused with them."
        )
    correct = [sum(row.get(true, 0) for true, row in one.items()) for one in matrices]
    alt = f"Correct predictions: {correct[0]} before, {correct[1]} after."
    return Plot("confusion", "Confusion matrix, before and after", caption, alt, panels)


def _confusion_cells(matrix: Confusion, indices: Sequence[int]) -> Cells:
    shares = []
    texts = []
    for true in indices:
        row = matrix.get(str(true), {})
        total = sum(row.values()) or 1
        counts = [row.get(str(predicted), 0) for predicted in indices]
        shares.append([count / total for count in counts])
        texts.append([str(count) if count else "" for count in counts])
    return Cells(shares, texts, "samples")


def plot_classes(stored: StoredRun) -> Plot | None:
    """Plot the accuracy of each class before and after; forgotten ones and neighbours first."""
    rows = class_rows(stored)[:MAX_PLOT_CLASSES]
    if not rows:
        return None
    marks = [_class_points(rows, "original", -0.14), _class_points(rows, "unlearned", 0.14)]
    notes = {"forgotten": " (forgotten)", "neighbour": " (neighbour)", "other": ""}
    names = [shorten_name(row.name) + notes[row.role] for row in rows]
    panel = row_panel("", marks, Axis("accuracy on unseen samples (%)", -3, 103), names)
    caption = (
        "Points with 95 % intervals. A neighbour is a class that the model confuses with a "
        "forgotten one. Damage appears there first."
    )
    alt = f"Accuracy of {len(rows)} classes; the numbers are in the table of classes."
    return Plot("classes", "Accuracy of each class, before and after", caption, alt, [panel])


def _class_points(rows: Sequence[ClassRow], model: str, shift: float) -> Points:
    values = [row.before if model == "original" else row.after for row in rows]
    texts = [
        f"{row.name}, {model}: {format_percent(value.value)} of {row.n}"
        for row, value in zip(rows, values, strict=True)
    ]
    return row_points(model, list(map(percent, values)), shift, MODELS[model][0], texts=texts)
