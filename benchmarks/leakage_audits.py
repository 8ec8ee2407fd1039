"""Audit models of a pool of `leakage.py`: retrained ones, what methods made, and planted ones.

    python benchmarks/leakage_audits.py --data cifar10 --model resnet18 --epochs 40 --root data
    python benchmarks/leakage_audits.py --kind class --shared-originals ...
    python benchmarks/leakage_audits.py --table benchmarks/results/leakage-audits.jsonl

Every original forgets its half of the candidates. The retrained models of the pool, which saw none
of them, judge by the oracle and the quick tier: the original, each retrained model by the others,
and the models of each variant (see `leakage.py`).

Planted models come from the pool, too: another original knows a part of what this one forgets. The
request is then made of samples that both saw and of samples that only this one saw, so that the
other is a model that keeps a share of the forget set. It also saw candidates outside the request,
which the retrained models did not: the share 0 shows whether that matters.

One JSON line per model; models that are in the file already are skipped. Originals and retrained
models that the artifact store (--work) does not have are trained.
"""

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from audit_errors import rate_cells
from leakage import FPR, Study, check_arguments, make_pool, parse_numbers
from leakage_pool import Positions
from result_files import RESULTS, ResultFile, Row, create_parser, print_table, run_or_print

from duck.artifacts import default_root
from duck.audits.attacks.base import model_attacks
from duck.audits.judge import Judge, MeasurementCache, verdict_of
from duck.audits.memory import PRIMARY
from duck.audits.oracle import all_measures
from duck.audits.outputs import ModelOutputs, Setting, compute_outputs, make_setting
from duck.audits.quick import quick
from duck.audits.statistics import least_others, roc
from duck.audits.verdict import FORGOTTEN, NO_VERDICT, NOT_FORGOTTEN
from duck.runtime import pick_device
from duck.types import Scenario

VARIANTS = ("duck", "duck@paper", "warm-restart", "finetune")
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)
VERDICTS = (FORGOTTEN, NO_VERDICT, NOT_FORGOTTEN)
ATTACK = "loss attack"


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--data", default="noisy-digits")
    parser.add_argument("--root", type=Path, default=Path("data"))
    parser.add_argument("--model", default="convnet")
    parser.add_argument("--epochs", type=int, help="of the originals; default: the recipe's")
    parser.add_argument("--kind", choices=["samples", "class"], default="samples")
    parser.add_argument("--class-index", type=int, default=3, help="for --kind class")
    parser.add_argument("--shared-originals", action="store_true", help="as in leakage.py")
    parser.add_argument("--retrained", type=int, default=12)
    parser.add_argument("--variants", nargs="+", default=VARIANTS)
    parser.add_argument(
        "--numbers",
        type=parse_numbers,
        metavar="START:STOP",
        default=range(3),
        help="the originals",
    )
    parser.add_argument("--planted", type=int, default=2, help="planted models of each share")
    parser.add_argument("--planted-size", type=int, default=1000, help="samples of their requests")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=default_root(), help="models and outputs")
    parser.add_argument("--out", type=Path, default=RESULTS / "leakage-audits.jsonl")
    parser.add_argument("--limit-minutes", type=float, default=60)
    parser.add_argument("--device", default="auto")
    parser.set_defaults(size=None, requests=1, models=12, timed=None, stored_on="")
    run_or_print(parser, run, print_tables)


