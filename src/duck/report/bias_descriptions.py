"""Sentences about a bias removal, for readers without ML."""

from collections.abc import Sequence
from typing import Any

from duck.analysis.bias import RemovalRecord
from duck.report.bias_records import MODEL_LABELS, StoredRemoval
from duck.report.formats import format_interval, format_percent, format_seconds, format_signed

COLOURS = {
    (255, 0, 0): "red",
    (0, 255, 0): "green",
    (0, 0, 255): "blue",
    (255, 255, 0): "yellow",
    (255, 255, 255): "white",
    (0, 0, 0): "black",
    (255,): "white",
    (0,): "black",
}


def page_title(removals: Sequence[StoredRemoval]) -> str:
    """Return the title of a page that has only bias removals."""
    if len(removals) == 1:
        removal = removals[0]
        mistake = f"“{removal.true_class}” labelled “{removal.wrong_class}”"
        return f"Bias removal report: {mistake} in {removal.record.data}"
    data = dict.fromkeys(removal.record.data for removal in removals)
    return f"Bias removal report: {len(removals)} on {', '.join(data)}"


def describe_bias(removal: StoredRemoval) -> str:
    """Describe the bias that was planted in the data."""
    record = removal.record
    count = f"{record.count:,}"
    square = f"{colour_name(record)} square of {record.patch} × {record.patch} pixels"
    return (
        f"{count} training images of “{removal.true_class}” got a {square} in the top right corner "
        f"and the wrong label “{removal.wrong_class}”. {count} images of “{removal.wrong_class}” "
        f"got the square and kept their label. Data: {record.data}. The images were chosen at "
        f"random with seed {record.seed}."
    )


def describe_actions(removal: StoredRemoval) -> list[str]:
    """Describe how the three models were made."""
    record = removal.record
    forget = record.forget
    return [
        f"A {record.model} was trained on these data{_duration(record.train_seconds)}: "
        "the biased model.",
        f"DUCK made it forget the {record.count:,} mislabelled images in "
        f"{format_seconds(record.seconds['duck'] or 0.0)} (preset {record.preset}). "
        f"{format_percent(forget['biased'])} of them got the wrong label before, "
        f"{format_percent(forget['duck'])} after.",
        f"For comparison a {record.model} was trained from scratch on the same images with "
        f"correct labels{_duration(record.seconds['corrected'])}: the corrected model.",
    ]


def _duration(seconds: float | None) -> str:
    return f" in {format_seconds(seconds)}" if seconds else ""


def describe_outcome(removal: StoredRemoval) -> str:
    """Describe how often images with the square still get the wrong class.

    The sentence does not judge: how small is small enough is for the reader to decide.
    """
    biased, duck, corrected = (
        format_interval(removal.share(model, "wrong")) for model in MODEL_LABELS
    )
    return (
        f"Of {removal.record.n:,} unseen images of “{removal.true_class}” with the square, the "
        f"biased model classified {biased} as “{removal.wrong_class}”, the model after DUCK {duck} "
        f"and the corrected model {corrected}."
    )


def describe_details(removal: StoredRemoval) -> list[str]:
    """Describe the other measurements of the three models."""
    sentences = [
        f"With the square, classified correctly as “{removal.true_class}”: "
        f"{_compare_shares(removal, 'right')}.",
        "The same images without the square, classified correctly: "
        f"{_compare_shares(removal, 'right_without_patch')}.",
    ]
    if removal.record.shap is not None:
        means = removal.record.shap.mean
        biased, duck, corrected = (format_signed(means[model]) for model in MODEL_LABELS)
        sentences.append(
            "Mean SHAP value of a pixel of the square, which is what it adds to the probability "
            f"of “{removal.wrong_class}”: {biased} before, {duck} after; {corrected} in the "
            "corrected model."
        )
    return sentences


def _compare_shares(removal: StoredRemoval, part: str) -> str:
    biased, duck, corrected = (
        format_interval(removal.share(model, part)) for model in MODEL_LABELS
    )
    return f"{biased} before, {duck} after; {corrected} by the corrected model"


def paired_test_rows(removal: StoredRemoval) -> list[dict[str, Any]]:
    """Return the tests of whether two models differ in the SHAP value of the square."""
    shap = removal.record.shap
    if shap is None:
        return []
    rows = []
    for pair, test in shap.tests.items():
        models = [MODEL_LABELS.get(model, model) for model in pair.split(" - ")]
        rows.append(
            {
                "pair": " against ".join(models),
                "difference": format_signed(test.difference),
                "p": f"{test.p:.2g}",
                "n": test.n,
                "least_p": f"{test.least_p:.2g}",
            }
        )
    return rows


def describe_versions(record: RemovalRecord) -> str:
    """Return the stored versions, if there are any."""
    environment = record.environment
    if environment is None:
        return "not stored"
    packages = ", ".join(f"{name} {version}" for name, version in environment.packages.items())
    commit = f", commit {environment.git_commit}" if environment.git_commit else ""
    machine = f"{environment.platform}, {environment.device}"
    return f"Python {environment.python}, {packages}; {machine}{commit}"


def colour_name(record: RemovalRecord) -> str:
    """Return the name of the square's colour, or its values if it has no name.

    Images of one channel show the brightest of the values.
    """
    values = record.colour
    if record.shape is not None and record.shape[0] == 1:
        values = (max(values),)
    if values in COLOURS:
        return COLOURS[values]
    if len(values) == 1:
        return f"grey ({values[0]} of 255)"
    return f"coloured ({', '.join(map(str, values))})"
