"""Grids as data: which data sets, who is to be forgotten, by which methods, with which presets."""

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from duck.config import Experiment, fingerprint, from_dict, structure, to_dict
from duck.errors import BadInput, UnknownName
from duck.methods.base import METHODS
from duck.methods.presets import Preset, default_recipe, preset
from duck.models import MODELS
from duck.registry import suggest
from duck.types import Augment, Data, Protocols

Attacks = Literal["svm", "lira", "confidence"]
FIRST = ("original", "duck", "retrained")
"""Run before the others in each case: a grid that is stopped early shows these."""


@dataclass(frozen=True)
class Block:
    """A data set with its cases: classes to remove one at a time, or seeds that draw a random share."""

    dataset: str
    classes: tuple[int, ...] = ()
    seeds: tuple[int, ...] = ()
    fraction: float = 0.1
    model: str = "resnet18"
    recipe: dict[str, Any] = field(default_factory=dict)
    """Changes to how originals of this data set are trained."""

    def __post_init__(self) -> None:
        if bool(self.classes) == bool(self.seeds):
            raise BadInput(f"A block of a grid has either classes or seeds: look at that of {self.dataset!r}.")
        if ":" not in self.model:
            MODELS[self.model]  # an unknown name would fail every run, one by one

    @property
    def scenario(self) -> Literal["class", "samples"]:
        return "class" if self.classes else "samples"

    @property
    def cases(self) -> tuple[int, ...]:
        return self.classes or self.seeds


@dataclass(frozen=True)
class Attack:
    """What each model of a grid has to stand, in place of the scores of its accuracies."""

    name: Attacks
    splits: int = 5
    """Of the samples into those that train an SVM and those that judge it."""
    shadows: int = 128
    """Models that LiRA compares with."""
    pool: str = ""
    """Which ones, by their digest; where a grid leaves it open, those of --pool."""

    @property
    def settings(self) -> dict[str, Any]:
        """Those that its result depends on."""
        own: dict[str, dict[str, Any]] = {
            "svm": {"splits": self.splits}, "lira": {"shadows": self.shadows, "pool": self.pool}, "confidence": {},
        }  # fmt: skip
        return {"name": self.name, **own[self.name]}


@dataclass(frozen=True)
class Grid:
    """Every block x case x method x preset."""

    blocks: tuple[Block, ...]
    methods: tuple[str, ...]
    """In the order of the table's rows."""
    presets: tuple[Preset, ...] = ("paper", "tuned")
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Method -> changes to its preset."""
    seed: int = 42
    """Of the originals, and of the runs that remove a class."""
    protocol: Protocols = "holdout"
    attack: Attack | None = None
    name: str = ""
    about: str = ""

    def __post_init__(self) -> None:
        for what, given in (("blocks", self.blocks), ("methods", self.methods), ("presets", self.presets)):
            if not given:
                raise BadInput(f"The grid {self.name!r} has no {what}.")
        stray = sorted(set(self.settings) - set(self.methods))
        if stray:
            raise BadInput(f"The grid {self.name!r} has settings for {stray[0]!r}, which is not among its methods.")


class Facts(NamedTuple):
    """What an experiment must know of the data; a line of results carries it, so that a table needs no data."""

    name: str
    fingerprint: str
    samples: int | None
    augment: Augment


@dataclass(frozen=True)
class Cell:
    """One run of a grid. Where presets have the same settings, it stands for all of them."""

    block: Block
    case: int
    method: str
    presets: tuple[str, ...]

    @property
    def preset(self) -> str:
        return self.presets[0]

    @property
    def keys(self) -> dict[str, tuple[str, ...]]:
        """What `--only` can ask for, and this cell's answers."""
        return {
            "dataset": (self.block.dataset,),
            "scenario": (self.block.scenario,),
            "case": (str(self.case),),
            "method": (self.method,),
            "preset": self.presets,
        }


@cache
def built_in() -> Mapping[str, Grid]:
    """The grids that come with the package."""
    plain = tomllib.loads(files("duck.bench").joinpath("grids.toml").read_text(encoding="utf-8"))
    return {name: structure({"name": name, **rest}, Grid) for name, rest in plain.items()}


def find_grid(name: str) -> Grid:
    """A grid by its name, or from a TOML file."""
    if name in built_in():
        return built_in()[name]
    path = Path(name)
    if path.suffix != ".toml":
        raise UnknownName(f"No grid {name!r}. {suggest(name, built_in())} A grid of your own is a .toml file.")
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"The grid {path} cannot be read: {error}") from error
    _check_names(plain)
    return structure({"name": path.stem, **plain}, Grid)


