"""Board: a local web page about runs and studies, live while they train.

Belongs here: the server of the page, and what it sends. It only reads.
May import: results, `results.report`, runs, recipe, and the ground; no JAX.

`run_index` knows the runs below folders, and which have changed. `live_series` reads
their metrics where they continue. `page_parts` makes the parts of the document that the
page of `results.report` draws, and `app` answers requests with them, of a user who
knows the token in the link.
"""
