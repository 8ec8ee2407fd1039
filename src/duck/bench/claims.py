"""The claims of the DUCK paper, answered from the results of a folder."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

from duck.bench.columns import DENSITIES
from duck.bench.evidence import (
    PAPER_MODEL,
    LinesByCase,
    Pairs,
    Places,
    Source,
    comparable,
    other_lines,
    pair,
    rivals_of,
    same_device,
    spread,
    values_of,
    with_results,
)
from duck.bench.formats import Format
from duck.bench.results import Result, Results
from duck.bench.tables import recipe_differences
from duck.json_text import to_json

Answer = Literal["holds", "does not hold", "in part", "not run"]
Verdict = Literal["yes", "weak yes", "no", "missing", "note"]
"""A weak yes has too few cases: it keeps a claim from failing, and from holding."""

MIN_CASES = 3
"""A rival with fewer cases is named: its mean says little."""
LEVEL = 0.05
"""Of the Wilcoxon tests."""
MIN_TEST_CASES = 6
"""With fewer pairs a two-sided Wilcoxon test cannot have p < 0.05."""
MAX_F1_GAP = 0.005
MAX_TPR_GAP = 0.005
MAX_AUC_GAP = 0.01
MAX_ACCURACY_GAP = 0.01
MAX_AUS_GAP = 0.02
MIN_ABLATION_GAP = 0.01
TIMES_RETRAINED, TIMES_FINETUNE = 20, 10
ABOUT = 0.75
"""A ratio of "about 20" is at least 15. A larger one counts as well."""
PAPER_EPOCHS = 200
SHORTEST = 1e-3
"""Seconds that a run takes at least: no ratio is infinite."""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the answer of our results, and the numbers behind it."""

    claim: str
    answer: Answer
    evidence: list[str]


class Finding(NamedTuple):
    """One line of evidence, and what it says of the claim. A note says nothing of it."""

    text: str
    verdict: Verdict


def check_claims(results: Results) -> list[Claim]:
    """Answer every claim of the paper from the results of a folder."""
    source = Source(results)
    return [_check(source, *entry) for entry in CLAIMS]


def render_claims(claims: Sequence[Claim], form: Format) -> str:
    """Return claims as text, Markdown or JSON, without a newline at the end."""
    if form == "json":
        return to_json([asdict(claim) for claim in claims])
    bullet, bold = ("- ", "**") if form == "markdown" else ("  ", "")
    parts = []
    for number, claim in enumerate(claims, start=1):
        title = f"{bold}{number}. {claim.claim}: {claim.answer}.{bold}"
        gap = [""] if form == "markdown" else []
        parts.append("\n".join([title, *gap, *(bullet + line for line in claim.evidence)]))
    return "\n\n".join(parts)


def _check(source: Source, text: str, criterion: str, find: "Check") -> Claim:
    findings = list(find(source))
    answer = _answer([finding.verdict for finding in findings])
    rule = [] if answer == "not run" else [f"Criterion: {criterion}"]
    return Claim(text, answer, [*(finding.text for finding in findings), *rule])


def _answer(verdicts: Sequence[Verdict]) -> Answer:
    """A claim with cells that were not run, or with few cases, holds in part at most."""
    found = {*verdicts}
    if not found & {"yes", "weak yes", "no"}:
        return "not run"
    if not found & {"yes", "weak yes"}:
        return "does not hold"
    return "in part" if found & {"weak yes", "no", "missing"} else "holds"


# Claims 1 to 5: the tables of the paper


def _best_aus(source: Source) -> Iterator[Finding]:
    places = {**source.table("paper/table-cr"), **source.table("paper/table-hr")}
    for place, lines in with_results(places, "duck"):
        rivals = rivals_of(places, place)
        compared = [(other, pair(lines, theirs, "aus")) for other, theirs in rivals.items()]
        known = [(other, pairs) for other, pairs in compared if pairs]
        better = [
            f"{other.name} {spread(pairs.second)} ({-pairs.gap:+.4f}, n {pairs.n})"
            for other, pairs in known
            if pairs.gap < 0
        ]
        listed = f"Better in the same cases: {'; '.join(better)}."
        rank = listed if better else "No rival is better."
        text = f"{place.title}: AUS {spread(values_of(lines, 'aus'))} (n {len(lines)}). "
        nothing = _original_above(pair(lines, other_lines(places, place, "original"), "aus"))
        if known:
            fewest = min(pairs.n for _, pairs in known)
            yield Finding(text + rank + nothing, _verdict(not better, fewest))
        else:
            yield Finding(f"{text}No rival was run.{nothing}", "missing")
    yield from _few_cases(places)
    yield from _not_run(places)


