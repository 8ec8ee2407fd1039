"""What the paper's SVM attack finds where there is nothing to find: test samples of a retrained model, dealt out as if half were forgotten.

    python benchmarks/svm_chance.py --models models --results benchmarks/results --out benchmarks/results/svm-chance.jsonl

Outputs of retrained models are those that `duck bench paper/table-hr` keeps. "free": halves drawn at random; "balanced": as many of each
class on both sides; "as it is": the forgotten samples against the test samples, as the attack compares them.
"""

import time
from pathlib import Path

import numpy as np
import torch
from result_files import ResultFile, create_parser, read

from duck.artifacts import ArtifactStore, default_root
from duck.audits.attacks.svm import svm_attack
from duck.audits.scores import Outputs
from duck.bench.outputs import Target, read_target


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--models", type=Path, default=default_root())
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--data", default="cifar10", help="whose models")
    parser.add_argument("--cases", type=int, default=5)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/svm-chance.jsonl"))
    parser.add_argument("--limit-minutes", type=float, default=60)
    args = parser.parse_args()
    results = ResultFile(args.out, args.limit_minutes, torch.device("cpu"))
    store = ArtifactStore(args.models)
    stored = store.ids("predictions")
    known = [
        row
        for row in read(args.results / "paper-table-hr.jsonl")
        if row["dataset"] == args.data and row["id"] in stored
    ]
    runs = [row for row in known if row["method"] == "retrained"]
    for row in sorted(runs, key=lambda row: row["case"])[: args.cases]:
        target = read_target(store, row["id"])
        assert target is not None
        for how in ("as it is", "free", "balanced"):
            name = f"{row['dataset']} seed {row['case']}, {how}"
            if name in results.done or not results.has_time_for(name):
                continue
            begun = time.monotonic()
            found = svm_attack(
                *dealt(target, how, row["case"]),
                "samples",
                row["case"],
                args.splits,
                torch.get_num_threads(),
            )
            results.append(
                {"name": name, "how": how, "f1": found.f1, "splits": args.splits},
                time.monotonic() - begun,
            )


def dealt(target: Target, how: str, seed: int) -> Target:
    """The two sides that the attack is to tell apart."""
    if how == "as it is":
        return target
    unseen, generator = target.unseen, np.random.default_rng(seed)
    order = generator.permutation(len(unseen))
    if how == "balanced":
        order = order[
            np.argsort(unseen.labels[order], kind="stable")
        ]  # neighbours are of a class, and go to different sides
        return Target(_some(unseen, order[::2]), _some(unseen, order[1::2]))
    half = len(order) // 2
    return Target(_some(unseen, order[:half]), _some(unseen, order[half:]))


def _some(outputs: Outputs, rows: np.ndarray) -> Outputs:
    return Outputs(outputs.ids[rows], outputs.logits[rows], outputs.labels[rows])


if __name__ == "__main__":
    main()
