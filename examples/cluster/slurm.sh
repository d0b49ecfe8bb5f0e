#!/bin/bash
#SBATCH --job-name=ppo
#SBATCH --time=04:00:00
#SBATCH --cpus-per-task=4
#SBATCH --requeue
#SBATCH --signal=B:TERM@60
# Trains one run over as many jobs as it needs: sbatch slurm.sh ppo_cartpole runs/ppo

recipe=$1 run=$2
if [ -e "$run/run.json" ]; then
    rlcli resume "$run" --max-time 3h50m &
else
    rlcli train "$recipe" --run "$run" --max-time 3h50m &
fi
process=$!
trap 'kill -TERM $process' TERM # SLURM signals the shell only
wait $process
code=$?
while kill -0 $process 2>/dev/null; do # the trap has ended `wait`: rlcli is saving
    wait $process
    code=$?
done
case $code in
75 | 143) scontrol requeue "$SLURM_JOB_ID" ;; # out of time, or preempted
esac
exit $code
