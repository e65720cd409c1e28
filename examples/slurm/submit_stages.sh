#!/bin/bash
#
# Submit search, features, prediction and report of many proteins as Slurm jobs that wait for each other.
#
#   QUERIES=all.fasta DB=uniref50 PARAMS=params OUT=out SHARDS=64 examples/slurm/submit_stages.sh
#
# For a database from `foldcli createdb --split 4`, each part is searched on a node of its own:
#
#   QUERIES=all.fasta DB=uniref50 PARTS=4 SHARDS=64 examples/slurm/submit_stages.sh
#
# The options of each stage's jobs can be replaced, for example to search on GPUs, and predictions get more arguments:
#
#   SEARCH_OPTIONS="--partition=gpu --gpus=1 --cpus-per-task=8 --mem=64G --time=4:00:00"
#   PREDICT_ARGUMENTS="--num-models 2 --num-recycle 6"

set -euo pipefail
# a failed sbatch within $(…) ends the script too
shopt -s inherit_errexit

stage=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/stage.sbatch
export QUERIES=${QUERIES:-queries.fasta} DB=${DB:-DB} PARAMS=${PARAMS:-params} OUT=${OUT:-out} WORK=${WORK:-work}
shards=${SHARDS:-16}
# the tasks take the number of shards from their array
unset SHARDS

read -ra search_options <<<"${SEARCH_OPTIONS:---cpus-per-task=32 --mem=64G --time=12:00:00}"
read -ra features_options <<<"${FEATURES_OPTIONS:---cpus-per-task=4 --mem=16G --time=2:00:00}"
read -ra predict_options <<<"${PREDICT_OPTIONS:---gpus=1 --cpus-per-task=8 --mem=48G --time=12:00:00}"
read -ra report_options <<<"${REPORT_OPTIONS:---cpus-per-task=1 --mem=4G --time=1:00:00}"

# Submit a stage and print the number of its job: NAME [OPTION...]
submit() {
    local name=$1 id
    shift
    id=$(sbatch --parsable --export=ALL --job-name="$name" "$@" "$stage" "$name")
    echo "${id%%;*}"
}

if [[ -n ${PARTS:-} ]]; then
    export PARTS
    parts=$(submit search-part "${search_options[@]}" --array="1-$PARTS")
    # the hits of all parts are needed
    search=$(submit merge-hits "${features_options[@]}" --dependency="afterok:$parts")
else
    search=$(submit search "${search_options[@]}" --array="1-$shards")
fi
# a failed target is listed in failures.jsonl and does not hold up the others, so these also follow failures
features=$(submit features "${features_options[@]}" --array="1-$shards" --dependency="afterany:$search")
predict=$(submit predict "${predict_options[@]}" --array="1-$shards" --dependency="afterany:$features")
report=$(submit report "${report_options[@]}" --dependency="afterany:$predict")
echo "submitted: search $search, features $features, predict $predict, report $report"
