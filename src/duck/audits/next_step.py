"""What to do after an audit or an unlearning: complete commands, or why there is none."""

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path

from duck.audits.options import AuditOptions
from duck.audits.verdict import (
    DEFAULT_MODELS,
    FORGOTTEN,
    NO_RETAIN_DATA,
    NOT_FORGOTTEN,
    Audit,
    Tier,
)
from duck.data import DATASETS, SMALL_IMAGES
from duck.methods.base import METHODS, Method
from duck.methods.presets import preset
from duck.models.weights import request_digest
from duck.runs import WEIGHTS, Run, is_run, load, place_of

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
    ASSURED: "Methods in turn, until the loss of the sample is as for nine of ten unseen samples",
    RETRAINED: "Retraining, which alone forgets one sample for certain",
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


def pool_obstacle(run: Run) -> str:
    """Return why no pool can be made for a run; "" where one can."""
    if run.experiment.earlier:
        return "A pool cannot follow earlier requests."
    samples = run.samples
    is_class = run.by_class.kind == "class"
    if not is_class and samples.get("retain", 0) <= samples.get("forget", 0):
        return "A pool needs more retain samples than forget samples."
    return ""


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

    original   the run of the original, or a file of its weights
    """
    method = run.experiment.method
    is_retrained = method is not None and METHODS.name_of(method) == RETRAINED
    is_single = run.samples.get("forget") == 1
    if audit.verdict == FORGOTTEN or (is_single and is_retrained):
        report = shlex.join(["duck", "report", str(folder), "-o", "report.html"])
        result = NOTHING_LEFT if audit.verdict == FORGOTTEN else NEVER_SEEN
        return (f"{result} A page for others: `{report}`.",)
    if is_single or (audit.verdict == NOT_FORGOTTEN and not is_retrained):
        return tuple(_Repetition(run, folder, audit, options, original).steps())
    return tuple(_further_audits(run, folder, audit, options))


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
    if audit.tier == "oracle" and not pool_obstacle(run):
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
        training = self.run.experiment.training
        is_single = self.run.samples.get("forget") == 1
        if self.run.experiment.earlier and not self._is_start:
            return [NO_EARLIER_RUN]
        config = shlex.quote(self._config)
        show = shlex.join(["duck", "show", str(self.folder), "--toml"])
        steps = [ONE_SAMPLE] if is_single else []
        steps.append(f"Store the request in a file: `{show} > {config}`.")
        if self._is_start:
            start = ["--run", _from_here(self.original)]
        elif training.weights:
            start = self._own_model()
        else:
            place = self._new_folder("original")
            words = ["duck", "train", "--config", self._config, "--out", place]
            words += [*self._data_flags(), *self.options.flags("data", "root", "device")]
            words += self._trust()
            steps.append(f"Store the original as a run: `{shlex.join(words)}`.")
            start = ["--run", place]
        if is_pushed_away(self.audit):
            steps.append(self._softer(start))
        methods = WITHOUT_RECIPE if training.weights else OTHER_METHODS
        if is_single:
            methods = {name: what for name, what in FOR_ONE_SAMPLE.items() if name in methods}
        for name, what in methods.items():
            if name not in (self._method_name, self._impossible):
                flags = self._assured() if name == ASSURED else ["--method", name]
                steps.append(f"{what}: `{self._command(start, flags, name)}`.")
        return steps

    @cached_property
    def _is_start(self) -> bool:
        """Whether the original is a run that a request can start from, and not its weights alone.

        The run of a request for which the method `original` did nothing has its weights, too.
        """
        if not is_run(self.original):
            return False
        return load(self.original).experiment.all_requests == self.run.experiment.earlier

    @cached_property
    def _weights(self) -> Path:
        return self.original / WEIGHTS if self.original.is_dir() else self.original

    @property
    def _method_name(self) -> str:
        method = self.run.experiment.method
        return METHODS.name_of(method) if method else ""

    @property
    def _impossible(self) -> str:
        """What this protocol does not allow: assurance needs a holdout of its own."""
        return ASSURED if self.run.experiment.protocol == "paper" else ""

    @property
    def _config(self) -> str:
        return str(self.folder / CONFIG)

    def _command(self, start: list[str], flags: list[str], name: str) -> str:
        words = ["duck", "forget", *start, "--config", self._config, *flags]
        words += [*self.options.flags(*PLACE_OPTIONS), *self._trust()]
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

    def _trust(self) -> list[str]:
        return ["--trust-model-code"] if ":" in self.run.experiment.training.model else []

    def _assured(self) -> list[str]:
        # Of one sample only the quick tier accepts another model than a retrained one.
        tier = "quick" if self.run.samples.get("forget") == 1 else self.audit.tier
        models = max(self.audit.models, self.options.models, DEFAULT_MODELS)
        asked = replace(self.options, models=models)
        return ["--method", "auto", "--assure", tier, *asked.flags(*ASSURANCE_OPTIONS)]

    def _own_model(self) -> list[str]:
        """Return the flags of a model that was trained elsewhere, with its data."""
        training = self.run.experiment.training
        words = ["--model", training.model, "--weights", _from_here(self._weights)]
        data = self._data_flags()
        if "--data" not in data and not self.options.data:
            data = ["--data", training.data, *data]
        words += [*data, *pixel_flags(self.run)]
        return [*words, "--ignore-earlier"] if request_digest(self._weights) else words

    def _data_flags(self) -> list[str]:
        """Return where the data are by the record, unless the audit was told another place."""
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
    """Return what forgets less hard: a method with its tuned preset, or a lower learning rate.

    None: the method has no learning rate of its own.
    """
    name = METHODS.name_of(method)
    if name == "duck":
        paper, tuned = (preset(name, data, kind, samples, which) for which in ("paper", "tuned"))
        if method == paper != tuned:
            return name
    lr = getattr(method, "lr", None)
    return lr / 2 if isinstance(lr, float) else None


@dataclass(frozen=True)
class PythonNames:
    """What the arguments are called in a suggested Python call."""

    audited: str
    """The first arguments of duck.audit, with the retrained models that it was given."""
    repeated: str
    """The first arguments of duck.forget, for the same request."""
    method: str = ""
    """The method that ran; "" where it is not known."""
    softer: str = ""
    """The argument for a method that forgets less hard; "" where none is known."""
    retraining: str = "new_model=new_model, recipe=recipe"
    """The arguments for retraining."""


def next_calls(
    audit: Audit, names: PythonNames, options: AuditOptions, samples: int
) -> tuple[str, ...]:
    """Return what to do after an audit in Python, a sentence with a call each.

    `samples` is the number of forget samples.
    """
    is_retrained = names.method == RETRAINED
    if audit.verdict == FORGOTTEN:
        return (NOTHING_LEFT,)
    if samples == 1 and is_retrained:
        return (NEVER_SEEN,)
    if samples == 1 or (audit.verdict == NOT_FORGOTTEN and not is_retrained):
        return tuple(_forget_calls(audit, names, options, samples))
    what, tier = COMPARE, "oracle"
    if audit.tier != "quick":
        what, tier = MORE_MODELS, audit.tier
        options = replace(options, models=2 * max(audit.models, DEFAULT_MODELS // 2))
    arguments = [names.audited, f'tier="{tier}"', *_arguments(options), names.retraining]
    return (f"{what}: `duck.audit({', '.join(arguments)})`.",)


def _forget_calls(
    audit: Audit, names: PythonNames, options: AuditOptions, samples: int
) -> list[str]:
    """Return calls that repeat the request in another way."""
    is_single = samples == 1
    steps = [ONE_SAMPLE] if is_single else []
    if is_pushed_away(audit):
        call = f": `duck.forget({names.repeated}, {names.softer})`" if names.softer else ""
        steps.append(f"{TOO_HARD}{call}.")
    for method, what in (FOR_ONE_SAMPLE if is_single else OTHER_METHODS).items():
        if method == names.method:
            continue
        argument = f'method="{method}"'
        if method == ASSURED:
            argument = f"assure={_python_assurance(audit, options, is_single)}"
        steps.append(f"{what}: `duck.forget({names.repeated}, {argument}, {names.retraining})`.")
    return steps


def _python_assurance(audit: Audit, options: AuditOptions, is_single: bool) -> str:
    """Return the argument for an assured run in Python."""
    # Of one sample only the quick tier accepts another model than a retrained one.
    tier = f'"{"quick" if is_single else audit.tier}"'
    models = max(audit.models, options.models, DEFAULT_MODELS)
    arguments = _arguments(replace(options, models=models), "models", "planted")
    limits = _arguments(options, "margin", "max_advantage", "max_epsilon")
    if limits:
        arguments.append(f"limits=duck.Limits({', '.join(limits)})")
    return f"duck.AssureOptions({', '.join([tier, *arguments])})" if arguments else tier


def _arguments(options: AuditOptions, *names: str) -> list[str]:
    """Return these options as arguments, by default those of duck.audit that are not objects."""
    chosen = names or (*ASSURANCE_OPTIONS, "pool", "pool_models")
    return [
        f"{name}={(str(value) if isinstance(value, Path) else value)!r}"
        for name, value in options.changed(*chosen).items()
    ]


def _from_here(place: Path) -> str:
    """Return a path below the working folder from there, others as they are."""
    here = Path.cwd()
    return os.path.relpath(place, here) if place.is_relative_to(here) else str(place)
