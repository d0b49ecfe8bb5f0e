"""`rlcli render`: what it hands on, and the file that it names."""

import functools
from pathlib import Path

import rlcli
from rlcli.cli import main


def test_every_option_reaches_the_function_and_the_file_is_printed(monkeypatch, capsys):
    calls = []

    @functools.wraps(rlcli.render)  # with its parameters
    def function(**keywords):
        calls.append(keywords)
        return Path("x.gif")

    monkeypatch.setitem(vars(rlcli), "render", function)
    options = (
        "--best --output x.gif --episodes 2 --seed 3 --fps 30 --size 60x40 --trust "
        "--overlay"
    )
    assert main(["render", "CartPole-v1", *options.split()]) == 0
    keywords = {
        "path": "CartPole-v1",
        "best": True,
        "output": Path("x.gif"),
        "episodes": 2,
        "seed": 3,
        "fps": 30.0,
        "size": (60, 40),
        "overlay": True,
        "trust": True,
    }
    assert calls == [keywords]
    assert capsys.readouterr().out == "x.gif\n"
