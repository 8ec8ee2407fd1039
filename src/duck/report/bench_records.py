"""Lines of a bench as the page shows them: unlearnings, curves of attacks, densities of classes."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Protocol, TypeVar, get_args

from duck.experiment import Experiment, from_dict
from duck.methods.presets import Preset, preset
from duck.report.groups import Group, group_of
from duck.report.records import Entry, question_of, removed_classes
from duck.scenarios import ForgetRandomClasses, describe

OTHER = ", other settings"
"""Than the preset has now."""


@dataclass(frozen=True)
class Curve:
    """The ROC curve of an attack on one model of a bench."""

    attack: str
    data: str
    on: str
    """What was forgotten."""
    method: str
    preset: str
    fpr: Sequence[float]
    tpr: Sequence[float]
    others: int | None = None
    """Non-members: fewer cannot show so low a rate of false alarms. None where that is not known."""
    training: Group | None = None
    """Data, model and recipe, where they are known."""

    @property
    def group(self) -> Group:
        return self.training or Group(self.data)


@dataclass(frozen=True)
class Density:
    """How densely each class lies in the feature space of one model of a bench."""

    group: Group
    method: str
    preset: str
    question: str
    """The same for all models of one request."""
    forgotten: Sequence[int]
    splits: Mapping[str, Mapping[str, float | None]]
    """Log density by class, of training and of test samples."""


class HasPreset(Protocol):
    """A result of a bench."""

    @property
    def preset(self) -> str: ...


Result = TypeVar("Result", bound=HasPreset)


def without_past_settings(
    results: Sequence[Result],
    key: Callable[[Result], Hashable],
) -> list[Result]:
    """Leave out results with other settings than the presets have now, as the tables of a bench do.

    They stay where no result with the same key has the settings of today.
    """
    is_past = [OTHER in result.preset for result in results]
    keys = [key(result) for result in results]
    current = {known for known, past in zip(keys, is_past, strict=True) if not past}
    is_shown = [not past or known not in current for known, past in zip(keys, is_past, strict=True)]
    return list(compress(results, is_shown))


def of_lines(lines: Iterable[Mapping[str, Any]]) -> list[Entry]:
    """Unlearnings of a bench, without trainings of originals, attacks, studies and failures."""
    results = [line for line in _results(lines) if not line.get("study")]
    return [_of_line(line) for line in results if "aus" in line["scores"]]


def of_attacks(lines: Iterable[Mapping[str, Any]]) -> list[Curve]:
    """What attacks of a bench found, where they rank samples; those with different shadow models are different attacks,
    and those made with other settings are of another preset."""
    ranked = [
        (line, from_dict(line["experiment"]))
        for line in lines
        if "attack" in line and "roc" in line
    ]
    pools = len({line["attack"].get("pool") for line, _ in ranked} - {None}) > 1
    return [
        Curve(
            line["attack"]["name"] + (f" with pool {line['attack']['pool'][:8]}" if pools and "pool" in line["attack"] else ""),
            line["dataset"], _forgotten_part(line, experiment), _label(line),
            _preset_of(line, experiment), line["roc"]["fpr"], line["roc"]["tpr"],
            line["roc"].get("others"), group_of(experiment.training),
        )
        for line, experiment in ranked
    ]  # fmt: skip


def of_densities(lines: Iterable[Mapping[str, Any]]) -> list[Density]:
    """Densities of classes that the study `density` of a bench measured, by model."""
    studied = [line for line in _results(lines) if line.get("study")]
    return [_of_study(line) for line in studied if line["study"]["name"] == "density"]


def _results(lines: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Without trainings of originals and failures."""
    return [line for line in lines if line.get("method") and "error" not in line]


def _label(line: Mapping[str, Any]) -> str:
    """The method with its variant."""
    return f"{line['method']}, {line['variant']}" if line.get("variant") else str(line["method"])


def _forgotten_part(line: Mapping[str, Any], experiment: Experiment) -> str:
    if line["scenario"] != "class":
        return "samples"
    count = removed_classes(experiment.request) or 1
    return "a class" if count == 1 else f"{count} classes"


def _case_words(line: Mapping[str, Any], experiment: Experiment) -> str:
    """Which classes, or with which seed they or the samples were drawn."""
    if isinstance(experiment.request, ForgetRandomClasses):
        return f"{describe(experiment.request)}, seed {line['case']}"
    if line["scenario"] != "class":
        return f"seed {line['case']}"
    several = (removed_classes(experiment.request) or 1) > 1
    return f"{'classes' if several else 'class'} {line['case']}"


def _of_line(line: Mapping[str, Any]) -> Entry:
    experiment = from_dict(line["experiment"])
    name = f"{line['dataset']}, {_case_words(line, experiment)}"
    return Entry(
        name, experiment, line["scenario"], line["scores"], line["original"],
        {"forget": line["forget_samples"]}, line["seconds"], line["prepare_seconds"],
        line["device"], line["notes"], _preset_of(line, experiment), line.get("alone", True),
        line.get("variant") or "",
    )  # fmt: skip


def _of_study(line: Mapping[str, Any]) -> Density:
    experiment = from_dict(line["experiment"])
    forgotten = [int(label) for label in line["forgotten"]]
    return Density(
        group_of(experiment.training), _label(line), _preset_of(line, experiment),
        question_of(experiment), forgotten, line["density"],
    )  # fmt: skip


def _preset_of(line: Mapping[str, Any], experiment: Experiment) -> str:
    """Its name, and whether its settings are not those of that name now: of a grid of one's own, or from before they were tuned anew."""
    if line["preset"] not in get_args(Preset):
        return str(line["preset"])  # Original and Retrained have a recipe instead
    which: Preset = "tuned" if line["preset"] == "tuned" else "paper"
    known = preset(
        line["method"], line["dataset"], line["scenario"], line.get("train_samples"), which
    )
    # A variant is a change of settings: its name says so.
    return which if known == experiment.method or line.get("variant") else f"{which}{OTHER}"
