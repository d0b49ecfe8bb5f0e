"""The panel in a notebook: HTML that is replaced, in the output of a cell."""

import sys
import types

import pytest
from rich.text import Text

from rlcli.monitor import Monitor, monitors
from rlcli.monitor.notebook import NotebookDisplay, is_notebook

TRAIN = (
    "import rlcli\nrlcli.train('qlearning_frozenlake', run={run!r}, set=[{steps!r}])"
)


class Cell:
    """The output of a cell, in place of IPython's functions."""

    def __init__(self):
        self.shown = []

    def display(self, html, display_id):
        assert display_id is True
        self.shown.append(html)
        return types.SimpleNamespace(update=self.shown.append)


@pytest.fixture
def cell(monkeypatch):
    cell = Cell()
    module = types.SimpleNamespace(display=cell.display, HTML=str)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return cell


def test_the_panel_is_replaced_and_the_last_one_stays(cell):
    display = NotebookDisplay(Text("first"))
    display.start()
    display.update(Text("second <b>"))
    display.stop()
    assert len(cell.shown) == 2
    assert "first" in cell.shown[0] and "first" not in cell.shown[1]
    assert "second &lt;b&gt;" in cell.shown[1] and cell.shown[1].startswith("<pre")


def test_a_panel_that_has_nothing_to_say_disappears(cell):
    display = NotebookDisplay(Text("first"))
    display.start()
    display.transient = True
    display.stop()
    assert "first" not in cell.shown[-1]


def test_a_monitor_shows_its_panel_and_prints_messages_as_lines(
    cell, monkeypatch, capsys
):
    monkeypatch.setattr(monitors, "is_notebook", lambda: True)
    with Monitor(title="in a cell") as monitor:
        monitor.begin(100, [0])
        monitor.update([{"T": 50, "seed": 0, "ep": 3, "G": 1.0}], 50)
        monitor.message("hello")
    assert "in a cell" in cell.shown[-1] and "50" in cell.shown[-1]
    assert capsys.readouterr().err == "hello\n"


def test_this_process_is_no_notebook():
    assert not is_notebook()


@pytest.mark.slow
def test_a_kernel_shows_the_panel_of_a_run(tmp_path):
    nbclient, nbformat = map(pytest.importorskip, ("nbclient", "nbformat"))
    pytest.importorskip("ipykernel")
    code = TRAIN.format(run=str(tmp_path / "run"), steps="train.steps=500")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    nbclient.NotebookClient(notebook, timeout=120).execute()
    panel, result = notebook.cells[0].outputs
    assert "qlearning_frozenlake" in panel.data["text/html"]
    assert str(tmp_path / "run") in result.data["text/plain"]
