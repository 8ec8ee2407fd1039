"""Measure how often the oracle tier is wrong.

    python benchmarks/audit_errors.py --classes 3 8 0 5 --models 12 --draws 100

A draw judges one retrained model by six others, and models that only hide the class by the same
six. Draws share models: they are not independent. One JSON line per forgotten class; classes that
are in the file already are skipped.
"""

import time
from pathlib import Path

import numpy as np
from result_files import ResultFile, create_parser

import duck
from duck.audits import controls
from duck.audits.judge import MeasurementCache
from duck.audits.oracle import all_measures
from duck.audits.outputs import ModelOutputs, make_setting, observe
from duck.audits.verdict import NOT_FORGOTTEN
from duck.experiment import Training
from duck.methods.presets import default_recipe
from duck.models import build
from duck.retraining import Retraining
from duck.runtime import pick_device
from duck.scenarios import ForgetClasses
from duck.types import Scenario

REFERENCES = 6
FORGERIES = ("original", "logit masked", "head retrained", "output noise")


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--root", type=Path, default=Path("data"))
    parser.add_argument("--model", default="convnet")
    parser.add_argument("--classes", type=int, nargs="+", default=[3, 8, 0, 5])
    parser.add_argument(
        "--models", type=int, default=12, help="retrained models of a class, at least seven"
    )
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/audit-errors.jsonl"))
    parser.add_argument("--limit-minutes", type=float, default=60)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    device = pick_device(args.device)
    data = duck.load(args.data, root=args.root, device=str(device))
    results = ResultFile(args.out, args.limit_minutes, device)
    training = Training(
        args.data, args.model, default_recipe(args.data, len(data.train), data.augment)
    )
    original = duck.train(args.model, data, training.seed, training.recipe, device=str(device))
    for label in args.classes:
        name = f"{args.data} class {label}"
        if name in results.done or not results.has_time_for(name):
            continue
        started_at = time.monotonic()
        scenario = ForgetClasses([label])(data, seed=0)
        retrain = Retraining(
            scenario,
            original,
            lambda: build(args.model, data.num_classes, data.train.shape),
            training.recipe,
        )
        models = {
            f"retrained {index}": observe(model, scenario)
            for index, model in enumerate(retrain(args.models))
        }
        rates = conviction_rates(scenario, observe(original, scenario), models, args.draws)
        results.append(
            {"name": name, "models": args.models, "draws": args.draws, "not_forgotten": rates},
            time.monotonic() - started_at,
        )


def conviction_rates(
    scenario: Scenario, original: ModelOutputs, retrained: dict[str, ModelOutputs], draws: int
) -> dict[str, float]:
    """Return the share of draws in which each model was judged "not forgotten"."""
    setting = make_setting(scenario)
    generator = np.random.default_rng(0)
    forgeries = {"original": original, **controls.make_forgeries(original, setting)}
    measurements = MeasurementCache({**retrained, **forgeries})
    measures = all_measures(setting, original)
    counts = dict.fromkeys(("retrained", *FORGERIES), 0)
    for _ in range(draws):
        fresh, *references = generator.permutation(list(retrained))[: REFERENCES + 1].tolist()
        for name in counts:
            model = fresh if name == "retrained" else name
            judgement = measurements.judge(measures, model, references)
            counts[name] += judgement.verdict == NOT_FORGOTTEN
    return {name: count / draws for name, count in counts.items()}


if __name__ == "__main__":
    main()