def _original_above(pairs: "Pairs") -> str:
    if not pairs.n or pairs.gap >= 0:
        return ""
    count = sum(ours < theirs for ours, theirs in pairs)
    return (
        f" Doing nothing (original) scores higher: {spread(pairs.second)}, in {count} of "
        f"{pairs.n} cases."
    )


def _few_cases(places: Places) -> Iterator[Finding]:
    """Rivals with few results or none; a gap in the evidence if no preset of a rival has enough."""
    for place in {place.cell: place for place, _ in with_results(places, "duck")}.values():
        rivals = rivals_of(places, place)
        few = {other: len(lines) for other, lines in rivals.items() if len(lines) < MIN_CASES}
        enough = {other.method for other in rivals if other not in few}
        verdict: Verdict = "note" if enough == {other.method for other in rivals} else "missing"
        some = [f"{other.name} {count}" for other, count in few.items() if count]
        none = [other.name for other, count in few.items() if not count]
        parts = [f"fewer than {MIN_CASES} cases: {', '.join(some)}"] if some else []
        parts += [f"not run: {', '.join(none)}"] if none else []
        if few:
            yield Finding(f"{place.where}: {'; '.join(parts)}.", verdict)


def _faster_than_retrained(source: Source) -> Iterator[Finding]:
    table = source.table("paper/table-hr")
    recipe = {
        place: lines
        for place, lines in source.table("paper/recipe").items()
        if place.scenario == "samples"
    }
    for places in (table, recipe):
        for place, lines in with_results(places, "duck"):
            slow = same_device(lines, other_lines(places, place, "retrained"))
            if not slow:
                yield Finding(f"{place.title}: no Retrained on the same device.", "missing")
                continue
            how = f"Retrained: {_recipe(slow)}. DUCK: {_compiled(lines)}."
            yield _ratio(f"{place.title}: Retrained takes", lines, slow, TIMES_RETRAINED, how)
    yield from _not_run(table)
    if not any(lines for _, lines in with_results(recipe, "duck")):
        yield Finding(f"The paper's recipe of {PAPER_EPOCHS} epochs: not run.", "missing")


def _faster_than_finetune(source: Source) -> Iterator[Finding]:
    places = source.table("paper/table-cr")
    for place, lines in with_results(places, "duck"):
        others = [
            (other, same_device(lines, theirs))
            for other, theirs in comparable(places, place, "finetune")
        ]
        if not any(slow for _, slow in others):
            yield Finding(f"{place.title}: finetune not run.", "missing")
        for other, slow in others:
            if not slow:
                continue
            how = f"Batch size: finetune {_batch(slow)}, DUCK {_batch(lines)}."
            start = f"{place.title}: {other.name} takes"
            yield _ratio(start, lines, slow, TIMES_FINETUNE, how)
    yield from _not_run(places)


def _ratio(start: str, fast: LinesByCase, slow: LinesByCase, times: float, how: str) -> Finding:
    """Compare the median time of the slow runs with that of each fast one.

    The median leaves out compilation.
    """
    slowest = statistics.median(line.seconds for line in slow.values())
    times_of = [max(fast[case].seconds, SHORTEST) for case in slow]
    ratios = [slowest / seconds for seconds in times_of]
    seconds = f"{slowest:.1f} s to {statistics.mean(times_of):.1f} s"
    text = f"{start} {spread(ratios, 1, 1)} times as long ({seconds}, n {len(ratios)}). {how}"
    return Finding(text, _verdict(statistics.mean(ratios) >= ABOUT * times, len(ratios)))


