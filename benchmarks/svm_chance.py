"""Measure the paper's SVM attack at chance level: on halves of the test samples.

    python benchmarks/svm_chance.py --models models --results benchmarks/results

The outputs of retrained models are those that `duck bench paper/table-hr` stores. "free": random
halves; "balanced": halves with as many samples of each class; "as it is": forget samples and test
samples, as in the attack.
"""

import time
from pathlib import Path

import numpy as np
import torch
from result_files import ResultFile, create_parser, read

from duck.artifacts import ArtifactStore, Key, default_root
from duck.audits.attacks.svm import svm_attack
from duck.audits.scores import Outputs
from duck.bench.outputs import Target, read_target


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--models", type=Path, default=default_root())
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--data", default="cifar10", help="data set of the models")
    parser.add_argument("--cases", type=int, default=5)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/svm-chance.jsonl"))
    parser.add_argument("--limit-minutes", type=float, default=60)
    args = parser.parse_args()
    results = ResultFile(args.out, args.limit_minutes, torch.device("cpu"))
    store = ArtifactStore(args.models)
    known = [
        row
        for row in read(args.results / "paper-table-hr.jsonl")
        if row["dataset"] == args.data and Key("predictions", row["id"]) in store
    ]
    runs = [row for row in known if row["method"] == "retrained"]
    for row in sorted(runs, key=lambda row: row["case"])[: args.cases]:
        target = read_target(store, Key("predictions", row["id"]))
        assert target is not None
        for how in ("as it is", "free", "balanced"):
            name = f"{row['dataset']} seed {row['case']}, {how}"
            if name in results.done or not results.has_time_for(name):
                continue
            started_at = time.monotonic()
            result = svm_attack(
                *split(target, how, row["case"]),
                "samples",
                row["case"],
                args.splits,
                torch.get_num_threads(),
            )
            results.append(
                {"name": name, "how": how, "f1": result.f1, "splits": args.splits},
                time.monotonic() - started_at,
            )


def split(target: Target, how: str, seed: int) -> Target:
    """Return the two groups of samples that the attack should separate."""
    if how == "as it is":
        return target
    unseen = target.unseen
    order = np.random.default_rng(seed).permutation(len(unseen))
    if how == "balanced":
        # Sorted by class, neighbours go to different groups.
        order = order[np.argsort(unseen.labels[order], kind="stable")]
        return Target(take(unseen, order[::2]), take(unseen, order[1::2]))
    half = len(order) // 2
    return Target(take(unseen, order[:half]), take(unseen, order[half:]))


def take(outputs: Outputs, rows: np.ndarray) -> Outputs:
    return Outputs(outputs.ids[rows], outputs.logits[rows], outputs.labels[rows])


if __name__ == "__main__":
    main()
