"""The plots of one run, each from what its folder holds; what was not stored has no plot."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from duck.report.descriptions import curve_words, percent
from duck.report.numbers import share
from duck.report.plots import (
    BLUE,
    GREEN,
    INK,
    MODELS,
    MUTED,
    PALETTE,
    SYMBOLS,
    VERMILION,
    Axis,
    Cells,
    Line,
    Panel,
    Plot,
    Points,
)
from duck.report.records import Stored, cut

SHOWN = 16
"""Classes that a plot shows; of more, the forgotten ones and those nearest to them."""
NEAR = 3
"""Neighbours of a forgotten class."""
IMAGES, SIDE = 6, 32
"""Images whose SHAP maps are shown, and most pixels of a side."""
CURVE, ROOM = 200, 60
"""Points of a ROC curve. With fewer than ROOM, on a page of many runs, only low rates are shown, and of clouds only those of training."""
FEW = 14
"""Classes that can be told apart by colour and symbol."""
LISTED, FIRST = 24, 8
"""Classes that a table lists, also on a page of many runs."""
PIXELS = 26
"""Height of a row."""


def plots(
    stored: Stored, most_points: int, most_images: int = IMAGES, most_curve: int = CURVE
) -> dict[str, Plot]:
    """By the section they belong to."""
    made = {
        "curves": curves(stored),
        "confusion": confusion(stored),
        "classes": classes(stored),
        "attacks": attacks(stored, most_curve),
        "features": features(stored, most_points),
        "density": density(stored),
        "shap": shap(stored, most_images),
    }
    return {
        name: replace(plot, name=f"{stored.anchor}-{name}")
        for name, plot in made.items()
        if plot is not None
    }


def curves(stored: Stored) -> Plot | None:
    """Accuracy after each epoch, from the original on."""
    history, before = stored.run.history, stored.entry.original
    if not history:
        return None
    steps = list(range(len(history) + 1))
    wanted = {
        "forgotten samples": ("forget", VERMILION),
        "retained samples": ("retain", BLUE),
        "holdout (unseen, all classes)": ("holdout", GREEN),
    }
    marks: list[Line | Points] = []
    for name, (key, color) in wanted.items():
        values = [before.get(key), *(epoch.get(key) for epoch in history)]
        if any(value is not None for value in values):
            marks.append(
                Line(name, steps, [_hundred(value) for value in values], color, marked=True)
            )
    changes = [
        at + 0.5
        for at, (one, two) in enumerate(pairwise(history), 1)
        if one["phase"] != two["phase"]
    ]
    marks += [Line("", [at, at], [0, 100], MUTED, dashed=True) for at in changes]
    phases = " → ".join(dict.fromkeys(str(epoch["phase"]) for epoch in history))
    panel = Panel(
        phases,
        marks,
        Axis("epoch (0: the original)", -0.2, steps[-1] + 0.2, whole=True),
        Axis("accuracy (%)", -3, 103),
    )
    title = "Accuracy during unlearning"
    caption = (
        "Accuracy on the forgotten samples, a sample of the retained ones, and the holdout, after each epoch. The holdout is unseen, "
        "but rules when to stop may look at it. Dotted: the next phase."
    )
    return Plot("curves", title, caption, curve_words(stored.entry, history), [panel])


Confused = dict[str, dict[str, int]]


def confusion(stored: Stored) -> Plot | None:
    """Who is taken for whom on unseen samples, before and after."""
    pair = _confusions(stored)
    if pair is None:
        return None
    chosen = chosen_classes(stored)
    ticks = [cut(_name(stored, index)) for index in chosen]
    size = max(300, PIXELS * len(chosen) + 90)
    panels = [
        Panel(
            title,
            [_cells(table, chosen)],
            Axis("class by the model", ticks=ticks),
            Axis("true class", ticks=ticks, down=True),
            size,
        )
        for title, table in zip(("Before", "After"), pair, strict=True)
    ]
    left_out = len(stored.names) - len(chosen)
    partly = (
        f" Shown are {len(chosen)} of {len(stored.names)} classes: the forgotten and those nearest to them."
        if left_out > 0
        else ""
    )
    caption = f"Unseen samples of each class (rows) by what the model takes them for (columns); the colour is the share of the row.{partly}"
    return Plot(
        "confusion",
        "Who is taken for whom, before and after",
        caption,
        _confusion_words(stored, pair),
        panels,
    )


def classes(stored: Stored) -> Plot | None:
    """Accuracy of each class before and after, the forgotten ones and their neighbours first."""
    rows = class_rows(stored)
    if not rows:
        return None
    rows = rows[:SHOWN]
    marks = []
    for name, column, color, shift in (
        ("original", "before", MUTED, -0.14),
        ("unlearned", "after", BLUE, 0.14),
    ):
        values = [row[column] for row in rows]
        interval = [100 * value.low for value in values], [100 * value.high for value in values]
        texts = [
            f"{row['name']}, {name}: {percent(value.value)} of {row['n']}"
            for row, value in zip(rows, values, strict=True)
        ]
        marks.append(
            Points(
                name,
                [100 * value.value for value in values],
                [at + shift for at in range(len(rows))],
                color,
                texts=texts,
                x_interval=interval,
            )
        )
    ticks = [
        cut(row["name"])
        + {"forgotten": " (forgotten)", "neighbour": " (neighbour)"}.get(row["role"], "")
        for row in rows
    ]
    panel = Panel(
        "",
        marks,
        Axis("accuracy on unseen samples (%)", -3, 103),
        Axis("", ticks=ticks, down=True),
        PIXELS * len(rows) + 80,
    )
    lost, worst = min(
        (
            (row["after"].value - row["before"].value, row["name"])
            for row in rows
            if row["role"] != "forgotten"
        ),
        default=(0.0, ""),
    )
    alt = (
        f"Of the retained classes shown, {worst} changes most for the worse: {100 * lost:+.1f} points."
        if lost < 0
        else "No retained class that is shown got worse."
    )
    caption = "Points with 95 % intervals. A neighbour is a class that the model confuses with a forgotten one: damage shows there first."
    return Plot("classes", "Accuracy of each class, before and after", caption, alt, [panel])


def class_rows(stored: Stored) -> list[dict[str, Any]]:
    """Each class with n, accuracy before and after, and its role; the forgotten first, then their neighbours, then by what they lost."""
    pair = _confusions(stored)
    if pair is None:
        return []
    near, rows = neighbours(stored), []
    for index, name in enumerate(stored.names):
        n = sum(pair[0].get(str(index), {}).values())
        if n:
            before, after = (
                share(table.get(str(index), {}).get(str(index), 0) / n, n) for table in pair
            )
            role = (
                "forgotten"
                if index in stored.forgotten
                else "neighbour"
                if index in near
                else "other"
            )
            rows.append(
                {
                    "index": index,
                    "name": name,
                    "n": n,
                    "before": before,
                    "after": after,
                    "role": role,
                }
            )
    order = {"forgotten": 0, "neighbour": 1, "other": 2}
    return sorted(
        rows, key=lambda row: (order[row["role"]], row["after"].value - row["before"].value)
    )


def neighbours(stored: Stored) -> list[int]:
    """Classes that are confused with the forgotten ones: before, in both directions, and what these are called afterwards."""
    pair = _confusions(stored)
    if pair is None:
        return []
    counts: dict[int, int] = {}
    for table in pair:
        for true, row in table.items():
            for seen, count in row.items():
                ends = {int(true), int(seen)}
                if len(ends) == 2 and len(ends & set(stored.forgotten)) == 1:
                    other = (ends - set(stored.forgotten)).pop()
                    counts[other] = counts.get(other, 0) + count
    return sorted(counts, key=lambda index: (-counts[index], index))[: NEAR * len(stored.forgotten)]


def chosen_classes(stored: Stored) -> list[int]:
    """All of a few; of many, those that the run is about."""
    every = range(len(stored.names))
    if len(every) <= SHOWN:
        return list(every)
    about = list(
        dict.fromkeys(
            [*stored.forgotten, *neighbours(stored), *(row["index"] for row in class_rows(stored))]
        )
    )
    return sorted(about[:SHOWN])


def attacks(stored: Stored, most: int = CURVE) -> Plot | None:
    """ROC curves of the audit: all rates, and the low false-positive rates that matter."""
    curves = (stored.audit or {}).get("roc") or {}
    if not curves:
        return None
    rates = Axis("false-positive rate", -0.02, 1.02), Axis("true-positive rate", -0.02, 1.02)
    low = (
        replace(rates[0], low=1e-3, high=1, log=True),
        replace(rates[1], low=1e-3, high=1, log=True),
    )
    panels = []
    for attack, models in curves.items():
        found = {
            model: (thinned(curve["fpr"], most), thinned(curve["tpr"], most))
            for model, curve in models.items()
        }
        marks = [Line(model, *curve, MODELS.get(model, GREEN)) for model, curve in found.items()]
        marks.append(Line("chance", [1e-4, 1], [1e-4, 1], INK, dashed=True))
        if most >= ROOM:
            panels.append(Panel(f"{attack}: all thresholds", marks, *rates))
        panels.append(Panel(f"{attack}: few false alarms", marks, *low))
    caption = "How many forgotten samples an attack finds against how many others it takes for them. Near the dotted line it is guessing."
    alt = f"ROC curves of {', '.join(curves)}; the numbers are in the table of attacks."
    return Plot(
        "attacks",
        "Attacks: does the model still know who was in its training data?",
        caption,
        alt,
        panels,
    )


def thinned(values: Sequence[float], most: int) -> list[float]:
    """Evenly, with both ends: stored curves are already finer where rates are low."""
    last = len(values) - 1
    kept = values if last < most else [values[round(at * last / (most - 1))] for at in range(most)]
    return [_short(value) for value in kept]


def features(stored: Stored, most_points: int) -> Plot | None:
    """t-SNE of embeddings, a panel for each model and split; forgotten samples in ink."""
    embedded = (stored.analysis or {}).get("tsne") or {}
    splits = ("train", "test") if most_points >= ROOM else ("train",)
    shown = [
        (model, split, data)
        for split in splits
        for model in MODELS
        if (data := embedded.get(model, {}).get(split))
    ]
    if not shown:
        return None
    panels = []
    for model, split, data in shown:
        kept = _some(data["forget"], most_points)
        columns = ([data[name][at] for at in kept] for name in ("x", "y", "label", "forget"))
        panels.append(
            Panel(
                f"{model}, {split}",
                _cloud(stored, *columns),
                Axis("", hidden=True),
                Axis("", hidden=True),
                300,
            )
        )
    fewer = any(len(data["x"]) > most_points for _, _, data in shown)
    count = len(stored.names)
    own = (
        "A colour for each class" if count <= len(PALETTE) else "A colour and symbol for each class"
    )
    colours = own if count <= FEW else "Several classes share a colour"
    thinned = f" At most {most_points:,} points a panel are drawn." if fewer else ""
    if any("test" in found for found in embedded.values()) and "test" not in splits:
        thinned += " A report on fewer runs has room for those of test samples, too."
    caption = (
        f"Each point is a sample; near points look alike to the model (t-SNE, no unit). {colours}; forgotten samples are in the colour "
        f"of the text.{thinned}"
    )
    alt = f"{len(panels)} clouds of points: {', '.join(panel.title for panel in panels)}."
    beside = len({model for model, _, _ in shown})
    return Plot(
        "features",
        "Feature space: where the model puts its samples",
        caption,
        alt,
        panels,
        beside if beside > 1 else 0,
    )


def _some(forget: Sequence[bool], most: int) -> list[int]:
    """Places of at most so many samples, drawn at random: every n-th would leave classes out where these come in turn. Up to half of
    them are forgotten ones, however few of all these are."""
    draw = random.Random(0)
    gone, rest = (
        [at for at, flag in enumerate(forget) if bool(flag) == wanted] for wanted in (True, False)
    )
    gone = draw.sample(gone, min(len(gone), most // 2)) if len(forget) > most else gone
    return sorted([*gone, *draw.sample(rest, min(len(rest), most - len(gone)))])


def _cloud(
    stored: Stored,
    x: Sequence[float],
    y: Sequence[float],
    labels: Sequence[int],
    forget: Sequence[bool],
) -> list[Points]:
    """A mark for each class or, of many, for each colour; the forgotten samples last, on top of the others."""
    few = len(stored.names) <= FEW
    groups: dict[tuple[bool, int], list[int]] = {}
    for at, (label, gone) in enumerate(zip(labels, forget, strict=True)):
        groups.setdefault((bool(gone), label if few else label % len(PALETTE)), []).append(at)
    return [
        Points(
            "forgotten" if gone else _name(stored, label) if few else "retained",
            [_short(x[at]) for at in rows],
            [_short(y[at]) for at in rows],
            INK if gone else PALETTE[label % len(PALETTE)],
            SYMBOLS[label // len(PALETTE) % len(SYMBOLS)],
            4,
            [_name(stored, label)] if few else [],
        )
        for (gone, label), rows in sorted(groups.items())
    ]


def _short(value: float) -> float:
    """Three digits are enough for a place, and a page has thousands."""
    return float(f"{value:.3g}")


def density(stored: Stored) -> Plot | None:
    """Log density of each class's cluster, model by model."""
    found = (stored.analysis or {}).get("density") or {}
    splits = [
        split
        for split in ("train", "test")
        if any(split in found.get(model, {}) for model in MODELS)
    ]
    if not splits:
        return None
    keys = list(
        dict.fromkeys(
            key
            for model in MODELS
            for split in splits
            for key in found.get(model, {}).get(split, {})
        )
    )
    gone = [key for key in keys if int(key) in stored.forgotten]
    keys = [*gone, *(key for key in keys if key not in gone)][:SHOWN]
    ticks = [cut(_name(stored, int(key))) + (" (forgotten)" if key in gone else "") for key in keys]
    panels = []
    for split in splits:
        marks = []
        for shift, model in zip((-0.2, 0, 0.2), MODELS, strict=True):
            values = [found.get(model, {}).get(split, {}).get(key) for key in keys]
            if any(value is not None for value in values):
                symbol = SYMBOLS[list(MODELS).index(model)]
                marks.append(
                    Points(
                        model,
                        values,
                        [at + shift for at in range(len(keys))],
                        MODELS[model],
                        symbol,
                        texts=[model],
                    )
                )
        panels.append(
            Panel(
                split,
                marks,
                Axis("log density (natural logarithm)"),
                Axis("", ticks=ticks, down=True),
                PIXELS * len(keys) + 90,
            )
        )
    caption = "How tightly the samples of a class lie together in the model's feature space: samples a model never learned lie loosely."
    alt = f"Log density of {len(keys)} classes for {', '.join(found)}, on {' and '.join(splits)} samples."
    return Plot("density", "Density of each class's cluster", caption, alt, panels)


