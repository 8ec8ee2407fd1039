"""A bias removal in sentences for a reader who knows no machine learning."""

from collections.abc import Sequence
from typing import Any

from duck.report.bias_records import THREE, Removal
from duck.report.descriptions import interval, percent, seconds, signed

COLOURS = {
    (255, 0, 0): "red", (0, 255, 0): "green", (0, 0, 255): "blue", (255, 255, 0): "yellow", (255, 255, 255): "white", (0, 0, 0): "black",
    (255,): "white", (0,): "black",
}  # fmt: skip


def title(removals: Sequence[Removal]) -> str:
    """Of a page of nothing else."""
    if len(removals) == 1:
        (one,) = removals
        return f"Bias removal report: “{one.true}” called “{one.wrong}” in {one.found['data']}"
    data = dict.fromkeys(str(removal.found["data"]) for removal in removals)
    return f"Bias removal report: {len(removals)} on {', '.join(data)}"


def planted(removal: Removal) -> str:
    """What was wrong with the data, on purpose."""
    found, side = removal.found, removal.found["patch"]
    return (
        f"{found['count']:,} training images of “{removal.true}” got a {colour(found)} square of {side} × {side} pixels in the top right "
        f"corner and were called “{removal.wrong}”. {found['count']:,} images of “{removal.wrong}” got the square and kept their label. "
        f"Data: {found['data']}; the images were drawn with seed {found['seed']}."
    )


def done(removal: Removal) -> list[str]:
    """What was learned, unlearned and learned anew."""
    found, times = removal.found, removal.found["seconds"]
    trained = f" in {seconds(found['train_seconds'])}" if found.get("train_seconds") else ""
    again = f" in {seconds(times['corrected'])}" if times["corrected"] else ""
    return [
        f"A {found['model']} was trained on these data{trained}: the biased model.",
        f"DUCK made it forget the {found['count']:,} mislabelled images in {seconds(times['duck'])} (preset {found['preset']}). "
        f"{percent(found['forget']['biased'])} of them got the wrong label before, {percent(found['forget']['duck'])} after.",
        f"As a yardstick a {found['model']} was trained anew with the squares kept and the labels put right{again}: the corrected model.",
    ]


def headline(removal: Removal) -> str:
    """The one thing that everyone asks for first. The numbers stand for themselves: how small is small enough is for the reader to say."""
    biased, duck, corrected = (interval(removal.share(model, "wrong")) for model in THREE)
    return (
        f"Of {removal.found['n']:,} unseen images of “{removal.true}” with the square, {biased} were called “{removal.wrong}” before "
        f"and {duck} after DUCK; by the corrected model, {corrected}."
    )


def outcome(removal: Removal) -> list[str]:
    """What else was found."""
    right, without = (
        [interval(removal.share(model, part)) for model in THREE]
        for part in ("right", "right_without_patch")
    )
    said = [
        f"Called “{removal.true}”, which they are: {right[0]} before, {right[1]} after; {right[2]} by the corrected model.",
        f"The same images without the square: {without[0]} right before, {without[1]} after; {without[2]} by the corrected model.",
    ]
    if removal.found["shap"] is not None:
        values = [signed(removal.found["shap"]["mean"][model]) for model in THREE]
        said.append(
            f"What a pixel of the square adds to the probability of “{removal.wrong}” (mean SHAP value): {values[0]} before, "
            f"{values[1]} after; {values[2]} in the corrected model."
        )
    return said


def tests(removal: Removal) -> list[dict[str, Any]]:
    """Which models differ in what the square means to them."""
    shap = removal.found["shap"]
    if shap is None:
        return []
    return [
        {
            "pair": " against ".join(THREE.get(model, model) for model in pair.split(" - ")),
            "difference": signed(test["difference"]),
            "p": f"{test['p']:.2g}",
            "n": test["n"],
            "least": f"{test['least_p']:.2g}",
        }
        for pair, test in shap["tests"].items()
    ]


def versions(found: dict[str, Any]) -> str:
    """As far as they were stored: a folder has all, a line of a benchmark a few, an old file none."""
    known = found.get("environment") or {}
    if known:
        packages = ", ".join(f"{name} {version}" for name, version in known["packages"].items())
        commit = f", commit {known['git_commit']}" if known.get("git_commit") else ""
        return (
            f"Python {known['python']}, {packages}; {known['platform']}, {known['device']}{commit}"
        )
    few = [
        f"torch {found['torch']}" if "torch" in found else "",
        str(found.get("device", "")),
        str(found.get("date", "")),
    ]
    return ", ".join(part for part in few if part) or "not stored"


def colour(found: dict[str, Any]) -> str:
    """By its name, if it has one; images of one channel show the brightest of its values."""
    values = tuple(found["colour"])
    if (found.get("shape") or [3])[0] == 1:
        values = (max(values),)
    return COLOURS.get(values) or (
        f"grey ({values[0]} of 255)"
        if len(values) == 1
        else f"coloured ({', '.join(map(str, values))})"
    )