def run(args: argparse.Namespace) -> None:
    """Append a line for every model."""
    check_arguments(args)
    device = pick_device(args.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    results = ResultFile(args.out, args.limit_minutes, device)
    pool = make_pool(args, device)
    study = Study(pool, args.kind, None, 1, args.models, args.retrained)
    prefix = study.describe(args.epochs)
    facts = {key: study.facts[key] for key in ("data", "model", "kind", "epochs", "retrained")}
    for number in args.numbers:
        bench = Bench(study, number)
        jobs = [*bench.jobs(args.variants)]
        if args.kind == "samples":
            jobs += planted_jobs(args.planted, args.planted_size)
        for job in jobs:
            name = f"{prefix}, original {number}: {job.name}"
            if name in results.done:
                continue
            if not results.has_time_for(name):
                return
            started_at = time.monotonic()
            row = bench.judge(job)
            labels = {"name": name, "group": job.group, "original": number, **facts}
            results.append({**labels, **row}, time.monotonic() - started_at)


@dataclass(frozen=True)
class Job:
    """One model to be judged."""

    group: str
    name: str
    variant: str | None = None
    retrained: int | None = None
    share: float | None = None
    """Of a planted model."""
    place: int = 0
    size: int = 0


def planted_jobs(count: int, size: int) -> Iterator[Job]:
    for share in SHARES:
        for place in range(count):
            group = f"{100 * share:.0f} % kept"
            yield Job(group, f"{group}, {place}", share=share, place=place, size=size)


class Bench:
    """One original with the retrained models that judge what becomes of it."""

    def __init__(self, study: Study, number: int) -> None:
        self.study = study
        self.pool = study.pool
        self.number = number
        self.scenario = self.pool.scenario(number, study.requests[0])

    def jobs(self, variants: list[str]) -> Iterator[Job]:
        yield Job("original", "original")
        for number in range(self.study.retrained):
            yield Job("retrained", f"retrained {number}", retrained=number)
        for variant in variants:
            yield Job(variant, variant, variant=variant)

    @cached_property
    def original(self) -> ModelOutputs:
        return compute_outputs(self.pool.trained_model("original", self.number), self.scenario)

    @cached_property
    def references(self) -> dict[str, ModelOutputs]:
        return {
            f"retrained {number}": compute_outputs(
                self.pool.trained_model("retrained", number), self.scenario
            )
            for number in range(self.study.retrained)
        }

    @cached_property
    def judge_of_all(self) -> Judge:
        return make_judge(make_setting(self.scenario), self.original, self.references)

    def judge(self, job: Job) -> Row:
        """Judge one model and return its line."""
        if job.share is not None:
            return self.judge_planted(job)
        setting = make_setting(self.scenario)
        if job.retrained is not None:
            return judged(self.judge_of_all, f"retrained {job.retrained}", setting)
        if job.variant is None:
            return judged(self.judge_of_all, "original", setting)
        original = self.pool.trained_model("original", self.number)
        method = self.study.method(job.variant)
        model, _ = self.pool.unlearn(original, method, self.scenario)
        judge = with_model(self.judge_of_all, compute_outputs(model, self.scenario))
        return judged(judge, "unlearned", setting)

    def judge_planted(self, job: Job) -> Row:
        """Judge another original, which saw a share of a request that this one saw as a whole."""
        assert job.share is not None
        other = self.number + 2 + job.place
        mine, its = self.pool.members(self.number), self.pool.members(other)
        shared, only_mine = np.flatnonzero(mine & its), np.flatnonzero(mine & ~its)
        kept = round(job.share * job.size)
        chosen: Positions = np.concatenate([shared[:kept], only_mine[: job.size - kept]])
        scenario = restrict_request(self.pool.scenario(self.number, chosen), self.scenario)
        setting = make_setting(scenario)
        ids = scenario.data.train.ids[scenario.forget]
        judge = make_judge(
            setting,
            only_forget(self.original, ids),
            {name: only_forget(outputs, ids) for name, outputs in self.references.items()},
        )
        outputs = compute_outputs(self.pool.trained_model("original", other), scenario)
        return judged(with_model(judge, outputs), "unlearned", setting)


def restrict_request(scenario: Scenario, whole: Scenario) -> Scenario:
    """Return the scenario of a smaller request, with the retained samples of the whole one.

    The retrained models did not see the other forget samples either.
    """
    return replace(whole, forget=scenario.forget)


def only_forget(outputs: ModelOutputs, ids: Any) -> ModelOutputs:
    """Return the outputs with a part of the forget samples."""
    order = {name: row for row, name in enumerate(outputs.forget.ids.tolist())}
    rows = np.array([order[name] for name in ids.tolist()])
    copies = outputs.copies

    def take(split: Any) -> Any:
        inner = None if split.inner is None else split.inner[rows]
        return replace(
            split,
            logits=split.logits[rows],
            embeddings=split.embeddings[rows],
            labels=split.labels[rows],
            ids=split.ids[rows],
            inner=inner,
        )

    return replace(
        outputs, forget=take(outputs.forget), copies=None if copies is None else take(copies)
    )


def make_judge(
    setting: Setting, original: ModelOutputs, references: dict[str, ModelOutputs]
) -> Judge:
    measures = [measure for measure in all_measures(setting, original) if measure.question]
    return Judge(MeasurementCache({"original": original, **references}), measures, list(references))


def with_model(judge: Judge, outputs: ModelOutputs) -> Judge:
    """Return a judge that knows one more model, with the measurements of the others."""
    known = judge.measurements
    cache = MeasurementCache({**known.models, "unlearned": outputs})
    cache._of_model = dict(known._of_model)
    cache._of_pair = dict(known._of_pair)
    return replace(judge, measurements=cache)


def judged(judge: Judge, name: str, setting: Setting) -> Row:
    """Return verdicts, residual memory, attacks and accuracies of a model."""
    outputs = judge.measurements.models[name]
    grades = judge.grades(name)
    memory = judge.residual_memory(name)
    attacks = model_attacks(setting, "quick")
    found = {title: roc(attack(outputs)) for title, attack in attacks.items()}
    enough = found[ATTACK].others >= least_others(FPR)
    yes = [
        f"{question}: {item.measure}"
        for question in ("remembers", "exposed")
        for item in grades[question].evidence
        if item.answer == "yes"
    ]
    return {
        "verdict": verdict_of(grades),
        "quick": quick(setting, outputs, judge.measurements.models["original"], "").verdict,
        "grades": {question: grade.answer for question, grade in grades.items()},
        "yes_by": yes,
        "memory": {key: [item.value, item.low, item.high] for key, item in memory.items()},
        "advantage": {title: 2 * curve.auc.value - 1 for title, curve in found.items()},
        "tpr": found[ATTACK].tpr_at(FPR).value if enough else None,
        "forget_samples": setting.num_forget,
        "accuracy_forget": float(outputs.forget.correct.mean()),
        "accuracy": float(outputs.unseen.correct[setting.reported].mean()),
    }


def print_tables(rows: list[Row]) -> None:
    """Print a table for each pool and kind of request."""
    by_pool: dict[str, list[Row]] = {}
    for row in rows:
        by_pool.setdefault(row["name"].partition(", original ")[0], []).append(row)
    for pool, found in by_pool.items():
        print(f"\n{pool}\n")
        print_pool(found)


def print_pool(rows: list[Row]) -> None:
    headers = ["models", "n", "not forgotten", "95 % interval", "forgotten", "quick", "ρ"]
    headers += ["advantage", "TPR at 1 % FPR", "forget accuracy", "kept accuracy"]
    groups = list(dict.fromkeys(row["group"] for row in rows))
    print_table(headers, [group_cells([r for r in rows if r["group"] == g]) for g in groups], 1)


def group_cells(rows: list[Row]) -> list[str]:
    verdicts = Counter(row["verdict"] for row in rows)
    counts = {"n": len(rows), "verdicts": {name: verdicts[name] for name in VERDICTS}}
    memory = [row["memory"][PRIMARY[0]][0] for row in rows if PRIMARY[0] in row["memory"]]
    convicted = sum(row["quick"] == NOT_FORGOTTEN for row in rows)
    return [
        rows[0]["group"],
        *rate_cells([counts]),
        f"{convicted} of {len(rows)}",
        spread_cell(memory, "{:.2f}"),
        spread_cell([row["advantage"][ATTACK] for row in rows], "{:.3f}"),
        spread_cell([100 * row["tpr"] for row in rows if row["tpr"] is not None], "{:.1f}", " %"),
        spread_cell([100 * row["accuracy_forget"] for row in rows], "{:.1f}", " %"),
        spread_cell([100 * row["accuracy"] for row in rows], "{:.1f}", " %"),
    ]


def spread_cell(values: list[float], form: str, unit: str = "") -> str:
    if not values:
        return "-"
    if len(values) == 1:
        return f"{form.format(values[0])}{unit}"
    mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
    return f"{form.format(mean)} ± {form.format(deviation)}{unit}"


if __name__ == "__main__":
    main()
