#!/usr/bin/env bash
# pyarrow 25.0.1: `==` takes 0.0 and -0.0 for one value, and so does pc.mode. Everything that hashes takes them for two: is_in, unique,
# value_counts, dictionary_encode, group_by and join. NaN is the other way round: never equal to itself, but one value, one group and a
# match of a join.
# So the filter ("k", "==", 0.0) reads two rows of a file from which ("k", "in", [0.0]) reads one.
# Guess: both zeros are one value everywhere, as NumPy's unique and pandas' groupby have it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action=ignore --target "$folder/packages" pyarrow==25.0.1
cat >"$folder/run.py" <<'PY'
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

path = sys.argv[1] + "/zeros.parquet"
zeros = pa.table({"k": [0.0, -0.0, 1.0]})
pq.write_table(zeros, path)
nans = pa.table({"k": [float("nan"), float("nan")]})


def joined(left: float, right: float) -> int:
    return pa.table({"k": [left]}).join(pa.table({"k": [right]}), keys="k", join_type="inner").num_rows


print("equal", pc.equal(0.0, -0.0), "is_in", pc.is_in(pa.array([0.0]), value_set=pa.array([-0.0]))[0])
print("mode", pc.mode(zeros["k"])[0]["count"], "distinct", pc.count_distinct(zeros["k"]))
print("rows ==", pq.read_table(path, filters=[("k", "==", 0.0)]).num_rows, "in", pq.read_table(path, filters=[("k", "in", [0.0])]).num_rows)
print("groups", zeros.group_by("k").aggregate([]).num_rows, "of NaN", nans.group_by("k").aggregate([]).num_rows)
print("joined", joined(0.0, -0.0), "NaN", joined(float("nan"), float("nan")))
PY
PYTHONPATH=$folder/packages python3 "$folder/run.py" "$folder" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
equal True is_in False
mode 2 distinct 3
rows == 2 in 1
groups 3 of NaN 1
joined 0 NaN 1
SEEN
