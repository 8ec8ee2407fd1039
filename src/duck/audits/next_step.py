"""What to do after an audit or an unlearning of a stored run: complete commands, or why none."""

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from duck.audits.options import AuditOptions
from duck.audits.verdict import (
    DEFAULT_MODELS,
    FORGOTTEN,
    NO_RETAIN_DATA,
    NOT_FORGOTTEN,
    RETRAINED_ACCURACY,
    Audit,
    Tier,
)
from duck.data import DATASETS, SMALL_IMAGES
from duck.methods.base import METHODS, Method
from duck.methods.presets import preset
from duck.models.weights import request_digest
from duck.runs import WEIGHTS, Run, is_run, place_of

CONFIG = "experiment.toml"
RETRAINED = "retrained"
ASSURED = "assured"
NO_UNSEEN_DATA = (
    "This run cannot be audited: an audit compares with unseen samples, and there are no test data."
)

NOTHING_LEFT = "Nothing is left to do."
NEVER_SEEN = f"The model was retrained and never saw the sample. {NOTHING_LEFT}"
COMPARE = "Compare with retrained models"
MORE_MODELS = "More retrained models give narrower intervals"
OTHER_RECIPE = "The retrained models were not trained like the original. Give its recipe"
OTHER_PIXELS = (
    "If its pixels were normalised with other values, repeat the request with its {mean} and {std}."
)
OTHER_METHODS = {
    "warm-restart": "A short new training cycle",
    ASSURED: "Methods in turn, until one passes this audit",
    RETRAINED: "Retraining, which forgets exactly",
}
"""What to try after a method that did not forget."""
WITHOUT_RECIPE = {
    "finetune": "Further training without the forget samples",
    RETRAINED: "Retraining by the default recipe, as that of the original is not known",
}
"""The same where it is not known how the original was trained."""
FOR_ONE_SAMPLE = {
    ASSURED: "Methods in turn, until the loss of the sample is like that of unseen samples",
    RETRAINED: "Retraining, the only method that certainly forgets one sample",
}
ONE_SAMPLE = "No audit gives a verdict for one sample: read the percentile of its loss."
TOO_HARD = (
    "The forget samples are now harder for the model than unseen ones. Use a lower learning rate "
    "or fewer epochs"
)
NO_EARLIER_RUN = (
    "Repeat `duck forget` with another --method from the run of the earlier request: its file of "
    "weights alone does not say what was forgotten before."
)
ASSURANCE_OPTIONS = ("models", "margin", "max_advantage", "max_epsilon", "planted")
"""Options of an audit that `duck forget --assure` has, too."""
PLACE_OPTIONS = ("data", "root", "head", "device")
"""Options of an audit that every `duck forget` has, too."""


def audit_obstacle(samples: Mapping[str, int]) -> str:
    """Return why an audit refuses these numbers of samples per split; "" where it does not."""
    if not samples.get("retain", 1):
        return NO_RETAIN_DATA
    return NO_UNSEEN_DATA if 0 in (samples.get("holdout"), samples.get("test")) else ""


def can_have_pool(run: Run) -> bool:
    """Return whether a pool can be made: after no other request, with enough candidates."""
    has_candidates = run.samples.get("retain", 0) > run.samples.get("forget", 0)
    return not run.experiment.earlier and (run.by_class.kind == "class" or has_candidates)


def audit_command(run: Run, folder: str, options: AuditOptions | None = None) -> str:
    """Return the command that audits the run in a folder, with every flag that it needs."""
    options = options or AuditOptions()
    training = run.experiment.training
    is_unknown = bool(training.weights) and not options.retrained
    options = replace(
        options,
        default_recipe=options.tier != "quick" and (options.default_recipe or is_unknown),
        trust_model_code=":" in training.model,
    )
    return shlex.join(["duck", "audit", folder, *options.flags()])


def verdict_without_audit(run: Run, folder: Path) -> str:
    """Return a sentence: the scores alone give no verdict, and which command does."""
    obstacle = audit_obstacle(run.samples)
    advice = obstacle or f"Run `{audit_command(run, str(folder))}`."
    return f"Verdict: none without an audit. {advice}"


