"""Episode views: which episodes a report has, with their captions and charts."""

import base64
import io
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rlcli.environments.rgb_image import to_rgb
from rlcli.errors import RlcliError
from rlcli.results.groups import Group, Member
from rlcli.results.report import episode_views, frame_sheet
from rlcli.results.report.replayed_episodes import (
    EpisodeOptions,
    EpisodeRecording,
    SeedResult,
    choose_extremes,
)


def result(returns, seed=0, replayable=None, run="runs/a"):
    returns = np.array(returns, float)
    places = range(len(returns)) if replayable is None else replayable
    return SeedResult(run, seed, returns, np.full(len(returns), 9), places, False)


def replay(steps=4, **fields):
    values = {
        **{"run": "runs/a", "seed": 0, "length": steps, "rewards": np.ones(steps)},
        **{"actions": np.zeros((steps, 1)), "has_ended": True, "has_terminated": True},
        **{"values": None, "action_values": None, "probabilities": None},
        **{"discounted": None, "frames": None, "reasons": [], "first_action": 0},
    }
    return EpisodeRecording(**values | fields)


def view(episode, expected=4.0):
    return episode_views.view_episode("Best episode", episode, result([expected]), 0)


def test_the_best_and_the_worst_are_those_of_all_seeds():
    first, second = result([3, 9, 4]), result([5, 1, 2], seed=1)
    assert choose_extremes([first, second]) == [
        ("Best episode", first, 1),
        ("Worst episode", second, 1),
    ]


def test_equal_episodes_are_shown_once():
    only = result([7, 7])
    assert choose_extremes([only]) == [("An episode", only, 0)]


def test_only_episodes_that_can_be_replayed_are_shown():
    some = result([1, 9, 5, 0, 3, 9], replayable=[0, 2, 4])
    assert [place for _, _, place in choose_extremes([some])] == [1, 0]


def test_episodes_with_a_return_that_is_not_finite_are_not_shown():
    assert choose_extremes([result([np.nan, np.inf])]) == []


def test_the_caption_has_the_return_steps_seed_and_run():
    found = view(replay())
    assert found.caption == (
        "Return 4 in 4 steps, terminated; seed 0 of runs/a, episode 1."
    )
    assert found.notes == []


def test_a_replay_that_differs_from_the_evaluation_has_a_note():
    (note,) = view(replay(), expected=5.0).notes
    assert note.startswith(
        "The replayed episode has the return 4, the evaluation had 5"
    )


def test_the_caption_of_a_cut_replay_has_its_steps_and_no_end():
    found = view(replay(length=9_000, has_ended=False), expected=9_000)
    assert found.caption == (
        "Return 4 in the first 4 of 9,000 steps; seed 0 of runs/a, episode 1."
    )
    assert found.notes == []


def test_a_replay_longer_than_the_evaluated_episode_has_a_note():
    found = view(replay(length=3, has_ended=False), expected=3)
    assert found.caption.startswith("Return 4 in the first 4 steps; ")
    assert "the evaluation had 3 in 3 steps" in found.notes[0]


def test_histograms_of_one_environment_have_equal_intervals(monkeypatch):
    returns = {"a": [3, 9], "b": [100, 120], "c": [-7, -5]}
    groups = [
        Group(name, [Member(Path(name), {}, {"environment": environment})])
        for name, environment in zip("abc", ("One", "One", "Two"), strict=True)
    ]
    monkeypatch.setattr(
        episode_views,
        "evaluate_group",
        lambda group, *_: [result(returns[group.label])],
    )
    monkeypatch.setattr(episode_views, "_view_extremes", lambda *_: [])
    found = episode_views.describe_episodes(
        groups, EpisodeOptions(2, 0, False, False), [], lambda phase: None
    )
    ends = [
        (each.returns.blocks[0]["x"][0], each.returns.blocks[0]["x2"][-1])
        for each in found
    ]
    assert ends == [(3, 120), (3, 120), (-7, -5)]
    assert [each.label for each in found] == ["a in One", "b in One", "c in Two"]


def test_an_episode_that_cannot_be_replayed_has_a_note(monkeypatch):
    def fail(*arguments):
        raise RlcliError("`mine/Env` cannot be made")

    monkeypatch.setattr(episode_views, "evaluate_group", lambda *_: [result([3, 9])])
    monkeypatch.setattr(episode_views, "replay_episode", fail)
    notes = []
    (found,) = episode_views.describe_episodes(
        [Group("a", [Member(Path("a"), {}, {})])],
        EpisodeOptions(2, 0, False, False),
        notes,
        lambda phase: None,
    )
    assert found.summary.startswith("Mean 6") and found.episodes == []
    assert {*notes} == {
        "no episode of `runs/a` can be replayed: `mine/Env` cannot be made"
    }


def test_estimates_that_a_policy_lacks_are_named_in_one_note():
    found = view(replay(reasons=["it has no value", "it has no distribution"]))
    assert found.notes == ["Not shown: it has no value; it has no distribution"]


def test_value_estimates_are_drawn_with_the_discounted_return():
    episode = replay(
        values=np.array([3.0, 2, 1, 0]), discounted=np.array([4.0, 3, 2, 1])
    )
    chart = view(episode).charts[0]
    assert chart.title == "Value estimates"
    assert [block["y"] for block in chart.blocks] == [[3, 2, 1, 0], [4, 3, 2, 1]]
    truncated = view(episode._replace(has_terminated=False)).charts[0]
    assert "truncated" in truncated.note


def test_advantages_leave_out_illegal_actions():
    values = np.array([[1.0, 3.0, -1e9]] * 4)
    (chart, _) = view(replay(action_values=values)).charts
    assert [block["y"][0] for block in chart.blocks] == [-2, 0, None]


