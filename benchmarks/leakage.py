"""Measure how much of the forgotten samples leaks from models of every method, and at what price.

    python benchmarks/leakage.py --kind samples
    python benchmarks/leakage.py --kind class
    python benchmarks/leakage.py --kind hard
    python benchmarks/leakage.py --kind listed --list ids.txt
    python benchmarks/leakage.py --kind samples --size 10 --requests 8
    python benchmarks/leakage.py --data cifar10 --model resnet18 --epochs 40 --root data
    python benchmarks/leakage.py --variants warm-restart:epochs=6,peak=2,shrink=0 duck@paper
    python benchmarks/leakage.py --table benchmarks/results/leakage.jsonl

Each original is trained on the rest and on half of the candidates: a random fifth of the data, one
class, or the ids in a file (`listed`), such as the indices of a public benchmark. It then unlearns
that half (`samples`, `class`, `listed`), those of it that are among the quarter of the candidates
with the highest loss in retrained models (`hard`), or several requests of --size samples, each from
its own weights. Retrained models never saw a candidate.

leak       An attacker compares, sample by sample, unlearned models that forgot it with unlearned
           models that never saw it: AUC and TPR at 1 % FPR of U-LiRA among unlearned models. It
           reads margins; for a class, the logit of the largest probability among the others.
memory     Mean clipped margin of the forgotten samples: 0 as in retrained models, 1 as in the
           originals; mean and standard deviation over the models.
JS         Distance of the mean outputs to those of half of the retrained models. The floor is that
           of the other half.
time       Median of the models, as a share of one retraining; CPU time on a CPU. On a GPU, models
           are trained compiled, but methods and the retraining that is timed are not. With several
           processes on one GPU only models that ran alone are timed (--timed).

The line "retrained" has the band: the same attack on retrained models alone, with random halves in
the place of what the originals saw. One JSON line per variant; those that are in the file already
are skipped. Models and outputs stay in --work, the artifact store (DUCK_ARTIFACTS) by default, so
that a second call adds variants.

A variant is a method with its tuned preset, `name@paper` with that of its paper; settings that
differ from the preset follow after a colon. `warm-restart:epochs=4,peak=1,shrink=1` starts from
fresh weights: it shows what the weights of the original are worth. Methods that are not for this
kind of request are skipped.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from leakage_pool import Outputs, Part, Pool, Positions, groups, hardest
from result_files import RESULTS, ResultFile, Row, create_parser, print_table, run_or_print

import duck
from duck.artifacts import ArtifactStore, default_root
from duck.audits.attacks.ulira import add_fit_error, against_not_requested
from duck.audits.measurements import js
from duck.audits.memory import MAX_MARGIN
from duck.audits.scores import Margins, softmax
from duck.audits.statistics import least_others, roc
from duck.errors import BadInput
from duck.experiment import digest_of, to_dict
from duck.methods.base import METHODS, Method
from duck.methods.presets import default_recipe, preset
from duck.registry import suggest
from duck.runtime import pick_device, seeded
from duck.tuning import with_settings
from duck.types import Data

# The most important first, because the time may not be enough for all.
VARIANTS = (
    "original",
    "duck",
    "warm-restart",
    "duck-soft",
    "delete",
    "amun",
    "warm-restart:epochs=2,peak=1,shrink=0",
    "warm-restart:epochs=4,peak=1,shrink=0",
    "warm-restart:epochs=8,peak=1,shrink=0",
    "warm-restart:epochs=4,peak=2,shrink=0",
    "warm-restart:epochs=4,peak=1,shrink=0.3",
    "warm-restart:epochs=4,peak=1,shrink=0.5",
    "warm-restart:epochs=4,peak=1,shrink=0.7",
    "warm-restart:epochs=4,peak=1,shrink=1",
    "warm-restart:epochs=8,peak=1,shrink=0.5",
    "warm-restart:epochs=8,peak=1,shrink=0.7",
    "warm-restart:epochs=4,peak=1,shrink=0.7,distillation=0.5",
    "warm-restart:epochs=4,peak=1,shrink=0,distillation=0.5",
    "warm-restart:epochs=4,peak=1,shrink=0,average=2",
    "ssd",
    "bad-teacher",
    "scrub",
    "neg-grad-plus",
    "salun",
    "l1-sparse",
    "finetune",
    "retrained@tuned",
    "duck@paper",
)
RETRAINED = "retrained"
SPLITS = 20
"""Random halves of the retrained models, for the band and for JS."""
FPR = 0.01
HARD_SHARE = 0.25
"""Of the candidates, those with the highest loss."""
LEAST_HARD = 10
"""With fewer hard samples some original might have seen none of them."""
LEAST_MODELS = 12
"""The attack leaves models out and still needs five on each side."""
Kind = Literal["samples", "class", "hard", "listed"]
Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--data", default="noisy-digits")
    parser.add_argument("--root", type=Path, default=Path("data"))
    parser.add_argument("--model", default="convnet")
    parser.add_argument("--epochs", type=int, help="of the originals; default: the recipe's")
    parser.add_argument("--kind", choices=get_args(Kind), default="samples")
    parser.add_argument("--list", type=Path, help="for --kind listed: a file with one id a line")
    parser.add_argument("--class-index", type=int, default=3, help="for --kind class")
    parser.add_argument("--size", type=int, help="samples that a model forgets; default: see above")
    parser.add_argument("--requests", type=int, default=10, help="of this size, at most")
    parser.add_argument("--models", type=int, default=32, help="originals; even, at least 12")
    parser.add_argument("--retrained", type=int, help="default: half as many, at least 12")
    parser.add_argument("--variants", nargs="+", default=VARIANTS)
    parser.add_argument(
        "--shared-originals",
        action="store_true",
        help="for --kind class: unlearn the class from the originals of --kind samples, and watch "
        "its candidates",
    )
    parser.add_argument(
        "--numbers",
        type=parse_numbers,
        metavar="START:STOP:STEP",
        help="only train these models, unlearn from these originals, and append what the holdout "
        "shows of each variant: to choose variants (with --out of its own), and for several "
        "processes on one GPU, whose models a call without --numbers then measures",
    )
    parser.add_argument(
        "--timed",
        type=parse_numbers,
        metavar="START:STOP:STEP",
        help="take times from these originals alone, which a call with --numbers made while "
        "nothing else ran",
    )
    parser.add_argument(
        "--stored-on",
        metavar="DEVICE",
        default="",
        help="only measure outputs in the store that were made on this device, such as 'NVIDIA "
        "H200'; nothing is trained",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=default_root(), help="models and outputs")
    parser.add_argument("--out", type=Path, default=RESULTS / "leakage.jsonl")
    parser.add_argument("--limit-minutes", type=float, default=60)
    parser.add_argument("--device", default="auto")
    run_or_print(parser, run, print_results)


def run(args: argparse.Namespace) -> None:
    """Train what is missing, and append the result of every variant."""
    check_arguments(args)
    device = pick_device(args.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    results = ResultFile(args.out, args.limit_minutes, device)
    pool = make_pool(args, device)
    retrained = args.retrained or max(args.models // 2, LEAST_MODELS)
    parts = (args.numbers or range(retrained), args.numbers or range(args.models))
    jobs: list[tuple[Part, int]] = [
        *(("retrained", number) for number in parts[0] if number < retrained),
        *(("original", number) for number in parts[1]),
    ]
    if not args.stored_on and not train_models(pool, jobs, results.deadline):
        print("Stopped before all models were trained. Rerun the same command to resume.")
        return
    study = Study(pool, args.kind, args.size, args.requests, args.models, retrained, args.timed)
    prefix = study.describe(args.epochs)
    if args.numbers:
        unlearn_part(study, args.variants, args.numbers, results, prefix)
        return
    for variant in (RETRAINED, *filter(study.can_use, args.variants)):
        name = f"{prefix}: {variant}"
        if name in results.done:
            continue
        if not results.has_time_for(name):
            return
        started_at = time.monotonic()
        found = study.measure_retrained() if variant == RETRAINED else study.measure(variant)
        row = {"name": name, "variant": variant, **study.facts, **found}
        results.append(row, time.monotonic() - started_at)


def check_arguments(args: argparse.Namespace) -> None:
    if args.models < LEAST_MODELS or args.models % 2:
        raise BadInput(f"--models must be even and at least {LEAST_MODELS}, got {args.models}.")
    if args.shared_originals and args.kind != "class":
        raise BadInput("--shared-originals is for --kind class.")
    if args.kind == "class" and args.size:
        raise BadInput("--size is for single samples: a class is forgotten as a whole.")
    if (args.kind == "listed") != (args.list is not None):
        raise BadInput("--kind listed needs --list FILE, which is for no other kind.")
    if args.kind == "hard" and args.size and args.size < LEAST_HARD:
        raise BadInput(f"--size must be at least {LEAST_HARD} for hard samples, got {args.size}.")


def make_pool(args: argparse.Namespace, device: torch.device) -> Pool:
    data = duck.load(args.data, args.root, device=device)
    recipe = default_recipe(data.name, len(data.train), data.augment, args.model)
    is_compiled = device.type == "cuda" or bool(args.stored_on)
    recipe = replace(recipe, compile=is_compiled, epochs=args.epochs or recipe.epochs)
    removed_class = args.class_index if args.kind == "class" else None
    store = ArtifactStore(args.work)
    listed = () if args.list is None else read_ids(args.list, data)
    how = (args.shared_originals, args.stored_on, listed)
    return Pool(data, args.model, recipe, removed_class, args.seed, device, store, *how)


def read_ids(file: Path, data: Data) -> tuple[str, ...]:
    """Return the ids in a file, of which each names a training sample."""
    ids = tuple(file.read_text(encoding="utf-8").split())
    known = set(data.train.ids.tolist())
    unknown = [name for name in ids if name not in known]
    if len(set(ids)) < len(ids) or unknown or len(ids) < 2:
        raise BadInput(
            f"{file} must name two or more training samples, each once. Unknown: {unknown[:3]}."
        )
    return ids


def parse_numbers(text: str) -> range:
    """Return the numbers of START:STOP or START:STOP:STEP."""
    return range(*map(int, text.split(":")))


def train_models(pool: Pool, jobs: Sequence[tuple[Part, int]], deadline: float) -> bool:
    """Train the missing models; return whether there was time for all."""
    missing = [job for job in jobs if not pool.is_trained(*job)]
    for done, (part, number) in enumerate(missing):
        if time.monotonic() > deadline:
            return False
        outputs = pool.trained_outputs(part, number)
        print(
            f"{done + 1} of {len(missing)} models: {part} {number}, test {outputs.accuracy:.3f}, "
            f"{outputs.seconds:.2f} s",
            flush=True,
        )
    return True


def unlearn_part(
    study: "Study", variants: Sequence[str], numbers: range, results: ResultFile, prefix: str
) -> None:
    """Unlearn with every variant from some originals, and append what the holdout shows.

    That is enough to choose variants: residual memory and accuracy, compared with two retrained
    models.
    """
    references = [study.pool.trained_outputs("retrained", number) for number in range(2)]
    originals = [study.pool.trained_outputs("original", number) for number in numbers]
    members = np.stack([study.pool.members(number)[study.columns] for number in numbers])
    kept = statistics.fmean(one.holdout for one in references)
    for variant in variants:
        name = f"{prefix}, originals {numbers.start}:{numbers.stop}:{numbers.step}: {variant}"
        if name in results.done:
            continue
        started_at = time.monotonic()
        unlearned = []
        for number in numbers:
            if not results.has_time_for(name):
                return
            unlearned.append(study.unlearn(variant, number))
        memory = study.memory(
            unlearned,
            [one.take(study.columns) for one in originals],
            [one.take(study.columns) for one in references],
            members,
        )
        row = {
            "name": name,
            "variant": variant,
            **study.facts,
            "method": to_dict(study.method(variant)),
            "trial_memory": statistics.fmean(memory),
            "holdout": statistics.fmean(one.holdout for one in unlearned),
            "holdout_retrained": kept,
            "n": len(unlearned),
            "seconds": statistics.median(one.seconds for one in unlearned),
            "time_share": statistics.median(one.seconds for one in unlearned)
            / study.retraining_seconds,
        }
        results.append(row, time.monotonic() - started_at)


@dataclass(frozen=True, eq=False)
class Study:
    """One pool with requests of one kind."""

    pool: Pool
    kind: Kind
    size: int | None
    max_requests: int
    models: int
    retrained: int
    timed: range | None = None
    """The models that are timed. None: all."""

    def describe(self, epochs: int | None) -> str:
        """Return the part of a result's name that all variants share."""
        parts = [self.pool.data.name, self.pool.model]
        parts += [f"{epochs} epochs"] if epochs else []
        parts += [f"{self.kind} {self.size}" if self.size else self.kind]
        parts += [f"list {digest_of(self.pool.listed)}"] if self.pool.listed else []
        parts += ["shared originals"] if self.pool.shares_originals else []
        parts += [f"{self.models} and {self.retrained} models"]
        parts += [f"seed {self.pool.seed}"] if self.pool.seed else []
        return ", ".join(parts)

    @cached_property
    def references(self) -> list[Outputs]:
        return [self.pool.trained_outputs("retrained", number) for number in range(self.retrained)]

    @cached_property
    def requests(self) -> list[Positions]:
        """The candidates of each request."""
        count = len(self.pool.candidates)
        if self.kind == "hard":
            size = 2 * self.size if self.size else int(HARD_SHARE * count)
            return [hardest(self.references, size)]
        if self.pool.shares_originals:
            return [np.flatnonzero(self.pool.labels == self.pool.removed_class)]
        if self.size is None:
            return [np.arange(count)]
        return groups(count, self.size, self.max_requests)

    @cached_property
    def columns(self) -> Positions:
        return np.concatenate(self.requests)

    @cached_property
    def members(self) -> npt.NDArray[np.bool_]:
        """(originals, columns): which samples each original saw, and forgets."""
        rows = [self.pool.members(number)[self.columns] for number in range(self.models)]
        return np.stack(rows)

    @property
    def facts(self) -> Row:
        """Facts about the pool, for every line of the results."""
        recipe = self.pool.recipe
        return {
            "data": self.pool.data.name,
            "model": self.pool.model,
            "kind": self.kind,
            "epochs": recipe.epochs,
            "models": self.models,
            "retrained": self.retrained,
            "samples": len(self.columns),
            "requests": len(self.requests),
            "forgotten_per_request": float(self.members.sum(1).mean()) / len(self.requests),
            "threads": torch.get_num_threads(),
            **({"outputs_from": self.pool.stored_on} if self.pool.stored_on else {}),
        }

    def median_seconds(self, variant: str) -> float:
        """Return the median time of the models that are timed."""
        numbers = self.timed or range(self.models)
        return statistics.median(self.unlearn(variant, number).seconds for number in numbers)

    @cached_property
    def retraining_seconds(self) -> float:
        """The time of one retraining, without compilation as the methods run."""
        if self.pool.recipe.compile:
            return self.pool.eager_seconds(0)
        return statistics.median(one.seconds for one in self.references)

    def unlearn(self, variant: str, number: int) -> Outputs:
        """Return the outputs of an original after unlearning with one variant."""
        return self.pool.unlearned_outputs(number, self.method(variant), self.requests)

    def can_use(self, variant: str) -> bool:
        """Return whether the method of a variant is for this kind of request."""
        kind = "class" if self.kind == "class" else "samples"
        return kind in METHODS[variant.partition(":")[0].partition("@")[0]].scenarios

    def method(self, variant: str) -> Method:
        """Return the method of a variant."""
        kind = "class" if self.kind == "class" else "samples"
        data = self.pool.data
        return parse_variant(variant, data.name, kind, len(data.train))

    def measure(self, variant: str) -> Row:
        """Unlearn with one variant and measure the models."""
        method = self.method(variant)
        unlearned = [self.unlearn(variant, number) for number in range(self.models)]
        originals = [
            self.pool.trained_outputs("original", number).take(self.columns)
            for number in range(self.models)
        ]
        references = [one.take(self.columns) for one in self.references]
        seconds = self.median_seconds(variant)
        retraining = self.retraining_seconds
        return {
            "method": to_dict(method),
            **leak(self._margins(unlearned, self.members)),
            "memory": spread(self.memory(unlearned, originals, references, self.members)),
            "js": self._distances(unlearned, references),
            "accuracy": spread([one.accuracy for one in unlearned]),
            "accuracy_retrained": spread([one.accuracy for one in references]),
            "accuracy_original": spread([one.accuracy for one in originals]),
            "forget_accuracy": self._forget_accuracy(unlearned),
            "seconds": seconds,
            "time_share": seconds / retraining,
        }

    def measure_retrained(self) -> Row:
        """Measure the band of the leak, and what the retrained models cost and know."""
        references = [one.take(self.columns) for one in self.references]
        leaks = []
        for split in range(SPLITS):
            halves = [
                self.pool.members(number, f"band {split}")[self.columns]
                for number in range(self.retrained)
            ]
            leaks.append(leak(self._margins(references, np.stack(halves)), with_interval=False))
        rates = [one["tpr"]["value"] for one in leaks if one["tpr"]]
        everywhere = np.ones((self.retrained, len(self.columns)), np.bool_)
        correct = correct_share(references, self.pool.labels[self.columns], everywhere)
        seconds = [one.seconds for one in references]
        return {
            "splits": SPLITS,
            "auc_band": band([one["auc"]["value"] for one in leaks]),
            "tpr_band": band(rates) if rates else None,
            "accuracy": spread([one.accuracy for one in references]),
            "forget_accuracy": spread(correct),
            "seconds": self.retraining_seconds,
            "seconds_compiled": statistics.median(one.seconds for one in references),
            "seconds_quartiles": [float(value) for value in np.quantile(seconds, (0.25, 0.75))],
        }

    def _margins(self, outputs: Sequence[Outputs], members: npt.NDArray[np.bool_]) -> Margins:
        scores = np.stack([one.scores for one in outputs])
        return Margins(self.pool.ids[self.columns], scores, members)

    def memory(
        self,
        unlearned: list[Outputs],
        originals: list[Outputs],
        references: list[Outputs],
        members: Flags,
    ) -> list[float]:
        """Return ρ of every model over the samples that it forgot."""
        most = MAX_MARGIN["class" if self.kind == "class" else "samples"]

        def clipped(outputs: Sequence[Outputs]) -> Array:
            margins = np.stack([one.margins for one in outputs]).astype(np.float64)
            return np.clip(margins, -most, most)

        def forgotten_mean(values: Array) -> Array:
            means: Array = np.where(members, values, 0).sum(1) / members.sum(1)
            return means

        base = forgotten_mean(np.broadcast_to(clipped(references).mean(0), members.shape))
        after = forgotten_mean(clipped(unlearned))
        before = forgotten_mean(clipped(originals))
        # One denominator for all: that of a single model is close to 0 if it forgets few samples.
        shares: list[float] = ((after - base) / (before - base).mean()).tolist()
        return shares

    def _distances(self, unlearned: list[Outputs], references: list[Outputs]) -> Row:
        """Return JS to half of the retrained models, and that of the other half as the floor.

        Both sides have the same number of models: the mean of few models is noisier.
        """
        count = min(self.models // 2, self.retrained // 2)
        ours = self._probabilities(unlearned)
        theirs = self._probabilities(references)
        generator = seeded(self.pool.seed, "leakage", "distances")
        values, floors = [], []
        for _ in range(SPLITS):
            keys = torch.rand(self.members.shape, generator=generator).numpy()
            order = np.argsort(np.where(self.members, keys, 2.0), axis=0)[:count]
            chosen = np.take_along_axis(ours, order[..., None], 0).mean(0)
            shuffled = torch.randperm(self.retrained, generator=generator).numpy()
            half = theirs[shuffled[:count]].mean(0)
            other = theirs[shuffled[count : 2 * count]].mean(0)
            values.append(float(js(chosen, half).mean()))
            floors.append(float(js(other, half).mean()))
        return {"value": spread(values), "floor": spread(floors), "models": count}

    def _probabilities(self, outputs: Sequence[Outputs]) -> Array:
        """Return (models, columns, classes) outputs, renormalised without a removed class."""
        logits = [one.logits for one in outputs]
        if self.pool.removed_class is not None:
            logits = [np.delete(one, self.pool.removed_class, axis=1) for one in logits]
        return np.stack([softmax(one) for one in logits])

    def _forget_accuracy(self, unlearned: list[Outputs]) -> Row:
        return spread(correct_share(unlearned, self.pool.labels[self.columns], self.members))


def leak(models: Margins, with_interval: bool = True) -> Row:
    """Return AUC and TPR of the attack that tells which unlearned models forgot a sample."""
    curve = roc(against_not_requested(models))
    auc = curve.auc
    if with_interval:
        auc = add_fit_error(auc, against_not_requested, models)
    is_enough = curve.others >= least_others(FPR)
    return {"auc": auc._asdict(), "tpr": curve.tpr_at(FPR)._asdict() if is_enough else None}


def correct_share(
    outputs: Sequence[Outputs], labels: npt.NDArray[np.int64], chosen: npt.NDArray[np.bool_]
) -> list[float]:
    """Return the accuracy of every model on the chosen samples."""
    shares = []
    for one, rows in zip(outputs, chosen, strict=True):
        shares.append(float((one.logits.argmax(1) == labels)[rows].mean()))
    return shares


def spread(values: Sequence[float]) -> Row:
    """Return mean, standard deviation and count."""
    return {"mean": statistics.fmean(values), "sd": statistics.stdev(values), "n": len(values)}


def band(values: Sequence[float]) -> Row:
    """Return mean, lowest and highest value."""
    return {"mean": statistics.fmean(values), "low": min(values), "high": max(values)}


def parse_variant(text: str, data: str, kind: str, samples: int) -> Method:
    """Return the method of a variant, such as `duck@paper` or `warm-restart:epochs=4,peak=2`."""
    left, _, settings = text.partition(":")
    name, _, preset_name = left.partition("@")
    if preset_name not in ("", "paper", "tuned"):
        raise BadInput(f"{text}: no preset {preset_name!r}. There are paper and tuned.")
    chosen: Literal["paper", "tuned"] = "paper" if preset_name == "paper" else "tuned"
    method = preset(name, data, kind, samples, chosen)
    return with_settings(method, dict(parse_settings(settings, method))) if settings else method


def parse_settings(text: str, method: Method) -> Iterator[tuple[str, Any]]:
    known = [field.name for field in fields(method)]  # type: ignore[arg-type]
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name not in known:
            raise BadInput(f"No setting {name!r}. {suggest(name, known)}")
        try:
            yield name, json.loads(value)
        except json.JSONDecodeError:
            yield name, value


def print_results(rows: list[Row]) -> None:
    """Print a table for each pool and kind of request, fastest variants first."""
    by_study: dict[str, list[Row]] = {}
    for row in rows:
        by_study.setdefault(row["name"].rpartition(": ")[0], []).append(row)
    for study, found in by_study.items():
        print(f"\n{study}; {found[0]['samples']} samples, {found[0]['requests']} request(s)\n")
        if "trial_memory" in found[0]:
            print_trials(found)
        else:
            print_study(found)


def print_trials(rows: list[Row]) -> None:
    """Print what the holdout shows of each variant, with the accuracy lost in points."""
    headers = ["variant", "n", "memory", "holdout accuracy - retrained", "time"]
    cells = [
        [
            f"`{row['variant']}`",
            row["n"],
            f"{row['trial_memory']:.2f}",
            f"{100 * (row['holdout'] - row['holdout_retrained']):+.2f}",
            f"{100 * row['time_share']:.0f} %",
        ]
        for row in rows
    ]
    print_table(headers, cells, texts=1)


def print_study(rows: list[Row]) -> None:
    headers = ["variant", "leak AUC", "95 % interval", "TPR at 1 % FPR", "memory", "JS (floor)"]
    headers += ["kept accuracy", "forget accuracy", "time"]
    cells = [retrained_cells(row) for row in rows if row["variant"] == RETRAINED]
    variants = [row for row in rows if row["variant"] != RETRAINED]
    variants.sort(key=lambda row: float(row["time_share"]))
    cells += [variant_cells(row) for row in variants]
    print_table(headers, cells, texts=1)


def retrained_cells(row: Row) -> list[str]:
    auc = row["auc_band"]
    tpr = row["tpr_band"]
    return [
        "retrained (band)",
        f"{auc['mean']:.3f}",
        f"{auc['low']:.3f} to {auc['high']:.3f}",
        f"{percent(tpr['mean'])} ({percent(tpr['low'])} to {percent(tpr['high'])})" if tpr else "-",
        "0",
        "-",
        accuracy_cell(row["accuracy"]),
        percent(row["forget_accuracy"]["mean"]),
        f"{row['seconds']:.2f} s",
    ]


def variant_cells(row: Row) -> list[str]:
    auc = row["auc"]
    distance = row["js"]
    return [
        f"`{row['variant']}`",
        f"{auc['value']:.3f}",
        f"{auc['low']:.3f} to {auc['high']:.3f}",
        percent(row["tpr"]["value"]) if row["tpr"] else "-",
        f"{row['memory']['mean']:.2f} ± {row['memory']['sd']:.2f}",
        f"{distance['value']['mean']:.3f} ({distance['floor']['mean']:.3f})",
        accuracy_cell(row["accuracy"]),
        percent(row["forget_accuracy"]["mean"]),
        "-" if row.get("alone") is False else f"{100 * row['time_share']:.0f} %",
    ]


def accuracy_cell(accuracy: Row) -> str:
    return f"{100 * accuracy['mean']:.1f} ± {100 * accuracy['sd']:.1f} %"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


if __name__ == "__main__":
    main()
