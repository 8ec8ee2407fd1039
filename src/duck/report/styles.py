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
Style = tuple[str, Symbol]
"""Colour and symbol."""
MODELS: dict[str, Style] = {
    "original": (MUTED, "circle"),
    "unlearned": (BLUE, "square"),
    "retrained": (ORANGE, "diamond"),
}
FIXED_STYLES: dict[str, Style] = {
    "original": (MUTED, "circle"),
    "retrained": (INK, "diamond"),
    "duck": (BLUE, "circle"),
}
"""Methods with the same style in every plot."""


def choose_styles(methods: Iterable[str]) -> dict[str, Style]:
    """Return a style for each method. The first 30 without a fixed style all differ."""
    names = sorted(set(methods))
    others = [name for name in names if name not in FIXED_STYLES]
    colors = PALETTE[1:]
    styles = dict(FIXED_STYLES)
    for place, name in enumerate(others):
        symbol = SYMBOLS[place // len(colors) % len(SYMBOLS)]
        styles[name] = colors[place % len(colors)], symbol
    return {name: styles[name] for name in names}
