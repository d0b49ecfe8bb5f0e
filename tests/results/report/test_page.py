"""The page shows text of others, which can neither reorder nor hide text."""

import json

from rlcli.results.report import page


def test_labels_of_charts_cannot_reorder_text():
    spec = {"a\u202e": [{"label": "run\u202egnp", "y": 1.5}], "title": ("x\u2066",)}
    shown = json.dumps(page._to_labels(spec), ensure_ascii=False)
    assert not {"\u202e", "\u2066"} & {*shown}
    assert page._to_labels({"y": [1, None, True, "steps"]}) == {
        "y": [1, None, True, "steps"]
    }