def shap(stored: Stored, most_images: int = IMAGES) -> Plot | None:
    """Maps of what raised or lowered a class, model by model; those of an image share their scale."""
    panels, beside = [], 0
    for image in explained(stored)[:most_images]:
        beside = max(beside, len(image["maps"]))
        maps = {model: pooled(values) for model, values in image["maps"].items()}
        most = max(abs(value) for values in maps.values() for row in values for value in row)
        for model, values in maps.items():
            down = Axis("", -0.5, len(values) - 0.5, down=True, hidden=True)
            cells = Cells(values, signed=True, unit="SHAP", most=most)
            panels.append(
                Panel(
                    f"{image.get('title', '')}, {model}", [cells], Axis("", hidden=True), down, 260
                )
            )
    if not panels:
        return None
    caption = "Red pixels raise the probability of the class, blue ones lower it; the same colour means the same in all maps of an image."
    alt = f"{len(panels)} maps of SHAP values, one for each image and model."
    return Plot(
        "shap", "What the model looked at (SHAP)", caption, alt, panels, beside if beside > 1 else 0
    )


def explained(stored: Stored, forgotten: bool = False) -> list[dict[str, Any]]:
    """Images whose SHAP maps may be shown or, if `forgotten`, those whose maps may not.

    A map shows the outline of its image: not those of training samples that were to be forgotten. A file that does not say which these
    are, as older ones, may hold nothing else.
    """
    images = ((stored.analysis or {}).get("shap") or {}).get("images") or []
    return [image for image in images if (image.get("forgotten") is not False) == forgotten]


