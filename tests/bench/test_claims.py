"""The claims of the paper, on lines made by hand and on the results of this repository."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from duck.bench import Results, claims, find_grid
from duck.bench.claims import Claim, check_claims, render_claims
from duck.bench.grids import Study, cells, narrow, parse_only
from duck.bench.groups import Group, find_groups
from duck.bench.tables import make_table
from tests.bench.stored import FACTS, append, cell_of, line_of, rows_of, to_result

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
CR, HR = find_grid("paper/table-cr"), find_grid("paper/table-hr")
SVM, LIRA = find_grid("paper/svm"), find_grid("paper/lira")
BEST, RETRAINED, FINETUNE, SVM_CLAIM, LIRA_CLAIM, DENSITY, BIAS, ABLATION, MANY, ARCHITECTURES = (
    range(10)
)
TEN = range(10)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path)


@pytest.fixture(scope="module")
def real() -> list[Claim]:
    return check_claims(Results(RESULTS))


def put(
    results: Results, grid: Any, method: str, case: int, preset: str = "paper", **values: Any
) -> None:
    """Add the result of a cell of a grid."""
    append(results, "table", line_of(grid, cell_of(grid, method, case, preset), **values))


def put_study(
    results: Results,
    name: str,
    method: str,
    case: int,
    scores: dict[str, float],
    only: str = "",
    **values: Any,
) -> None:
    """Add the result of a cell of a study's grid, found by --only."""
    grid = find_grid(name)
    some = narrow(cells(grid, {}), parse_only(only, grid))
    cell = next(cell for cell in some if (cell.label, cell.case) == (method, case))
    facts = FACTS._replace(name=cell.block.dataset)
    study = {} if grid.study is None else {"study": grid.study.settings}
    extra: dict[str, Any] = {"density": {}, "forgotten": []} if study else {}
    variant = {"variant": cell.variant} if cell.variant else {}
    append(
        results,
        "study",
        {**line_of(grid, cell, facts, scores=scores, **values), **study, **extra, **variant},
    )


def check(results: Results, number: int) -> Claim:
    """Answer one claim."""
    return claims.check_claim(claims.claim_entries()[number], results)


def evidence(claim: Claim, start: str) -> str:
    (line,) = (line for line in claim.evidence if line.startswith(start))
    return line


def has_numbers(text: str, *expected: float) -> bool:
    """Return whether a text has these numbers one after another, whatever its words are."""
    found = [float(word) for word in re.findall(r"(?<![\w.-])[+-]?\d+(?:\.\d+)?(?!\w)", text)]
    starts = range(len(found) - len(expected) + 1)
    return any(found[start : start + len(expected)] == list(expected) for start in starts)


def starts_with(claim: Claim, place: str) -> bool:
    """Return whether a line of the evidence is about a place."""
    return any(line.startswith(place) for line in claim.evidence)


def test_an_empty_folder_answers_no_claim(results: Results) -> None:
    answers = check_claims(results)
    assert [claim.answer for claim in answers] == ["not run"] * 10
    assert all("not run" in line.lower() for claim in answers for line in claim.evidence)


@pytest.mark.parametrize(
    ("verdicts", "answer"),
    [
        (["yes", "yes", "note"], "holds"),
        (["no", "note", "missing"], "does not hold"),
        (["yes", "no"], "in part"),
        (["yes", "missing"], "in part"),
        (["missing", "note"], "not run"),
        ([], "not run"),
    ],
)
def test_the_answer_follows_from_the_verdicts(
    verdicts: Sequence[claims.ClaimVerdict], answer: str
) -> None:
    assert claims.answer_of(verdicts) == answer


def test_a_rival_is_compared_over_the_cases_that_both_have(results: Results) -> None:
    for case, aus in ((0, 1.00), (1, 0.90), (2, 0.90)):
        put(results, CR, "duck", case, scores={"aus": aus})
    for case in (1, 2):
        put(results, CR, "scrub", case, scores={"aus": 0.92})  # below DUCK's mean of three, 0.933
        put(results, CR, "ssd", case, scores={"aus": 0.89})
    claim = check(results, BEST)
    text = evidence(claim, "cifar10, class, DUCK (paper)")
    assert has_numbers(text, 0.933, 0.058, 3)
    assert has_numbers(text.partition("scrub (paper)")[2], 0.92, 0.0, 0.02, 2)
    assert "ssd" not in text
    assert claim.answer == "does not hold"
    few = evidence(claim, "cifar10, class: ")
    assert has_numbers(few, 3, 2, 2)
    assert "bad-teacher (paper)" in few
    assert starts_with(claim, "cifar100, class: ")
    assert starts_with(claim, "tiny-imagenet, samples: ")


