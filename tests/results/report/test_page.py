"""The page shows text of others, which can neither reorder nor hide text."""

import json

from rlcli.registry.paths import enter
from rlcli.results.report import page
from rlcli.results.report.charts import LegendEntry


def test_the_document_cannot_reorder_text():
    spec = {"a\u202e": [{"label": "run\u202egnp", "y": 1.5}], "title": ("x\u2066",)}
    shown = json.dumps(page.to_plain(spec), ensure_ascii=False)
    assert not {"\u202e", "\u2066"} & {*shown}
    assert page.to_plain({"y": [1, None, True, "steps"]}) == {
        "y": [1, None, True, "steps"]
    }


def test_records_are_mappings_by_field():
    assert page.to_plain([LegendEntry("a", "red", (1, 2))]) == [
        {"label": "a", "color": "red", "dash": [1, 2]}
    ]


def test_a_page_names_paths_as_the_user_has_typed_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = enter("runs/base")
    shown = page.to_plain({"caption": f"seed 0 of {run}, episode 4", "name": str(run)})
    assert shown == {"caption": "seed 0 of runs/base, episode 4", "name": "runs/base"}
