"""What an audit says in words, and what it leaves on disk."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from duck.audits.verdict import (
    TIERS,
    Audit,
    Control,
    Limit,
    Limits,
    Row,
    Tier,
    describe_final,
    file_of,
    p_text,
    save,
)
from duck.errors import BadInput
from duck.types import Estimate

ROWS = {
    "accuracy forget": Row(
        "share",
        "%",
        16,
        Estimate(1.0, 0.794, 1.0),
        Estimate(0.0, 0.0, 0.206),
        None,
        judged=True,
        p=0.25,
    ),
    "output distance": Row(
        "divergence",
        "nats",
        140,
        Estimate(0.5, 0.4, 0.6),
        Estimate(0.1, 0.05, 0.15),
        Estimate(0.1, 0.0, 0.2),
    ),
    "AUS": Row("score", "score", 16, Estimate(0.5, None, None), Estimate(1.0, None, None), None),
}
FILE = "audit-oracle.json"
AUDIT = Audit(
    subject="duck ran on 140 samples.",
    verdict="no verdict",
    powered=False,
    tier="oracle",
    reasons=("A control failed.",),
    attacks=ROWS,
    controls={"original": Control("not forgotten", "forgotten", False)},
    not_tested=("Other copies.",),
    models=6,
    seconds=1.5,
    date="2026-11-15",
)


@pytest.mark.parametrize(
    ("limits", "tier", "words"),
    [
        (None, "oracle", "forgotten"),
        (Limits(), "oracle", "forgotten"),
        (Limits(0.05, 0.01, 0.5), "full", "forgotten"),
        (Limits(0.5), "oracle", "forgotten within the margin 0.5"),
        (
            Limits(0.5, 0.2, 3),
            "full",
            "forgotten within the margin 0.5, advantage 0.2, ε 3",
        ),
        # A limit that the tier does not use says nothing.
        (Limits(0.5, 0.2, 3), "oracle", "forgotten within the margin 0.5, advantage 0.2"),
        (Limits(0.5), "quick", "forgotten"),
    ],
)
def test_the_verdict_names_limits_above_the_default(
    limits: Limits | None, tier: Tier, words: str
) -> None:
    audit = replace(AUDIT, verdict="forgotten", powered=True, limits=limits, tier=tier)
    assert audit.verdict_in_words == words
    for text in (str(audit), describe_final(audit)):
        assert f"{words}." in text.splitlines()[0]


def test_the_text_has_verdict_method_reasons_intervals_controls_and_what_was_not_tested() -> None:
    text = str(AUDIT)
    assert text.splitlines()[0].endswith(": no verdict, audit not powered.")
    assert text.splitlines()[1] == "duck ran on 140 samples."
    assert "0.0 % [0.0, 20.6]" in text
    assert "0.500 [0.400, 0.600]" in text
    assert "p 0.25" in text
    assert "expected not forgotten, got forgotten" in text
    assert (
        text.index("Why:")
        < text.index("measure")
        < text.index("Controls:")
        < text.index("Not tested:")
    )
    assert "proven" not in text


def test_columns_are_aligned() -> None:
    lines = [
        line
        for line in str(AUDIT).splitlines()
        if line.startswith(("measure", "accuracy", "output", "AUS"))
    ]
    assert len({line.index("[") for line in lines if "[" in line}) <= 2
    assert lines[0].index("original") == lines[1].index("100.0 %") == lines[3].index("0.500")


def test_an_audit_is_stored_whole_in_the_folder_of_the_run(tmp_path: Path) -> None:
    save(AUDIT, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    printed = json.loads((tmp_path / FILE).read_text())
    assert printed["verdict"] == "no verdict"
    assert printed["attacks"]["output distance"]["retrained"] == {
        "value": 0.1,
        "low": 0.0,
        "high": 0.2,
    }
    assert printed["attacks"]["accuracy forget"]["retrained"] is None


def test_the_audit_of_each_tier_is_stored(tmp_path: Path) -> None:
    for tier in ("full", "quick", "oracle"):
        save(replace(AUDIT, tier=tier), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {file_of(tier) for tier in TIERS}
    assert [json.loads((tmp_path / file_of(tier)).read_text())["tier"] for tier in TIERS] == [
        "quick",
        "oracle",
        "full",
    ]


@pytest.mark.parametrize(("models", "kept"), [(5, False), (6, True), (7, True)])
def test_an_audit_by_fewer_models_does_not_take_the_place_of_one_by_more(
    tmp_path: Path, models: int, kept: bool
) -> None:
    assert save(replace(AUDIT, models=6, verdict="not forgotten"), tmp_path)
    assert save(replace(AUDIT, models=models), tmp_path) is kept
    assert json.loads((tmp_path / FILE).read_text())["verdict"] == (
        "no verdict" if kept else "not forgotten"
    )


def test_a_stored_audit_that_cannot_be_read_is_replaced(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")
    assert save(AUDIT, tmp_path)
    assert json.loads((tmp_path / FILE).read_text())["tier"] == "oracle"


def test_without_controls_the_text_does_not_mention_power() -> None:
    assert str(replace(AUDIT, powered=None)).startswith("Verdict (oracle tier): no verdict.\n")


@pytest.mark.parametrize(("value", "is_at_limit"), [(0.198, True), (0.1, False)])
def test_a_value_is_printed_with_the_most_that_could_have_been_shown(
    value: float, is_at_limit: bool
) -> None:
    limit = Limit(0.198, "5 models a side")
    row = Row(
        "bound",
        "score",
        140,
        Estimate(0.198, None, None),
        Estimate(value, None, None),
        None,
        limit=limit,
    )
    text = " ".join(str(replace(AUDIT, attacks={**ROWS, "ε": row})).split())
    assert f"ε 140 0.198 (at most 0.198) {value:.3f} (at most 0.198)" in text
    assert "ε: 5 models a side. Here " in text
    assert ("original and unlearned; the " in text) == is_at_limit
    assert "at most" not in str(AUDIT)
    assert "limit" not in str(AUDIT)


def test_a_zero_has_no_sign() -> None:
    row = Row("score", "score", 16, Estimate(-0.0001, -0.2, -0.0), Estimate(0.0, None, None), None)
    text = str(replace(AUDIT, attacks={"memorisation": row}))
    assert "0.000 [-0.200, 0.000]" in text
    assert "-0.000" not in text


def test_whoever_reads_the_old_one_is_not_given_half_of_the_new(tmp_path: Path) -> None:
    save(AUDIT, tmp_path)
    with (tmp_path / FILE).open() as old:
        save(replace(AUDIT, verdict="forgotten"), tmp_path)
        assert json.loads(old.read())["verdict"] == "no verdict"
    assert json.loads((tmp_path / FILE).read_text())["verdict"] == "forgotten"


def test_a_folder_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        save(AUDIT, tmp_path / "missing")


@pytest.mark.parametrize(("p", "text"), [(0.034, "0.034"), (0.0, "< 1e-6"), (1.0, "1")])
def test_p_values_below_a_millionth_are_not_spelled_out(p: float, text: str) -> None:
    assert p_text(p) == text


def test_a_printed_command_is_not_cut_inside_a_name() -> None:
    words = ["duck", "forget", *(index * "b" + "-long-name" for index in range(1, 20))]
    lines = str(replace(AUDIT, next_steps=(" ".join(words),))).splitlines()
    # It is the end: nothing follows that would push it out of sight.
    start = lines.index("What to do next:") + 1
    printed = " ".join(lines[start:]).split()
    assert printed == ["-", *words]
