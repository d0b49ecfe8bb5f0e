"""`rlcli compare`: its options and what it prints."""

import json

from folders import OTHER_RATE, RESOLVED, write_run

from rlcli.cli import main


def test_groups_are_a_table_with_intervals(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    write_run(tmp_path / "a", means=[400.0, 500.0], recipe="dqn")
    write_run(tmp_path / "b", means=[100.0], recipe="ppo", resolved=OTHER_RATE)
    assert main(["compare", str(tmp_path), "--threshold", "450"]) == 0
    out, err = capsys.readouterr()
    rows = [line.split() for line in out.splitlines()]
    assert rows[4][:5] == ["dqn", "2", "450", "[400,", "500]"]
    assert "100 [n/a: 1 seed]" in out
    assert ["dqn", "–", "–", "1", "of", "2"] in rows
    assert max(map(len, out.splitlines()[2:])) <= 80
    assert err == ""


def test_no_cell_of_a_table_is_cut(tmp_path, capsys, monkeypatch):
    means = [-1304.5, -1357.5, -1232.5, -1290.5, -1310.5]
    for name, shift in (("one", 0), ("other", 200)):
        write_run(
            tmp_path / name,
            means=[mean + shift for mean in means],
            recipe="a_long_name_of_a_recipe_" + name,
            resolved=OTHER_RATE if shift else RESOLVED,
        )
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["compare", str(tmp_path)]) == 0
    wide = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["compare", str(tmp_path)]) == 0
    narrow = capsys.readouterr().out
    assert "…" not in wide and "…" not in narrow
    assert wide.count("a_long_name_of_a_recipe_one") >= 1
    lines = [line.strip() for line in narrow.splitlines()]
    assert "A  a_long_name_of_a_recipe_one" in lines
    (row,) = (
        i
        for i, line in enumerate(lines)
        if line.startswith("A  ") and "5" in line.split()
    )
    assert lines[row + 1].startswith("[-1,") and lines[row + 1].count("[") == 3
    assert max(map(len, narrow.splitlines()[2:])) <= 80


def test_every_option_reaches_the_function(tmp_path, capsys):
    write_run(tmp_path / "a", name="base", tags=["x"])
    write_run(tmp_path / "b", name="other", tags=["x"], means=[1.0])
    write_run(tmp_path / "c", name="third")
    options = ["--result", "best", "--y", "avg_G", "--group", "name", "--json"]
    options += ["--reference", "0,10", "--allow-differences", "--threshold", "5"]
    options += ["--where", "return>5", "--tag", "x"]
    assert main(["compare", str(tmp_path), *options]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["result"], data["y"], data["threshold"]) == ("best", "avg_G", 5)
    (group,) = data["environments"][0]["groups"]
    assert group["group"] == "base"
    assert data["overall"]["normalization"] == {"CartPole-v1": [0, 10]}


def test_a_report_is_named_on_stdout(tmp_path, capsys):
    run = write_run(tmp_path / "a")
    file = tmp_path / "report.md"
    assert main(["compare", str(run), "--output", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}\n"
    assert "| dqn_cartpole | 2 | 12 [10, 14]" in file.read_text()
