#!/bin/sh
# Adds the numbers from 1 to n. A job whose n is a multiple of 10 fails for good.
read -r args
n=${args#*:}
n=${n%\}}
if [ $((n % 10)) -eq 0 ]; then
	echo "refused: $n is a multiple of 10" >&2
	exit 65
fi
echo "$n $((n * (n + 1) / 2))"
