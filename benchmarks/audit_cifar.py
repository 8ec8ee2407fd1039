"""Measure audits on CIFAR-10 and CIFAR-100, and on parts of them that fit on one CPU core.

    python benchmarks/audit_cifar.py --root data
    python benchmarks/audit_cifar.py --root data --tasks "CIFAR-10, ResNet-18, a tenth"
    python benchmarks/audit_cifar.py --table benchmarks/results/audit-cifar.jsonl

A tenth of the training images, or class 3, is forgotten. Six retrained models judge further
retrained models, models that keep a share of the forget set, and cheats by the oracle and the quick
tier. Unlearning methods are measured on three originals, with the presets of the data set.

The tasks with 5,000 images are scaled down: three convolutions and a perceptron, no augmentation,
and 5,000 training and 2,000 test images of all classes. The presets were not made for these
networks. The tasks with ResNet-18 have all images and need a GPU. They have no cheats, and their
models train for 30 epochs.

One JSON line per task and group; groups that are in the file already are skipped. Tasks without
data are skipped with a message.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from audit_errors import KEPT, REFERENCES, Models, memory_cell, memory_of, print_cheats, rate_cells
from audit_models import CIFAR_TASKS, Task, cheats, make_cifar_task, train_model
from result_files import RESULTS, ResultFile, Row, create_parser, print_table, run_or_print

import duck
from duck.artifacts import ArtifactStore, Key, default_root
from duck.audits.attacks.base import model_attacks
from duck.audits.judge import Judge, MeasurementCache, verdict_of
from duck.audits.memory import CLASS_LOGIT, PRIMARY
from duck.audits.oracle import all_measures
from duck.audits.outputs import ModelOutputs, compute_outputs, make_setting
from duck.audits.quick import quick
from duck.audits.statistics import RATES, least_others, roc
from duck.audits.verdict import FORGOTTEN, NO_VERDICT, NOT_FORGOTTEN, Verdict
from duck.methods import preset
from duck.methods.base import Method
from duck.runtime import pick_device
from duck.tuning import with_settings

PARTS = tuple(name for name in CIFAR_TASKS if "images" in name)
SEEDS = 3
FURTHER = {"samples": 6, "class": 3}
FURTHER_OF_ALL_IMAGES = 3
PLANTED = 2
STORES: dict[str, ArtifactStore] = {}
"""Where the models of a task with all images are stored."""
RESTART = {"epochs": 4, "peak": 1.0, "batch_size": 0}
METHODS: dict[str, tuple[str, Any, Row]] = {
    "DUCK (tuned)": ("duck", "tuned", {}),
    "DUCK (paper)": ("duck", "paper", {}),
    "FineTuning (tuned)": ("finetune", "tuned", {}),
}
"""Method, preset and changes to it."""
RESTARTS: dict[str, tuple[str, Any, Row]] = {
    "Warm restart": ("warm-restart", "tuned", RESTART),
    "Warm restart, old rows": ("warm-restart", "tuned", {**RESTART, "fresh_rows": False}),
}
"""On parts."""
RESTARTS_OF_ALL_IMAGES: dict[str, tuple[str, Any, Row]] = {
    "Warm restart (tuned)": ("warm-restart", "tuned", {}),
}
SLOW_METHODS: dict[str, tuple[str, Any, Row]] = {"FineTuning (paper)": ("finetune", "paper", {})}
"""Run last: it takes longer than all others together."""
ATTACK = "loss attack"
Group = Callable[[Task], list[tuple[int, Models]]]
"""Returns the models to judge, with the number of their original."""


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--tasks", nargs="+", default=PARTS, choices=tuple(CIFAR_TASKS))
    parser.add_argument("--groups", nargs="+", help="only these groups, such as Retrained")
    parser.add_argument("--root", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=RESULTS / "audit-cifar.jsonl")
    parser.add_argument("--limit-minutes", type=float, default=60)
    parser.add_argument("--device", default="cpu")
    work_help = "artifact store of the ResNets, so that a second call need not train them again"
    parser.add_argument("--work", type=Path, default=default_root(), help=work_help)
    run_or_print(parser, run, print_tables)


def run(args: argparse.Namespace) -> None:
    """Append the results of every group."""
    device = pick_device(args.device)
    results = ResultFile(args.out, args.limit_minutes, device)
    for task_name in args.tasks:
        task = make_cifar_task(task_name, args.root, device)
        if task is None:
            continue
        if not is_part(task):
            STORES[task.name] = ArtifactStore(args.work)
            train_all(task)
        for (kind, group), models_of in groups(task).items():
            name = f"{task_name}: {group}"
            if args.groups and group not in args.groups:
                continue
            if name in results.done or not results.has_time_for(name):
                continue
            started_at = time.monotonic()
            row = judge_group(task, models_of)
            labels = {"task": task_name, "kind": kind, "group": group}
            results.append({"name": name, **labels, **row}, time.monotonic() - started_at)


def train_all(task: Task) -> None:
    """Train the originals and the references, whose time is not that of a group."""
    for seed in range(SEEDS):
        original_of(task, seed)
        print(f"{task.name}: original {seed + 1} of {SEEDS}", flush=True)
    reference_outputs(task)
    print(f"{task.name}: {REFERENCES} retrained models", flush=True)


def trained(task: Task, kept: float = 0.0, seed: int = 0) -> torch.nn.Module:
    """Return a model from the store of the task, or train it.

    The requests to one data set share their originals.
    """
    if task.name not in STORES:
        return train_model(task, kept, seed)
    name = task.scenario.data.name if kept == 1 else task.name
    key = Key.of("originals", {"task": name, "kept": kept, "seed": seed, "recipe": task.recipe})
    model, _ = STORES[task.name].get_or_train(
        key,
        task.new_model,
        lambda: (train_model(task, kept, seed), {}),
        dict,
        device=torch.device(task.device),
    )
    return model


def groups(task: Task) -> dict[tuple[str, str], Group]:
    """Return every group by its kind and name."""
    found: dict[tuple[str, str], Group] = {("retrained", "Retrained"): further_retrained}
    found[("method", "Original")] = lambda task: [
        (seed, {"original": original_of(task, seed)}) for seed in range(SEEDS)
    ]
    restarts = RESTARTS if is_part(task) else RESTARTS_OF_ALL_IMAGES
    for name, how in {**METHODS, **restarts}.items():
        found[("method", name)] = unlearned_by(*how)
    if task.scenario.kind == "samples":
        found |= {("planted", f"{100 * share:.0f} % kept"): planted(share) for share in KEPT}
    if is_part(task):
        names = [name for name in cheats_of(task) if name != "original"]
        found |= {("cheat", name): one_cheat(name) for name in names}
    for name, how in SLOW_METHODS.items():
        found[("method", name)] = unlearned_by(*how)
    return found


def further_retrained(task: Task) -> list[tuple[int, Models]]:
    count = FURTHER[task.scenario.kind] if is_part(task) else FURTHER_OF_ALL_IMAGES
    models = {f"further {place}": trained(task, seed=20_000 + place) for place in range(count)}
    return [(0, models)]


def planted(share: float) -> Group:
    def models_of(task: Task) -> list[tuple[int, Models]]:
        names = {f"planted {share} {place}": place for place in range(PLANTED)}
        return [(0, {name: trained(task, share, place) for name, place in names.items()})]

    return models_of


def unlearned_by(method: str, hyperparameters: Any, changes: Row) -> Group:
    def models_of(task: Task) -> list[tuple[int, Models]]:
        kind = task.scenario.kind
        count = len(task.scenario.data.train)
        chosen = preset(method, CIFAR_TASKS[task.name][0], kind, count, hyperparameters)
        chosen = with_settings(chosen, changes)
        # Measurements are stored by this name.
        name = f"{method} {hyperparameters} {changes}"
        return [(seed, {f"{name} {seed}": unlearn(chosen, task, seed)}) for seed in range(SEEDS)]

    return models_of


def unlearn(method: Method, task: Task, seed: int) -> torch.nn.Module:
    recipe = replace(task.recipe, compile=False)
    how: Row = {"new_model": task.new_model, "recipe": recipe}
    return duck.unlearn(method, original_of(task, seed), task.scenario, **how).model


def one_cheat(name: str) -> Group:
    return lambda task: [(0, {name: cheats_of(task)[name]})]


@cache
def cheats_of(task: Task) -> Models:
    return cheats(task, original_of(task, 0), seed=1)


def original_of(task: Task, seed: int) -> torch.nn.Module:
    return trained(task, kept=1.0, seed=seed)


def is_part(task: Task) -> bool:
    return "images" in task.name


@cache
def reference_outputs(task: Task) -> dict[str, ModelOutputs]:
    models = [trained(task, seed=10_000 + place) for place in range(REFERENCES)]
    return {
        f"retrained {place}": compute_outputs(model, task.scenario)
        for place, model in enumerate(models)
    }


@cache
def make_judge(task: Task, seed: int) -> Judge:
    """Return the judge of models that were made from one original."""
    setting = make_setting(task.scenario)
    original = compute_outputs(original_of(task, seed), task.scenario)
    references = reference_outputs(task)
    measures = [measure for measure in all_measures(setting, original) if measure.question]
    outputs = {"original": original, **references}
    return Judge(MeasurementCache(outputs), measures, list(references))


def judge_group(task: Task, models_of: Group) -> Row:
    """Return verdicts, residual memory, attacks and accuracies of the models of a group."""
    verdicts: Counter[Verdict] = Counter()
    quick_verdicts: Counter[Verdict] = Counter()
    decided_by: Counter[str] = Counter()
    setting = make_setting(task.scenario)
    columns: dict[str, list[Any]] = {
        key: []
        for key in (
            "residual_memory",
            "class_logit",
            "advantage",
            "tpr",
            "accuracy_forget",
            "accuracy",
        )
    }
    for seed, models in models_of(task):
        judge = make_judge(task, seed)
        new = {
            name: compute_outputs(model, task.scenario)
            for name, model in models.items()
            if name != "original"
        }
        judge.measurements.models = {**judge.measurements.models, **new}
        for name in models:
            outputs = judge.measurements.models[name]
            grades = judge.grades(name)
            verdicts[verdict_of(grades)] += 1
            audit = quick(setting, outputs, judge.measurements.models["original"], "")
            quick_verdicts[audit.verdict] += 1
            for question in ("remembers", "exposed"):
                yes = [item.measure for item in grades[question].evidence if item.answer == "yes"]
                decided_by.update(yes)
            by_measure = judge.residual_memory(name)
            memory = by_measure.get(PRIMARY[0])
            logit = by_measure.get(CLASS_LOGIT)
            columns["class_logit"].append(None if logit is None else logit.value)
            curve = roc(model_attacks(setting, "quick")[ATTACK](outputs))
            columns["residual_memory"].append(
                [memory.value, memory.low, memory.high] if memory else None
            )
            columns["advantage"].append(2 * curve.auc.value - 1)
            is_enough = curve.others >= least_others(RATES[0])
            columns["tpr"].append(curve.tpr_at(RATES[0]).value if is_enough else None)
            columns["accuracy_forget"].append(float(outputs.forget.correct.mean()))
            columns["accuracy"].append(float(outputs.unseen.correct[setting.reported].mean()))
    order: tuple[Verdict, ...] = (FORGOTTEN, NO_VERDICT, NOT_FORGOTTEN)
    return {
        "n": verdicts.total(),
        "verdicts": {name: verdicts[name] for name in order},
        "quick": {name: quick_verdicts[name] for name in order},
        "yes_by": dict(decided_by),
        **columns,
    }


def print_tables(rows: list[Row]) -> None:
    """Print the tables of errors and power, cheats, and methods."""
    print("Further retrained models and planted models: judged *not forgotten* and *forgotten*.\n")
    headers = ["models", "task", "n", "oracle", "95 % interval", "forgotten", "quick", "ρ"]
    cells = [
        [
            row["group"],
            row["task"],
            *rate_cells([row]),
            f"{row['quick'][NOT_FORGOTTEN]} of {row['n']}",
            memory_cell(memory_of(row)),
        ]
        for row in rows
        if row["kind"] in ("retrained", "planted")
    ]
    print_table(headers, cells, texts=2)
    print()
    print_cheats([row for row in rows if row["kind"] == "cheat"])
    print(f"\nMethods: mean ± standard deviation; advantage and TPR at 1 % FPR by the {ATTACK}.\n")
    headers = ["model", "task", "n", "ρ", "ρ of the class logit", "advantage", "TPR", "forget"]
    headers += ["test", "oracle", "quick"]
    cells = [
        [
            row["group"],
            row["task"],
            row["n"],
            memory_cell(memory_of(row)),
            # Lines from before 2026-11-18 do not have it.
            optional_cell(row.get("class_logit", [None]), "{:.2f}"),
            mean_cell(row["advantage"], "{:.3f}"),
            optional_cell([rate and 100 * rate for rate in row["tpr"]], "{:.1f}", " %"),
            mean_cell(100 * np.array(row["accuracy_forget"]), "{:.1f}", " %"),
            mean_cell(100 * np.array(row["accuracy"]), "{:.1f}", " %"),
            f"{row['verdicts'][NOT_FORGOTTEN]} / {row['verdicts'][NO_VERDICT]} / "
            f"{row['verdicts'][FORGOTTEN]}",
            f"{row['quick'][NOT_FORGOTTEN]} of {row['n']}",
        ]
        for row in rows
        if row["kind"] in ("retrained", "method")
    ]
    print_table(headers, cells, texts=2)


def optional_cell(values: list[Any], form: str, unit: str = "") -> str:
    return "-" if None in values else mean_cell(values, form, unit)


def mean_cell(values: Any, form: str, unit: str = "") -> str:
    mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
    return f"{form.format(mean)} ± {form.format(deviation)}{unit}"


if __name__ == "__main__":
    main()
