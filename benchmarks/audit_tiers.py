"""Measure how often the quick and the full tier are wrong.

    python benchmarks/audit_tiers.py
    python benchmarks/audit_tiers.py --table benchmarks/results/audit-tiers.jsonl

The tasks, models and sets of retrained models are those of `audit_errors.py`, which measures the
oracle tier. For the full tier each set has a pool of 20 models that were retrained without the
samples that they were to forget, and 10 oracles. So a cheat is judged beside a pool of an honest
method, which is what it would want. The group "pool of originals" has retrained models beside a
pool of a method that does nothing. Verdicts are those before a failed control withdraws them. One
JSON line per task, tier and group; groups that are in the file already are skipped.
"""

import argparse
import time
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import get_args

import torch
from audit_errors import (
    SETS,
    TASKS,
    Group,
    add_models,
    further_retrained,
    groups,
    make_judge,
    print_cheats,
    print_false_alarms,
    print_planted,
    rate_cells,
)
from audit_models import Task, make_task
from result_files import RESULTS, ResultFile, Row, create_parser, print_table, run_or_print
from torch import nn

from duck.audits.full import evidence_of
from duck.audits.judge import Judge, verdict_of
from duck.audits.oracle import PoolEvidence
from duck.audits.outputs import make_setting
from duck.audits.quick import quick
from duck.audits.verdict import FORGOTTEN, NO_VERDICT, NOT_FORGOTTEN, Limits, Tier, Verdict
from duck.experiment import Experiment, Training, fingerprint
from duck.methods.base import METHODS
from duck.models.registry import MODELS, Shape
from duck.pools.build import build_pool
from duck.pools.plan import Plan
from duck.pools.reader import Pool
from duck.scenarios import ForgetClasses, ForgetSamples, Request

MEASURED: tuple[Tier, ...] = ("quick", "full")
POOL_MODELS = 20
PERCEPTRON = "audit-perceptron"
POOL_OF_ORIGINALS = "pool of originals"
POOLS_OF_ORIGINALS = 2


def main() -> None:
    assert set(MEASURED) <= set(get_args(Tier))
    parser = create_parser(__doc__)
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS)
    parser.add_argument("--tiers", nargs="+", default=MEASURED, choices=MEASURED)
    parser.add_argument("--sets", type=int, default=SETS)
    parser.add_argument("--pools", type=Path, default=Path("runs/audit-tiers"))
    parser.add_argument("--out", type=Path, default=RESULTS / "audit-tiers.jsonl")
    parser.add_argument("--limit-minutes", type=float, default=60)
    run_or_print(parser, run, print_tables)


@MODELS.register(PERCEPTRON)
def build_perceptron(num_classes: int, shape: Shape) -> nn.Module:
    """Build the model of the tasks, which pools know by its name."""
    task = next(
        task
        for task in map(make_task, TASKS)
        if (task.scenario.data.num_classes, task.scenario.data.train.shape) == (num_classes, shape)
    )
    return task.new_model()


def run(args: argparse.Namespace) -> None:
    """Append the results of every group."""
    results = ResultFile(args.out, args.limit_minutes, torch.device("cpu"))
    for tier in args.tiers:
        for task_name in args.tasks:
            task = make_task(task_name)
            wanted = groups(task)
            if tier == "full":
                wanted[("pool", POOL_OF_ORIGINALS)] = further_retrained
            for (kind, group), models_of in wanted.items():
                name = f"{task_name}: {tier}: {group}"
                if name in results.done or not results.has_time_for(name):
                    continue
                started_at = time.monotonic()
                row = judge_group(task, tier, models_of, group, args)
                labels = {"task": task_name, "tier": tier, "kind": kind, "group": group}
                results.append({"name": name, **labels, **row}, time.monotonic() - started_at)


def judge_group(
    task: Task, tier: Tier, models_of: Group, group: str, args: argparse.Namespace
) -> Row:
    """Return the verdicts on the models of a group, judged by every set."""
    verdicts: Counter[Verdict] = Counter()
    decided_by: Counter[str] = Counter()
    method, sets = "retrained", args.sets
    if group == POOL_OF_ORIGINALS:
        method, sets = "original", min(args.sets, POOLS_OF_ORIGINALS)
    for index in range(sets):
        judge = make_judge(task, index)
        models = models_of(task, index)
        add_models(judge, task, {name: models[name] for name in models if name != "original"})
        for name in models:
            if tier == "quick":
                verdict, tests = judge_quick(task, judge, name)
            else:
                evidence = pool_evidence(task, index, method, args.pools)
                verdict, tests = judge_full(judge, evidence, name)
            verdicts[verdict] += 1
            decided_by.update(tests)
    order: tuple[Verdict, ...] = (FORGOTTEN, NO_VERDICT, NOT_FORGOTTEN)
    return {
        "n": verdicts.total(),
        "verdicts": {name: verdicts[name] for name in order},
        "yes_by": dict(decided_by),
    }


def judge_quick(task: Task, judge: Judge, name: str) -> tuple[Verdict, list[str]]:
    """Return the verdict of the quick tier, and the tests that reject the model."""
    models = judge.measurements.models
    setting = make_setting(task.scenario)
    audit = quick(setting, models[name], models["original"], "")
    if audit.verdict != NOT_FORGOTTEN:
        return audit.verdict, []
    rejecting = [
        title for title, row in audit.attacks.items() if row.p is not None and row.p < 0.01
    ]
    return audit.verdict, rejecting


def judge_full(judge: Judge, evidence: PoolEvidence, name: str) -> tuple[Verdict, list[str]]:
    """Return the verdict of the full tier, and the measures that answer "yes"."""
    further = [measure for measure in evidence.measures if measure.question]
    with_pool = replace(judge, measures=[*judge.measures, *further])
    grades = with_pool.grades(name, evidence.exposed)
    decided = [
        item.measure
        for question in ("remembers", "exposed")
        for item in grades[question].evidence
        if item.answer == "yes"
    ]
    return verdict_of(grades), decided


@cache
def pool_evidence(task: Task, index: int, method: str, folder: Path) -> PoolEvidence:
    """Build the pool of a set, or read it, and run the attacks on it."""
    scenario = task.scenario
    data = scenario.data
    forget = data.train.take(scenario.forget)
    request: Request = ForgetSamples(forget.ids.tolist())
    if scenario.kind == "class":
        request = ForgetClasses(forget.labels.unique().tolist())
    training = Training(data.name, PERCEPTRON, task.recipe, fingerprint=fingerprint(data))
    experiment = Experiment(training, request, METHODS[method](), seed=1 + index)
    place = folder / f"{task.name}-{method}-{index}".replace(" ", "-")
    build_pool(place, Plan(experiment), data, POOL_MODELS, device="cpu")
    return evidence_of(Pool(place), make_setting(scenario), Limits())


def print_tables(rows: list[Row]) -> None:
    """Print the tables of errors, power and cheats of each tier."""
    for tier in MEASURED:
        of_tier = [row for row in rows if row["tier"] == tier]
        if not of_tier:
            continue
        print(f"**{tier.capitalize()} tier**\n")
        print_false_alarms(of_tier)
        print()
        print_planted(of_tier)
        print()
        print_cheats([row for row in of_tier if row["kind"] == "cheat"])
        beside = [row for row in of_tier if row["group"] == POOL_OF_ORIGINALS]
        if beside:
            print("\nRetrained models beside a pool of a method that does nothing.\n")
            headers = ["task", "n", "not forgotten", "95 % interval", "forgotten"]
            print_table(headers, [[row["task"], *rate_cells([row])] for row in beside], texts=1)
        print()


if __name__ == "__main__":
    main()
