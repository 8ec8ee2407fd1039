"""The plots of one run. What was not stored has no plot."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from duck.audits.verdict import RocCurve
from duck.report.class_table import (
    MAX_PLOT_CLASSES,
    ClassRow,
    ConfusionMatrix,
    choose_classes,
    class_name,
    class_rows,
    confusion_matrices,
)
from duck.report.descriptions import describe_curves
from duck.report.formats import format_percent
from duck.report.page_budget import MAX_CURVE_POINTS, PageBudget
from duck.report.plots import (
    BLUE,
    GREEN,
    INK,
    MODELS,
    MUTED,
    VERMILION,
    Axis,
    Cells,
    Line,
    Mark,
    Panel,
    Plot,
    Points,
)
from duck.report.plots_analysis import (
    FULL_DETAIL_POINTS,
    ROW_HEIGHT,
    plot_density,
    plot_features,
    plot_shap,
    round_to_three_digits,
)
from duck.report.records import StoredRun
from duck.report.results import shorten_name
from duck.unlearning import Epoch

CHANCE = Line("chance", [1e-4, 1], [1e-4, 1], INK, dashed=True)


def make_plots(stored: StoredRun, budget: PageBudget) -> dict[str, Plot]:
    """Return the plots of a run by the name of their section."""
    plots = {
        "curves": plot_curves(stored),
        "confusion": plot_confusion(stored),
        "classes": plot_classes(stored),
        "attacks": plot_attacks(stored, budget.curve_points),
        "features": plot_features(stored, budget.cloud_points),
        "density": plot_density(stored),
        "shap": plot_shap(stored, budget.shap_images),
    }
    return {
        name: replace(plot, name=f"{stored.anchor}-{name}")
        for name, plot in plots.items()
        if plot is not None
    }


def plot_curves(stored: StoredRun) -> Plot | None:
    """Plot the accuracy after each epoch, starting with the original."""
    history = stored.run.history
    if not history:
        return None
    phases = " → ".join(dict.fromkeys(epoch.phase for epoch in history))
    epochs = Axis("epoch (0: the original)", -0.2, len(history) + 0.2, integers_only=True)
    marks = [*_accuracy_lines(stored), *_phase_lines(history)]
    panel = Panel(phases, marks, epochs, Axis("accuracy (%)", -3, 103))
    caption = (
        "Accuracy after each epoch on the forgotten samples, on some of the retained samples and "
        "on the holdout. The model is not trained on the holdout, but a stop rule may use it. "
        "A dotted line marks a new phase."
    )
    alt = describe_curves(stored.result, history)
    return Plot("curves", "Accuracy during unlearning", caption, alt, [panel])


def _accuracy_lines(stored: StoredRun) -> list[Line]:
    splits = {
        "forgotten samples": ("forget", VERMILION),
        "retained samples": ("retain", BLUE),
        "holdout (unseen, all classes)": ("holdout", GREEN),
    }
    lines = []
    for name, (split, color) in splits.items():
        before = stored.result.original.get(split)
        shares = [before, *(getattr(epoch, split) for epoch in stored.run.history)]
        if any(share is not None for share in shares):
            values = [None if share is None else 100 * share for share in shares]
            lines.append(Line(name, list(range(len(shares))), values, color, show_points=True))
    return lines


def _phase_lines(history: Sequence[Epoch]) -> list[Line]:
    """Return a line between the last epoch of a phase and the first of the next."""
    lines = []
    for number, (epoch, next_epoch) in enumerate(pairwise(history), 1):
        if epoch.phase != next_epoch.phase:
            x = number + 0.5
            lines.append(Line("", [x, x], [0, 100], MUTED, dashed=True))
    return lines


def plot_confusion(stored: StoredRun) -> Plot | None:
    """Plot the confusion matrices on unseen samples, before and after."""
    matrices = confusion_matrices(stored)
    if matrices is None:
        return None
    indices = choose_classes(stored)
    names = [shorten_name(class_name(stored, index)) for index in indices]
    predicted = Axis("predicted class", ticks=names)
    true = Axis("true class", ticks=names, is_reversed=True)
    height = max(300, ROW_HEIGHT * len(indices) + 90)
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
    alt = _describe_confusion(stored, *matrices)
    return Plot("confusion", "Confusion matrix, before and after", caption, alt, panels)


def _confusion_cells(matrix: ConfusionMatrix, indices: Sequence[int]) -> Cells:
    shares = []
    texts = []
    for true in indices:
        row = matrix.get(str(true), {})
        total = sum(row.values()) or 1
        counts = [row.get(str(predicted), 0) for predicted in indices]
        shares.append([count / total for count in counts])
        texts.append([str(count) if count else "" for count in counts])
    return Cells(shares, texts, "samples")


def _describe_confusion(stored: StoredRun, before: ConfusionMatrix, after: ConfusionMatrix) -> str:
    sentences = []
    for index in stored.forgotten_classes[:3]:
        row = after.get(str(index), {})
        most_frequent = sorted(row, key=lambda predicted: -row[predicted])[:3]
        counts = ", ".join(
            f"{class_name(stored, int(predicted))} ({row[predicted]})"
            for predicted in most_frequent
        )
        name = class_name(stored, index)
        sentences.append(f"After unlearning, unseen samples of {name} are predicted as: {counts}.")
    correct = (
        f"Correct predictions: {_correct_count(before)} before, {_correct_count(after)} after."
    )
    return " ".join([*sentences, correct])


def _correct_count(matrix: ConfusionMatrix) -> int:
    return sum(row.get(true, 0) for true, row in matrix.items())


def plot_classes(stored: StoredRun) -> Plot | None:
    """Plot the accuracy of each class before and after; forgotten ones and neighbours first."""
    rows = class_rows(stored)[:MAX_PLOT_CLASSES]
    if not rows:
        return None
    marks = [
        _class_points(rows, "original", MUTED, -0.14),
        _class_points(rows, "unlearned", BLUE, 0.14),
    ]
    notes = {"forgotten": " (forgotten)", "neighbour": " (neighbour)", "other": ""}
    ticks = [shorten_name(row.name) + notes[row.role] for row in rows]
    accuracy = Axis("accuracy on unseen samples (%)", -3, 103)
    names = Axis("", ticks=ticks, is_reversed=True)
    panel = Panel("", marks, accuracy, names, ROW_HEIGHT * len(rows) + 80)
    caption = (
        "Points with 95 % intervals. A neighbour is a class that the model confuses with a "
        "forgotten one. Damage appears there first."
    )
    title = "Accuracy of each class, before and after"
    return Plot("classes", title, caption, _describe_worst_class(rows), [panel])


def _class_points(rows: Sequence[ClassRow], model: str, color: str, shift: float) -> Points:
    values = [row.before if model == "original" else row.after for row in rows]
    texts = [
        f"{row.name}, {model}: {format_percent(value.value)} of {row.n}"
        for row, value in zip(rows, values, strict=True)
    ]
    return Points(
        model,
        [100 * value.value for value in values],
        [place + shift for place in range(len(rows))],
        color,
        texts=texts,
        x_interval=(
            [100 * (value.low or 0.0) for value in values],
            [100 * (value.high or 0.0) for value in values],
        ),
    )


def _describe_worst_class(rows: Sequence[ClassRow]) -> str:
    retained = [(row.change, row.name) for row in rows if row.role != "forgotten"]
    change, name = min(retained, default=(0.0, ""))
    if change >= 0:
        return "No retained class in the plot lost accuracy."
    return f"Of the retained classes in the plot, {name} lost most: {100 * change:+.1f} points."


def plot_attacks(stored: StoredRun, max_points: int = MAX_CURVE_POINTS) -> Plot | None:
    """Plot the ROC curves of the audit, on linear axes and at low false-positive rates."""
    curves = stored.roc
    if not curves:
        return None
    fpr, tpr = Axis("false-positive rate", -0.02, 1.02), Axis("true-positive rate", -0.02, 1.02)
    low_fpr = replace(fpr, low=1e-3, high=1, log=True)
    low_tpr = replace(tpr, low=1e-3, high=1, log=True)
    panels = []
    for attack, models in curves.items():
        marks = _attack_lines(models, max_points)
        # A page of many runs has room for one panel only.
        if max_points >= FULL_DETAIL_POINTS:
            panels.append(Panel(f"{attack}: all rates", marks, fpr, tpr))
        panels.append(Panel(f"{attack}: low false-positive rates", marks, low_fpr, low_tpr))
    caption = (
        "True-positive rate: share of the forgotten samples that the attack finds. False-positive "
        "rate: share of other samples that it wrongly counts as forgotten. On the dotted line the "
        "attack only guesses."
    )
    alt = f"ROC curves of {', '.join(curves)}; the numbers are in the table of attacks."
    title = "Attacks: can an attacker tell which samples were forgotten?"
    return Plot("attacks", title, caption, alt, panels)


def _attack_lines(models: Mapping[str, RocCurve], max_points: int) -> list[Mark]:
    lines: list[Mark] = []
    for model, curve in models.items():
        fpr, tpr = thin(curve.fpr, max_points), thin(curve.tpr, max_points)
        lines.append(Line(model, fpr, tpr, MODELS.get(model, GREEN)))
    return [*lines, CHANCE]


def thin(values: Sequence[float], max_count: int) -> list[float]:
    """Return at most this many values, evenly spaced, with both ends.

    Stored curves already have more points at low rates.
    """
    last = len(values) - 1
    if last >= max_count:
        values = [values[round(place * last / (max_count - 1))] for place in range(max_count)]
    return [round_to_three_digits(value) for value in values]
