"""The report as one HTML page that needs no other file and no network."""

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from duck.audits.next_step import audit_obstacle
from duck.experiment import to_dict
from duck.files import package_text
from duck.printable import counted
from duck.report import commands, formats, plots_bias, plots_run, plots_runs
from duck.report.bench_records import current_results
from duck.report.class_densities import density_tests
from duck.report.class_table import class_rows
from duck.report.page_budget import plan_budget
from duck.report.plotly_figures import to_plotly
from duck.report.plots import REPORT_MARK
from duck.report.records import BIAS_MODELS, SHARES, Contents, StoredRun
from duck.report.results import Result, shorten_list

Row = tuple[Result, StoredRun | None]
"""A row of the table of runs; results of a bench have no stored run."""


def render(contents: Contents) -> str:
    """Return the page as HTML."""
    script = package_text("duck.report", "report.js")
    plotly = get_plotlyjs().replace("\r\n", "\n")
    current = current_results(contents.results)
    rows: list[Row] = [(run.result, run) for run in contents.runs]
    rows += [(result, None) for result in contents.bench if result.is_unlearning]
    context = {
        "mark": REPORT_MARK,
        "style": package_text("duck.report", "report.css"),
        "script": script,
        "plotly": plotly,
        # Only these scripts may run.
        "hashes": [_script_hash(script), _script_hash(plotly)],
        "contents": contents,
        "budget": plan_budget(contents),
        "rows": rows,
        "filters": _filters(rows),
        "requests": Counter(
            (run.result.request_text, run.result.request_label, run.result.data)
            for run in contents.runs
        ),
        "has_past_settings": len(current) < len(contents.results),
        "overview": plots_runs.make_plots(contents.runs, current),
        "density_tests": density_tests(contents.runs, current),
        "several": len(contents.runs) > 1 or bool(contents.bench),
    }
    return _environment().get_template("report.html.j2").render(context)


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
    environment.policies["json.dumps_kwargs"] = {
        "sort_keys": False,
        "allow_nan": False,
        "separators": (",", ":"),
        "ensure_ascii": False,
    }
    environment.globals.update(
        {
            function.__name__: function
            for function in (class_rows, counted, audit_obstacle, to_dict)
        },
        find_retrained=_find_retrained,
        commands=commands,
        plots_bias=plots_bias,
        plots_run=plots_run,
        bias_models=BIAS_MODELS,
        shares=SHARES,
    )
    environment.filters.update(
        {name: item for name, item in vars(formats).items() if name.startswith("format_")},
        shorten_list=shorten_list,
        suggested_audit=commands.suggested_audit,
        to_plotly=to_plotly,
    )
    return environment


def _script_hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _find_retrained(stored: StoredRun, runs: Iterable[StoredRun]) -> Result | None:
    """Return the retrained model for the same request, unless it is the run itself."""
    key = stored.result.comparison_key
    results = [run.result for run in runs if run.result.method == "retrained"]
    found = next((result for result in results if result.comparison_key == key), None)
    return None if found is stored.result else found


def _filters(rows: Sequence[Row]) -> dict[str, dict[str, str]]:
    """Return the filters of the table of runs, with the values and labels that each offers."""
    filters: dict[str, dict[str, str]] = {"method": {}, "request": {}, "data": {}, "verdict": {}}
    for result, run in rows:
        verdict = run.verdict if run else "no audit"
        filters["method"][result.label] = result.label
        filters["request"][result.request_text] = result.request_label
        filters["data"][result.data] = result.data
        filters["verdict"][verdict] = verdict
    return {name: dict(sorted(values.items())) for name, values in filters.items()}
