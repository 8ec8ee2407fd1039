"""duck debias: plant a bias, unlearn it, and measure on unseen images how much of it is left."""

from dataclasses import dataclass

from duck.analysis.bias import MeasuredShare, RemovalRecord
from duck.cli.console import CONSOLE, emit, percent, print_table, write
from duck.cli.exit_codes import DONE
from duck.cli.inputs import RunFlags, recipe_for_help
from duck.cli.parsing import given_values, parse, read_flags
from duck.commands.debias import BiasOptions, DebiasOptions, debias_run
from duck.commands.options import DataOptions
from duck.records import to_plain
from duck.types import Recipe


@dataclass
class DebiasFlags:
    """Mislabel images with a coloured square, train on them, and forget them with DUCK.

    Images of class --true get a square and the label --wrong. As many images of class --wrong get
    the square and keep their label. The result is compared with a retraining on corrected labels:
    the predictions on unseen images of class --true with the square, and the mean SHAP value of the
    square for --wrong. With --out: bias.json, the SHAP maps and the three models, for `duck
    report`.
    """

    source: DataOptions
    output: RunFlags
    recipe: Recipe
    bias: BiasOptions


def main(argv: list[str]) -> int:
    given = read_flags(argv)
    default = DebiasFlags(DataOptions(), RunFlags(), recipe_for_help(given), BiasOptions())
    args = parse(DebiasFlags, argv, "debias", default)
    changes = given_values(args.recipe, given)
    record = debias_run(DebiasOptions(args.source, args.bias, args.output, changes), CONSOLE)
    if args.output.json:
        emit(to_plain(record))
    else:
        _print_record(record)
    return DONE


def _print_record(record: RemovalRecord) -> None:
    true, wrong, side = record.true, record.wrong, record.patch
    write(
        f"{record.data}, seed {record.seed}: {record.count} images of class {true} with a "
        f"{side} x {side} square, labelled {wrong}."
    )
    write(f"Unseen images of class {true} with the square, n = {record.n} [95 % interval]:")
    shap = record.shap
    rows = []
    for name, shares in record.predicted.items():
        row = {
            "model": name,
            f"predicted as {wrong} %": _format_share(shares.wrong),
            f"predicted as {true} %": _format_share(shares.right),
            f"{true} without square, right %": _format_share(shares.right_without_patch),
            "test %": percent(shares.test),
        }
        mean = f"{shap.mean[name]:+.4f} ± {shap.std[name]:.4f}" if shap else "-"
        rows.append({**row, f"square's mean SHAP for {wrong}": mean})
    print_table(rows)
    for pair, test in shap.tests.items() if shap else ():
        least = f"the smallest possible p is {test.least_p:.2g}"
        write(f"SHAP {pair}: p = {test.p:.2g}, n = {test.n} (two-sided Wilcoxon; {least})")
    before = percent(record.forget["biased"])
    after = percent(record.forget["duck"])
    write(f"A_f against the wrong label: {before} % -> {after} %")
    for note in record.notes:
        write(note)
    seconds = {"training": record.train_seconds, **record.seconds}
    write(", ".join(f"{name} {value:.2f} s" for name, value in seconds.items()))


def _format_share(share: MeasuredShare) -> str:
    low, high = share.interval
    return f"{percent(share.share)} [{100 * low:.1f}, {100 * high:.1f}]"
