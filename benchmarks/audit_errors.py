"""Measure how often the oracle tier is wrong, and how well it measures residual memory.

    python benchmarks/audit_errors.py
    python benchmarks/audit_errors.py --table benchmarks/results/audit-errors.jsonl

On each small task of `audit_models.py` there are five sets of six retrained models, with an
original each. Every set judges retrained models that are not in it (those of the next set and one
more), honest models of other recipes, models that keep a share of the forget set, and cheats.
Models that the same set judges share their references, and a retrained model is both a reference
and judged by another set: the results are not independent. Verdicts are those of the judge, before
a failed control withdraws them; the line "audits" tells how many sets pass their controls. One JSON
line per task and group; groups that are in the file already are skipped.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from audit_models import Task, cheats, draw_kept, honest_models, make_task, train_model
from result_files import RESULTS, ResultFile, Row, create_parser, print_table, run_or_print
from torch import nn

from duck.audits import controls
from duck.audits.controls import find_power
from duck.audits.judge import Judge, MeasurementCache, verdict_of
from duck.audits.memory import MAX_MARGIN, PRIMARY
from duck.audits.oracle import all_measures
from duck.audits.outputs import ModelOutputs, Setting, compute_outputs, make_setting, temperature_of
from duck.audits.scores import margins
from duck.audits.statistics import clopper_pearson
from duck.audits.sub_scenarios import SHARES
from duck.audits.verdict import FORGOTTEN, NO_VERDICT, NOT_FORGOTTEN

TASKS = ("clusters", "noisy digits", "digits, class 3")
SETS = 5
REFERENCES = 6
KEPT = (0.05, 0.1, 0.2, 0.3, 0.5)
PLANTED = 2
"""Planted models of each share that a set judges."""
REDRAWS = 2000
"""Random sets of references for the coverage of intervals."""
KINDS = {
    "retrained": "retrained",
    "recipe": "other recipes",
    "planted": "planted",
    "cheat": "cheats",
}
Models = dict[str, nn.Module]
Memory = npt.NDArray[np.float64]
Group = Callable[[Task, int], Models]
"""Returns the models that a set judges, by name."""


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS)
    parser.add_argument("--out", type=Path, default=RESULTS / "audit-errors.jsonl")
    parser.add_argument("--limit-minutes", type=float, default=60)
    run_or_print(parser, run, print_tables)


def run(args: argparse.Namespace) -> None:
    """Append the results of every group."""
    results = ResultFile(args.out, args.limit_minutes, torch.device("cpu"))
    for task_name in args.tasks:
        task = make_task(task_name)
        for (kind, group), models_of in groups(task).items():
            name = f"{task_name}: {group}"
            if name in results.done or not results.has_time_for(name):
                continue
            started_at = time.monotonic()
            row = judge_group(task, models_of)
            row = {"name": name, "task": task_name, "kind": kind, "group": group, **row}
            results.append(row, time.monotonic() - started_at)
        checks = {"audits": check_audits, "redraws": redraw_references}
        if task.scenario.kind == "samples":
            checks["coverage"] = cover_planted
        for kind, check in checks.items():
            name = f"{task_name}: {kind}"
            if name not in results.done and results.has_time_for(name):
                row = {"name": name, "task": task_name, "kind": kind, **check(task)}
                results.append(row, 0.0)


def groups(task: Task) -> dict[tuple[str, str], Group]:
    """Return every group by its kind and name."""
    found: dict[tuple[str, str], Group] = {("retrained", "retrained"): further_retrained}
    honest = [name for name in honest_of(task, 0) if name != "retrained"]
    found |= {("recipe", name): one_of(honest_of, name) for name in honest}
    found |= {("planted", f"{100 * share:.0f} % kept"): planted(share) for share in KEPT}
    found |= {("cheat", name): one_of(cheats_of, name) for name in cheats_of(task, 0)}
    return found


def further_retrained(task: Task, index: int) -> Models:
    """Return the models of the next set, and one that is in none."""
    models = [*reference_models(task, (index + 1) % SETS), honest_of(task, index)["retrained"]]
    return {f"further {place}": model for place, model in enumerate(models)}


def one_of(models_of: Group, name: str) -> Group:
    return lambda task, index: {name: models_of(task, index)[name]}


def planted(share: float) -> Group:
    def models_of(task: Task, index: int) -> Models:
        return {
            f"planted {share} {place}": train_model(task, share, seed=SETS * place + index)
            for place in range(PLANTED)
        }

    return models_of


@cache
def honest_of(task: Task, index: int) -> Models:
    return honest_models(task, seed=1 + index)


@cache
def cheats_of(task: Task, index: int) -> Models:
    return cheats(task, original_of(task, index), seed=1 + index)


@cache
def original_of(task: Task, index: int) -> nn.Module:
    return train_model(task, kept=1.0, seed=index)


@cache
def reference_models(task: Task, index: int) -> list[nn.Module]:
    return [train_model(task, seed=10_000 + 10 * index + place) for place in range(REFERENCES)]


@cache
def make_judge(task: Task, index: int) -> Judge:
    """Return the judge by one set of retrained models; models are added to its measurements."""
    setting = make_setting(task.scenario)
    original = compute_outputs(original_of(task, index), task.scenario)
    references = {
        f"retrained {place}": compute_outputs(model, task.scenario)
        for place, model in enumerate(reference_models(task, index))
    }
    measures = [measure for measure in all_measures(setting, original) if measure.question]
    cache_of_set = MeasurementCache({"original": original, **references})
    return Judge(cache_of_set, measures, list(references))


def add_models(judge: Judge, task: Task, models: Models) -> None:
    outputs = {name: compute_outputs(model, task.scenario) for name, model in models.items()}
    judge.measurements.models = {**judge.measurements.models, **outputs}


def judge_group(task: Task, models_of: Group) -> Row:
    """Return the verdicts and residual memory of the models of a group, judged by every set."""
    verdicts: Counter[str] = Counter()
    decided_by: Counter[str] = Counter()
    memory = []
    for index in range(SETS):
        judge = make_judge(task, index)
        models = models_of(task, index)
        # An original is in its judge already.
        add_models(judge, task, {name: models[name] for name in models if name != "original"})
        for name in models:
            grades = judge.grades(name)
            verdicts[verdict_of(grades)] += 1
            decided_by.update(
                f"{question}: {grades[question].measure}"
                for question in ("remembers", "exposed")
                if grades[question].answer == "yes"
            )
            found = judge.residual_memory(name).get(PRIMARY[0])
            memory.append([found.value, found.low, found.high] if found else None)
    return {
        "n": verdicts.total(),
        "verdicts": {name: verdicts[name] for name in (FORGOTTEN, NO_VERDICT, NOT_FORGOTTEN)},
        "yes_by": dict(decided_by),
        "residual_memory": memory,
    }


def check_audits(task: Task) -> Row:
    """Return how many sets pass their controls, and the power that each set states."""
    setting = make_setting(task.scenario)
    passed = 0
    stated = []
    for index in range(SETS):
        judge = make_judge(task, index)
        disguised = controls.disguise(judge.measurements.models["original"], setting)
        judge.measurements.models = {**judge.measurements.models, **disguised}
        checked = controls.check(judge, list(disguised))
        passed += all(control.passed for control in checked.values())
        for share in SHARES:
            add_models(judge, task, planted(share)(task, index))
        stated.append(find_power(judge, SHARES).share)
    return {"n": SETS, "controls_passed": passed, "stated_power": stated}


def redraw_references(task: Task) -> Row:
    """Return how often the interval of a retrained model misses 0, by random sets of six.

    The models are those of all sets: the draws share them.
    """
    names = [f"model {place}" for place in range(SETS * REFERENCES)]
    judge = make_judge(task, 0)
    models = [model for index in range(SETS) for model in reference_models(task, index)]
    add_models(judge, task, dict(zip(names, models, strict=True)))
    generator = np.random.default_rng(0)
    found = []
    for _ in range(REDRAWS):
        fresh, *references = generator.permutation(names)[: REFERENCES + 1].tolist()
        memory = replace(judge, references=references).residual_memory(fresh).get(PRIMARY[0])
        if memory is not None:
            found.append([memory.low, memory.high])
    lows, highs = np.array(found).T
    above, below = float((lows > 0).mean()), float((highs < 0).mean())
    return {"n": len(found), "models": len(models), "above": above, "below": below}


def cover_planted(task: Task) -> Row:
    """Return how often the interval of a planted model misses the memory of the samples it keeps.

    The truth is the share of the original's memory that lies in the kept samples: of two samples,
    the one that the original knows better counts more.
    """
    setting = make_setting(task.scenario)
    found = []
    for index in range(SETS):
        judge = make_judge(task, index)
        models = judge.measurements.models
        memory = known_margins(models["original"], setting) - np.mean(
            [known_margins(models[name], setting) for name in judge.references], axis=0
        )
        for share in KEPT:
            add_models(judge, task, planted(share)(task, index))
            for place in range(PLANTED):
                _, kept = draw_kept(task, share, seed=SETS * place + index)
                is_kept = np.isin(np.arange(len(task.scenario.forget)), kept.numpy())
                truth = memory[is_kept[setting.members]].sum() / memory.sum()
                evidence = judge.residual_memory(f"planted {share} {place}")[PRIMARY[0]]
                found.append([share, truth, evidence.value, evidence.low, evidence.high])
    _, truths, _, lows, highs = np.array(found).T
    above, below = float((lows > truths).mean()), float((highs < truths).mean())
    return {"n": len(found), "above": above, "below": below, "found": found}


def known_margins(outputs: ModelOutputs, setting: Setting) -> npt.NDArray[np.float64]:
    """Return the calibrated, clipped margin of each forget sample, as residual memory reads it."""
    split = outputs.forget.take(setting.members)
    most = MAX_MARGIN[setting.kind]
    scaled: npt.NDArray[np.float64] = np.clip(
        margins(split.logits / temperature_of(outputs, setting), split.labels), -most, most
    )
    return scaled


def print_tables(rows: list[Row]) -> None:
    """Print the tables of errors, power, cheats and residual memory."""
    kinds = list(KINDS)
    groups = [row for row in rows if row["kind"] in kinds]
    groups.sort(key=lambda row: kinds.index(row["kind"]))
    print_false_alarms(groups)
    print()
    print_planted(groups)
    print()
    print_stated_power([row for row in rows if row["kind"] == "audits"])
    print()
    print_cheats([row for row in groups if row["kind"] == "cheat"])
    print()
    print_memory(groups)
    print()
    print_coverage(groups, [row for row in rows if row["kind"] in ("redraws", "coverage")])


def print_false_alarms(rows: list[Row]) -> None:
    """Print how honest models are judged."""
    print("Honest models: judged *not forgotten* (false alarms) and *forgotten*.\n")
    cells = []
    for kind in ("retrained", "recipe"):
        of_kind = [row for row in rows if row["kind"] == kind]
        for task in (*tasks_of(of_kind), "all"):
            chosen = [row for row in of_kind if task in (row["task"], "all")]
            cells.append([KINDS[kind], task, *rate_cells(chosen)])
    for name in dict.fromkeys(row["group"] for row in rows if row["kind"] == "recipe"):
        chosen = [row for row in rows if row["group"] == name]
        cells.append([name, "all", *rate_cells(chosen)])
    headers = ["models", "task", "n", "not forgotten", "95 % interval", "forgotten"]
    print_table(headers, cells, texts=2)


def print_planted(rows: list[Row]) -> None:
    """Print how models that keep a share of the forget set are judged."""
    print("Planted models: judged *not forgotten* (power) and *forgotten*.\n")
    cells = [
        [row["group"], row["task"], *rate_cells([row])] for row in rows if row["kind"] == "planted"
    ]
    headers = ["share", "task", "n", "not forgotten", "95 % interval", "forgotten"]
    print_table(headers, cells, texts=2)


def print_stated_power(audits: list[Row]) -> None:
    """Print the share that each set states to recognise."""
    print("Share that an audit states to recognise with 80 % power, for each set.\n")
    cells = [
        [
            row["task"],
            f"{row['controls_passed']} of {row['n']}",
            ", ".join(map(power_cell, row["stated_power"])),
        ]
        for row in audits
    ]
    print_table(["task", "controls passed", "stated share"], cells, texts=3)


def power_cell(share: float | None) -> str:
    if share is None:
        return "none"
    return f"{percent(share)}{' or less' if share == min(SHARES) else ''}"


def print_cheats(rows: list[Row]) -> None:
    """Print the verdicts on every cheat."""
    tasks = tasks_of(rows)
    print(f"Cheats: {NOT_FORGOTTEN} / {NO_VERDICT} / {FORGOTTEN}.\n")
    cells = []
    for name in dict.fromkeys(row["group"] for row in rows):
        verdicts = {row["task"]: row["verdicts"] for row in rows if row["group"] == name}
        cells.append([name, *(verdict_cell(verdicts.get(task)) for task in tasks)])
    print_table(["cheat", *tasks], cells, texts=1)


def verdict_cell(verdicts: dict[str, int] | None) -> str:
    if verdicts is None:
        return "-"
    return " / ".join(str(verdicts[name]) for name in (NOT_FORGOTTEN, NO_VERDICT, FORGOTTEN))


def print_memory(rows: list[Row]) -> None:
    """Print the residual memory of every group."""
    tasks = tasks_of(rows)
    print(f"Residual memory by the {PRIMARY[0]}: mean ± standard deviation over the models.\n")
    cells = []
    for name in dict.fromkeys(row["group"] for row in rows):
        memory = {row["task"]: memory_of(row) for row in rows if row["group"] == name}
        cells.append([name, *(memory_cell(memory.get(task)) for task in tasks)])
    print_table(["models", *tasks], cells, texts=1)


def memory_of(row: Row) -> Memory:
    """Return value, low and high end for each model of which residual memory can be measured."""
    found = [values for values in row["residual_memory"] if values is not None]
    return np.array(found, np.float64).reshape(-1, 3)


def memory_cell(memory: Memory | None) -> str:
    if memory is None or len(memory) < 2:
        return "-"
    values = memory[:, 0]
    mean = round(float(values.mean()), 2) + 0.0  # a zero has no sign
    return f"{mean:.2f} ± {values.std(ddof=1):.2f}"


def print_coverage(rows: list[Row], measured: list[Row]) -> None:
    """Print how often the interval of residual memory misses the truth.

    The truth is 0 for honest models, and for planted ones the memory of the samples they keep. Of a
    class no such truth is known: few samples teach most of it.
    """
    expected = "1 % expected, 0.71 % for a class"
    print(f"Intervals of residual memory above the truth ({expected}) and below it (5 %).\n")
    cells = []
    for kind in ("retrained", "recipe"):
        of_kind = [row for row in rows if row["kind"] == kind]
        for task in tasks_of(of_kind):
            memory = [memory_of(row) for row in of_kind if row["task"] == task]
            _, lows, highs = np.concatenate(memory).T
            above, below = float((lows > 0).mean()), float((highs < 0).mean())
            cells.append([KINDS[kind], task, len(lows), percent(above), percent(below)])
    cells += [
        [
            (
                "planted"
                if row["kind"] == "coverage"
                else f"retrained, random sets of {row['models']} models"
            ),
            row["task"],
            row["n"],
            percent(row["above"]),
            percent(row["below"]),
        ]
        for row in measured
    ]
    print_table(["models", "task", "n", "above", "below"], cells, texts=2)


def rate_cells(rows: Sequence[Row]) -> list[object]:
    """Return n, the share judged "not forgotten" with its interval, and that judged "forgotten"."""
    n = sum(row["n"] for row in rows)
    counts = Counter[str]()
    for row in rows:
        counts.update(row["verdicts"])
    low, high = clopper_pearson(counts[NOT_FORGOTTEN], n)
    return [
        n,
        percent(counts[NOT_FORGOTTEN] / n),
        f"{100 * low:.1f} to {percent(high)}",
        percent(counts[FORGOTTEN] / n),
    ]


def percent(rate: float) -> str:
    return f"{100 * rate:.1f} %"


def tasks_of(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row["task"] for row in rows))


if __name__ == "__main__":
    main()
