"""Sentences about a bias removal, for readers without ML."""

from duck.analysis.bias import RemovalRecord
from duck.report.formats import format_interval, format_percent, format_seconds, format_signed
from duck.report.records import BIAS_MODELS, StoredRemoval

COLOURS: dict[tuple[int, ...], str] = {
    (255, 0, 0): "red",
    (0, 255, 0): "green",
    (0, 0, 255): "blue",
    (255, 255, 0): "yellow",
    (255, 255, 255): "white",
    (0, 0, 0): "black",
}


def describe_bias(removal: StoredRemoval) -> str:
    """Describe the bias that was planted in the data."""
    record = removal.record
    count = f"{record.count:,}"
    square = f"{colour_name(record)} square of {record.patch} × {record.patch} pixels"
    return (
        f"{count} training images of “{record.true}” got a {square} in the top right corner "
        f"and the wrong label “{record.wrong}”. {count} images of “{record.wrong}” "
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
    record = removal.record
    biased, duck, corrected = _shares(removal, "wrong")
    return (
        f"Of {record.n:,} unseen images of “{record.true}” with the square, the "
        f"biased model classified {biased} as “{record.wrong}”, the model after DUCK {duck} "
        f"and the corrected model {corrected}."
    )


def describe_details(removal: StoredRemoval) -> list[str]:
    """Describe the other measurements of the three models."""
    record = removal.record
    texts = {
        f"With the square, classified correctly as “{record.true}”": "right",
        "The same images without the square, classified correctly": "right_without_patch",
    }
    sentences = []
    for text, part in texts.items():
        biased, duck, corrected = _shares(removal, part)
        sentences.append(
            f"{text}: {biased} before, {duck} after; {corrected} by the corrected model."
        )
    if record.shap is not None:
        means = record.shap.mean
        biased, duck, corrected = (format_signed(means[model]) for model in BIAS_MODELS)
        sentences.append(
            "Mean SHAP value of a pixel of the square, which is what it adds to the probability "
            f"of “{record.wrong}”: {biased} before, {duck} after; {corrected} in the "
            "corrected model."
        )
    return sentences


def _shares(removal: StoredRemoval, part: str) -> list[str]:
    return [format_interval(removal.share(model, part)) for model in BIAS_MODELS]


def compared_models(pair: str) -> str:
    """Return the names of two models: "biased - duck" is "biased against DUCK"."""
    return " against ".join(BIAS_MODELS.get(model, model) for model in pair.split(" - "))


def colour_name(record: RemovalRecord) -> str:
    """Return the name of the square's colour, or its values if it has no name.

    Images of one channel show the brightest of the values.
    """
    values = record.colour
    if record.shape is not None and record.shape[0] == 1:
        values = (max(values),) * 3
    if len(set(values)) == 1:
        return COLOURS.get(values, f"grey ({values[0]} of 255)")
    return COLOURS.get(values, f"coloured ({', '.join(map(str, values))})")