def test_duck_is_best_in_part_while_rivals_are_missing(results: Results) -> None:
    for case in range(3):
        put(results, CR, "duck", case, scores={"aus": 0.99})
        put(results, CR, "scrub", case, scores={"aus": 0.5})
    claim = check(results, BEST)
    assert "scrub" not in evidence(claim, "cifar10, class, DUCK (paper)")
    assert claim.answer == "in part"


@pytest.mark.parametrize(("cases", "verdict"), [(3, "note"), (2, "missing")])
def test_a_rival_is_missing_if_none_of_its_presets_has_enough_cases(
    cases: int, verdict: str
) -> None:
    rows = []
    for method, preset, count in (
        ("duck", "paper", 3),
        ("scrub", "paper", 1),
        ("scrub", "tuned", cases),
    ):
        some = [cell_of(CR, method, case, preset) for case in range(3)]
        line = to_result(line_of(CR, cell_of(CR, "duck", 0)))
        rows.append(Group("", some, dict.fromkeys(some[:count], line)))
    (finding,) = claims._few_cases(rows)
    assert finding.verdict == verdict
    assert "scrub (paper) 1" in finding.text


def test_original_and_retrained_are_no_rivals_but_doing_nothing_is_named(results: Results) -> None:
    for seed, nothing in ((0, 0.95), (1, 0.95), (2, 0.89)):
        put(results, HR, "duck", seed, scores={"aus": 0.90})
        put(results, HR, "original", seed, scores={"aus": nothing})
        put(results, HR, "retrained", seed, scores={"aus": 1.0})
    claim = check(results, BEST)
    text = evidence(claim, "cifar10, samples, DUCK (paper)")
    assert has_numbers(text.partition("(original)")[2], 0.93, 0.035, 2, 3)
    assert "retrained" not in text
    assert claim.answer == "not run"


def test_times_are_paired_by_case_and_device(results: Results) -> None:
    for seed, fast, slow in ((0, 1.0, 16.0), (1, 2.0, 36.0)):
        put(results, HR, "duck", seed, seconds=fast, compiled=False)
        put(results, HR, "retrained", seed, seconds=slow, compiled=True)
    put(results, HR, "duck", 2, seconds=1.0)
    put(results, HR, "retrained", 2, seconds=1000.0, device="a slower one")
    claim = check(results, RETRAINED)
    text = evidence(claim, "cifar10, samples, DUCK (paper)")
    assert has_numbers(text, 19.5, 9.2, 26.0, 1.5, 2, 60, 1024)
    assert starts_with(claim, "cifar100, samples, paper recipe: ")
    assert claim.answer == "in part"


def test_a_ratio_far_below_the_papers_does_not_hold(results: Results) -> None:
    put(results, HR, "duck", 0, seconds=1.0)
    put(results, HR, "retrained", 0, seconds=14.9)
    assert check(results, RETRAINED).answer == "does not hold"


def test_the_papers_recipe_has_evidence_of_its_own(results: Results) -> None:
    grid = find_grid("paper/recipe")
    facts = FACTS._replace(name="cifar100")
    for method, seconds in (("duck", 2.0), ("retrained", 80.0)):
        line = line_of(grid, cell_of(grid, method, 0, facts=facts), facts, seconds=seconds)
        append(results, "recipe", line)
    claim = check(results, RETRAINED)
    text = evidence(claim, "cifar100, samples, paper recipe, DUCK (paper)")
    assert has_numbers(text, 40.0)
    # One seed speaks for the claim, but does not settle it.
    assert claim.answer == "in part"
    assert [line for line in claim.evidence if has_numbers(line, 200)] == [text]


