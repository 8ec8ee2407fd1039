"""Experiments: configurations with an id, read from and written to JSON and TOML."""

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cattrs
import tomli_w
from cattrs.gen import make_dict_unstructure_fn, override

from duck.checks import check_numbers, check_settings
from duck.errors import BadInput
from duck.files import read_toml
from duck.json_text import to_json
from duck.methods.base import METHODS, Method
from duck.records import CONVERTER, OBJECT, Rule, build_input_converter, structure_input
from duck.registry import Registry
from duck.sample_ids import hide_ids, names_samples, without_ids
from duck.scenarios import REQUESTS, Request, scenario_after
from duck.training.loop import check_recipe
from duck.types import Data, Protocols, Recipe, Scenario

CLASS = Rule("a class index or name", lambda value: type(value) in (int, str))
RECIPE_ASSUMED = (
    "The original was trained elsewhere: its recipe is not known, and the one below is assumed."
)


@dataclass(frozen=True)
class Training:
    """The training of the original."""

    data: str
    model: str
    recipe: Recipe = field(default_factory=Recipe)
    seed: int = 0
    image_size: int | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    """Mean and standard deviation of the pixels, if they are not those of the data."""
    fingerprint: str = ""
    """Fingerprint of the data."""
    weights: str = ""
    """Fingerprint of weights that were trained elsewhere."""
    recipe_assumed: bool = False
    """Whether the original was trained elsewhere, so that the recipe is only the default one."""


@dataclass(frozen=True)
class EarlierRequest:
    """A request that the model has already forgotten, with its method."""

    request: Request
    method: Method
    seed: int = 0
    protocol: Protocols = "holdout"


