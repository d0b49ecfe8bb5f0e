"""Report: a page with the results of runs, in one HTML file.

Belongs here: the parts of the page, its charts, template, style and script.
May import: results, evaluation, runs, recipe, trackers, and the ground.
Only `episode_views`, `replayed_episodes` and `update_views` import JAX.

`charts` makes Vega-Lite specifications of plain data. They are part of the document,
which is JSON in the page: `page.js` draws it, with the script of Vega-Lite from the
extra `report`. The content security policy of the page allows these scripts and
`page.css`, by their hashes, and nothing from a network.
"""