@pytest.mark.parametrize(("cases", "answer"), [(2, "in part"), (3, "holds")])
def test_two_cases_speak_for_a_claim_but_do_not_settle_it(
    results: Results, cases: int, answer: str
) -> None:
    for cell in cells(CR, {}):
        if cell.method in ("duck", "finetune") and cell.block.cases.index(cell.case) < cases:
            facts = FACTS._replace(name=cell.block.dataset)
            append(
                results,
                "table",
                line_of(CR, cell, facts, seconds=2.0 if cell.method == "duck" else 30.0),
            )
    claim = check(results, FINETUNE)
    assert claim.answer == answer
    assert all(has_numbers(line, 30.0, 2.0, cases) for line in claim.evidence[:-1])


def test_every_finetune_preset_is_timed_against_every_duck_preset(results: Results) -> None:
    for preset, seconds in (("paper", 1.0), ("tuned", 2.0)):
        put(results, CR, "duck", 0, preset, seconds=seconds)
    for preset, seconds in (("paper", 16.0), ("tuned", 4.0)):
        put(results, CR, "finetune", 0, preset, seconds=seconds)
    claim = check(results, FINETUNE)
    start = "cifar10, class, DUCK"
    for duck, finetune, ratio, batch in (
        ("paper", "paper", 16.0, 32),
        ("paper", "tuned", 4.0, 256),
        ("tuned", "paper", 8.0, 32),
        ("tuned", "tuned", 2.0, 256),
    ):
        text = evidence(claim, f"{start} ({duck}): finetune ({finetune})")
        assert has_numbers(text, ratio)
        assert has_numbers(text, batch, 1024)
    assert claim.answer == "in part"


SMALL, ZIGZAG = 0.003, (0.002, -0.002)


@pytest.mark.parametrize(
    ("gaps", "answer"),
    [
        ([ZIGZAG[case % 2] * (1 + case) / 10 for case in TEN], "in part"),  # small, no direction
        ([SMALL + case * 1e-5 for case in TEN], "does not hold"),  # small, but always above
        ([-SMALL - case * 1e-5 for case in TEN], "does not hold"),  # or always below
        ([0.006 + 0.02 * (-1) ** case for case in TEN], "does not hold"),  # no direction, but large
    ],
)
def test_the_svm_is_at_chance_if_the_gap_is_small_and_has_no_direction(
    results: Results, gaps: list[float], answer: str
) -> None:
    attack = {"name": "svm", "splits": 5}
    for case, gap in enumerate(gaps):
        for method, f1 in (("duck", 0.75 + gap), ("retrained", 0.75)):
            scores = {"f1": f1, "chance": 0.75}
            put(results, SVM, method, case, scores=scores, attack=attack)
    claim = check(results, SVM_CLAIM)
    assert claim.answer == answer
    mean = 100 * sum(gaps) / len(gaps)
    text = evidence(claim, "cifar10, class, DUCK (paper): F1 ")
    assert has_numbers(text, float(f"{mean:.2f}"), 10)
    assert starts_with(claim, "cifar100, samples: ")


def put_lira(
    results: Results, auc: float, tpr: float, epochs: int, pool: str = "aa", cases: int = 5
) -> None:
    attack = {"name": "lira", "shadows": 128, "pool": pool}
    recipe = {"epochs": epochs}
    shadows = {"models": 128, "pool": pool, "train": 0.9, "test": 0.8, **recipe, "recipe": recipe}
    for grid_case in range(cases):
        for method, scores in (
            ("duck", {"auc": auc, "tpr_1": tpr}),
            ("retrained", {"auc": 0.5, "tpr_1": 0.01}),
        ):
            whole = {"tpr_0.1": 0.001, "f1": 0.5, **scores}
            put(results, LIRA, method, grid_case, scores=whole, attack=attack, shadows=shadows)


@pytest.mark.parametrize(
    ("auc", "tpr", "answer"),
    [
        (0.505, 0.012, "in part"),
        (0.52, 0.01, "does not hold"),
        (0.48, 0.01, "does not hold"),
        (0.5, 0.02, "does not hold"),
    ],
)
def test_lira_is_at_chance_by_auc_and_by_rate(
    results: Results, auc: float, tpr: float, answer: str
) -> None:
    put_lira(results, auc, tpr, epochs=60)
    claim = check(results, LIRA_CLAIM)
    assert claim.answer == answer  # in part: random samples are missing
    text = evidence(claim, "cifar10, class, pool aa, DUCK (paper)")
    assert has_numbers(text, auc, 0.0, 0.5, 0.0)
    assert has_numbers(text, float(f"{100 * tpr:.2f}"), 0.0, 1.0, 0.0)
    assert text.count("(n 5, too few differing pairs ") == 2
    assert not any("lower bounds" in line for line in claim.evidence)


