"""The report as one HTML page that needs no other file and no network."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from duck.audits.verdict import Audit, Row
from duck.experiment import to_dict
from duck.printable import counted
from duck.report import (
    bias_descriptions,
    descriptions,
    formats,
    plots_analysis,
    plots_bias,
    plots_run,
    plots_runs,
)
from duck.report.bench_records import AttackCurve, ClassDensities
from duck.report.bias_records import MODEL_LABELS, SHARES, StoredRemoval
from duck.report.class_densities import density_tests
from duck.report.class_table import class_rows
from duck.report.page_budget import PageBudget, plan_budget
from duck.report.plotly_figures import to_plotly
from duck.report.plots import REPORT_MARK
from duck.report.records import ReadProblem, StoredRun
from duck.report.reproduce import EXPERIMENT_FILE, experiment_toml, reproduce_commands
from duck.report.results import Result
from duck.report.samples import Sample

SIGNS = {"forgotten": "✓", "not-forgotten": "✗", "damaged": "✗", "no-verdict": "?", "no-audit": "–"}
TARGETS = {
    "class": {
        "forget": "0 %",
        "forget_test": "0 %",
        "retain": "as before",
        "retain_test": "as before",
    },
    "samples": {"forget": "as on unseen samples", "retain": "as before", "test": "as before"},
}
"""What the accuracy on each split should be after unlearning."""


def render(
    runs: Sequence[StoredRun],
    bench_results: Sequence[Result] = (),
    samples: Mapping[str, Sequence[Sample]] | None = None,
    removals: Sequence[StoredRemoval] = (),
    curves: Sequence[AttackCurve] = (),
    problems: Sequence[ReadProblem] = (),
    densities: Sequence[ClassDensities] = (),
) -> str:
    """Return the page as HTML.

    `bench_results`, `curves` and `densities` come from a bench and join the plots over all runs.
    `samples` has the forgotten samples to show by the anchor of their run.
    """
    results = [*(run.result for run in runs), *bench_results]
    budget = plan_budget(runs, removals)
    samples = samples or {}
    context = {
        **_page_resources(),
        **_summary(runs),
        "title": _page_title(runs, bench_results, removals),
        "runs": [_run_section(run, runs, samples.get(run.anchor, ()), budget) for run in runs],
        "rows": [
            *(_table_row(run.result, run) for run in runs),
            *(_table_row(result, None) for result in bench_results),
        ],
        "overview": plots_runs.make_plots(results, runs, curves, densities),
        "density_tests": _density_test_rows(runs, densities),
        "shows_samples": bool(samples),
        "several": len(results) > 1 or bool(bench_results or curves or densities),
        "removals": [_removal_section(removal, budget.shap_images) for removal in removals],
        "removals_overview": plots_bias.plot_all_shares(removals),
        "problems": [problem.page_text for problem in problems],
        "file_problems": [problem.page_text for problem in file_problems(runs, removals)],
    }
    return _environment().get_template("report.html.j2").render(context)


def file_problems(
    runs: Sequence[StoredRun], removals: Sequence[StoredRemoval]
) -> list[ReadProblem]:
    """Return the files that cannot be read of the runs and removals on the page."""
    problems: list[ReadProblem] = []
    for run in runs:
        problems += run.problems
    for removal in removals:
        problems += removal.problems
    return problems


def _environment() -> Environment:
    # Class and file names come from data. Everything is escaped, also inside JSON, where
    # `</script>` would end the element.
    environment = Environment(
        loader=PackageLoader("duck.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (
        formats.format_percent,
        formats.format_points,
        formats.format_interval,
        formats.format_time,
        formats.format_number,
        formats.format_signed,
        to_plotly,
    )
    environment.filters.update({function.__name__: function for function in filters})
    environment.policies["json.dumps_kwargs"] = {
        "sort_keys": False,
        "allow_nan": False,
        "separators": (",", ":"),
        "ensure_ascii": False,
    }
    environment.globals.update(
        signs=SIGNS,
        experiment_file=EXPERIMENT_FILE,
        filter_choices=_filter_choices,
        model_labels=MODEL_LABELS,
    )
    return environment


def _page_resources() -> dict[str, Any]:
    """Return the style and the scripts, with the hashes that allow only these scripts to run."""
    script = _read_resource("report.js")
    plotly = get_plotlyjs().replace("\r\n", "\n")
    return {
        "mark": REPORT_MARK,
        "style": _read_resource("report.css"),
        "script": script,
        "plotly": plotly,
        "hashes": [_script_hash(script), _script_hash(plotly)],
    }


def _read_resource(name: str) -> str:
    return files("duck.report").joinpath(name).read_text(encoding="utf-8")


def _script_hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _summary(runs: Sequence[StoredRun]) -> dict[str, Any]:
    return {
        "all_requests": descriptions.list_requests(runs),
        "all_actions": descriptions.describe_actions(runs),
        "all_verdicts": descriptions.describe_verdicts(runs) if runs else None,
    }


def _page_title(
    runs: Sequence[StoredRun], bench_results: Sequence[Result], removals: Sequence[StoredRemoval]
) -> str:
    if not runs:
        if removals and not bench_results:
            return bias_descriptions.page_title(removals)
        count = f": {counted(len(bench_results), 'run')}" if bench_results else ""
        return f"Unlearning bench{count}"
    data = list(dict.fromkeys(run.run.experiment.training.data for run in runs))
    if len(runs) == 1:
        return f"Unlearning report: {runs[0].result.request_label} of {data[0]}"
    return f"Unlearning report: {len(runs)} runs on {', '.join(data)}"


def _run_section(
    stored: StoredRun,
    runs: Sequence[StoredRun],
    samples: Sequence[Sample],
    budget: PageBudget,
) -> dict[str, Any]:
    retrained = _find_retrained(stored, runs)
    experiment = to_dict(stored.run.experiment)
    return {
        "stored": stored,
        "result": stored.result,
        "request": descriptions.describe_request(stored),
        "class_list": descriptions.full_class_list(stored),
        "action": descriptions.describe_action(stored),
        "changes": descriptions.describe_changes(stored),
        "verdict": descriptions.describe_verdict(stored),
        "notes": [*(problem.page_text for problem in stored.problems), *stored.result.notes],
        "scores": _score_rows(stored, retrained),
        "has_retrained": retrained is not None,
        "classes": class_rows(stored),
        "class_limit": budget.table_classes,
        "plots": plots_run.make_plots(stored, budget),
        "shap_images": len(plots_analysis.shown_shap_images(stored)),
        "withheld_images": len(plots_analysis.withheld_shap_images(stored)),
        "attacks": _attack_rows(stored.audit),
        "controls": {} if stored.audit is None else stored.audit.controls,
        "samples": samples,
        "method": experiment["method"],
        "recipe": experiment["training"]["recipe"],
        "toml": experiment_toml(stored),
        "commands": reproduce_commands(stored),
    }


def _find_retrained(stored: StoredRun, runs: Sequence[StoredRun]) -> StoredRun | None:
    """Return the retrained model for the same request, unless it is the run itself."""
    retrained = [
        run
        for run in runs
        if run.result.method == "retrained"
        and run.result.comparison_key == stored.result.comparison_key
    ]
    return retrained[0] if retrained and retrained[0] is not stored else None


def _removal_section(removal: StoredRemoval, max_images: int) -> dict[str, Any]:
    record = removal.record
    return {
        "removal": removal,
        "record": record,
        "bias": bias_descriptions.describe_bias(removal),
        "actions": bias_descriptions.describe_actions(removal),
        "outcome": bias_descriptions.describe_outcome(removal),
        "details": bias_descriptions.describe_details(removal),
        "shares": {
            model: [removal.share(model, part) for part in SHARES] for model in MODEL_LABELS
        },
        "tests": bias_descriptions.paired_test_rows(removal),
        "plots": plots_bias.make_plots(removal, max_images),
        "versions": bias_descriptions.describe_versions(record),
        "method": record.method or {},
        "notes": [
            *(problem.page_text for problem in removal.problems),
            *(record.notes or []),
        ],
        "created": record.created or "",
        "fingerprint": record.fingerprint or "not stored",
        "command": record.command or "",
    }


def _density_test_rows(
    runs: Sequence[StoredRun], densities: Sequence[ClassDensities]
) -> list[dict[str, Any]]:
    return [
        {
            "panel": test.panel,
            "method": test.method,
            "difference": formats.format_signed(test.result.difference, 2),
            "p": f"{test.result.p:.2g}",
            "n": test.result.n,
            "least_p": f"{test.result.least_p:.2g}",
        }
        for test in density_tests(runs, densities)
    ]


def _score_rows(stored: StoredRun, retrained: StoredRun | None) -> list[dict[str, Any]]:
    """Return a row for each split that exists."""
    result = stored.result
    rows = []
    for split, label in descriptions.SPLITS.items():
        before = result.accuracy(split, result.original)
        after = result.accuracy(split)
        if after is not None:
            rows.append(
                {
                    "label": label,
                    "n": stored.run.samples.get(split),
                    "before": before,
                    "after": after,
                    "change": None if before is None else after.value - before.value,
                    "retrained": None if retrained is None else retrained.result.accuracy(split),
                    "target": TARGETS[result.kind].get(split, ""),
                }
            )
    return rows


def _attack_rows(audit: Audit | None) -> dict[str, Row]:
    """Return the attacks without the accuracy of each class.

    The section "Class by class" has these, and hundreds of classes would fill the page.
    """
    attacks = {} if audit is None else audit.attacks
    return {name: row for name, row in attacks.items() if not name.startswith("accuracy class ")}


def _table_row(result: Result, stored: StoredRun | None) -> dict[str, Any]:
    """Return a row of the table of all runs."""
    return {
        "result": result,
        "anchor": stored.anchor if stored else None,
        "verdict": stored.verdict if stored else "no audit",
        "data": result.experiment.training.data,
        "model": result.experiment.training.model,
    }


def _filter_choices(column: str, rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the values that a filter of the table offers, with the label of each."""
    if column == "request":
        requests = {row["result"].request_text: row["result"].request_label for row in rows}
        return dict(sorted(requests.items()))
    values = {row["result"].label if column == "method" else str(row[column]) for row in rows}
    return {value: value for value in sorted(values)}
