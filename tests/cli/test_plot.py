"""`rlcli plot`: its options and what it prints."""

import json
import subprocess
import sys

from folders import metric_rows, write_run

from rlcli.cli import main

ROWS = metric_rows({0: [(100, 0.0), (200, 10.0)], 1: [(100, 0.0), (200, 20.0)]})


def test_curves_are_drawn_as_wide_as_the_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    run = write_run(tmp_path / "a", rows=ROWS)
    assert main(["plot", str(run), "--threshold", "12"]) == 0
    out, err = capsys.readouterr()
    assert max(map(len, out.splitlines())) <= 60
    assert "reaches 12 at 180 steps" in out
    assert err == ""


def test_every_option_reaches_the_curves(tmp_path, capsys):
    run = write_run(tmp_path / "a", rows=ROWS, name="base", tags=["x"])
    write_run(tmp_path / "b", rows=ROWS, name="base", tags=["x"], recipe="other")
    write_run(tmp_path / "c", rows=ROWS, name="base")
    options = ["--y", "avg_G", "--x", "steps", "--center", "iqm", "--group", "name"]
    options += ["--filter", "recipe!=other", "--tag", "x"]
    assert main(["plot", str(tmp_path), *options, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    (curve,) = result.pop("curves")
    assert result == {
        "x": "steps",
        "y": "avg_G",
        "center": "iqm",
        "threshold": None,
        "overall": None,
        "notes": [],
    }
    assert curve == {
        "label": "base",
        "environment": "CartPole-v1",
        "runs": [str(run)],
        "seeds": 2,
        "x": [100, 200],
        "y": [0, 15],
        "low": [0, 10],
        "high": [0, 20],
    }


def test_a_figure_is_named_on_stdout_and_notes_go_to_stderr(tmp_path, capsys):
    write_run(tmp_path / "runs" / "a", rows=ROWS)
    empty = write_run(tmp_path / "runs" / "b", rows=[])
    file = tmp_path / "a.svg"
    assert main(["plot", str(tmp_path / "runs"), "--output", str(file)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{file}\n" and file.exists()
    assert err == f"note: `{empty}` has no `avg_G` yet\n"


def test_a_plot_in_the_terminal_imports_neither_jax_nor_matplotlib(tmp_path):
    run = write_run(tmp_path / "a", rows=ROWS)
    program = (
        "import sys; from rlcli.cli import main; code = main(sys.argv[1:]);"
        "print('jax' in sys.modules, 'matplotlib' in sys.modules); sys.exit(code)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, "plot", str(run)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.endswith("False False\n")
