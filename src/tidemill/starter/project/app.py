"""Orders come as CSV files; good ones are published by day, and revenue is reported for each day that changed."""

import tidemill as tm

app = tm.App("shop")

# Other systems write files here. A file that cannot be read is retried, then quarantined; it blocks no other file.
orders = app.inbox("orders", "data/inbox/", schema="id long, amount double, ordered_at timestamp")

# Each run publishes to these in one transaction.
clean = app.fileset("orders_clean", keys={"day": "date"})
revenue = app.fileset("revenue", keys={"day": "date"})


@app.spark(reads=[orders], writes=[clean], retries=2)
def load(run, spark):
    """Publish the good rows of the files that arrived; no other run gets these files."""
    rows = run.input(orders).read()
    run.output(clean).append(rows.where("amount > 0").selectExpr("*", "to_date(ordered_at) AS day"))


@app.spark(reads=[clean], writes=[revenue])
def report(run, spark):
    """Add up each day of which rows have come since the last report."""
    days = ", ".join(f"DATE '{partition['day']}'" for partition in run.input(clean).partitions)
    of_days = run.read(clean).where(f"day IN ({days})")
    run.output(revenue).overwrite(of_days.groupBy("day").agg({"amount": "sum"}).toDF("day", "revenue"))


app.schedule("on_orders", load, trigger=tm.NewFiles(orders))
app.schedule("on_clean", report, trigger=tm.NewPartitions(clean))