def next_steps(
    run: Run, folder: Path, audit: Audit, options: AuditOptions, original: Path
) -> tuple[str, ...]:
    """Return what to do after an audit of a stored run, a sentence with a command each.

    options    what the audit was asked for
    original   the run of the original, or a file of its weights
    """
    method = run.experiment.method
    is_retrained = method is not None and METHODS.name_of(method) == RETRAINED
    is_single = run.samples.get("forget") == 1
    wrong_recipe = _other_recipe() if has_other_recipe(audit) else []
    if audit.verdict == FORGOTTEN or (is_single and is_retrained):
        report = shlex.join(["duck", "report", str(folder), "-o", "report.html"])
        result = NOTHING_LEFT if audit.verdict == FORGOTTEN else NEVER_SEEN
        return (f"{result} A page for others: `{report}`.",)
    if is_single or (audit.verdict == NOT_FORGOTTEN and not is_retrained):
        steps = _Repetition(run, folder, audit, options, original).steps()
        return (*wrong_recipe, *steps)
    return tuple(wrong_recipe or _further_audits(run, folder, audit, options))


def has_other_recipe(audit: Audit) -> bool:
    """Return whether the controls show that retrained models were not trained like the original."""
    control = audit.controls.get(RETRAINED_ACCURACY)
    return control is not None and not control.passed


def _other_recipe() -> list[str]:
    """Return how a stored run is compared with models of the recipe of its original."""
    return [
        f"{OTHER_RECIPE}: train models by it without the forget samples, and name them with "
        "--retrained.",
        OTHER_PIXELS.format(mean="--mean", std="--std"),
    ]


