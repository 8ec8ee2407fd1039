"""One call runs a grid from options and another one returns its table, as the command does."""

from pathlib import Path

from duck.bench import BenchOptions, Results, grid_table, run_grid
from duck.display import Display


def test_a_call_runs_the_missing_cells_of_a_grid(tmp_path: Path) -> None:
    messages: list[str] = []
    options = BenchOptions(rehearse=True, only="method=original", out=tmp_path, device="cpu")
    display = Display(message=messages.append)
    run = run_grid("paper/ablation", options, display=display)
    assert run.grid == "rehearsal/paper/ablation"
    assert (run.done, run.counts.failed, run.counts.left) == (0, 0, 0)
    again = run_grid("paper/ablation", options, display=display)
    # The originals have results of their own.
    assert 0 < again.done < run.counts.ran
    assert again.counts.ran == 0
    results = Results(options.results_folder)
    assert options.results_folder == tmp_path / "rehearsal"
    rows = grid_table("paper/ablation", options, results).rows
    assert rows
    assert {(row.names["method"], row.names["n"], row.names["of"]) for row in rows} == {
        ("original", 1, 1)
    }
    assert messages == []
