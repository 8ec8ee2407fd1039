"""One self-contained HTML page of scores."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from duck.config import Training


def write_report(path: Path, rows: list[dict[str, Any]], *, training: Training, seconds: float, environment: dict[str, Any]) -> Path:
    """Write the page and return where it is."""
    # Class and file names come from data: everything is escaped.
    pages = Environment(loader=PackageLoader("duck.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    pages.filters["percent"] = lambda value: "–" if value is None else f"{100 * value:.2f}"
    pages.filters["number"] = lambda value: "–" if value is None else f"{value:.3f}"
    html = pages.get_template("report.html.j2").render(rows=rows, training=asdict(training), seconds=seconds, environment=environment)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html, encoding="utf-8")
    return path
