"""One self-contained page: text, tables and plots of all runs, with nothing to fetch."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from duck.experiment import to_dict
from duck.printable import counted
from duck.report import bias_descriptions, descriptions, plots_bias, plots_run, plots_runs
from duck.report.bench_records import Curve, Density
from duck.report.bias_records import SHARES, THREE, Removal
from duck.report.class_densities import density_tests
from duck.report.numbers import Measured
from duck.report.plotly_figures import figure
from duck.report.plots import MARK
from duck.report.records import Entry, Stored, Unread
from duck.report.reproduce import FILE, commands, experiment_file
from duck.report.samples import Sample

POINTS = 16_000
"""Of all clouds together, and of all ROC curves: more would make the page too big to send."""
MOST = 1_500
"""Of one cloud."""
SIZE = 8_000_000
"""Bytes that a page should not pass, to be sent and opened with ease."""
MAPS = 24
"""Images with SHAP maps on a page."""
SIGNS = {"forgotten": "✓", "not-forgotten": "✗", "damaged": "✗", "no-verdict": "?", "no-audit": "–"}


def render(
    runs: Sequence[Stored],
    lines: Sequence[Entry] = (),
    samples: Mapping[str, Sequence[Sample]] | None = None,
    removals: Sequence[Removal] = (),
    curves: Sequence[Curve] = (),
    unread: Sequence[Unread] = (),
    studies: Sequence[Density] = (),
) -> str:
    """The page. `lines` join the table and, as `curves` and `studies` do, the plots over all runs;
    `samples` are by anchor; `removals` have a section; the `unread` are named."""
    script, plotly = _file("report.js"), get_plotlyjs().replace("\r\n", "\n")
    entries = [*(run.entry for run in runs), *lines]
    shown = samples or {}
    return _pages().get_template("report.html.j2").render(
        mark=MARK,
        title=_title(runs, lines, removals),
        style=_file("report.css"),
        script=script,
        plotly=plotly,
        hashes=[_hash(script), _hash(plotly)],
        runs=[_run(run, runs, shown.get(run.anchor, ()), budget(runs, removals)) for run in runs],
        rows=[_row(run.entry, run) for run in runs] + [_row(entry, None) for entry in lines],
        all_asked=descriptions.all_asked(list(runs)),
        all_done=descriptions.all_done(list(runs)),
        all_verdicts=descriptions.verdicts(list(runs)) if runs else None,
        overview=plots_runs.plots(entries, runs, curves, studies),
        density_tests=_tests(runs, studies),
        keeps_samples=bool(shown),
        several=len(entries) > 1 or bool(lines) or bool(curves) or bool(studies),
        removals=[_removal(removal, budget(runs, removals)[1]) for removal in removals],
        removals_overview=plots_bias.all_shares(removals),
        three=THREE,
        unread=[one.shown for one in unread],
        incomplete=[one.shown for one in files_unread(runs, removals)],
    )  # fmt: skip


def files_unread(runs: Sequence[Stored], removals: Sequence[Removal]) -> list[Unread]:
    """Files beside those that are shown."""
    return [
        *(one for run in runs for one in run.unread),
        *(one for removal in removals for one in removal.unread),
    ]


def budget(runs: Sequence[Stored], removals: Sequence[Removal] = ()) -> tuple[int, int, int]:
    """Points of a cloud, images with SHAP maps of a run or bias removal, points of a ROC curve: so that the page stays within its size."""
    clouds = sum(
        len(splits) for run in runs for splits in ((run.analysis or {}).get("tsne") or {}).values()
    )
    explained = sum(bool(plots_run.explained(run)) for run in runs) + sum(
        bool(removal.maps) for removal in removals
    )
    curves = sum(
        2 * len(models) for run in runs for models in ((run.audit or {}).get("roc") or {}).values()
    )
    points, images = (
        min(MOST, POINTS // max(1, clouds)),
        min(plots_run.IMAGES, MAPS // max(1, explained)),
    )
    return points, images, max(20, min(plots_run.CURVE, POINTS // max(1, curves)))


def _pages() -> Environment:
    # Class and file names come from data: everything is escaped, also inside JSON, where `</script>` would end the element.
    pages = Environment(
        loader=PackageLoader("duck.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (
        descriptions.percent,
        descriptions.points,
        descriptions.interval,
        descriptions.moment,
        descriptions.number,
        descriptions.signed,
        figure,
    )
    pages.filters.update({each.__name__: each for each in filters})
    pages.policies["json.dumps_kwargs"] = {
        "sort_keys": False,
        "allow_nan": False,
        "separators": (",", ":"),
        "ensure_ascii": False,
    }
    pages.globals.update(signs=SIGNS, experiment_file_name=FILE, choices=_choices)
    return pages


def _title(runs: Sequence[Stored], lines: Sequence[Entry], removals: Sequence[Removal]) -> str:
    if not runs:
        if removals and not lines:
            return bias_descriptions.title(removals)
        return f"Unlearning bench: {counted(len(lines), 'run')}" if lines else "Unlearning bench"
    asked = list(dict.fromkeys(run.entry.asked for run in runs))
    data = list(dict.fromkeys(run.run.experiment.training.data for run in runs))
    if len(runs) == 1:
        return f"Unlearning report: {asked[0]} of {data[0]}"
    return f"Unlearning report: {len(runs)} runs on {', '.join(data)}"


def _run(
    stored: Stored, runs: Sequence[Stored], samples: Sequence[Sample], room: tuple[int, int, int]
) -> dict[str, Any]:
    experiment = stored.run.experiment
    retrained = next(
        (
            run
            for run in runs
            if run.entry.method == "retrained" and run.entry.question == stored.entry.question
        ),
        None,
    )
    return {
        "stored": stored,
        "entry": stored.entry,
        "asked": descriptions.asked(stored),
        "whole_list": descriptions.whole_list(stored),
        "done": descriptions.done(stored),
        "changed": descriptions.changed(stored),
        "verdict": descriptions.verdict(stored),
        "notes": [*(one.shown for one in stored.unread), *stored.entry.notes],
        "scores": _scores(stored, None if retrained is stored else retrained),
        "retrained": retrained is not None and retrained is not stored,
        "classes": plots_run.class_rows(stored),
        "listed": plots_run.LISTED if room[0] >= plots_run.ROOM else plots_run.FIRST,
        "plots": plots_run.plots(stored, *room),
        "explained": len(plots_run.explained(stored)),
        "withheld": len(plots_run.explained(stored, forgotten=True)),
        "attacks": _attacks(stored.audit or {}),
        "controls": (stored.audit or {}).get("controls") or {},
        "samples": samples,
        "method": to_dict(experiment)["method"],
        "recipe": to_dict(experiment)["training"]["recipe"],
        "toml": experiment_file(stored),
        "commands": commands(stored),
    }


def _removal(removal: Removal, most_images: int) -> dict[str, Any]:
    found = removal.found
    return {
        "removal": removal,
        "found": found,
        "planted": bias_descriptions.planted(removal),
        "done": bias_descriptions.done(removal),
        "headline": bias_descriptions.headline(removal),
        "outcome": bias_descriptions.outcome(removal),
        "shares": {model: [removal.share(model, part) for part in SHARES] for model in THREE},
        "tests": bias_descriptions.tests(removal),
        "plots": plots_bias.plots(removal, most_images),
        "versions": bias_descriptions.versions(found),
        "method": found.get("method") or {},
        "notes": [*(one.shown for one in removal.unread), *(found.get("notes") or [])],
        "created": found.get("created") or "",
        "fingerprint": found.get("fingerprint") or "not stored",
        "command": found.get("command") or "",
    }


def _tests(runs: Sequence[Stored], studies: Sequence[Density]) -> list[dict[str, Any]]:
    return [
        {
            "on": test.on,
            "row": test.row,
            "difference": descriptions.signed(test.found.difference, 2),
            "p": f"{test.found.p:.2g}",
            "n": test.found.n,
            "least": f"{test.found.least_p:.2g}",
        }
        for test in density_tests(runs, studies)
    ]


AIMS = {
    "class": {
        "forget": "0 %",
        "forget_test": "0 %",
        "retain": "as before",
        "retain_test": "as before",
        "test": "",
    },
    "samples": {"forget": "as on unseen samples", "retain": "as before", "test": "as before"},
}


def _scores(stored: Stored, retrained: Stored | None) -> list[dict[str, Any]]:
    """A line for each split that exists."""
    entry, rows = stored.entry, []
    for name, text in descriptions.SPLITS.items():
        after = entry.measured(name)
        if after is not None:
            before = entry.measured(name, entry.original)
            rows.append(
                {
                    "text": text,
                    "n": stored.run.samples.get(name),
                    "before": before,
                    "after": after,
                    "change": None if before is None else after.value - before.value,
                    "retrained": None if retrained is None else retrained.entry.measured(name),
                    "aim": AIMS[entry.kind].get(name, ""),
                }
            )
    return rows


def _attacks(audit: dict[str, Any]) -> list[dict[str, Any]]:
    """Without the accuracy of each class: "Class by class" has these, and with hundreds of classes they would fill the page."""
    found = {
        name: attack
        for name, attack in (audit.get("attacks") or {}).items()
        if not name.startswith("accuracy class ")
    }
    return [
        {
            "name": name,
            **attack,
            **{
                model: _measured(attack.get(model))
                for model in ("original", "unlearned", "retrained")
            },
        }
        for name, attack in found.items()
    ]


def _measured(plain: dict[str, float | None] | None) -> Measured | None:
    if not plain or plain.get("value") is None:
        return None
    return Measured(float(plain["value"] or 0.0), plain.get("low"), plain.get("high"))


def _row(entry: Entry, stored: Stored | None) -> dict[str, Any]:
    """A line of the table of all runs."""
    return {
        "entry": entry,
        "anchor": stored.anchor if stored else None,
        "verdict": stored.verdict if stored else "no audit",
        "data": entry.experiment.training.data,
        "model": entry.experiment.training.model,
    }


def _choices(name: str, rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """What a filter of the table offers, with the words for each."""
    if name == "asked":
        return dict(sorted({row["entry"].asked_whole: row["entry"].asked for row in rows}.items()))
    if name == "method":
        name = "label"
    return {
        choice: choice
        for choice in sorted(
            {str(row[name] if name in row else getattr(row["entry"], name)) for row in rows}
        )
    }


def _file(name: str) -> str:
    return files("duck.report").joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """For the page's own rule that no other script may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
