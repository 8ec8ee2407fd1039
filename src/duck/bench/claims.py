"""The claims of the DUCK paper, answered from the results of a folder."""

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Literal, NamedTuple

from duck.analysis.paired import PairedTest, paired_test
from duck.bench.columns import Column, spread
from duck.bench.formats import Format
from duck.bench.grids import find_grid
from duck.bench.groups import PAPER_MODEL, Group, ResultsByCase, find_groups, recipe_differences
from duck.bench.results import Result, Results
from duck.files import package_toml
from duck.json_text import to_json
from duck.records import structure_input

ClaimAnswer = Literal["holds", "does not hold", "in part", "not run"]
ClaimVerdict = Literal["yes", "weak yes", "no", "missing", "note"]
"""weak yes: as claimed, but in too few cases. The claim then neither fails nor holds."""

MIN_CASES = 3
"""Rivals with fewer cases are listed, because their means are imprecise."""
LEVEL = 0.05
"""Of the Wilcoxon tests."""
ABOUT = 0.75
"""A ratio of "about 20" is at least 15. A larger one counts as well."""
SHORTEST = 1e-3
"""Seconds that a run takes at least: no ratio is infinite."""
SCORE = Column("")
RATIO = Column("", digits=1)


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the answer of our results, and the numbers behind it."""

    claim: str
    answer: ClaimAnswer
    evidence: list[str]


class Finding(NamedTuple):
    """One line of evidence, and what it says of the claim. A note is no evidence."""

    text: str
    verdict: ClaimVerdict


@dataclass(frozen=True)
class ClaimMeasure:
    """A score in which rows of DUCK are compared with another method, and what a claim asks."""

    score: str
    title: str
    factor: float = 1.0
    digits: int = 3
    other: str = "retrained"
    above: float = -math.inf
    """The mean difference must be larger than this,"""
    below: float = math.inf
    """and smaller than this."""
    max_value: float = math.inf
    """The mean of DUCK must be smaller than this."""
    is_tested: bool = False
    """The difference must not be significant."""
    nearer_than: str = ""
    """DUCK must be nearer to `other` than to this method."""

    def difference(self, pairs: "Pairs", other: str) -> str:
        """Return both values, their mean difference, and its p."""
        unit, points = (" %", " points") if self.factor == 100 else ("", "")
        test = pairs.test
        p = f"p = {test.p:.2g}" if test.least_p <= LEVEL else "too few differing pairs for a test"
        column = Column(self.title, digits=self.digits)
        ours, theirs = (
            column.format_spread(spread(self.factor * value for value in values))
            for values in pairs
        )
        return (
            f"{self.title} {ours}{unit} against {theirs}{unit} of {other}, difference "
            f"{column.format(self.factor * pairs.gap, '+')}{points} (n {pairs.n}, {p})"
        )


@dataclass(frozen=True)
class ClaimEntry:
    """An entry of claims.toml."""

    claim: str
    criterion: str
    check: Literal["best aus", "faster", "compare"]
    grids: tuple[str, ...]
    other: str = "retrained"
    times: float = 0.0
    measures: tuple[ClaimMeasure, ...] = ()
    of_variants: bool = False
    """Compare the variants of DUCK in place of DUCK itself."""
    needs_all_cases: bool = True
    """Whether evidence is missing if DUCK has no results in some cases."""
    needs_other_models: bool = False
    """Whether there is no evidence without a model other than ResNet-18."""


@cache
def claim_entries() -> list[ClaimEntry]:
    """Return the claims of the paper."""
    plain = package_toml("duck.bench", "claims.toml")["claims"]
    return structure_input(plain, list[ClaimEntry])


def check_claims(results: Results) -> list[Claim]:
    """ClaimAnswer every claim of the paper from the results of a folder."""
    return [check_claim(entry, results) for entry in claim_entries()]


def check_claim(entry: ClaimEntry, results: Results) -> Claim:
    """ClaimAnswer one claim."""
    rows = [row for name in entry.grids for row in find_groups(find_grid(name), results)]
    findings = list(CHECKS[entry.check](entry, rows))
    answer = answer_of([finding.verdict for finding in findings])
    rule = [] if answer == "not run" else [f"Criterion: {entry.criterion}"]
    return Claim(entry.claim, answer, [*(finding.text for finding in findings), *rule])


def answer_of(verdicts: Sequence[ClaimVerdict]) -> ClaimAnswer:
    """A claim with cells that were not run, or with few cases, holds in part at most."""
    found = {*verdicts}
    if not found & {"yes", "weak yes", "no"}:
        return "not run"
    if not found & {"yes", "weak yes"}:
        return "does not hold"
    return "in part" if found & {"weak yes", "no", "missing"} else "holds"


def render_claims(claims: Sequence[Claim], form: Format) -> str:
    """Return claims as text, Markdown or JSON, without a newline at the end."""
    if form == "json":
        return to_json([asdict(claim) for claim in claims])
    bullet, bold = ("- ", "**") if form == "markdown" else ("  ", "")
    parts = []
    for number, claim in enumerate(claims, start=1):
        title = f"{bold}{number}. {claim.claim}: {claim.answer}.{bold}"
        gap = [""] if form == "markdown" else []
        parts.append("\n".join([title, *gap, *(bullet + text for text in claim.evidence)]))
    return "\n\n".join(parts)


# Rows in words, and the numbers of two rows in the same cases


def _name(row: Group) -> str:
    if row.cell.method in ("original", "retrained"):  # they have no preset
        return row.cell.method.capitalize()
    return row.name.replace("duck", "DUCK", 1) if row.cell.method == "duck" else row.name


def _title(row: Group) -> str:
    return f"{row.where}, {_name(row)}"


def _peers(rows: Iterable[Group], row: Group, label: str) -> list[Group]:
    """Return the rows of a method that can be compared with this one."""
    return [other for other in rows if other.place == row.place and other.cell.label == label]


def _of_duck(rows: Iterable[Group]) -> list[Group]:
    """Return the rows of DUCK that have results."""
    return [row for row in rows if row.cell.label == "duck" and row.done]


class Pairs(NamedTuple):
    """A score of two rows in the cases that both have."""

    ours: list[float]
    theirs: list[float]

    @property
    def n(self) -> int:
        return len(self.ours)

    @property
    def gap(self) -> float:
        """Mean of ours less theirs."""
        return statistics.mean(a - b for a, b in zip(self.ours, self.theirs, strict=True))

    @property
    def test(self) -> PairedTest:
        return paired_test(self.ours, self.theirs)


def _pair(ours: Group, theirs: Group, score: str) -> Pairs:
    pairs = Pairs([], [])
    others = theirs.done
    for case, result in ours.done.items():
        first = result.scores.get(score)
        second = others[case].scores.get(score) if case in others else None
        if first is not None and second is not None:
            pairs.ours.append(first)
            pairs.theirs.append(second)
    return pairs


def _format_scores(row: Group, score: str) -> str:
    return SCORE.format_spread(spread(result.scores.get(score) for result in row.done.values()))


def _verdict(holds: bool, n: int) -> ClaimVerdict:
    """Few cases can refute a claim, but not confirm it."""
    if not holds:
        return "no"
    return "yes" if n >= MIN_CASES else "weak yes"


def _not_run(rows: Sequence[Group]) -> Iterator[Finding]:
    """Name the parts of a table without any result of DUCK."""
    done = {row.where for row in _of_duck(rows)}
    for where in dict.fromkeys(row.where for row in rows):
        if where not in done:
            yield Finding(f"{where}: not run.", "missing")


# Claim 1: AUS


def _best_aus(entry: ClaimEntry, rows: Sequence[Group]) -> Iterator[Finding]:
    for row in _of_duck(rows):
        compared = [(rival, _pair(row, rival, "aus")) for rival in _rivals(rows, row)]
        known = [(rival, pairs) for rival, pairs in compared if pairs.n]
        better = [
            f"{_name(rival)} {SCORE.format_spread(spread(pairs.theirs))} ({-pairs.gap:+.4f}, "
            f"n {pairs.n})"
            for rival, pairs in known
            if pairs.gap < 0
        ]
        rank = "No rival was run."
        verdict: ClaimVerdict = "missing"
        if known:
            listed = f"Better in the same cases: {'; '.join(better)}."
            rank = listed if better else "No rival is better."
            verdict = _verdict(not better, min(pairs.n for _, pairs in known))
        values = f"AUS {_format_scores(row, 'aus')} (n {len(row.done)})"
        nothing = _original_above(row, *_peers(rows, row, "original"))
        yield Finding(f"{_title(row)}: {values}. {rank}{nothing}", verdict)
    yield from _few_cases(rows)
    yield from _not_run(rows)


def _rivals(rows: Iterable[Group], row: Group) -> list[Group]:
    known = ("original", "retrained", "duck")
    return [other for other in rows if other.place == row.place and other.cell.method not in known]


def _original_above(row: Group, original: Group) -> str:
    pairs = _pair(row, original, "aus")
    if not pairs.n or pairs.gap >= 0:
        return ""
    count = sum(ours < theirs for ours, theirs in zip(*pairs, strict=True))
    return (
        f" Doing nothing (original) scores higher: {SCORE.format_spread(spread(pairs.theirs))}, in "
        f"{count} of {pairs.n} cases."
    )


def _few_cases(rows: Sequence[Group]) -> Iterator[Finding]:
    """Name rivals with few results; evidence is missing if no preset of a rival has enough."""
    for row in {row.place: row for row in _of_duck(rows)}.values():
        counts = {rival: len(rival.done) for rival in _rivals(rows, row)}
        few = [rival for rival, count in counts.items() if count < MIN_CASES]
        enough = {rival.cell.method for rival in counts if rival not in few}
        has_all = enough == {rival.cell.method for rival in counts}
        was_run = [f"{_name(rival)} {counts[rival]}" for rival in few if counts[rival]]
        not_run = [_name(rival) for rival in few if not counts[rival]]
        parts = [f"fewer than {MIN_CASES} cases: {', '.join(was_run)}"] if was_run else []
        parts += [f"not run: {', '.join(not_run)}"] if not_run else []
        if few:
            text = f"{row.where}: {'; '.join(parts)}."
            yield Finding(text, "note" if has_all else "missing")


# Claims 2 and 3: time


def _faster(entry: ClaimEntry, rows: Sequence[Group]) -> Iterator[Finding]:
    for row in _of_duck(rows):
        others = {other: _same_device(row, other) for other in _peers(rows, row, entry.other)}
        if not any(others.values()):
            yield Finding(
                f"{_title(row)}: {entry.other} was not run on the same device.", "missing"
            )
        for other, slow in others.items():
            if slow:
                yield _compare_times(row, other, slow, entry.times)
    yield from _not_run(rows)


def _compare_times(row: Group, other: Group, slow: ResultsByCase, times: float) -> Finding:
    """Compare the median time of the slow runs, which leaves out compilation, with ours."""
    slowest = statistics.median(result.seconds for result in slow.values())
    ours = [max(row.done[case].seconds, SHORTEST) for case in slow]
    ratios = [slowest / seconds for seconds in ours]
    seconds = f"{slowest:.1f} s to {statistics.mean(ours):.1f} s, n {len(ratios)}"
    text = (
        f"{_title(row)}: {_name(other)} takes {RATIO.format_spread(spread(ratios))} times as long "
        f"({seconds}). {_name(other)}: {_settings(slow)}. DUCK: {_settings(row.done)}."
    )
    return Finding(text, _verdict(statistics.mean(ratios) >= ABOUT * times, len(ratios)))


def _same_device(fast: Group, slow: Group) -> ResultsByCase:
    """Return the slow runs whose times can be compared: same case, same device."""
    ours = fast.done
    return {
        case: result
        for case, result in slow.done.items()
        if case in ours and ours[case].device == result.device
        if ours[case].alone and result.alone
    }


def _settings(results: ResultsByCase) -> str:
    experiment = next(iter(results.values())).experiment
    batch_size = getattr(experiment.method, "batch_size", None)
    words = [f"batch size {batch_size}"]
    if batch_size is None:  # Retrained has the recipe of the original
        recipe = experiment.training.recipe
        words = [f"{recipe.epochs} epochs, batch size {recipe.batch_size}"]
    flags = sorted({bool(result.compiled) for result in results.values()})
    words.append(" or ".join("compiled" if flag else "not compiled" for flag in flags))
    return ", ".join(words)


# Claims 4 to 10: scores


def _compare(entry: ClaimEntry, rows: Sequence[Group]) -> Iterator[Finding]:
    of_duck = [row for row in rows if row.cell.method == "duck"]
    subjects = [row for row in of_duck if bool(row.cell.variant) == entry.of_variants]
    models = {row.cell.block.model for row in subjects if row.done}
    if entry.needs_other_models and models <= {PAPER_MODEL}:
        yield Finding(f"Not run: there are no results but those of {PAPER_MODEL}.", "missing")
        return
    for row in subjects:
        if row.done:
            yield from _compare_row(entry, rows, row)
    compared = [result for row in rows for result in row.done.values() if result.shadows]
    yield from dict.fromkeys(map(_pool_note, compared))
    yield from _missing_cases(entry, subjects) if entry.needs_all_cases else _not_run(rows)


def _compare_row(entry: ClaimEntry, rows: Sequence[Group], row: Group) -> Iterator[Finding]:
    """Compare a row with each preset of the other methods."""
    methods = list(dict.fromkeys(measure.other for measure in entry.measures))
    for others in itertools.product(*(_peers(rows, row, method) for method in methods)):
        by_method = dict(zip(methods, others, strict=True))
        names = {method: _name(other) for method, other in by_method.items()}
        found = {
            measure: _pair(row, by_method[measure.other], measure.score)
            for measure in entry.measures
        }
        if not all(pairs.n for pairs in found.values()):
            first = entry.measures[0]
            own = f"{first.title} {_format_scores(row, first.score)} (n {len(row.done)})"
            listed = " or ".join(names.values())
            text = f"{_title(row)}: {listed} was not run in the same cases; {own}."
            yield Finding(text, "missing")
            continue
        verdict = _judge(found)
        ending = " Too few cases to decide." if verdict == "missing" else ""
        differences = "; ".join(
            measure.difference(pairs, names[measure.other]) for measure, pairs in found.items()
        )
        yield Finding(f"{_title(row)}: {differences}.{ending}", verdict)


def _missing_cases(entry: ClaimEntry, subjects: Sequence[Group]) -> Iterator[Finding]:
    if not any(row.done for row in subjects):
        yield Finding(f"Not run: there are no results of {entry.grids[0]}.", "missing")
        return
    for row in subjects:
        done, every = len(row.done), len(row.cells)
        if done < every:
            how = f"{done} of {every} cases were run" if done else "not run"
            yield Finding(f"{_title(row)}: {how}.", "missing")


def _pool_note(result: Result) -> Finding:
    shadows = result.shadows
    assert shadows is not None
    text = (
        f"{result.dataset}, pool {shadows.pool}: {shadows.models} shadow models of "
        f"{shadows.epochs} epochs, targets of {result.training.recipe.epochs} epochs."
    )
    if recipe_differences(result):
        text += " The attack is mismatched: its rates are lower bounds."
    return Finding(text, "note")


def _judge(found: Mapping[ClaimMeasure, Pairs]) -> ClaimVerdict:
    """Return whether the pairs of each measure are as the claim says."""
    gaps = {(measure.score, measure.other): abs(pairs.gap) for measure, pairs in found.items()}
    for measure, pairs in found.items():
        holds = (
            measure.above < pairs.gap < measure.below
            and statistics.mean(pairs.ours) < measure.max_value
            and (not measure.is_tested or pairs.test.p > LEVEL)
        )
        if measure.nearer_than:
            farther = gaps[measure.score, measure.nearer_than]
            holds = holds and gaps[measure.score, measure.other] < farther
        if not holds:
            return "no"
    # Without enough pairs for a test a difference cannot be significant.
    untested = [
        measure
        for measure, pairs in found.items()
        if measure.is_tested and pairs.test.least_p > LEVEL and pairs.ours != pairs.theirs
    ]
    if any(measure.below == math.inf for measure in untested):
        return "missing"
    return "weak yes" if untested else _verdict(True, min(pairs.n for pairs in found.values()))


CHECKS: dict[str, Callable[[ClaimEntry, Sequence[Group]], Iterator[Finding]]] = {
    "best aus": _best_aus,
    "faster": _faster,
    "compare": _compare,
}
