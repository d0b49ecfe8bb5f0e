"""How a run is watched: a wrapper that counts, a panel, and plain lines."""

import io
import re
import sys
import threading
import time

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from rich.console import Console

from rlcli.errors import RlcliError
from rlcli.monitor import Monitor, monitors
from rlcli.monitor.lines import HEAD, LEGEND
from rlcli.monitor.train_monitor import TrainMonitor


def lake(**options):
    return gymnasium.make("FrozenLake-v1", is_slippery=False, **options)


def play(env, episodes, seed=0):
    """Random episodes; every reward, by episode."""
    random = np.random.default_rng(seed)
    rewards = []
    for episode in range(episodes):
        env.reset(seed=seed + episode)
        rewards.append([])
        over = False
        while not over:
            action = int(random.integers(env.action_space.n))
            _, reward, terminated, truncated, _ = env.step(action)
            rewards[-1].append(float(reward))
            over = terminated or truncated
    return rewards


@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1"])
def test_the_wrapper_counts_as_a_loop_by_hand_does(name, capsys):
    rewards = play(gymnasium.make(name), 30)
    env = TrainMonitor(gymnasium.make(name))
    assert play(env, 30) == rewards  # it changes nothing
    average = 0.0
    expected = []
    for ep, episode in enumerate(rewards, 1):
        T = sum(len(each) for each in rewards[:ep])
        G = sum(episode)
        average += (G - average) / min(ep, 10)
        expected.append(
            f"[TrainMonitor|INFO] ep: {ep}, T: {T:,}, G: {G:.3g}, "
            f"avg_r: {G / len(episode):.3g}, avg_G: {average:.3g}, t: {len(episode)}, "
        )
    lines = capsys.readouterr().err.splitlines()
    assert [re.sub(r"dt: \d+\.\d{3}ms$", "", each) for each in lines] == expected
    assert (env.ep, env.T) == (30, sum(len(each) for each in rewards))
    assert (env.t, env.G) == (len(rewards[-1]), sum(rewards[-1]))
    assert env.avg_G == pytest.approx(average)
    assert env.avg_r == env.G / env.t
    assert env.dt_ms > 0


def test_counts_have_separators_for_thousands(capsys):
    env = TrainMonitor(lake(max_episode_steps=1200))
    env.reset()
    for _ in range(1200):
        env.step(0)  # into the wall
    assert "ep: 1, T: 1,200, G: 0, avg_r: 0, avg_G: 0, t: 1,200" in (
        capsys.readouterr().err
    )


def test_recorded_metrics_are_averaged_into_the_next_line(capsys):
    env = TrainMonitor(lake(max_episode_steps=3))
    for _ in range(3):
        env.reset()
        for _ in range(3):
            env.step(0)
            env.record_metrics({"loss": np.float32(env.T)})
    first, second, third = capsys.readouterr().err.splitlines()
    assert first.endswith("ms, loss: 1.5")  # 1 and 2: 3 comes after the end
    assert second.endswith("ms, loss: 4")  # 3, 4 and 5
    assert third.endswith("ms, loss: 7")
    with pytest.raises(TypeError, match="expected a mapping"):
        env.record_metrics([1.0])  # pyright: ignore[reportArgumentType]


def test_an_episode_that_is_left_counts_but_its_return_does_not(capsys):
    env = TrainMonitor(gymnasium.make("CartPole-v1"))
    env.reset()
    env.reset()
    env.step(0)
    env.step(1)
    env.reset()
    assert (env.ep, env.T, env.t, env.G, env.avg_G) == (2, 2, 0, 0.0, 0.0)
    assert "ep: 1, T: 2, G: 2, avg_r: 1, avg_G: 0, t: 2" in capsys.readouterr().err


def test_a_quiet_wrapper_counts_without_a_word(capsys):
    env = TrainMonitor(lake(), quiet=True)
    play(env, 5)
    assert env.ep == 5
    assert capsys.readouterr() == ("", "")


def test_the_wrapper_is_one_of_gymnasiums():
    env = TrainMonitor(lake(), quiet=True)
    with pytest.warns(UserWarning, match="different from the unwrapped"):
        check_env(env, skip_render_check=True)
    assert env.spec is not None
    again = gymnasium.make(env.spec)
    assert isinstance(again, TrainMonitor)
    assert again.quiet
    assert play(again, 3) == play(lake(), 3)


def row(step, seed=0, **more):
    return {"T": step, "seed": seed, "ep": 1, "G": 2.0, "t": 3, "avg_G": 2.0} | more