def test_shadow_models_of_another_recipe_are_named(results: Results) -> None:
    put_lira(results, 0.5, 0.01, epochs=16)
    text = evidence(check(results, LIRA_CLAIM), "cifar10, pool aa")
    assert has_numbers(text, 128, 16, 60)
    assert "lower bounds" in text


def test_results_of_two_pools_are_never_mixed(results: Results) -> None:
    put_lira(results, 0.5, 0.01, epochs=60)
    put_lira(results, 0.7, 0.01, epochs=60, pool="bb")
    claim = check(results, LIRA_CLAIM)
    assert has_numbers(evidence(claim, "cifar10, class, pool aa, DUCK (paper)"), 0.5, 0.0)
    assert has_numbers(evidence(claim, "cifar10, class, pool bb, DUCK (paper)"), 0.7, 0.0)
    assert claim.answer == "in part"


def put_density(results: Results, gaps: Sequence[float]) -> None:
    for case, gap in enumerate(gaps):
        for method, density in (("duck", gap - 6.0), ("retrained", -6.0)):
            test = -8.0 + (-1) ** case * case / 10
            scores = {
                "forget_train": density,
                "forget_test": test,
                "retain_train": 2.0,
                "retain_test": -4.0,
            }
            put_study(results, "paper/density", method, case, scores)


@pytest.mark.parametrize(
    ("gaps", "answer"),
    [
        ([(-1) ** case * (case + 1) / 10 for case in TEN], "holds"),
        ([3.0 + case / 10 for case in TEN], "does not hold"),
        ([3.0, 3.1, 3.2], "not run"),  # no three pairs can have a p below 0.05
    ],
)
def test_densities_are_compared_with_retrained(
    results: Results, gaps: list[float], answer: str
) -> None:
    put_density(results, gaps)
    claim = check(results, DENSITY)
    assert claim.answer == answer
    text = claim.evidence[0]
    assert text.startswith("cifar10, class, DUCK (tuned): ")
    difference = sum(gaps) / len(gaps)
    assert has_numbers(text, float(f"{difference:.2f}"), len(gaps))


def test_a_study_with_other_settings_is_no_evidence(results: Results) -> None:
    other = replace(find_grid("paper/density"), study=Study("density", dimensions=2))
    for method in ("duck", "retrained"):
        line = line_of(other, cell_of(other, method, 0, "tuned"), scores={"forget_train": 1.0})
        append(
            results,
            "study",
            {**line, "study": Study("density", 2).settings, "density": {}, "forgotten": []},
        )
    assert check(results, DENSITY).answer == "not run"


BIASED = {"wrong": 0.998, "right": 0.002, "right_without_patch": 0.97, "test": 0.94, "shap": 0.06}
FREE = {**BIASED, "wrong": 0.01, "right": 0.978, "shap": 0.007}


@pytest.mark.parametrize(
    ("scores", "answer"),
    [
        ({"right": 0.98, "shap": 0.006}, "in part"),
        ({"right": 0.96, "shap": 0.006}, "does not hold"),
        ({"right": 0.98, "shap": 0.05}, "does not hold"),
    ],
)
def test_the_bias_is_removed_if_the_model_is_right_and_ignores_the_square(
    results: Results, scores: dict[str, float], answer: str
) -> None:
    for seed in range(3):
        put_study(results, "paper/bias", "original", seed, BIASED)
        put_study(results, "paper/bias", "retrained", seed, FREE)
        put_study(results, "paper/bias", "duck", seed, {**FREE, **scores})
    claim = check(results, BIAS)
    assert claim.answer == answer  # in part: seven seeds are missing
    text = claim.evidence[0]
    assert text.startswith("cifar10, bias, DUCK (paper): ")
    right = float(f"{100 * scores['right']:.1f}")
    assert has_numbers(text, 1.0, 0.0, 99.8, 0.0)
    assert has_numbers(text, right, 0.0, 97.8, 0.0)
    assert has_numbers(text, scores["shap"], 0.0, 0.06, 0.0)
    assert any(has_numbers(line, 3, 10) for line in claim.evidence)


CLASS = "dataset=cifar100,scenario=class"