def _pool_note(line: Result) -> Finding:
    assert line.attack is not None
    assert line.shadows is not None
    text = (
        f"{line.dataset}, pool {line.attack['pool']}: {line.shadows['models']} shadow models of "
        f"{line.shadows['epochs']} epochs, targets of {line.training.recipe.epochs} epochs."
    )
    if recipe_differences(line):
        text += " The attack is mismatched: its rates are lower bounds."
    return Finding(text, "note")


class Measure(NamedTuple):
    """A score in which DUCK is compared with another model."""

    score: str
    title: str
    factor: float = 1
    digits: int = 3
    max_gap: float = 0.0

    def difference(self, pairs: Pairs, other: str = "Retrained") -> str:
        """Return both values, their mean difference, and its p."""
        unit, points = (" %", " points") if self.factor == 100 else ("", "")
        test = pairs.test
        p = f"p = {test.p:.2g}" if test.least_p <= LEVEL else "too few differing pairs for a test"
        ours, theirs = (
            spread(values, self.factor, self.digits) for values in (pairs.first, pairs.second)
        )
        return (
            f"{self.title} {ours}{unit} against {theirs}{unit} of {other}, difference "
            f"{self.factor * pairs.gap:+.{self.digits}f}{points} (n {pairs.n}, {p})"
        )


Judge = Callable[[Sequence[Measure], Sequence[Pairs]], Verdict]


def _like_retrained(
    grid: str, measures: Sequence[Measure], judge: Judge, prefix: str = ""
) -> "Check":
    """Return a check that compares each place of DUCK with Retrained by every measure."""

    def check(source: Source) -> Iterator[Finding]:
        places = source.table(grid)
        for place, lines in with_results(places, "duck"):
            retrained = other_lines(places, place, "retrained")
            found = [pair(lines, retrained, measure.score) for measure in measures]
            if not all(found):
                yield Finding(f"{place.title}: no Retrained of the same cases.", "missing")
                continue
            verdict = judge(measures, found)
            ending = " Too few cases to tell." if verdict == "missing" else ""
            differences = "; ".join(map(Measure.difference, measures, found))
            yield Finding(f"{place.title}: {prefix}{differences}.{ending}", verdict)
        every = [line for lines in places.values() for line in lines.values()]
        yield from dict.fromkeys(_pool_note(line) for line in every if line.shadows)
        yield from _missing_cases(source, grid, places) if prefix else _not_run(places)

    return check


def _like_chance(measures: Sequence[Measure], found: Sequence[Pairs]) -> Verdict:
    gaps = zip(measures, found, strict=True)
    alike = [abs(one.gap) < measure.max_gap and one.test.p > LEVEL for measure, one in gaps]
    verdict = _verdict(all(alike), min(one.n for one in found))
    # Without enough pairs for a test a difference cannot be significant.
    is_tested = all(one.test.least_p <= LEVEL or one.first == one.second for one in found)
    return verdict if verdict == "no" or is_tested else "weak yes"


# Claims 6 to 10: the studies of the paper


def _like_density(measures: Sequence[Measure], found: Sequence[Pairs]) -> Verdict:
    rows = zip(measures, found, strict=True)
    forgotten = [pairs for measure, pairs in rows if measure.score.startswith("forget")]
    if any(pairs.test.p <= LEVEL for pairs in forgotten):
        return "no"
    return "missing" if any(pairs.n < MIN_TEST_CASES for pairs in forgotten) else "yes"


BIAS_MEASURES = [
    (Measure("wrong", "wrong", 100, 1), "original", "the biased model"),
    (Measure("right", "right", 100, 1), "retrained", "Retrained"),
    (Measure("shap", "SHAP", 1, 4), "original", "the biased model"),
    (Measure("shap", "SHAP", 1, 4), "retrained", "Retrained"),
]


def _bias(source: Source) -> Iterator[Finding]:
    places = source.table("paper/bias")
    for place, lines in with_results(places, "duck"):
        found = []
        texts = []
        for measure, method, other in BIAS_MEASURES:
            pairs = pair(lines, other_lines(places, place, method), measure.score)
            found.append(pairs)
            texts += [measure.difference(pairs, other)] if pairs else []
        if not all(found):
            text = f"{place.title}: no biased or retrained model with SHAP in the same cases."
            yield Finding(text, "missing")
            continue
        _, right, shap_before, shap = found
        removed = right.gap > -MAX_ACCURACY_GAP and abs(shap.gap) < abs(shap_before.gap)
        yield Finding(f"{place.title}: {'; '.join(texts)}.", _verdict(removed, right.n))
    yield from _missing_cases(source, "paper/bias", places)