def terminal(monkeypatch, **options):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    file = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    console = Console(file=file, force_terminal=True, width=80, height=30, **options)
    return console, lambda: file.buffer.getvalue().decode()


def explained(*steps):
    """The lines of a new run with rows at these steps."""
    legend = f"{HEAD} {LEGEND}\n" if steps else ""
    return legend + "".join(map(plain_row, steps))


def make_monitor(total_steps, seeds, *, log_path=None, start=0, **keywords):
    shown = Monitor(**keywords)
    shown.begin(total_steps, seeds, log_path=log_path, start=start)
    return shown


def plain_row(step):
    return f"[TrainMonitor|INFO] ep: 1, T: {step}, G: 2, avg_G: 2, t: 3\n"


def test_in_a_pipe_there_is_a_plain_line_for_each_log_point(tmp_path, capsys):
    log = tmp_path / "log.txt"
    with make_monitor(100, [0], title="dqn", log_path=log) as shown:
        shown.update([row(10)], 10)
        shown.update([], 15)
        shown.message("seed 0 is frozen")
    text = explained(10) + "[TrainMonitor|INFO] seed 0 is frozen\n"
    assert capsys.readouterr() == ("", text)
    assert log.read_text() == text


def test_a_resumed_run_goes_on_in_its_log(tmp_path, capsys):
    for start, T in [(0, 10), (10, 20)]:
        log = tmp_path / "log.txt"
        with make_monitor(100, [0], title="dqn", log_path=log, start=start) as shown:
            shown.update([row(T)], T)
    assert (tmp_path / "log.txt").read_text() == explained(10, 20)


def test_a_long_line_is_not_broken(capsys):
    with make_monitor(100, [0], title="dqn") as shown:
        shown.update([row(10) | {f"metric_{i}": 0.5 for i in range(50)}], 10)
    assert len(capsys.readouterr().err.splitlines()) == 2  # the legend and the row


def test_a_quiet_monitor_prints_warnings(tmp_path, capsys):
    log = tmp_path / "log.txt"
    with make_monitor(9, [0], title="a", quiet=True, log_path=log) as shown:
        shown.message("a message")
        shown.warn("a warning")
    assert capsys.readouterr().err == f"{HEAD} a warning\n"
    assert log.read_text() == f"{HEAD} a message\n{HEAD} a warning\n"


def test_a_quiet_monitor_writes_its_log_only(tmp_path, capsys, monkeypatch):
    console, written = terminal(monkeypatch)
    log = tmp_path / "log.txt"
    for where in (None, console):
        with make_monitor(
            9, [0], title="a", quiet=True, log_path=log, console=where
        ) as shown:
            shown.update([row(10)], 10)
            shown.message("hello")
    assert capsys.readouterr() == ("", "")
    assert written() == ""
    assert log.read_text().count("hello") == 2


@pytest.mark.parametrize("name", ["CI", "TERM"])
def test_a_terminal_nobody_watches_gets_plain_lines(monkeypatch, name):
    console, written = terminal(monkeypatch)
    monkeypatch.setenv(name, "dumb")
    with make_monitor(100, [0], title="dqn", console=console) as shown:
        shown.update([row(10)], 10)
    assert written() == explained(10)


def test_colour_that_is_forced_makes_no_terminal_of_a_pipe(monkeypatch, capsys):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with make_monitor(100, [0], title="dqn") as shown:
        shown.update([row(10)], 10)
    assert capsys.readouterr().err == explained(10)


def test_a_terminal_shows_the_panel_and_gets_its_cursor_back(tmp_path, monkeypatch):
    console, written = terminal(monkeypatch)
    log = tmp_path / "log.txt"

    def interrupted():
        with make_monitor(
            100, [0], title="dqn", console=console, log_path=log
        ) as shown:
            assert written().count("\x1b[?25l") == 1  # hidden
            shown.update([row(10)], 10)
            shown.message("a [red] word")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert written().count("\x1b[?25h") == 1  # shown again
    assert "a [red] word\r\n" in written().replace("\n", "\r\n")
    assert "10 of 100 steps" in written()
    assert "TrainMonitor" not in written()
    assert log.read_text() == explained(10) + "[TrainMonitor|INFO] a [red] word\n"


