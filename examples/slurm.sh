#!/usr/bin/env bash
# A suite on a Slurm cluster: one Ray node on each machine of the job, and the run on the first of them.
#
#     sbatch --nodes=4 examples/slurm.sh xai-tris-64x64-paper /shared/runs/xai-tris-64x64-paper
#
# The second argument is a folder that all machines reach (or give XAIBENCH_STORE=s3://bucket/run beside a local one).
# When the time is up, submit the same line again: what is finished is kept.
#SBATCH --job-name=xaibench
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00
##SBATCH --gpus-per-node=1
set -euo pipefail

suite=${1:?suite}
out=${2:?run folder that all machines reach}
port=6379
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | awk '{print $1}'):$port
cpus=${SLURM_CPUS_PER_TASK:-1}
gpus=${SLURM_GPUS_ON_NODE:-0}
# One thread for each job; the cores are used by jobs side by side.
export OMP_NUM_THREADS=1 RAY_USAGE_STATS_ENABLED=0

srun --nodes=1 --ntasks=1 --nodelist="$head" \
  ray start --head --port="$port" --num-cpus="$cpus" --num-gpus="$gpus" --include-dashboard=false --block &
until ray status --address="$address" >/dev/null 2>&1; do sleep 2; done
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
  srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks=$((SLURM_JOB_NUM_NODES - 1)) --exclude="$head" \
    ray start --address="$address" --num-cpus="$cpus" --num-gpus="$gpus" --block &
fi

# The script itself runs on the first machine of the job, which is the head: "auto" finds its node.
xaibench run "$suite" --out "$out" ${XAIBENCH_STORE:+--store "$XAIBENCH_STORE"} --engine ray --address auto
