"""Report: a page with the results of runs, in one HTML file.

Belongs here: the parts of the page, its charts, template, style and script.
May import: results, evaluation, runs, recipe, trackers, and the ground.
Only the module `episodes` imports JAX.
"""