def test_each_loss_is_compared_with_both(results: Results) -> None:
    for case in (0, 10, 20):
        put_study(results, "paper/ablation", "duck, no forget loss", case, {"aus": 0.7}, CLASS)
        put_study(results, "paper/ablation", "duck", case, {"aus": 0.99}, CLASS)
    put_study(results, "paper/ablation", "duck", 70, {"aus": 0.1}, CLASS)
    put_study(
        results, "paper/ablation", "duck", 0, {"aus": 0.1}, "dataset=cifar100,scenario=samples"
    )
    claim = check(results, ABLATION)
    start = "cifar100, class, DUCK, no forget loss ("
    first, second = [line for line in claim.evidence if line.startswith(start)]
    assert has_numbers(first, 0.7, 0.0, 0.99, 0.0, -0.29, 3)
    assert has_numbers(second, 3, 10)
    assert starts_with(claim, "cifar100, class, DUCK, no retain loss (")
    assert claim.answer == "in part"
    assert any(line.startswith("tiny-imagenet, samples") for line in claim.evidence)


def test_a_loss_that_changes_nothing_is_not_needed(results: Results) -> None:
    for label, aus in (
        ("duck, no forget loss", 0.989),
        ("duck, no retain loss", 1.0),
        ("duck", 0.99),
    ):
        put_study(results, "paper/ablation", label, 0, {"aus": aus}, CLASS)
    assert check(results, ABLATION).answer == "does not hold"


@pytest.mark.parametrize(
    ("kept", "forgotten", "answer"),
    [(0.79, 0.0, "in part"), (0.77, 0.0, "does not hold"), (0.79, 0.02, "does not hold")],
)
def test_many_classes_are_compared_with_finetune(
    results: Results, kept: float, forgotten: float, answer: str
) -> None:
    many = "paper/multi-class"
    for seed in range(3):
        ours = {"retain_test": kept, "forget_test": forgotten, "aus": 1.0}
        put_study(results, many, "duck", seed, ours, "removed=50")
        theirs = {"retain_test": 0.785, "forget_test": 0.0, "aus": 1.0}
        put_study(results, many, "finetune", seed, theirs, "removed=50")
    put_study(
        results, many, "duck", 0, {"retain_test": 0.9, "forget_test": 0.0, "aus": 1.0}, "removed=30"
    )
    claim = check(results, MANY)
    assert claim.answer == answer
    text = next(
        line
        for line in claim.evidence
        if line.startswith("cifar100, class, 50 classes removed, DUCK (tuned): kept")
    )
    assert has_numbers(text, float(f"{100 * kept:.2f}"), 0.0, 78.5, 0.0)
    assert has_numbers(text.rpartition(";")[2], float(f"{100 * forgotten:.2f}"), 0.0)
    assert starts_with(claim, "cifar100, class, 30 classes removed, DUCK (tuned): finetune")
    assert starts_with(claim, "cifar100, class, 1 class removed, DUCK (tuned): ")


@pytest.mark.parametrize(("aus", "answer"), [(0.99, "in part"), (0.97, "does not hold")])
def test_other_architectures_are_compared_with_their_own_retrained(
    results: Results, aus: float, answer: str
) -> None:
    models = "paper/architectures"
    for case in (0, 10):
        put_study(results, models, "duck", case, {"aus": aus}, "dataset=cifar100,model=allcnn")
        put_study(results, models, "retrained", case, {"aus": 1.0}, "dataset=cifar100,model=allcnn")
        put_study(
            results, models, "retrained", case, {"aus": 0.5}, "dataset=cifar100,model=resnet34"
        )
    put_study(results, models, "duck", 0, {"aus": 0.9}, "dataset=cifar100,model=resnet50")
    claim = check(results, ARCHITECTURES)
    assert claim.answer == answer
    text = claim.evidence[0]
    assert text.startswith("cifar100, class, allcnn, DUCK (paper): ")
    assert has_numbers(text, float(f"{aus:.3f}"), 0.0, 1.0, 0.0)
    assert has_numbers(
        evidence(claim, "cifar100, class, resnet50, DUCK (paper): Retrained"), 0.9, 1
    )
    assert starts_with(claim, "cifar100, class, vit-b16, DUCK (paper): ")


def test_one_architecture_is_not_every_architecture(results: Results) -> None:
    put(results, CR, "duck", 0)
    put(results, CR, "retrained", 0)
    assert check(results, ARCHITECTURES).answer == "not run"


