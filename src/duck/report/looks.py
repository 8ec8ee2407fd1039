"""Colours and symbols, the same in every plot."""

from collections.abc import Iterable
from typing import Literal

# The colours of Okabe and Ito, which colour-blind readers can distinguish.
BLUE = "#0072B2"
ORANGE = "#E69F00"
GREEN = "#009E73"
VERMILION = "#D55E00"
PURPLE = "#CC79A7"
SKY = "#56B4E9"
BROWN = "#8C6D31"
# These names stand for colours of the page, which differ in its light and its dark scheme.
INK = "ink"
MUTED = "muted"
PAPER = "paper"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, BROWN)
SIGNED_SCALE = ("#2166AC", PAPER, "#B2182B")
SHARE_SCALE = (PAPER, BLUE)
BAND_OPACITY = 0.18

Symbol = Literal["circle", "square", "diamond", "triangle-up", "cross"]
SYMBOLS: tuple[Symbol, ...] = ("circle", "square", "diamond", "triangle-up", "cross")
Look = tuple[str, Symbol]
"""Colour and symbol."""
MODELS: dict[str, Look] = {
    "original": (MUTED, "circle"),
    "unlearned": (BLUE, "square"),
    "retrained": (ORANGE, "diamond"),
}
FIXED_LOOKS: dict[str, Look] = {
    "original": (MUTED, "circle"),
    "retrained": (INK, "diamond"),
    "duck": (BLUE, "circle"),
}
"""Methods with the same look in every plot."""


def choose_looks(methods: Iterable[str]) -> dict[str, Look]:
    """Return a look for each method. The first 30 without a fixed look all look different."""
    names = sorted(set(methods))
    others = [name for name in names if name not in FIXED_LOOKS]
    colors = PALETTE[1:]
    looks = dict(FIXED_LOOKS)
    for place, name in enumerate(others):
        symbol = SYMBOLS[place // len(colors) % len(SYMBOLS)]
        looks[name] = colors[place % len(colors)], symbol
    return {name: looks[name] for name in names}
