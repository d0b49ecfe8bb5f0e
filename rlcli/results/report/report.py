"""Report: a page with the results of runs; the function behind `rlcli report`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError
from rlcli.registry.libraries import require_extra
from rlcli.registry.paths import enter, resolves
from rlcli.results.checks import check_choice, check_threshold
from rlcli.results.groups import Member, find_members, group_members
from rlcli.results.plot import CENTERS
from rlcli.runs.files import check_output
from rlcli.runs.run_folder import Run
from rlcli.runs.study_record import find_study

FILE_NAME = "report.html"


@resolves("runs", new=("output",))
def report(
    runs: str | Path | Sequence[str | Path],
    *,
    output: str | Path | None = None,
    y: str | None = None,
    threshold: float | None = None,
    center: str = "mean",
    group: str | None = None,
    filter: Sequence[str] = (),
    tag: Sequence[str] = (),
    episodes: int = 50,
    inspect: bool = False,
    best: bool = False,
    seed: int = 0,
    trust: bool | None = None,
    report_phase: Callable[[str], None] = lambda phase: None,
) -> Path:
    """Writes a page about runs, one HTML file without references, and returns its path.

    The page contains results with intervals over seeds, learning curves, episodes with
    value estimates and action probabilities, the metrics of updaters, recipes, what
    differs between the runs, and their provenance. Requires the extra `report`.

    Args:
        runs: run folders, or folders with runs.
        output: the `.html` file; by default `report.html`, in the folder of the run if
            there is a single one.
        y: the metric of the results and of the learning curves, as in `rlcli.plot`.
        threshold: a value of y: when it is reached, and a line in the chart.
        center: `mean` or `iqm` over seeds.
        group: what the runs of a group have in common, as in `rlcli.plot`.
        filter: only runs with this `KEY=VALUE`, as for `rlcli.runs`.
        tag: only runs with all these tags.
        episodes: the number of episodes of each seed; with 0 no policy is loaded, and
            JAX is not imported.
        inspect: adds the next update of the newest run of each group, as shown by
            `rlcli.inspect`.
        best: uses the policy of each seed's best evaluation instead of the latest.
        seed: random seed of the episodes.
        trust: whether recipes of runs may import code from outside rlcli and plug-ins.
            By default those of your own runs may, see `rlcli.trust`.
        report_phase: called with a description of each phase as it begins.
    """
    check_choice("center", center, CENTERS)
    check_threshold(threshold)
    if episodes < 0:
        raise RlcliError(f"`episodes` cannot be {episodes}", "pass 0 or more")
    require_extra("report", "a report")
    notes: list[str] = []
    members = find_members(runs, notes, filter, tag)
    folder = members[0].folder if len(members) == 1 else Path()
    target = enter(folder / FILE_NAME if output is None else output)
    check_output(target, "a page", (".html", ".htm"))
    if (episodes or inspect) and not trust:
        _refuse_imports(members, trust)
    groups = group_members(members, group)
    from rlcli.results.report import learning, page  # here: import NumPy

    report_phase("reading metrics")
    metrics = learning.MetricOptions(y, center, threshold)
    results = learning.describe_learning(groups, metrics, notes)
    views: Sequence[Any] = ()
    if episodes:
        from rlcli.results.report import episode_views  # here: imports JAX

        evaluation = episode_views.EpisodeOptions(episodes, seed, best, trust)
        views = episode_views.describe_episodes(groups, evaluation, notes, report_phase)
    updates: Sequence[Any] = ()
    if inspect:
        from rlcli.results.report import update_views  # here: imports JAX

        updates = update_views.describe_updates(groups, trust, notes, report_phase)
    report_phase("writing the page")
    claims = _read_claims(members)
    content = page.make_content(groups, center, notes, results, views, updates, claims)
    page.write_page(target, content)
    return target


def _read_claims(members: Sequence[Member]) -> list[str]:
    """A sentence for each claim of the studies of runs that have a test."""
    from rlcli.results.claims import describe_claims  # here: imports NumPy

    folders = dict.fromkeys(member.cell[0] for member in members if member.cell)
    studies = [study for each in folders if (study := find_study(each))]
    return [sentence for study in studies for sentence in describe_claims(study)]


def _refuse_imports(members: Sequence[Member], trust: bool | None) -> None:
    """Refuses runs whose recipes import code that is not trusted: before any work."""
    for member in members:
        imports = member.info.get("imports")
        if imports and (trust is False or Run(member.folder).needs_trust("eval")):
            raise RlcliError(
                f"the recipe of run `{member.folder}` imports code: "
                + ", ".join(f"`{each}`" for each in imports),
                "allow it with `--trust`, or leave out episodes with `--episodes 0`",
            )
