"""Which carriers are late, and when? The flights topic in Spark, from a snapshot.

A notebook: each `# %%` begins a cell. It needs Quafka with the extra `spark` (docs/install.md),
matplotlib, Java, and a snapshot of a broker with the flights of docs/tutorials/flights.md:

    quafka snapshot create ./lake --data ./quafka-data
    python docs/examples/flights.py ./lake delays.png
"""

# %% Plain Spark: no jar, nothing to register.
from __future__ import annotations

import os
import sys
from math import isnan, nan

import matplotlib.pyplot as plt
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from pyspark_quafka import json_values, views

LAKE, PICTURE = sys.argv[1:3]
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.appName("flights").getOrCreate()

# %% Every topic of the latest snapshot is a view.
print(views(spark, LAKE))
spark.sql("select count(*), min(timestamp), max(timestamp) from flights").show(truncate=False)

# %% The values are JSON; their schema is inferred unless it is given.
SCHEMA = "carrier string, hour int, dep_delay int, origin string"
flights = json_values(spark.table("flights"), SCHEMA).select("value.*")
flights.createOrReplaceTempView("departures")
flights.show(5)

# %% The average delay at departure, by carrier and hour of the day.
delays: DataFrame = spark.sql(
    """
    select carrier, hour, count(*) as flights, avg(dep_delay) as delay
    from departures
    where dep_delay is not null
    group by carrier, hour
    """
)
rows = delays.collect()

# %% The same as a picture: the ten carriers with the most flights.
flown: dict[str, int] = {}
for row in rows:
    flown[row.carrier] = flown.get(row.carrier, 0) + row.flights
carriers = sorted(flown, key=lambda carrier: -flown[carrier])[:10]
hours = range(5, 24)
delay = {(row.carrier, row.hour): row.delay for row in rows if row.flights >= 20}
grid = [[delay.get((carrier, hour), nan) for hour in hours] for carrier in carriers]

figure, axes = plt.subplots(figsize=(10, 4.5), layout="constrained")
image = axes.imshow(grid, cmap="YlOrRd", vmin=0, vmax=50, aspect="auto")
axes.set_yticks(range(len(carriers)), carriers)
axes.set_xticks(range(len(hours)), [f"{hour}:00" for hour in hours], rotation=45, ha="right")
axes.set_xlabel("scheduled departure")
axes.set_ylabel("carrier")
axes.set_title("Average delay at departure, New York 2013")
figure.colorbar(image, label="minutes")
for y, line in enumerate(grid):
    for x, minutes in enumerate(line):
        if not isnan(minutes):  # too few flights
            color = "white" if minutes > 32 else "black"
            axes.text(x, y, f"{round(minutes)}", ha="center", va="center", fontsize=7, color=color)
figure.savefig(PICTURE, dpi=130)

# %% As a table: the worst hours.
delays.where(F.col("flights") >= 100).orderBy(F.desc("delay")).show(10)
