"""What to do after an audit of models in memory: complete Python calls."""

from dataclasses import dataclass, replace
from pathlib import Path

from duck.audits.next_step import (
    ASSURANCE_OPTIONS,
    ASSURED,
    COMPARE,
    FOR_ONE_SAMPLE,
    MORE_MODELS,
    NEVER_SEEN,
    NOTHING_LEFT,
    ONE_SAMPLE,
    OTHER_METHODS,
    OTHER_PIXELS,
    OTHER_RECIPE,
    RETRAINED,
    TOO_HARD,
    has_other_recipe,
    is_pushed_away,
)
from duck.audits.options import AuditOptions
from duck.audits.verdict import DEFAULT_MODELS, FORGOTTEN, NOT_FORGOTTEN, Audit, Tier


@dataclass(frozen=True)
class PythonNames:
    """What the arguments are called in a suggested Python call."""

    audited: str
    """The first arguments of duck.audit, without retrained models."""
    repeated: str
    """The first arguments of duck.forget, for the same request."""
    retrained: str = ""
    """The name of the retrained models that duck.audit was given; "" if it was given none."""
    method: str = ""
    """The method that ran; "" where it is not known."""
    softer: str = ""
    """The argument for a method that forgets less strongly; "" where none is known."""
    new_model: str = "new_model"
    """What builds a fresh model."""
    recipe: str = "recipe"
    """The recipe of the original."""

    @property
    def retraining(self) -> str:
        """The arguments for retraining."""
        return f"new_model={self.new_model}, recipe={self.recipe}"


def next_calls(
    audit: Audit, names: PythonNames, options: AuditOptions, samples: int
) -> tuple[str, ...]:
    """Return what to do after an audit in Python, a sentence with a call each.

    options   what the audit was asked for
    samples   the number of forget samples
    """
    is_retrained = names.method == RETRAINED
    wrong_recipe = _other_recipe(audit, names, options) if has_other_recipe(audit) else []
    if audit.verdict == FORGOTTEN:
        return (NOTHING_LEFT,)
    if samples == 1 and is_retrained:
        return (NEVER_SEEN,)
    if samples == 1 or (audit.verdict == NOT_FORGOTTEN and not is_retrained):
        return (*wrong_recipe, *_forget_calls(audit, names, options, samples))
    if wrong_recipe:
        return tuple(wrong_recipe)
    what = COMPARE
    tier: Tier = "oracle"
    if audit.tier != "quick":
        what, tier = MORE_MODELS, audit.tier
        options = replace(options, models=2 * max(audit.models, DEFAULT_MODELS // 2))
    return (f"{what}: `{_audit_call(replace(options, tier=tier), names)}`.",)


def _audit_call(options: AuditOptions, names: PythonNames) -> str:
    given = [f"retrained={names.retrained}"] if names.retrained else []
    arguments = [names.audited, *given, f'tier="{options.tier}"', *_arguments(options)]
    return f"duck.audit({', '.join([*arguments, names.retraining])})"


def _other_recipe(audit: Audit, names: PythonNames, options: AuditOptions) -> list[str]:
    """Return how the model is compared with models of the recipe of the original."""
    named = replace(names, recipe="recipe", retrained="")  # those known so far are not its own
    call = _audit_call(replace(options, tier=audit.tier), named)
    return [f"{OTHER_RECIPE}: `{call}`.", OTHER_PIXELS.format(mean="mean=", std="std=")]


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
    tier = f'"{"quick" if is_single else options.tier}"'
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
