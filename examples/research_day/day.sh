#!/usr/bin/env bash
# A day of research: train a study, lose it, resume it, compare its variants, read the
# results in a notebook, and continue in another folder. Run it in a copy of this folder.
set -euo pipefail

rlcli check reach.yaml

# Five seeds of three variants. The machine goes down in the middle of it: the study and
# the processes of its variants are killed after the first checkpoint.
rlcli study day.yaml --run runs/day --quiet &
study=$!
until compgen -G "runs/day/*/checkpoints.json" >/dev/null; do
    kill -0 $study
    sleep 0.1
done
kill -KILL $study $(pgrep -P $study)
wait $study || true

rlcli resume runs/day --quiet
rlcli runs runs/day

# Which variant succeeds more often? A table for the paper, and a figure.
rlcli compare runs/day --y evaluation.success
rlcli compare runs/day --y evaluation.success --output success.tex
rlcli compare runs/day --y evaluation.success --output success.csv
rlcli compare runs/day --y evaluation.success --output success.pdf
rlcli plot runs/day --output returns.svg
python execute.py results.ipynb

# The folder gets its final name, and the best variant more steps.
folder=$PWD
mv "$folder" "$folder-paper"
cd "$folder-paper"
rlcli resume runs/day/attention --set train.steps=5_120 --quiet
