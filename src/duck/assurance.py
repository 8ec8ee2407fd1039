"""Assured forgetting: methods are tried in the order of their cost until one passes an audit.

Two disjoint parts of the samples serve the audits. A method is chosen on the first part: a third
of the forget samples and the holdout. The chosen model is audited on the second part: the other
forget samples and the test samples, which no choice has seen. If it fails there, the retrained
model is returned: trying further methods would make the second part a part of the choice.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import torch
from torch import nn

from duck.audits.auditing import AuditInput, run_audit
from duck.audits.memory import PRIMARY
from duck.audits.oracle import ENOUGH
from duck.audits.outputs import make_setting
from duck.audits.quick import Coverage, has_usual_loss
from duck.audits.references import References
from duck.audits.sub_scenarios import MIN_SAMPLES_TO_SPLIT, split_for_choice
from duck.audits.verdict import (
    DEFAULT_MODELS,
    FORGOTTEN,
    NO_VERDICT,
    NOT_FORGOTTEN,
    TIERS,
    Audit,
    Limits,
    Tier,
    Verdict,
)
from duck.display import Display
from duck.errors import BadInput, Diverged, DuckError, OutOfMemory
from duck.methods.by_cost import Candidate
from duck.pools.reader import Pool
from duck.retraining import Retraining
from duck.types import Original, Scenario
from duck.unlearning import Outcome

RETRAINED = "retrained"
OTHER_SAMPLES = (
    "This audit used samples that were not used to choose the method: two thirds of the forget "
    "samples, and the test samples."
)
SAME_FORGET_SAMPLES = (
    "This audit used test samples that were not used to choose the method. The forget samples are "
    "the same, because there are too few to split."
)
ONE_SAMPLE = (
    "One sample gives no verdict. No method can pass this tier, so the model is retrained. The "
    "quick tier accepts a model in which the loss of the sample lies between the 5th and the 95th "
    "percentile of unseen samples."
)
FEW_SAMPLES = (
    "{count} forget samples are too few to split, so the choice and the final audit use all of "
    'them. They may be too few for the verdict "forgotten", even of a retrained model. Then the '
    "model is retrained in the end. The method `retrained` does so directly."
)
SMALL_PARTS = (
    "{count} forget samples are split: a third for the choice, the rest for the final audit. They "
    'may be too few for the verdict "forgotten", even of a retrained model. A higher --margin '
    "or more --models help."
)
ENOUGH_SAMPLES = 100
"""Forget samples. With 60, the final audit had no verdict for a retrained model of noisy-digits."""
NOT_TRIED = "Not tried: one sample gives no verdict."
MAX_SECONDARY = 0.2
"""Limit in the choice of residual memory by other measures than margins. These measures vary more
between retrained models, and the choice has few samples."""


@dataclass(frozen=True)
class AssureOptions:
    """How a method is chosen by audits."""

    tier: Tier = "oracle"
    models: int = DEFAULT_MODELS
    """Number of retrained models that the audits compare with, above the quick tier."""
    limits: Limits = field(default_factory=Limits)
    planted: bool = True
    """Also train models that keep a share of the forget set, to state what the final audit
    recognises."""
    budget_seconds: float | None = None
    """Time budget. No method and no model to compare with is started that is expected to exceed it;
    the first method always runs. None: no limit."""

    def check(self) -> None:
        """Raise an error for options out of range."""
        self.limits.check()
        if self.tier not in TIERS:
            raise BadInput(f"tier must be one of {', '.join(TIERS)}, got {self.tier!r}.")
        if self.models < (1 if self.tier == "quick" else ENOUGH):
            raise BadInput(
                f"models must be at least {ENOUGH}, got {self.models}: with fewer retrained models "
                'no verdict is "forgotten".'
            )
        # NaN is not above 0.
        if self.budget_seconds is not None and not self.budget_seconds > 0:
            raise BadInput(f"The budget must be positive, got {self.budget_seconds} seconds.")


def describe_size(samples: int, tier: Tier) -> str:
    """Return a warning about the number of forget samples; "" if there are enough."""
    if tier == "quick" or samples >= ENOUGH_SAMPLES:
        return ""
    if samples == 1:
        return ONE_SAMPLE
    text = FEW_SAMPLES if samples < MIN_SAMPLES_TO_SPLIT else SMALL_PARTS
    return text.format(count=samples)


def has_other_forget_samples(choice: Scenario, final: Scenario) -> bool:
    """Return whether the final audit looks at other forget samples than the choice."""
    return not torch.equal(choice.forget, final.forget)


def describe_refutation(choice: Scenario, final: Scenario) -> str:
    """Return the start of a sentence: the final audit did not confirm the choice, and on what."""
    samples = ""
    if has_other_forget_samples(choice, final):
        samples = ", on other samples,"
    elif choice is not final:
        samples = ", on the same forget samples and other unseen ones,"
    return f"The final audit{samples} did not confirm it"


@dataclass(frozen=True)
class Attempt:
    """One method that was tried."""

    method: str
    seconds: float
    """The time of the method alone, with its preparation."""
    passed: bool
    reason: str
    verdict: Verdict | None = None
    """The verdict of the audit for the choice; None: there was nothing to audit."""
    residual_memory: float | None = None


@dataclass(frozen=True)
class Assurance:
    """The methods that were tried, the method that was chosen, and the time they took."""

    tier: Tier
    chosen: str
    passed: bool
    """Whether the chosen model passed its final audit, or is a retrained one."""
    attempts: tuple[Attempt, ...]
    verdict: Verdict | None
    """The verdict of the final audit."""
    audit_seconds: float
    """The time of all audits, and of the models that they compared with."""
    retraining_seconds: float | None = None
    """The time of one retraining; None: none was measured."""

    @property
    def method_seconds(self) -> float:
        """The time of all methods that were tried."""
        return sum(attempt.seconds for attempt in self.attempts)

    def __str__(self) -> str:
        return f"{self._result} {self._cost}"

    @property
    def _result(self) -> str:
        if not self.passed:
            reasons = [item.reason for item in self.attempts if item.method == self.chosen]
            return (
                f"No method passed within the budget. Returned: the model of {self.chosen}, the "
                f"best so far. {' '.join(reasons)}"
            )
        if self.chosen == RETRAINED and len(self.attempts) == 1:
            return "Retrained. The model never saw the samples."
        if self.chosen == RETRAINED:
            return "Retrained: no faster method passed. The model never saw the samples."
        if self.tier == "quick":
            return (
                f"No trace was found after {self.chosen}. The quick tier cannot show that a model "
                "forgot."
            )
        return f"Passed: {self.chosen}."

    @property
    def _cost(self) -> str:
        retraining = ""
        if self.retraining_seconds is not None and self.chosen != RETRAINED:
            retraining = f"; one retraining takes {self.retraining_seconds:.3g} s"
        return (
            f"The methods took {self.method_seconds:.3g} s{retraining}. The audits, with the "
            f"models that they compare with, took {self.audit_seconds:.3g} s."
        )


@dataclass(frozen=True, eq=False)
class Assured:
    """The model that was chosen, with its final audit."""

    candidate: Candidate
    outcome: Outcome
    audit: Audit | None
    assurance: Assurance


def assure(
    original: Original,
    scenario: Scenario,
    candidates: Sequence[Candidate],
    unlearn_with: Callable[[Candidate], Outcome],
    options: AssureOptions | None = None,
    retraining: Callable[[Scenario], Retraining] | None = None,
    pool_of: Callable[[Candidate], Pool] | None = None,
    display: Display | None = None,
    retraining_seconds: float | None = None,
) -> Assured:
    """Try methods until one passes; return its model, or that of the last method.

    Args:
        original: The model before unlearning.
        scenario: What is to be forgotten.
        candidates: The methods in the order in which they are tried; the last one needs no audit.
        unlearn_with: Runs a method.
        options: Tier, limits and budget.
        retraining: Trains models without the forget set of a scenario, above the quick tier.
        pool_of: Makes the pool of a method, for the final audit of the full tier.
        display: How progress and messages are shown.
        retraining_seconds: The expected time of one retraining, for the budget. None: not known
            before the first one.
    """
    chosen = options or AssureOptions()
    shown = display or Display()
    chosen.check()
    remark = describe_size(len(scenario.forget), chosen.tier)
    if remark:
        shown.message(remark)
    budget = _Budget(chosen.budget_seconds, retraining_seconds)
    auditor = _Auditor(original, scenario, chosen, retraining, pool_of, shown, budget)
    return _Attempts(candidates, unlearn_with, auditor).run()


class _Budget:
    """The time that is left, and the expected time of a retraining."""

    def __init__(self, seconds: float | None, retraining_seconds: float | None) -> None:
        self.seconds = seconds
        self.retraining_seconds = retraining_seconds
        self.measured_seconds: float | None = None
        self.started_at = time.monotonic()

    def update(self, seconds: Sequence[float]) -> None:
        """Take the mean time of retrainings as the expected time of the next one."""
        if seconds:
            self.retraining_seconds = self.measured_seconds = sum(seconds) / len(seconds)

    def allows_retraining(self, seconds: Sequence[float]) -> bool:
        """Return whether a further retraining is expected to end in time, given those so far."""
        self.update(seconds)
        return self.allows(1.0)

    def allows(self, share: float) -> bool:
        """Return whether a method is expected to end in time.

        share   its time as a share of that of a retraining; unknown times count as 0
        """
        if self.seconds is None:
            return True
        spent = time.monotonic() - self.started_at
        return spent + share * (self.retraining_seconds or 0.0) <= self.seconds


@dataclass
class _Auditor:
    """Audits models on the two parts of the samples."""

    original: Original
    scenario: Scenario
    options: AssureOptions
    retraining: Callable[[Scenario], Retraining] | None
    pool_of: Callable[[Candidate], Pool] | None
    display: Display
    budget: _Budget

    def __post_init__(self) -> None:
        tier = self.options.tier
        self.choice = self.final = self.scenario
        if tier != "quick":
            self.choice, self.final = split_for_choice(self.scenario)
        self.is_single = len(self.scenario.forget) == 1
        if not self.is_single:
            for part in (self.choice, self.final):
                make_setting(part)  # an error before anything is trained
        self.seconds = 0.0
        self.references: list[nn.Module] = []
        if tier == "quick":
            return
        if tier == "full" and self.pool_of is None:
            raise BadInput("The full tier needs a pool.")
        if self.retraining is None:
            raise BadInput(
                f"Assurance by the {tier} tier compares with models retrained as the "
                "original was trained: give new_model= and recipe=, or use the quick tier."
            )
        if not self.is_single:
            self._train_references()

    @property
    def obstacle(self) -> str:
        """Why no model can pass: one sample, or the budget ended before models were trained."""
        if self.options.tier == "quick" or len(self.references) >= ENOUGH:
            return ""
        if self.is_single:
            return "Not audited: one sample gives no verdict."
        return (
            f"Not audited: the budget allowed {len(self.references)} of {self.options.models} "
            f"models to compare with, and an audit needs {ENOUGH}."
        )

    def _train_references(self) -> None:
        started_at = time.monotonic()
        references = References(
            self.scenario,
            self.retraining,
            self.options.models,
            display=self.display,
            may_train=self.budget.allows_retraining,
        )
        self.references = references.retrained
        if self.obstacle:
            self.display.message(self.obstacle)
        self.seconds += time.monotonic() - started_at

    @cached_property
    def _final_references(self) -> References:
        """The references with the planted models of the final audit.

        These are trained only when the final audit needs them, so that methods get the time first.
        """
        return References(
            self.final,
            self.retraining,
            len(self.references),
            self.references,
            self.options.planted,
            self.display,
            self.budget.allows_retraining,
        )

    def __call__(self, candidate: Candidate, outcome: Outcome, is_final: bool) -> Audit:
        started_at = time.monotonic()
        references = self._final_references
        if not is_final:
            references = replace(references, scenario=self.choice, with_planted=False)
        tier = self.options.tier
        if tier == "full" and not is_final:
            tier = "oracle"  # A pool for each method would take too long.
        inputs = self._audit_input(self.final if is_final else self.choice, candidate, outcome)
        pool_of = partial(self.pool_of, candidate) if self.pool_of else None
        audit = run_audit(inputs, tier, references, pool_of, self.options.limits)
        self.seconds += time.monotonic() - started_at
        return audit

    def audit_quickly(self, candidate: Candidate, outcome: Outcome) -> Audit | None:
        """Return the quick audit of a model that had no final audit; None where it is refused.

        If no choice was made by audits, it looks at all samples.
        """
        started_at = time.monotonic()
        part = self.scenario if self.obstacle else self.final
        try:
            inputs = self._audit_input(part, candidate, outcome)
            return run_audit(inputs, "quick", limits=self.options.limits)
        except DuckError as error:
            self.display.message(f"The model of {candidate.name} was not audited: {error}")
            return None
        finally:
            self.seconds += time.monotonic() - started_at

    def _audit_input(self, part: Scenario, candidate: Candidate, outcome: Outcome) -> AuditInput:
        coverage = Coverage(outcome.processed, outcome.forget_samples)
        if coverage.processed == coverage.requested:
            coverage = Coverage(len(part.forget), len(part.forget))
        notes = self._final_notes if part is self.final else ()
        requested = len(self.scenario.forget)
        return AuditInput(
            part, self.original, outcome.model, candidate.name, "", coverage, notes, requested
        )

    @property
    def _final_notes(self) -> tuple[str, ...]:
        """What the final audit looked at."""
        if self.options.tier == "quick":
            return ()
        is_split = has_other_forget_samples(self.choice, self.final)
        return (OTHER_SAMPLES,) if is_split else (SAME_FORGET_SAMPLES,)

    def objection(self, audit: Audit) -> str:
        """Return why a model is not chosen; "" where the audit for the choice found nothing.

        Few samples give wide intervals, so the values are compared here and not their upper ends.
        The final audit decides.
        """
        if audit.verdict == NOT_FORGOTTEN or (self.is_single and not has_usual_loss(audit)):
            return audit.reasons[0]
        if audit.verdict == FORGOTTEN or self.options.tier == "quick":
            return ""
        if not audit.grades:
            return f"{audit.verdict}. {audit.reasons[0]}"
        margin = self.options.limits.margin
        limits = dict.fromkeys(PRIMARY, margin)
        for item in audit.grades["remembers"].evidence:
            limit = limits.get(item.measure, max(MAX_SECONDARY, margin))
            if not item.value <= limit:  # NaN does not pass
                return f"Residual memory {item.value:.2f} by the {item.measure} (limit {limit:g})."
        return ""

    def passes(self, audit: Audit) -> bool:
        """Return whether the final audit is passed. The quick tier never says "forgotten"."""
        is_open = self.options.tier == "quick" and audit.verdict == NO_VERDICT
        return audit.verdict == FORGOTTEN or is_open


@dataclass
class _Attempts:
    """Tries the candidates one after the other."""

    candidates: Sequence[Candidate]
    unlearn_with: Callable[[Candidate], Outcome]
    auditor: _Auditor

    def __post_init__(self) -> None:
        self.budget = self.auditor.budget
        self.attempts: list[Attempt] = []
        self.best: tuple[Candidate, Outcome] | None = None
        self.least_memory = float("inf")

    def run(self) -> Assured:
        """Return the first model that passes, the last one, or the best within the budget."""
        *candidates, last = self.candidates
        audit = None
        is_undecidable = self.auditor.is_single and self.auditor.obstacle
        if is_undecidable and self.budget.allows(last.share):
            self.attempts = [Attempt(item.name, 0.0, False, NOT_TRIED) for item in candidates]
            return self._retrain(last)
        for candidate in candidates:
            tried = self._try(candidate)
            if tried is None:
                continue
            audit = self._audit_finally(candidate, tried)
            if self.auditor.passes(audit):
                return self._finish(candidate, tried, audit, passed=True)
            break
        if self.best is not None and not self._may_run(last):
            # The final audit, if there was one, is that of the best model: it passed the choice.
            candidate, outcome = self.best
            return self._finish(candidate, outcome, audit, passed=False)
        return self._retrain(last)

    def _retrain(self, last: Candidate) -> Assured:
        """Return the retrained model. It needs no audit, but must not be damaged."""
        self._say(f"Trying {last.name} ...")
        outcome = self.unlearn_with(last)
        seconds = outcome.seconds + outcome.prepare_seconds
        reason = _failure(outcome)
        self.attempts.append(Attempt(last.name, seconds, not reason, reason or last.reached))
        self.budget.update([seconds])
        audit = None
        if not self.auditor.obstacle or self.auditor.is_single:
            try:
                audit = self.auditor(last, outcome, True)
            except DuckError as error:
                self._say(f"The retrained model was not audited: {error}")
        return self._finish(last, outcome, audit, passed=not reason)

    def _try(self, candidate: Candidate) -> Outcome | None:
        """Run a method; return its outcome if it passes the audit for the choice."""
        if self.best is not None and not self._may_run(candidate):
            reason = "Not tried: it would exceed the budget."
            self.attempts.append(Attempt(candidate.name, 0.0, False, reason))
            return None
        self._say(f"Trying {candidate.name} ...")
        try:
            outcome = self.unlearn_with(candidate)
        except (Diverged, OutOfMemory) as error:
            self._record(Attempt(candidate.name, 0.0, False, f"It failed: {error}"))
            return None
        seconds = outcome.seconds + outcome.prepare_seconds
        reason = _failure(outcome)
        if reason:
            self._record(Attempt(candidate.name, seconds, False, reason))
            return None
        if self.auditor.obstacle:
            self._record(Attempt(candidate.name, seconds, False, self.auditor.obstacle))
            self.best = candidate, outcome
            return None
        audit = self.auditor(candidate, outcome, False)
        objection = self.auditor.objection(audit)
        grade = audit.grades.get("remembers")
        memory = max((item.value for item in grade.evidence), default=None) if grade else None
        reason = objection or "The audit for the choice found nothing."
        seen = Attempt(candidate.name, seconds, not objection, reason, audit.verdict, memory)
        self._record(seen)
        is_better = memory is not None and memory < self.least_memory
        if self.best is None or is_better or not objection:
            self.best = candidate, outcome
            self.least_memory = memory if memory is not None else self.least_memory
        return None if objection else outcome

    def _audit_finally(self, candidate: Candidate, outcome: Outcome) -> Audit:
        audit = self.auditor(candidate, outcome, True)
        if not self.auditor.passes(audit):
            failed = (
                f"{describe_refutation(self.auditor.choice, self.auditor.final)}: {audit.verdict}."
            )
            self.attempts[-1] = replace(self.attempts[-1], passed=False, reason=failed)
            self._say(f"{candidate.name}: {failed}")
        return audit

    def _finish(
        self, candidate: Candidate, outcome: Outcome, audit: Audit | None, passed: bool
    ) -> Assured:
        if audit is None:
            audit = self.auditor.audit_quickly(candidate, outcome)
        assurance = Assurance(
            tier=self.auditor.options.tier,
            chosen=candidate.name,
            passed=passed,
            attempts=tuple(self.attempts),
            verdict=audit.verdict if audit else None,
            audit_seconds=self.auditor.seconds,
            retraining_seconds=self.budget.measured_seconds,
        )
        return Assured(candidate, outcome, audit, assurance)

    def _record(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)
        result = "passed" if attempt.passed else "not passed"
        self._say(f"{attempt.method}: {result}. {attempt.reason}")

    def _say(self, message: str) -> None:
        self.auditor.display.message(message)

    def _may_run(self, candidate: Candidate) -> bool:
        """Return whether a further method can be audited, or needs no audit, and ends in time."""
        return not self.auditor.obstacle and self.budget.allows(candidate.share)


def _failure(outcome: Outcome) -> str:
    """Return why a model is rejected whatever an audit finds; "" if it is not."""
    if outcome.is_damaged:
        return str(outcome.kept_accuracy)
    if any(scores.is_remembered for scores in outcome.earlier):
        return "It remembers samples of an earlier request."
    return "" if outcome.status == "done" else "It forgot nothing."