@pytest.mark.parametrize(
    ("cases", "answer"),
    [(3, "in part"), (2, "in part"), pytest.param(10, "holds", marks=pytest.mark.slow)],
)
def test_few_cases_settle_no_claim(results: Results, cases: int, answer: str) -> None:
    for grid, kinds in ((SVM, (("cifar10", TEN), ("cifar100", range(0, 100, 10)))),):
        for data, classes in kinds:
            facts = FACTS._replace(name=data)
            known = cells(grid, {data: facts})
            for scenario, some in (("class", classes), ("samples", (*range(9), 42))):
                for case in [*some][:cases]:
                    for cell in narrow(
                        known, parse_only(f"dataset={data},scenario={scenario},case={case}", grid)
                    ):
                        noise = (-1) ** ([*some].index(case)) / 1e4
                        value = 0.75 + (noise if cell.method == "duck" else 0.0)
                        line = line_of(grid, cell, facts, scores={"f1": value, "chance": 0.75})
                        append(results, "svm", {**line, "attack": {"name": "svm", "splits": 5}})
    assert check(results, SVM_CLAIM).answer == answer


def test_the_three_formats(results: Results) -> None:
    some = [Claim("It works", "in part", ["a: 1 ± 2", "b: not run."]), Claim("C", "not run", ["c"])]
    assert render_claims(some, "text") == (
        "1. It works: in part.\n  a: 1 ± 2\n  b: not run.\n\n2. C: not run.\n  c"
    )
    assert render_claims(some, "markdown") == (
        "**1. It works: in part.**\n\n- a: 1 ± 2\n- b: not run.\n\n**2. C: not run.**\n\n- c"
    )
    assert json.loads(render_claims(some, "json"))[0] == {
        "claim": "It works",
        "answer": "in part",
        "evidence": ["a: 1 ± 2", "b: not run."],
    }


def test_doing_nothing_beats_the_papers_preset_on_cifar10(real: list[Claim]) -> None:
    text = evidence(real[BEST], "cifar10, samples, DUCK (paper)")
    assert has_numbers(text, 0.917, 0.009, 10)
    assert has_numbers(text.partition("(original)")[2], 0.951, 0.0, 10, 10)
    tuned = evidence(real[BEST], "cifar10, samples, DUCK (tuned)")
    assert has_numbers(tuned, 0.986, 0.004, 10)
    assert "(original)" not in tuned


def test_the_svm_on_our_results(real: list[Claim]) -> None:
    text = evidence(real[SVM_CLAIM], "cifar10, samples, DUCK (paper)")
    assert has_numbers(text, 3.42, 10, 0.002)
    text = evidence(real[SVM_CLAIM], "cifar10, samples, DUCK (tuned)")
    assert has_numbers(text, 0.19, 10, 0.38)
    assert real[SVM_CLAIM].answer == "in part"


def test_the_shadow_models_of_our_results_are_mismatched(real: list[Claim]) -> None:
    text = evidence(real[LIRA_CLAIM], "cifar10, pool 0d47d83664bfe158")
    assert has_numbers(text, 128, 16, 60)
    assert "lower bounds" in text


@pytest.mark.parametrize("name", ["paper/table-cr", "paper/table-hr", "paper/svm", "paper/lira"])
def test_the_results_are_those_of_the_table(name: str) -> None:
    results, grid = Results(RESULTS), find_grid(name)
    rows = rows_of(make_table(grid, results, {}))
    counts = {
        (row["dataset"], row["scenario"], row["method"], row["preset"]): row["n"] for row in rows
    }
    groups = find_groups(grid, results)
    keys = [
        (group.cell.block.dataset, group.cell.block.scenario, group.cell.method, group.cell.preset)
        for group in groups
    ]
    by_key = dict(zip(keys, groups, strict=True))
    assert {key: len(group.results) for key, group in by_key.items()} == counts
    score = {"paper/svm": "f1", "paper/lira": "auc"}.get(name, "aus")
    for row in rows:
        lines = by_key[row["dataset"], row["scenario"], row["method"], row["preset"]].results
        if lines:
            mean = sum(line.scores[score] or 0.0 for line in lines.values()) / len(lines)
            assert mean == pytest.approx(row[score]["mean"])