def _check_names(plain: Mapping[str, Any]) -> None:
    """Names of which there are few: an unknown one is answered with those."""
    attack, chosen = plain.get("attack"), plain.get("presets")
    asked = [
        ("attack", attack.get("name") if isinstance(attack, dict) else None, Attacks),
        ("protocol", plain.get("protocol"), Protocols),
        *(("preset", name, Preset) for name in (chosen if isinstance(chosen, list) else ())),
    ]
    for what, name, kind in asked:
        if isinstance(name, str) and name not in get_args(kind):
            raise BadInput(f"No {what} {name!r}. {suggest(name, list(get_args(kind)))}")


def facts_of(data: Data) -> Facts:
    return Facts(data.name, fingerprint(data), len(data.train), data.augment)


def assumed(dataset: str) -> Facts:
    """Of data that are not here: enough to say which cells there are."""
    return Facts(dataset, "", None, "none")


def cells(grid: Grid, facts: Mapping[str, Facts]) -> list[Cell]:
    """In the order of running: case by case, the important methods first. A method that cannot do a scenario has no cells there."""
    order = sorted(grid.methods, key=lambda method: FIRST.index(method) if method in FIRST else len(FIRST))
    return [
        Cell(block, case, method, presets)
        for block in grid.blocks
        for case in block.cases
        for method in order
        if method not in METHODS or block.scenario in METHODS[method].scenarios
        for presets in _distinct(grid, block, method, facts.get(block.dataset) or assumed(block.dataset))
    ]


def experiment(grid: Grid, cell: Cell, facts: Facts) -> Experiment:
    """All that decides the result of a cell. An unknown method, setting or recipe key is an error that says so."""
    block = cell.block
    by_class = block.scenario == "class"
    request = {"name": "classes", "classes": [cell.case]} if by_class else {"name": "fraction", "fraction": block.fraction}
    return from_dict(
        {
            "training": to_dict(training(grid, block, facts).training),
            "request": request,
            "method": _method(grid, block, cell.method, cell.preset, facts),
            "seed": grid.seed if by_class else cell.case,
            "protocol": grid.protocol,
        }
    )


def line_id(made: Experiment, attack: Mapping[str, Any] | None) -> str:
    """Of a line of results: that of its experiment or, of an attack, of the experiment and the attack's settings."""
    if attack is None:
        return made.id
    return hashlib.blake2b(f"{made.id}/{json.dumps(attack, sort_keys=True)}".encode(), digest_size=8).hexdigest()


def training(grid: Grid, block: Block, facts: Facts) -> Experiment:
    """How the block's original is made."""
    recipe = {**asdict(default_recipe(facts.name, facts.samples, facts.augment)), **block.recipe}
    made = {"data": facts.name, "model": block.model, "recipe": recipe, "seed": grid.seed, "fingerprint": facts.fingerprint}
    return from_dict({"training": made, "seed": grid.seed})


def _method(grid: Grid, block: Block, method: str, name: str, facts: Facts) -> dict[str, Any]:
    chosen = preset(method, facts.name, block.scenario, facts.samples, "tuned" if name == "tuned" else "paper")
    return {**to_dict(chosen), **grid.settings.get(method, {})}


def _distinct(grid: Grid, block: Block, method: str, facts: Facts) -> list[tuple[str, ...]]:
    """The presets of a method, those with equal settings together."""
    if method not in METHODS:
        return [grid.presets]
    groups: list[tuple[dict[str, Any], tuple[str, ...]]] = []
    for name in grid.presets:
        settings = _method(grid, block, method, name, facts)
        same = [index for index, (known, _) in enumerate(groups) if known == settings]
        if same:
            groups[same[0]] = settings, (*groups[same[0]][1], name)
        else:
            groups.append((settings, (name,)))
    return [names for _, names in groups]


Only = Mapping[str, frozenset[str]]


def parse_only(text: str, grid: Grid) -> Only:
    """`dataset=cifar10,method=duck`: a key given twice allows both values."""
    known = _known(grid)
    wanted: dict[str, set[str]] = {}
    for part in filter(None, (word.strip() for word in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals or key not in known:
            raise BadInput(f"--only takes KEY=VALUE,... with the keys {', '.join(known)}; got {part!r}.")
        if value not in known[key]:
            raise BadInput(f"The grid {grid.name} has no {key} {value!r}. Known: {', '.join(known[key])}.")
        wanted.setdefault(key, set()).add(value)
    return {key: frozenset(values) for key, values in wanted.items()}


def narrow(some: Iterable[Cell], only: Only) -> list[Cell]:
    return [cell for cell in some if all(values.intersection(cell.keys[key]) for key, values in only.items())]


def _known(grid: Grid) -> dict[str, Sequence[str]]:
    every: dict[str, dict[str, None]] = {key: {} for key in ("dataset", "scenario", "case")}
    for block in grid.blocks:
        every["dataset"][block.dataset] = None
        every["scenario"][block.scenario] = None
        every["case"].update(dict.fromkeys(map(str, block.cases)))
    return {**{key: list(values) for key, values in every.items()}, "method": grid.methods, "preset": grid.presets}