def _ablation(source: Source) -> Iterator[Finding]:
    places = source.table("paper/ablation")
    for place, lines in places.items():
        if not place.method.startswith("duck, ") or not lines:
            continue
        whole = dict(comparable(places, place, "duck"))
        pairs = pair(whole.get(place._replace(method="duck"), {}), lines, "aus")
        if not pairs.n:
            yield Finding(f"{place.title}: not run with both losses.", "missing")
            continue
        text = (
            f"{place.title}: AUS {spread(pairs.second)} against {spread(pairs.first)} with both "
            f"losses (n {pairs.n})."
        )
        yield Finding(text, _verdict(pairs.gap >= MIN_ABLATION_GAP, pairs.n))
    variants = {
        place: lines for place, lines in places.items() if place.method.startswith("duck, ")
    }
    yield from _missing_cases(source, "paper/ablation", variants)


def _many_classes(source: Source) -> Iterator[Finding]:
    places = source.table("paper/multi-class")
    measure = Measure("retain_test", "kept", 100, 2)
    for place, lines in with_results(places, "duck"):
        forgotten = values_of(lines, "forget_test")
        others = [
            (other, theirs) for other, theirs in comparable(places, place, "finetune") if theirs
        ]
        if not others:
            yield Finding(f"{place.title}: finetune not run.", "missing")
        for other, theirs in others:
            pairs = pair(lines, theirs, measure.score)
            if not pairs.n or not forgotten:
                yield Finding(f"{place.title}: no {other.name} of the same cases.", "missing")
                continue
            kept = measure.difference(pairs, other.name)
            text = f"{place.title}: {kept}; forgotten {spread(forgotten, 100, 2)} %."
            like = pairs.gap > -MAX_ACCURACY_GAP and statistics.mean(forgotten) < MAX_ACCURACY_GAP
            yield Finding(text, _verdict(like, pairs.n))
    yield from _missing_cases(source, "paper/multi-class", places)


def _architectures(source: Source) -> Iterator[Finding]:
    places = source.table("paper/architectures")
    if not any(place.model != PAPER_MODEL for place, _ in with_results(places, "duck")):
        yield Finding(f"Not run: there are no results but those of {PAPER_MODEL}.", "missing")
        return
    for place, lines in with_results(places, "duck"):
        pairs = pair(lines, other_lines(places, place, "retrained"), "aus")
        title = f"{place.dataset}, {place.scenario}, {place.model}, {place.name}"
        if pairs.n:
            text = f"{title}: {Measure('aus', 'AUS').difference(pairs)}."
            yield Finding(text, _verdict(pairs.gap > -MAX_AUS_GAP, pairs.n))
        else:
            values = spread(values_of(lines, "aus"))
            yield Finding(f"{title}: AUS {values} (n {len(lines)}), Retrained not run.", "missing")
    yield from _missing_cases(source, "paper/architectures", places)


# Words and small pieces of evidence


def _not_run(places: Places) -> Iterator[Finding]:
    """The data sets and scenarios of a table without any result of DUCK."""
    done = {place.cell for place, _ in with_results(places, "duck")}
    for where in dict.fromkeys(place.where for place in places if place.cell not in done):
        yield Finding(f"{where}: not run.", "missing")


def _missing_cases(source: Source, name: str, places: Places) -> Iterator[Finding]:
    """The cases of DUCK that a study lacks: all, or some."""
    ours = {place: lines for place, lines in places.items() if place.method.startswith("duck")}
    if not any(ours.values()):
        yield Finding(f"Not run: there are no results of {name}.", "missing")
        return
    for place, lines in ours.items():
        if len(lines) < source.cases[place]:
            how = f"{len(lines)} of {source.cases[place]} cases were run" if lines else "not run"
            yield Finding(f"{place.title}: {how}.", "missing")