def test_looking_takes_a_hundredth_of_the_time_at_most(monkeypatch):
    console, _ = terminal(monkeypatch)
    now, looks = [0.0], []
    monkeypatch.setattr(monitors.time, "perf_counter", lambda: now[0])
    shown = make_monitor(100_000, [0], title="dqn", console=console)
    with shown:

        def slow(console):
            looks.append(now[0])
            now[0] += 0.05
            return ""

        monkeypatch.setattr(shown._panel, "draw", slow)
        for step in range(10_000):
            now[0] += 0.01
            shown.update([], step)
        assert 0.05 * len(looks) <= 0.01 * now[0]
        assert len(looks) >= 15


def redrawn(monkeypatch):
    """Makes the thread of a monitor redraw at every look."""
    monkeypatch.setattr(monitors, "TICK", 0.01)
    for name in ("IDLE", "PERIOD", "SHARE"):
        monkeypatch.setattr(monitors, name, 0.0)


def wait_for(condition):
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


def test_the_clock_and_the_phase_move_while_the_caller_is_busy(monkeypatch):
    redrawn(monkeypatch)
    console, written = terminal(monkeypatch)
    with Monitor(title="dqn", console=console, hint="Ctrl-C stops") as shown:
        wait_for(lambda: "Ctrl-C stops" in written())  # there is nothing to save yet
        for phase in ("loading JAX", "tracing", "compiling"):
            shown.set_phase(phase)
            wait_for(lambda phase=phase: f"{phase} …" in written())
        shown.begin(100, [0])
        wait_for(lambda: "0 of 100 steps" in written())
        wait_for(lambda: "Ctrl-C saves and stops" in written())
        shown._panel._start -= 3600  # an hour ago
        wait_for(lambda: "1:00:00 elapsed" in written())


def test_a_request_to_stop_is_shown_at_once(monkeypatch, tmp_path):
    redrawn(monkeypatch)
    console, written = terminal(monkeypatch)
    requested = threading.Event()
    log = tmp_path / "log.txt"
    with Monitor(title="dqn", console=console) as shown:
        shown.begin(9, [0], log_path=log, is_stop_requested=requested.is_set)
        assert "stopping" not in written()
        requested.set()
        wait_for(lambda: "stopping: writing a checkpoint …" in written())
    wait_for(lambda: log.read_text() == f"{HEAD} stopping: writing a checkpoint …\n")


def test_a_request_to_stop_is_a_line_where_there_is_no_terminal(monkeypatch, capsys):
    redrawn(monkeypatch)
    with make_monitor(9, [0], title="dqn") as shown:
        shown.begin(9, [0], is_stop_requested=lambda: True)
        wait_for(lambda: shown._panel.is_stopping)
    assert capsys.readouterr().err == f"{HEAD} stopping: writing a checkpoint …\n"


def test_a_run_that_never_begins_leaves_no_panel_behind(monkeypatch):
    console, written = terminal(monkeypatch)

    def refused():
        with Monitor(title="dqn", console=console):
            raise RlcliError("a typo")

    with pytest.raises(RlcliError):
        refused()
    assert written().endswith("\x1b[2K")  # the last line of the panel is erased


def test_a_note_is_no_line_of_the_log(tmp_path, monkeypatch, capsys):
    console, written = terminal(monkeypatch)
    log = tmp_path / "log.txt"
    with make_monitor(9, [0], title="dqn", log_path=log) as shown:
        shown.note("it is finished")
    with make_monitor(9, [0], title="dqn", log_path=log, console=console) as shown:
        shown.note("it is finished")
    assert capsys.readouterr().err == "it is finished\n"
    assert "it is finished" in written()
    assert log.read_text() == ""


def test_without_colour_the_panel_has_no_colour(monkeypatch):
    for no_color in (True, False):
        console, written = terminal(
            monkeypatch, no_color=no_color, color_system="truecolor"
        )
        with make_monitor(9, [0], title="dqn", console=console) as shown:
            shown.update([row(1), row(2)], 2)
        has_colour = re.search(r"\x1b\[(?:\d+;)*3\d", written()) is not None
        assert has_colour is not no_color


def test_output_of_others_stays_where_they_put_it(monkeypatch, capsys):
    console, written = terminal(monkeypatch)
    with make_monitor(100, [0], title="dqn", console=console):
        print("data")
    assert capsys.readouterr().out == "data\n"
    assert "data" not in written()
    assert sys.stdout.isatty() is False


def test_a_log_point_costs_microseconds():
    console = Console(file=io.StringIO())
    with make_monitor(
        10**6, range(8), title="dqn", console=console, quiet=True
    ) as shown:
        rows = [row(10, seed, loss=0.5, q=1.0) for seed in range(8)]
        start = time.perf_counter()
        for step in range(200):
            shown.update(rows, step)
        assert (time.perf_counter() - start) / 200 < 0.002