@dataclass(frozen=True)
class Experiment:
    """The configuration of a run. The same experiment has the same id on every machine.

    `id` must stay private: someone who guesses sample ids could check the guess with it. Public
    places use `public_id` or `run_id`.
    """

    training: Training
    request: Request | None = None
    method: Method | None = None
    seed: int = 0
    protocol: Protocols = "holdout"
    earlier: tuple[EarlierRequest, ...] = ()
    """Requests that the starting model has already forgotten, oldest first."""
    head: str | None = None
    """Name of the classifier head inside the model. None: it is detected."""

    @property
    def id(self) -> str:
        """The digest of all fields."""
        return digest_of(self)

    @property
    def public_id(self) -> str:
        """Like `id`, with the number of sample ids in place of the ids."""
        return _id_of(without_ids(to_dict(self)))

    def run_id(self, salt: str) -> str:
        """Return the id of a run: like `id`, with keyed digests in place of sample ids."""
        plain = to_dict(self)
        return _id_of(hide_ids(plain, salt)[0] if salt else plain)

    @property
    def names_samples(self) -> bool:
        """Whether a request contains sample ids."""
        return names_samples(to_dict(self))

    @property
    def all_requests(self) -> tuple[EarlierRequest, ...]:
        """The requests that the model has forgotten after the run: earlier ones and this one."""
        if self.request is None or self.method is None or self.method.forgets_by == "nothing":
            return self.earlier
        return (*self.earlier, EarlierRequest(self.request, self.method, self.seed, self.protocol))

    @property
    def previous(self) -> "Experiment":
        """The experiment that produced the starting model."""
        if not self.earlier:
            return Experiment(self.training, seed=self.training.seed)
        *earlier, last = self.earlier
        fields = {name: getattr(last, name) for name in ("request", "method", "seed", "protocol")}
        return replace(self, earlier=tuple(earlier), **fields)

    def request_digest(self, salt: str) -> str:
        """Return a digest of the data and of all forgotten requests, or "" if there are none.

        Sample ids enter it as digests with the key `salt`.
        """
        requests = [(to_dict(step.request), step.seed) for step in self.all_requests]
        if not requests:
            return ""
        text = to_json([self.training.fingerprint, hide_ids(requests, salt)[0]], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def scenario(self, data: Data) -> Scenario:
        """Apply the request to the data, after the earlier requests."""
        if self.request is None:
            raise BadInput("The experiment is a training: it has no request.")
        return scenario_of(self.earlier, self.request, data, self.seed, self.protocol)


def digest_of(value: Any) -> str:
    """Return a digest of plain data and dataclasses: the same for equal values everywhere."""
    return _id_of(to_dict(value))


def _id_of(plain: dict[str, Any]) -> str:
    return hashlib.blake2b(to_json(plain, sort_keys=True).encode(), digest_size=8).hexdigest()


def scenario_of(
    earlier: Sequence[EarlierRequest], request: Request, data: Data, seed: int, protocol: Protocols
) -> Scenario:
    """Apply a request to the data, after the earlier requests."""
    if not earlier:
        return request(data, seed, protocol)
    *before, last = earlier
    previous = scenario_of(before, last.request, data, last.seed, last.protocol)
    return scenario_after(previous, request, seed, protocol)


def fingerprint(data: Data) -> str:
    """Return a fingerprint of the training and test samples."""
    parts = [data.train.fingerprint(), "" if data.test is None else data.test.fingerprint()]
    return hashlib.blake2b("/".join(parts).encode(), digest_size=16).hexdigest()


def to_dict(value: Any) -> dict[str, Any]:
    """Return plain data; methods and requests are stored with their registered names."""
    plain: dict[str, Any] = _converter.unstructure(value)
    return plain


def from_dict(plain: dict[str, Any]) -> Experiment:
    """Return the experiment, or raise an error that names the wrong key or field."""
    experiment = structure_input(plain, Experiment, _converter)
    check_numbers(experiment)
    check_recipe(experiment.training.recipe)
    check_settings(experiment.method)
    return experiment


def to_toml(experiment: Experiment) -> str:
    """Return the experiment as TOML; a comment marks a recipe that is only assumed."""
    text = tomli_w.dumps(_without_none(to_dict(experiment)))
    return f"# {RECIPE_ASSUMED}\n{text}" if experiment.training.recipe_assumed else text


def from_toml(path: Path) -> Experiment:
    """Read an experiment from a TOML file."""
    return from_dict(read_toml(path))


def _without_none(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {key: _without_none(value) for key, value in plain.items() if value is not None}
    return [_without_none(value) for value in plain] if isinstance(plain, list | tuple) else plain


def _build_converter() -> cattrs.Converter:
    converter = build_input_converter()
    _tag(converter, Method, METHODS)
    _tag(converter, Request, REQUESTS)
    converter.register_structure_hook(int | str, CLASS.check)
    # Omitted if they have their defaults: ids of experiments without them stay the same.
    optional = override(omit_if_default=True)
    training = make_dict_unstructure_fn(Training, converter, recipe_assumed=optional)
    converter.register_unstructure_hook(Training, training)
    plain = make_dict_unstructure_fn(Experiment, converter, earlier=optional, head=optional)
    converter.register_unstructure_hook(Experiment, plain)
    return converter


def _tag(converter: cattrs.Converter, protocol: Any, registry: Registry[Any]) -> None:
    def unstructure(value: Any) -> dict[str, Any]:
        fields = {
            f.name: converter.unstructure(getattr(value, f.name)) for f in dataclasses.fields(value)
        }
        return {"name": registry.name_of(value), **fields}

    def structure(plain: dict[str, Any], _: Any) -> Any:
        rest = dict(OBJECT.check(plain))
        cls = registry[rest.pop("name", "")]
        return converter.structure(rest, cls)

    converter.register_unstructure_hook_func(
        lambda cls: cls in registry.values() or cls is protocol, unstructure
    )
    # Not a hook of the type: from Python 3.12 on, it would also be called for its implementations.
    converter.register_structure_hook_func(lambda cls: cls is protocol, structure)


_converter = _build_converter()
# Records contain experiments.
CONVERTER.register_structure_hook(Experiment, lambda plain, _: from_dict(plain))
CONVERTER.register_unstructure_hook(Experiment, to_dict)
