#!/bin/sh
# Enqueues jobs, works until none is left, and says what became of them.
#
#	./run.sh [DATABASE [JOBS]]
set -eu
cd "$(dirname "$0")"
db=${1:-sums.db}
jobs=${2:-100}

seq "$jobs" | sed 's/.*/{"n":&}/' | errand jobs enqueue "$db" --create --kind sum --stdin

# 0: all done; 3: some are held; 4: some have died.
status=0
errand work "$db" --kind sum --concurrency 8 --until-empty -- ./sum.sh >"$db.sums" || status=$?
case $status in
0) echo "all sums are in $db.sums" ;;
4) echo "sums are in $db.sums; some jobs have died, which this example is made for" ;;
*) exit "$status" ;;
esac