def _further_audits(run: Run, folder: Path, audit: Audit, options: AuditOptions) -> list[str]:
    """Return audits that find more."""

    def command(tier: Tier, models: int) -> str:
        asked = replace(options, tier=tier, models=max(models, DEFAULT_MODELS))
        return audit_command(run, str(folder), asked)

    if audit.tier == "quick":
        return [f"{COMPARE}: `{command('oracle', options.models)}`."]
    more = 2 * max(audit.models, DEFAULT_MODELS // 2)
    if options.retrained and run.experiment.training.weights and not options.default_recipe:
        return [f"{MORE_MODELS}: train {more} in all, and name them with --retrained."]
    steps = [f"{MORE_MODELS}: `{command(audit.tier, more)}`."]
    if audit.tier == "oracle" and can_have_pool(run):
        steps.append(f"A pool of models finds more: `{command('full', audit.models)}`.")
    return steps


@dataclass(frozen=True)
class _Repetition:
    """Commands that repeat the request of a run in another way."""

    run: Run
    folder: Path
    audit: Audit
    options: AuditOptions
    original: Path

    def steps(self) -> list[str]:
        """Return the commands, a sentence each."""
        if self.run.experiment.earlier and not self._is_start:
            return [NO_EARLIER_RUN]
        show = shlex.join(["duck", "show", str(self.folder), "--toml"])
        steps = [ONE_SAMPLE] if self._is_single else []
        steps.append(f"Store the request in a file: `{show} > {shlex.quote(self._config)}`.")
        start = ["--run", _from_here(self.original)]
        if not self._is_start and self._is_foreign:
            start = self._own_model()
        elif not self._is_start:
            start = ["--run", self._new_folder("original")]
            words = ["duck", "train", "--config", self._config, *self._data_flags()]
            words += [*self.options.flags("data", "root", "device"), *self._trust]
            command = shlex.join([*words, "--out", start[1]])
            steps.append(f"Store the original as a run: `{command}`.")
        if is_pushed_away(self.audit):
            steps.append(self._softer(start))
        for name, what in self._methods().items():
            flags = self._assured() if name == ASSURED else ["--method", name]
            steps.append(f"{what}: `{self._command(start, flags, name)}`.")
        return steps

    def _methods(self) -> dict[str, str]:
        """Return what else can be tried, and what to say of it."""
        method, protocol = self.run.experiment.method, self.run.experiment.protocol
        known = WITHOUT_RECIPE if self._is_foreign else OTHER_METHODS
        methods = FOR_ONE_SAMPLE if self._is_single else known
        # Assurance needs a holdout of its own.
        left_out = {METHODS.name_of(method), ASSURED if protocol == "paper" else ""}
        return {
            name: what for name, what in methods.items() if name in known and name not in left_out
        }

    @property
    def _is_single(self) -> bool:
        return self.run.samples.get("forget") == 1

    @property
    def _is_foreign(self) -> bool:
        """Whether the original was trained elsewhere, so that its recipe is not known."""
        return bool(self.run.experiment.training.weights)

    @property
    def _is_start(self) -> bool:
        """Whether the original is a run that a request can start from, and not its weights."""
        return is_run(self.original)

    @property
    def _config(self) -> str:
        return str(self.folder / CONFIG)

    def _command(self, start: list[str], flags: list[str], name: str) -> str:
        words = ["duck", "forget", *start, "--config", self._config, *flags]
        words += [*self.options.flags(*PLACE_OPTIONS), *self._trust]
        return shlex.join([*words, "--out", self._new_folder(name)])

    def _new_folder(self, name: str) -> str:
        """Return a folder next to the run that does not exist yet."""
        folder = self.folder.resolve()
        for number in count(1):
            suffix = name if number == 1 else f"{name}-{number}"
            place = folder.parent / f"{folder.name}-{suffix}"
            if not place.exists():
                break
        return _from_here(place)

    @property
    def _trust(self) -> list[str]:
        return ["--trust-model-code"] if ":" in self.run.experiment.training.model else []

    def _assured(self) -> list[str]:
        # Of one sample only the quick tier accepts another model than a retrained one.
        tier = "quick" if self._is_single else self.options.tier
        models = max(self.audit.models, self.options.models, DEFAULT_MODELS)
        asked = replace(self.options, models=models)
        return ["--method", "auto", "--assure", tier, *asked.flags(*ASSURANCE_OPTIONS)]

    def _own_model(self) -> list[str]:
        """Return the flags of a model that was trained elsewhere, with its data."""
        training = self.run.experiment.training
        weights = self.original / WEIGHTS if self.original.is_dir() else self.original
        words = ["--model", training.model, "--weights", _from_here(weights)]
        data = self._data_flags()
        if "--data" not in data and not self.options.data:
            data = ["--data", training.data, *data]
        words += [*data, *pixel_flags(self.run)]
        return [*words, "--ignore-earlier"] if request_digest(weights) else words

    def _data_flags(self) -> list[str]:
        """Return where the data are by the record, unless the audit has another place."""
        is_told = self.options.data or self.options.root
        return [] if is_told else data_flags(self.run, self.folder, _from_here)

    def _softer(self, start: list[str]) -> str:
        method, kind = self.run.experiment.method, self.run.by_class.kind or "samples"
        samples = sum(self.run.samples.get(name, 0) for name in ("forget", "retain"))
        assert method is not None
        softer = softer_method(method, self.run.experiment.training.data, kind, samples)
        if softer is None:
            return f"{TOO_HARD}."
        if isinstance(softer, str):
            flags = ["--method", softer, "--preset", "tuned"]
        else:
            flags = ["--lr", f"{softer:g}"]
        return f"{TOO_HARD}: `{self._command(start, flags, 'softer')}`."


def data_flags(run: Run, folder: Path, name_of: Callable[[Path], str]) -> list[str]:
    """Return the flags for the data of a run, unless their name alone says where they are."""
    data = run.experiment.training.data
    if data not in DATASETS:
        return ["--data", name_of(place_of(folder, run.source.get("data") or data))]
    root = run.source.get("root")
    if root and data not in SMALL_IMAGES:
        return ["--root", name_of(place_of(folder, root))]
    return []


def pixel_flags(run: Run) -> list[str]:
    """Return the image size and normalisation that a model from elsewhere was trained with."""
    training = run.experiment.training
    size = [training.image_size] if training.image_size else []
    flags: list[str] = []
    for flag, values in {"image-size": size, "mean": training.mean, "std": training.std}.items():
        if values:
            flags += [f"--{flag}", *map(str, values)]
    return flags


def is_pushed_away(audit: Audit) -> bool:
    """Return whether the audit failed because forget samples are harder than unseen ones."""
    # Imports scipy, which a plain `duck forget` does not need.
    from duck.audits.quick import ALPHA

    if audit.verdict != NOT_FORGOTTEN:
        return False
    if audit.grades:
        exposed = audit.grades["exposed"]
        is_decided = exposed.answer == "yes" and audit.grades["remembers"].answer != "yes"
        decisive = [exposed.measure] if is_decided and (exposed.value or 0.0) < 0 else []
    else:
        p = {name: row.p for name, row in audit.attacks.items() if row.judged and row.p is not None}
        decisive = [name for name in p if p[name] == min(p.values()) < ALPHA]
    rows = [audit.attacks[name] for name in decisive if name in audit.attacks]
    return any(
        row.unit == "AUC" and row.unlearned is not None and row.unlearned.value < 0.5
        for row in rows
    )


def softer_method(method: Method, data: str, kind: str, samples: int) -> str | float | None:
    """Return what forgets less strongly: a method with its tuned preset, or a lower learning rate.

    None: the method has no learning rate of its own.
    """
    name = METHODS.name_of(method)
    if name == "duck":
        paper, tuned = (preset(name, data, kind, samples, which) for which in ("paper", "tuned"))
        if method == paper != tuned:
            return name
    lr = getattr(method, "lr", None)
    return lr / 2 if isinstance(lr, float) else None


def _from_here(place: Path) -> str:
    """Return a path below the working folder from there, others as they are."""
    here = Path.cwd()
    return os.path.relpath(place, here) if place.is_relative_to(here) else str(place)