def _recipe(lines: LinesByCase) -> str:
    recipe = next(iter(lines.values())).training.recipe
    return f"{recipe.epochs} epochs, batch size {recipe.batch_size}, {_compiled(lines)}"


def _compiled(lines: LinesByCase) -> str:
    flags = {bool(line.compiled) for line in lines.values()}
    return " or ".join("compiled" if flag else "not compiled" for flag in sorted(flags))


def _batch(lines: LinesByCase) -> str:
    sizes = {str(getattr(line.experiment.method, "batch_size", None)) for line in lines.values()}
    return " or ".join(sorted(sizes))


def _verdict(holds: bool, n: int) -> Verdict:
    """Few cases can speak against a claim, but not settle that it holds."""
    if not holds:
        return "no"
    return "yes" if n >= MIN_CASES else "weak yes"


Check = Callable[[Source], Iterable[Finding]]
CLAIMS: list[tuple[str, str, Check]] = [
    (
        "DUCK has the best AUS in every cell",
        "no rival has a higher mean over the cases that both have. Original and Retrained are not "
        "rivals; methods that the paper does not compare with are.",
        _best_aus,
    ),
    (
        "DUCK is about 20 times faster than Retrained for random samples",
        f"a mean ratio of at least {ABOUT * TIMES_RETRAINED:g}, on the same device. A larger one "
        "counts as well.",
        _faster_than_retrained,
    ),
    (
        "FineTuning is about 10 times slower than DUCK for a class",
        f"a mean ratio of at least {ABOUT * TIMES_FINETUNE:g}, on the same device. A larger one "
        "counts as well.",
        _faster_than_finetune,
    ),
    (
        "The SVM attack is at chance on DUCK, as on Retrained",
        f"a mean difference in F1 below {100 * MAX_F1_GAP:g} points and p > {LEVEL:g} (two-sided "
        "Wilcoxon test).",
        _like_retrained("paper/svm", [Measure("f1", "F1", 100, 2, MAX_F1_GAP)], _like_chance),
    ),
    (
        "LiRA is at chance on DUCK",
        f"mean differences to Retrained below {MAX_AUC_GAP:g} in AUC and {100 * MAX_TPR_GAP:g} "
        "points in TPR, and no significant difference where there are enough pairs for a Wilcoxon "
        "test.",
        _like_retrained(
            "paper/lira",
            [
                Measure("auc", "AUC", 1, 3, MAX_AUC_GAP),
                Measure("tpr_1", "TPR at 1 % FPR", 100, 2, MAX_TPR_GAP),
            ],
            _like_chance,
        ),
    ),
    (
        "After DUCK the densities of the forgotten class are like those after retraining",
        f"p > {LEVEL:g} for the forgotten class, on training and on test samples (two-sided "
        "Wilcoxon test).",
        _like_retrained(
            "paper/density",
            [Measure(name, column.title, 1, 2) for name, column in DENSITIES.items()],
            _like_density,
            "mean log density ",
        ),
    ),
    (
        "DUCK removes the bias as well as retraining",
        f"the share of right answers is less than {100 * MAX_ACCURACY_GAP:g} point below "
        "Retrained's, and the SHAP value is nearer to Retrained's than to the biased model's. "
        "The paper: 99.8 % wrong before, 98.0 % right after DUCK, 97.8 % right with Retrained, "
        "SHAP 0.06 before and 0.006 after.",
        _bias,
    ),
    (
        "Both losses are needed",
        f"the mean AUS is lower by at least {MIN_ABLATION_GAP:g} without the forget loss, and also "
        "without the retain loss.",
        _ablation,
    ),
    (
        "DUCK keeps its accuracy when many classes are removed, like FineTuning",
        f"less than {100 * MAX_ACCURACY_GAP:g} point below FineTuning on the kept classes, and "
        f"less than {100 * MAX_ACCURACY_GAP:g} % right on the forgotten ones.",
        _many_classes,
    ),
    (
        "DUCK works on every architecture",
        f"a mean AUS less than {MAX_AUS_GAP:g} below Retrained's.",
        _architectures,
    ),
]
"""Text, criterion and check of each claim."""