def pooled(values: Sequence[Sequence[float]], side: int = SIDE) -> list[list[float]]:
    """Sums over blocks, which keep the total, so that no side has more than so many: enough to see, small enough to send."""
    step = block(len(values), len(values[0]), side)
    rows = [values[at : at + step] for at in range(0, len(values), step)]
    starts = range(0, len(values[0]), step)
    return [
        [_short(sum(sum(line[at : at + step]) for line in block)) for at in starts]
        for block in rows
    ]


def block(height: int, width: int, side: int = SIDE) -> int:
    """Pixels a side that become one."""
    return -(-max(height, width) // side)


def _confusions(stored: Stored) -> tuple[Confused, Confused] | None:
    before, after = stored.run.by_class.get("original"), stored.run.by_class.get("unlearned")
    return (before, after) if before and after else None


def _cells(table: Confused, chosen: list[int]) -> Cells:
    rows = [[table.get(str(true), {}).get(str(seen), 0) for seen in chosen] for true in chosen]
    totals = [sum(table.get(str(true), {}).values()) or 1 for true in chosen]
    shares = [[count / total for count in row] for row, total in zip(rows, totals, strict=True)]
    return Cells(
        shares, [[str(count) if count else "" for count in row] for row in rows], "samples"
    )


def _confusion_words(stored: Stored, pair: tuple[Confused, Confused]) -> str:
    said = []
    for index in stored.forgotten[:3]:
        row = pair[1].get(str(index), {})
        most = sorted(row, key=lambda seen: -row[seen])[:3]
        called = ", ".join(f"{_name(stored, int(seen))} ({row[seen]})" for seen in most)
        said.append(
            f"After unlearning, unseen samples of {_name(stored, index)} are taken for: {called}."
        )
    right = [sum(row.get(true, 0) for true, row in table.items()) for table in pair]
    return " ".join([*said, f"Recognised rightly: {right[0]} before, {right[1]} after."])


def _name(stored: Stored, index: int) -> str:
    return stored.names[index] if index < len(stored.names) else str(index)


def _hundred(value: float | None) -> float | None:
    return None if value is None else 100 * value