def test_a_step_without_legal_actions_has_no_advantages():
    values = np.array([[1.0, 3.0], [-1e9, -1e9], [2.0, 1.0], [0.0, 0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (chart, _) = view(replay(action_values=values)).charts
    assert [block["y"][1] for block in chart.blocks] == [None, None]


def test_probabilities_are_shown_instead_of_actions():
    shares = np.array([[0.25, 0.75]] * 4)
    (chart,) = view(replay(probabilities=shares)).charts
    assert chart.title == "Action probabilities"
    assert chart.blocks[0]["p1"] == [0.75] * 4
    (chart,) = view(replay()).charts
    assert chart.title == "Actions"


def test_long_episodes_show_every_nth_step():
    chart = view(replay(2_000), expected=2_000).charts[0]
    assert chart.blocks[0]["x"][:3] == [0, 5, 10]
    assert chart.note == "One of 5 steps is shown."


class Painter:
    """Draws a colour for each call."""

    def __init__(self, shape=(40, 60, 3), error=None):
        self.calls, self.shape, self.error = 0, shape, error

    def render(self):
        self.calls += 1
        if self.error:
            raise self.error
        return np.full(self.shape, self.calls * 2 % 256, np.uint8)


def film_of(painter, steps, expected=None):
    def draw():
        return to_rgb(painter.render(), "environment `mine`")

    maker = frame_sheet.FrameSheetMaker(draw, expected or steps)
    for step in range(steps):
        maker.add(step)
    maker.add(steps, is_last=True)
    return maker.finish()


def test_a_film_has_its_frames_in_rows():
    film, reason = film_of(Painter(), 24)
    assert (reason, film.every, film.columns) == ("", 1, 10)
    assert [*film.steps] == [*range(25)]
    assert (film.width, film.height) == (120, 80)  # enlarged by an integer
    data = base64.b64decode(film.image.partition("base64,")[2])
    sheet = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), int)
    assert sheet.shape == (3 * 80, 10 * 120, 3)
    for frame in (0, 9, 10, 24):
        row, column = divmod(frame, 10)
        pixel = sheet[row * 80 + 40, column * 120 + 60]
        assert abs(pixel - 2 * (frame + 1)).max() <= 3


@pytest.mark.slow
def test_a_long_film_has_few_frames_and_the_last_one():
    painter = Painter((400, 600, 3))
    film, _ = film_of(painter, 1_000)
    assert painter.calls == len(film.steps) <= frame_sheet.MAX_FRAMES
    assert (film.every, film.steps[-1]) == (9, 1_000)
    assert (film.width, film.height) == (300, 200)


def test_frames_of_several_sizes_are_centred_in_the_largest():
    class Grows(Painter):
        def render(self):
            self.shape = (200 + 20 * self.calls, 300, 3)
            return super().render()

    film, reason = film_of(Grows(), 2)
    assert (reason, film.width, film.height) == ("", 300, 240)
    data = base64.b64decode(film.image.partition("base64,")[2])
    sheet = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), int)
    assert sheet.shape == (240, 900, 3)
    assert np.all(sheet[10, :300] == 0) and np.all(sheet[30, :300] == 2)


def test_a_replay_longer_than_expected_drops_every_second_frame():
    film, _ = film_of(Painter(), 300, expected=5)
    assert [*film.steps] == [*range(0, 300, 4), 300]
    assert film.every == 4
    film, _ = film_of(Painter(), 120, expected=5)
    assert [*film.steps] == [*range(0, 121, 2)]


@pytest.mark.parametrize("shape", [(40, 60), (40, 60, 1), (40, 60, 4)])
def test_grey_and_transparent_images_are_drawn(shape):
    film, reason = film_of(Painter(shape), 5)
    assert (reason, len(film.steps), film.width) == ("", 6, 120)


@pytest.mark.parametrize(
    ("paper", "is_drawing"), [(255, True), (235, True), (90, False)]
)
def test_a_film_on_white_paper_is_a_drawing(paper, is_drawing):
    """The page makes it dark in its dark theme, unlike photographs."""
    image = np.full((40, 60, 3), paper, np.uint8)
    image[:20, :20] = 0
    maker = frame_sheet.FrameSheetMaker(lambda: image, 1)
    maker.add(0)
    film, _ = maker.finish()
    assert film.is_drawing is is_drawing


@pytest.mark.parametrize(
    ("painter", "reason"),
    [
        (
            Painter(error=RuntimeError("no display")),
            "the environment cannot be drawn: no display",
        ),
        (
            Painter((6, 4, 5)),
            "environment `mine`: `render` returned an array of shape (6, 4, 5), not "
            "an image",
        ),
    ],
)
def test_an_environment_without_images_has_no_film_but_a_reason(painter, reason):
    film, found = film_of(painter, 5)
    assert film is None
    assert found == reason
    assert painter.calls == 1


def test_frames_that_cannot_be_encoded_are_no_film_but_a_reason(monkeypatch):
    def fail(image):
        raise ValueError("too large")

    monkeypatch.setattr(frame_sheet, "encode_image", fail)
    assert film_of(Painter(), 5) == (None, "the frames cannot be encoded: too large")


def test_frames_have_their_step_return_and_action():
    sheet = frame_sheet.FrameSheet("data:", 1, 1, 1, [0, 2, 4], 2, True)
    found = view(replay(actions=np.array([[0], [1], [0], [1]]), frames=sheet))
    assert found.film.captions == [
        "step 0 · return 0 · action 0",
        "step 2 · return 2 · action 0",
        "step 4 · return 4",
    ]
