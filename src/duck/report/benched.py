"""Lines of a bench as the page shows them: unlearnings beside the runs, and the curves of attacks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from duck.config import Experiment, from_dict
from duck.methods.presets import Preset, preset
from duck.report.stored import Entry

OTHER = ", other settings"
"""Than the preset has now."""


@dataclass(frozen=True)
class Curve:
    """The ROC curve of an attack on one model of a bench."""

    attack: str
    data: str
    on: str
    """What was forgotten; the architecture, where the bench has several."""
    method: str
    preset: str
    fpr: Sequence[float]
    tpr: Sequence[float]
    others: int | None = None
    """Non-members: fewer cannot show so low a rate of false alarms. None where that is not known."""


def of_lines(lines: Iterable[Mapping[str, Any]]) -> list[Entry]:
    """Unlearnings of a bench; trainings of originals, attacks and failures are left out."""
    return [_of_line(line) for line in lines if line.get("method") and "error" not in line and "aus" in line["scores"]]


def of_attacks(lines: Iterable[Mapping[str, Any]]) -> list[Curve]:
    """What attacks of a bench found, where they rank samples; those with different shadow models are different attacks,
    models of another architecture lie elsewhere, and those made with other settings are of another preset."""
    ranked = [(line, from_dict(line["experiment"])) for line in lines if "attack" in line and "roc" in line]
    pools = len({line["attack"].get("pool") for line, _ in ranked} - {None}) > 1
    models = len({experiment.training.model for _, experiment in ranked}) > 1
    return [
        Curve(
            line["attack"]["name"] + (f" with pool {line['attack']['pool'][:8]}" if pools and "pool" in line["attack"] else ""),
            line["dataset"], f"{f'{experiment.training.model}, ' if models else ''}{_removed(line)}",
            line["method"], _preset_of(line, experiment), line["roc"]["fpr"], line["roc"]["tpr"], line["roc"].get("others"),
        )
        for line, experiment in ranked
    ]  # fmt: skip


def _removed(line: Mapping[str, Any]) -> str:
    return "a class" if line["scenario"] == "class" else "samples"


def _of_line(line: Mapping[str, Any]) -> Entry:
    name = f"{line['dataset']}, {'class' if line['scenario'] == 'class' else 'seed'} {line['case']}"
    experiment = from_dict(line["experiment"])
    return Entry(
        name, experiment, line["scenario"], line["scores"], line["original"], {"forget": line["forget_samples"]},
        line["seconds"], line["prepare_seconds"], line["device"], line["notes"], _preset_of(line, experiment),
    )  # fmt: skip


def _preset_of(line: Mapping[str, Any], experiment: Experiment) -> str:
    """Its name, and whether its settings are not those of that name now: of a grid of one's own, or from before they were tuned anew."""
    which: Preset = "tuned" if line["preset"] == "tuned" else "paper"
    known = preset(line["method"], line["dataset"], line["scenario"], line.get("train_samples"), which)
    return which if known == experiment.method else f"{which}{OTHER}"
