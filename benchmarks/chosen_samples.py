"""Measure how often the quick tier is wrong about requests of samples chosen for their difficulty.

    python benchmarks/chosen_samples.py
    python benchmarks/chosen_samples.py --table benchmarks/results/chosen-samples.jsonl

On the data sets of `audit_models.py`, 100 training samples are forgotten: random ones, those with
the highest or lowest loss in models that were not trained on them, or half of each kind. Retrained
models, which never saw them, are audited by the quick tier. One JSON line per data set and request;
those that are in the file already are skipped.
"""

import argparse
import time
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from audit_errors import rate_cells
from audit_models import Task, make_task, train_model
from result_files import RESULTS, ResultFile, Row, create_parser, print_table, run_or_print
from torch.nn.functional import cross_entropy

from duck.audits.attacks.base import model_attacks
from duck.audits.outputs import compute_outputs, make_setting
from duck.audits.quick import decisive_attacks, is_hand_picked, quick
from duck.audits.verdict import FORGOTTEN, NO_VERDICT, NOT_FORGOTTEN, Verdict
from duck.runtime import seeded
from duck.scenarios import ForgetSamples
from duck.training.loop import train

TASKS = ("clusters", "noisy digits", "digits, class 3")
REQUESTS = ("random", "hard", "easy", "half hard")
SAMPLES = 100
FOLDS = 5
Losses = npt.NDArray[np.float32]


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULTS / "chosen-samples.jsonl")
    parser.add_argument("--limit-minutes", type=float, default=60)
    run_or_print(parser, run, print_tables)


def run(args: argparse.Namespace) -> None:
    """Append the results of every request."""
    results = ResultFile(args.out, args.limit_minutes, torch.device("cpu"))
    for base in map(make_task, TASKS):
        data = base.scenario.data.name
        losses = unseen_losses(base)
        for request in REQUESTS:
            name = f"{data}: {request}"
            if name in results.done or not results.has_time_for(name):
                continue
            started_at = time.monotonic()
            row = judge_retrained(make_request(base, request, losses), args.models)
            results.append(
                {"name": name, "data": data, "request": request, **row},
                time.monotonic() - started_at,
            )


def unseen_losses(task: Task) -> Losses:
    """Return the loss of each training sample in a model that was not trained on its fold."""
    examples = task.scenario.data.train
    order = torch.randperm(len(examples), generator=seeded(0, "folds"))
    losses = np.zeros(len(examples), np.float32)
    for fold in range(FOLDS):
        unseen = order[fold::FOLDS]
        generator = seeded(fold, "folds")
        model = task.new_model()
        train(model, examples.take(order[~torch.isin(order, unseen)]), task.recipe, generator)
        batch = next(examples.take(unseen).batches(len(unseen)))
        with torch.no_grad():
            logits = model.eval()(batch.images)
        losses[unseen.numpy()] = cross_entropy(logits, batch.labels, reduction="none").numpy()
    return losses


def make_request(task: Task, request: str, losses: Losses) -> Task:
    """Return the task with another request."""
    by_loss = np.argsort(losses)
    random = np.random.default_rng(0).permutation(len(losses))
    half = SAMPLES // 2
    rows = {
        "random": random[:SAMPLES],
        "hard": by_loss[-SAMPLES:],
        "easy": by_loss[:SAMPLES],
        "half hard": np.unique(np.concatenate([by_loss[-half:], random[:half]])),
    }
    data = task.scenario.data
    ids = data.train.ids[rows[request]].tolist()
    return Task(f"{data.name}, {request}", ForgetSamples(ids)(data, seed=0))


def judge_retrained(task: Task, models: int) -> Row:
    """Return the verdicts of the quick tier on retrained models."""
    setting = make_setting(task.scenario)
    attacks = decisive_attacks(model_attacks(setting, "quick"))
    verdicts: Counter[Verdict] = Counter()
    hand_picked = 0
    for seed in range(models):
        original, retrained = (
            compute_outputs(train_model(task, kept, seed), task.scenario) for kept in (1.0, 0.0)
        )
        verdicts[quick(setting, retrained, original, "").verdict] += 1
        hand_picked += is_hand_picked(setting, original, attacks)
    order: tuple[Verdict, ...] = (FORGOTTEN, NO_VERDICT, NOT_FORGOTTEN)
    counts = {name: verdicts[name] for name in order}
    return {"n": models, "verdicts": counts, "hand_picked": hand_picked}


def print_tables(rows: list[Row]) -> None:
    """Print how often the quick tier convicts retrained models."""
    cells = []
    for row in rows:
        n, rate, interval, _ = rate_cells([row])
        cells.append([row["data"], row["request"], n, rate, interval, row["hand_picked"]])
    headers = ["data", "request", "n", "not forgotten", "95 % interval", "taken for hand-picked"]
    print_table(headers, cells, texts=2)


if __name__ == "__main__":
    main()
