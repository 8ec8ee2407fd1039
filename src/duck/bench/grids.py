"""Grids as data: data sets, requests, methods and presets."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from duck.audits.attacks import ATTACKS
from duck.errors import BadInput, UnknownName
from duck.experiment import Experiment, fingerprint, from_dict, to_dict
from duck.files import package_toml, read_toml
from duck.json_text import to_json
from duck.methods.base import METHODS, Method
from duck.methods.presets import Preset, RecipeName, default_recipe, preset
from duck.models import MODELS
from duck.records import Count, Rule, build_input_converter, structure_input
from duck.registry import suggest
from duck.scenarios import Debias, ForgetClasses, ForgetFraction, ForgetRandomClasses, Request
from duck.types import Augment, Data, Protocols

Studies = Literal["density", "bias"]
Scenarios = Literal["class", "samples", "bias"]
Settings = dict[str, int | str]
"""The settings of an attack or study, with its name."""
Case = int | str
"""A class, a seed, or a group of classes such as "1+2"."""
Positive = Annotated[
    int, Rule("a whole number of at least 1", lambda value: type(value) is int and value >= 1)
]


@dataclass(frozen=True)
class Bias:
    """A bias to plant and to remove: the fields of the request `debias`."""

    true: int = 1
    wrong: int = 9
    count: Positive = 200
    patch: Positive = 4


@dataclass(frozen=True)
class Block:
    """A data set with its cases.

    A case is a class to remove, a group of classes to remove together, or a seed. A seed draws a
    random share of the samples, `random_classes` classes, or the images that get a `bias`.
    """

    dataset: str
    classes: tuple[int | tuple[int, ...], ...] = ()
    seeds: tuple[int, ...] = ()
    fraction: float = 0.1
    random_classes: Positive | None = None
    bias: Bias | None = None
    model: str = "resnet18"
    recipe_preset: RecipeName = "standard"
    recipe: dict[str, Any] = field(default_factory=dict, hash=False)
    """Changes to how originals of this data set are trained."""
    trials: Count = 0
    """Settings of each method that are tried on holdout data; 0: no search is planned."""
    searched: tuple[int, ...] = ()
    """Classes or seeds on which settings are searched. Rows of the preset `tuned` omit them."""

    def __post_init__(self) -> None:
        look = f"look at the block of {self.dataset!r}."
        if bool(self.classes) == bool(self.seeds):
            raise BadInput(f"A block of a grid has either classes or seeds: {look}")
        if self.classes and (self.random_classes or self.bias):
            raise BadInput(f"random_classes and bias go with seeds: {look}")
        if not 0 < self.fraction < 1:
            raise BadInput(f"fraction must be between 0 and 1, got {self.fraction}: {look}")
        if self.random_classes and self.bias:
            raise BadInput(f"'random_classes' and 'bias' are two requests. Choose one: {look}")
        if len(set(self.cases)) < len(self.cases):
            raise BadInput(f"A block has a case twice. Name each class or seed once: {look}")
        if self.trials and not self.searched:
            raise BadInput(f"'trials' needs 'searched', the classes or seeds of the search: {look}")
        if ":" not in self.model:
            MODELS[self.model]  # an unknown name would fail every run, one by one

    @property
    def scenario(self) -> Scenarios:
        if self.bias:
            return "bias"
        return "class" if self.classes or self.random_classes else "samples"

    @property
    def kind(self) -> Literal["class", "samples"]:
        """What a method must be able to do. Mislabelled images are single samples."""
        return "class" if self.scenario == "class" else "samples"

    @property
    def cases(self) -> tuple[Case, ...]:
        groups = (one if isinstance(one, int) else "+".join(map(str, one)) for one in self.classes)
        return tuple(groups) or self.seeds

    def group(self, case: Case) -> tuple[int, ...]:
        """Return the named classes that a case removes."""
        group = self.classes[self.cases.index(case)]
        return (group,) if isinstance(group, int) else group

    def removed(self, case: Case) -> int | None:
        """Return how many classes a case removes; None where classes stay."""
        return len(self.group(case)) if self.classes else self.random_classes

    def request(self, case: Case) -> Request:
        """Return the request of a case."""
        if self.classes:
            return ForgetClasses(sorted(self.group(case)))
        if self.bias:
            return Debias(**asdict(self.bias))
        if self.random_classes:
            return ForgetRandomClasses(self.random_classes)
        return ForgetFraction(self.fraction)


@dataclass(frozen=True)
class Attack:
    """An attack on each model of a grid; its scores replace the accuracies."""

    name: str
    """An attack of the registry that has columns."""
    splits: Positive = 5
    """Number of splits of the samples into a training set and a test set of the SVM."""
    shadows: Positive = 128
    """Models that LiRA compares with."""
    pool: str = ""
    """Digest of the shadow models; empty: those of --pool."""

    def __post_init__(self) -> None:
        if not ATTACKS[self.name].columns:
            raise BadInput(f"The attack {self.name!r} cannot be run by a grid, only by an audit.")

    @property
    def settings(self) -> Settings:
        """The settings that its result depends on."""
        own = {key: getattr(self, key) for key in ATTACKS[self.name].settings}
        return {"name": self.name, **own}

    @property
    def needs_pool(self) -> bool:
        """Whether it compares with a pool of shadow models, which its result depends on."""
        return ATTACKS[self.name].needs_shadows()


@dataclass(frozen=True)
class Study:
    """A measurement of each model of a grid; its scores replace the accuracies.

    density   how densely forgotten and retained classes lie in feature space
    bias      how a model classifies unseen images with the square, and the SHAP value of the square
    """

    name: Studies
    dimensions: Positive = 9
    """Dimensions of the space in which densities are measured."""
    images: Count = 128
    """Unseen images whose SHAP values are computed; 0: none."""

    @property
    def settings(self) -> Settings:
        """The settings that its result depends on."""
        own = {"density": {"dimensions": self.dimensions}, "bias": {"images": self.images}}
        return {"name": self.name, **own[self.name]}


Measurement = Attack | Study


class WithMeasurement:
    """What a grid and a result have in common: an attack or a study, or neither."""

    attack: Attack | None
    study: Study | None

    @property
    def measurement(self) -> Measurement | None:
        """The attack or study; None for plain scores."""
        return self.attack or self.study

    @property
    def measurement_name(self) -> str | None:
        return None if self.measurement is None else self.measurement.name


@dataclass(frozen=True)
class Variant:
    """A method with changed settings, as a row of its own."""

    method: str
    name: str
    settings: dict[str, Any]

    def __post_init__(self) -> None:
        if self.name in ("", "none") or set(self.name) & set(",="):
            raise BadInput(
                f"A variant has a name other than 'none', without ',' and '='; got {self.name!r}."
            )
        if not self.settings:
            raise BadInput(f"The variant {self.name!r} has no settings.")


@dataclass(frozen=True)
class Priority:
    """Which missing cells of a grid `duck bench --next` fills first.

    First these methods on the first cases, then the other methods there, then the further cases.
    """

    methods: tuple[str, ...] = ("original", "retrained", "duck")
    cases: int = 3


@dataclass(frozen=True)
class Grid(WithMeasurement):
    """Every block x case x method or variant x preset; or a view of the runs of other grids."""

    blocks: tuple[Block, ...] = ()
    methods: tuple[str, ...] = ()
    """In the order of the table's rows."""
    presets: tuple[Preset, ...] = ("paper", "tuned")
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Method -> changes to its preset."""
    variants: tuple[Variant, ...] = ()
    """Further rows: methods with other settings."""
    seed: int = 42
    """Seed of the originals, and of the runs that remove a class."""
    protocol: Protocols = "holdout"
    attack: Attack | None = None
    study: Study | None = None
    views: tuple[str, ...] = ()
    """Grids whose runs this one shows. It has no runs of its own."""
    rank: int = 100
    """Order in which `duck bench --next` fills grids: the lowest first."""
    priority: Priority = Priority()
    name: str = ""
    about: str = ""
    file: str = field(default="", compare=False)
    """Where it was read from; empty for a grid that comes with the package."""

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise BadInput(f"The grid {self.name!r} {problem}")

    def _problems(self) -> Iterator[str]:
        if self.views:
            if self.blocks or self.methods:
                yield "shows the runs of other grids: leave 'blocks' and 'methods' out."
            return
        for what in ("blocks", "methods", "presets"):
            if not getattr(self, what):
                yield f"has no {what}."
        if self.attack and self.study:
            yield "has an attack and a study: choose one."
        for method in (*self.settings, *(variant.method for variant in self.variants)):
            if method not in self.methods:
                yield f"has settings for {method!r}, which is not among its methods."
        names = [(variant.method, variant.name) for variant in self.variants]
        if len(set(names)) < len(names):
            yield "has two variants of one method with the same name."
        if self.measurement_name == "density" and any(
            block.scenario != "class" for block in self.blocks
        ):
            yield "studies 'density', which needs blocks that remove classes."
        if {bool(block.bias) for block in self.blocks} != {self.measurement_name == "bias"}:
            yield "must have the study 'bias' and a bias in each block, or neither."


class Facts(NamedTuple):
    """What an experiment depends on in the data. Results store it: a table needs no data."""

    name: str
    fingerprint: str
    samples: int | None
    augment: Augment


@dataclass(frozen=True)
class Cell:
    """One run of a grid. Where presets have the same settings, it stands for all of them."""

    block: Block
    case: Case
    method: str
    presets: tuple[str, ...]
    variant: str = ""

    @property
    def preset(self) -> str:
        return self.presets[0]

    @property
    def removed(self) -> int | None:
        return self.block.removed(self.case)

    @property
    def label(self) -> str:
        """The name of the method in a table, with that of its variant."""
        return f"{self.method}, {self.variant}" if self.variant else self.method

    @property
    def keys(self) -> dict[str, tuple[str, ...]]:
        """The keys of `--only` and the values of this cell, in the order of splitting a plan."""
        return {
            "dataset": (self.block.dataset,),
            "scenario": (self.block.scenario,),
            "model": (self.block.model,),
            "recipe": (self.block.recipe_preset,),
            "removed": (str(self.removed or 0),),
            "case": (str(self.case),),
            "variant": (self.variant or "none",),
            "method": (self.method,),
            "preset": self.presets,
        }


SHORT_TRAINING = {"epochs": 2, "batch_size": 256}
SHORT_METHOD = {
    "epochs": 1,
    "forget_epochs": 1,
    "max_epochs": 2,
    "original_epochs": 2,
    "milestones": [],
    "original_milestones": [],
}
FIRST = ("original", "duck", "retrained")
"""Run before the others in each case: a grid that is stopped early shows these."""


@cache
def built_in() -> Mapping[str, Grid]:
    """Return the grids that come with the package."""
    grids = package_toml("duck.bench", "grids.toml")
    return {name: _structure({"name": name, **rest}) for name, rest in grids.items()}


def find_grid(name: str) -> Grid:
    """Return a grid by its name, or read it from a TOML file."""
    if name in built_in():
        return built_in()[name]
    path = Path(name)
    if path.suffix != ".toml":
        raise UnknownName(
            f"No grid {name!r}. {suggest(name, built_in())} A grid of your own is a .toml file."
        )
    plain = {"name": path.stem, **read_toml(path), "file": name}
    try:
        grid = _structure(plain)
        for view in grid.views:
            shown = built_in().get(view)
            if shown is None or shown.measurement or shown.views:
                raise BadInput(f"There are no runs of {view!r} that can be shown by their time.")
        for cell in cells(grid, {}):
            if cell.method in METHODS:  # settings and recipes are checked here, not run by run
                experiment(grid, cell, unknown_facts(cell.block.dataset))
    except BadInput as error:
        raise BadInput(f"The grid {path} cannot be used: {error}") from error
    return grid


def _structure(plain: dict[str, Any]) -> Grid:
    return structure_input(plain, Grid, _CONVERTER)


def _class_or_group(value: Any, _: Any) -> int | tuple[int, ...]:
    """Return a class, or the classes of a group that go together."""
    group = value if isinstance(value, list | tuple) else [value]
    if not group or any(type(one) is not int for one in group) or len(set(group)) < len(group):
        raise BadInput(
            f"A class is a whole number, or a list of different ones for a group; got {value!r}."
        )
    return tuple(group) if isinstance(value, list | tuple) else group[0]


_CONVERTER = build_input_converter()
_CONVERTER.register_structure_hook(int | tuple[int, ...], _class_or_group)


def rehearsal(grid: Grid) -> Grid:
    """Return a small copy of a grid on the embedded digits, which runs in seconds on a CPU.

    It has the same methods and presets, one case of each block, a small net and a short training.
    """
    blocks = dict.fromkeys(_small(block) for block in grid.blocks)
    settings = {
        name: {**grid.settings.get(name, {}), **_short(METHODS[name])}
        for name in grid.methods
        if name in METHODS
    }
    attack = grid.attack and replace(grid.attack, shadows=min(8, grid.attack.shadows))
    study = grid.study and replace(grid.study, images=min(4, grid.study.images))
    return replace(
        grid,
        name=f"rehearsal/{grid.name}",
        blocks=tuple(blocks),
        settings=settings,
        attack=attack,
        study=study,
    )


def _small(block: Block) -> Block:
    first = block.classes[0] if block.classes else 0
    classes = 3 if isinstance(first, int) else tuple(range(min(9, len(first))))
    bias = block.bias
    return replace(
        block,
        dataset="digits",
        model="convnet",
        recipe_preset="standard",
        recipe=SHORT_TRAINING,
        trials=0,
        searched=(),
        classes=(classes,) if block.classes else (),
        seeds=block.seeds[:1],
        random_classes=block.random_classes and min(8, block.random_classes),
        bias=bias and Bias(count=min(30, bias.count), patch=min(4, bias.patch)),
    )


def _short(method: type[Method]) -> dict[str, Any]:
    """Return settings that end a method after an epoch or two."""
    known = {one.name for one in fields(method)}  # type: ignore[arg-type]
    return {name: value for name, value in SHORT_METHOD.items() if name in known}


def facts_of(data: Data) -> Facts:
    """Return the facts of a data set."""
    return Facts(data.name, fingerprint(data), len(data.train), data.augment)


def unknown_facts(dataset: str) -> Facts:
    """Return facts of data that are not available: enough to list the cells of a grid."""
    return Facts(dataset, "", None, "none")


def cells(grid: Grid, facts: Mapping[str, Facts]) -> list[Cell]:
    """Return the cells in the order of running: case by case, the important methods first.

    A method has no cells in a scenario that it does not support.
    """
    found: list[Cell] = []
    rows = [(method, "") for method in grid.methods]
    rows += [(variant.method, variant.name) for variant in grid.variants]
    rows.sort(key=lambda row: FIRST.index(row[0]) if row[0] in FIRST else len(FIRST))
    for block in grid.blocks:
        known = facts.get(block.dataset) or unknown_facts(block.dataset)
        presets = {
            row: _distinct(grid, block, *row, known)
            for row in rows
            if row[0] not in METHODS or block.kind in METHODS[row[0]].scenarios
        }
        for case in block.cases:
            for (method, variant), groups in presets.items():
                # A table must not report settings on a case on which they were searched.
                if case in block.searched:
                    groups = [names for names in groups if names != ("tuned",)]
                found += [Cell(block, case, method, names, variant) for names in groups]
    return found


def experiment(grid: Grid, cell: Cell, facts: Facts) -> Experiment:
    """Return the experiment of a cell; raise an error for an unknown method, setting or key."""
    block = cell.block
    plain = {
        "training": to_dict(original_of(grid, cell, facts).training),
        "method": _method(grid, block, cell.method, cell.variant, cell.preset, facts),
        "seed": cell.case if block.seeds else grid.seed,
        "protocol": grid.protocol,
    }
    return replace(from_dict(plain), request=block.request(cell.case))


def result_id(experiment: Experiment, measurement: Measurement | None) -> str:
    """Return the id of a result: of its experiment and the settings of its attack or study."""
    if measurement is None:
        return experiment.id
    text = f"{experiment.id}/{to_json(measurement.settings, sort_keys=True)}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def original_of(grid: Grid, cell: Cell, facts: Facts) -> Experiment:
    """Return how the original of a cell is trained; with a bias it depends on the case."""
    unbiased = training(grid, cell.block, facts)
    if cell.block.bias is None:
        return unbiased
    assert isinstance(cell.case, int)
    biased = replace(unbiased.training, seed=cell.case)
    return Experiment(biased, cell.block.request(cell.case), seed=cell.case)


def training(grid: Grid, block: Block, facts: Facts) -> Experiment:
    """Return how the original of a block is trained."""
    usual = default_recipe(
        facts.name, facts.samples, facts.augment, block.model, block.recipe_preset
    )
    plain = {
        "data": facts.name,
        "model": block.model,
        "recipe": {**asdict(usual), **block.recipe},
        "seed": grid.seed,
        "fingerprint": facts.fingerprint,
    }
    return from_dict({"training": plain, "seed": grid.seed})


def _method(
    grid: Grid, block: Block, method: str, variant: str, name: str, facts: Facts
) -> dict[str, Any]:
    kind = "class" if block.bias and "class" in METHODS[method].scenarios else block.kind
    wanted: Preset = "tuned" if name == "tuned" else "paper"
    settings = to_dict(preset(method, facts.name, kind, facts.samples, wanted))
    if block.bias and "target_class" in settings:
        settings["target_class"] = block.bias.true
    changes = [one.settings for one in grid.variants if (one.method, one.name) == (method, variant)]
    for change in (grid.settings.get(method, {}), *changes):
        settings |= change
    return settings


def _distinct(
    grid: Grid, block: Block, method: str, variant: str, facts: Facts
) -> list[tuple[str, ...]]:
    """Return the presets of a method, grouped by equal settings.

    Original and Retrained have no settings but a recipe, whose name comes first.
    """
    if method not in METHODS:
        return [grid.presets]
    if not fields(METHODS[method]):  # type: ignore[arg-type]
        return [tuple(dict.fromkeys([block.recipe_preset, *grid.presets]))]
    groups: list[tuple[dict[str, Any], list[str]]] = []
    for name in grid.presets:
        settings = _method(grid, block, method, variant, name, facts)
        same = [names for known, names in groups if known == settings]
        if same:
            same[0].append(name)
        else:
            groups.append((settings, [name]))
    return [tuple(names) for _, names in groups]


Only = Mapping[str, frozenset[str]]


def parse_only(text: str, grid: Grid) -> Only:
    """Parse text such as `dataset=cifar10,method=duck`; a key given twice allows both values."""
    known = _known(grid)
    wanted: dict[str, set[str]] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        key, equals, value = part.partition("=")
        if not equals or key not in known:
            keys = ", ".join(known)
            raise BadInput(f"--only takes KEY=VALUE,... with the keys {keys}; got {part!r}.")
        if value not in known[key]:
            values = ", ".join(known[key])
            raise BadInput(f"The grid {grid.name} has no {key} {value!r}. Known: {values}.")
        wanted.setdefault(key, set()).add(value)
    return {key: frozenset(values) for key, values in wanted.items()}


def narrow(every: Iterable[Cell], only: Only) -> list[Cell]:
    """Return the cells that `--only` selects."""
    return [
        cell
        for cell in every
        if all(values.intersection(cell.keys[key]) for key, values in only.items())
    ]


def _known(grid: Grid) -> dict[str, list[str]]:
    """Return the keys of `--only` with the values that cells of the grid have."""
    known: dict[str, dict[str, None]] = {}
    for source in [built_in()[name] for name in grid.views] or [grid]:
        for cell in cells(source, {}):
            for key, values in cell.keys.items():
                known.setdefault(key, {}).update(dict.fromkeys(values))
    return {key: list(values) for key, values in known.items()}
