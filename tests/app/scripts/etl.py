#!/usr/bin/env python
"""Nightly ETL of a small shop, as it ran by spark-submit for years. It knows nothing of Tidemill.

spark-submit etl.py --orders DIR --customers FILE --target DIR --day 2026-01-02 [--rate EUR=1.0 ...]
"""

import argparse
import json
import logging
import os
import re
import sys
from collections import namedtuple
from datetime import date, timedelta

from pyspark import StorageLevel
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from shop_common import LEVELS, level_of

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(levelname)s %(message)s")
log = logging.getLogger("etl")

APP_NAME = "shop-nightly-etl"
DEFAULT_RATES = {"EUR": 1.0, "USD": 0.5, "GBP": 1.25}
WEEK = timedelta(days=7)

ORDERS = StructType(
    [
        StructField("order_id", LongType()),
        StructField("customer", StringType()),
        StructField("amount", DoubleType()),
        StructField("currency", StringType()),
        StructField("note", StringType()),
    ]
)
CUSTOMERS = StructType(
    [
        StructField("customer", StringType()),
        StructField("country", StringType()),
        StructField("since", StringType()),
    ]
)

Report = namedtuple("Report", ["orders", "rejected", "customers", "revenue"])


class BadRate(Exception):
    """A rate on the command line that is none."""


def parse_rate(text):
    """Return the currency and the rate of `EUR=1.0`."""
    match = re.fullmatch(r"([A-Z]{3})=(\d+(?:\.\d+)?)", text)
    if match is None:
        raise BadRate(f"{text!r} is no rate")
    return match.group(1), float(match.group(2))


def parse_args(argv=None):
    """Read the command line, as for any script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", required=True, help="folder of the orders of all days")
    parser.add_argument("--customers", required=True, help="CSV file of customers")
    parser.add_argument("--target", required=True, help="folder of the results")
    parser.add_argument("--day", required=True, type=date.fromisoformat)
    parser.add_argument("--rate", action="append", default=[], type=parse_rate)
    parser.add_argument("--strict", choices=["true", "false"], default="false")
    return parser.parse_args(argv)


def build_session():
    """Build the session that this script owns, or thinks it owns."""
    return (
        SparkSession.builder.appName(APP_NAME)
        .master("local[2]")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )


def read_orders(spark, folder, day):
    """Read the orders of one day, with the bad lines apart."""
    path = os.path.join(folder, f"day={day.isoformat()}")
    raw = spark.read.schema(ORDERS).option("header", "true").csv(path)
    good = raw.where(F.col("order_id").isNotNull() & (F.col("amount") > 0))
    bad = raw.exceptAll(good)
    return good.dropDuplicates(["order_id"]), bad


def read_customers(spark, path):
    """Read all customers."""
    return spark.read.schema(CUSTOMERS).option("header", "true").csv(path)


def clean_note(note):
    """Drop what looks like a card number. This is a UDF of `__main__`."""
    if note is None:
        return ""
    return re.sub(r"\b\d{12,19}\b", "****", note).strip().lower()


def convert(orders, rates):
    """Convert all amounts to euros."""
    pairs = [F.lit(one) for pair in sorted(rates.items()) for one in pair]
    table = F.create_map(*pairs)
    return orders.withColumn("euros", F.round(F.col("amount") * table[F.col("currency")], 2)).where(
        F.col("euros").isNotNull()
    )


def add_levels(orders):
    """Give each customer a level by the revenue of the day."""
    to_level = F.udf(level_of, StringType())
    total = F.sum("euros").over(Window.partitionBy("customer"))
    return orders.withColumn("total", total).withColumn("level", to_level("total"))


def rank(orders):
    """Rank the orders of each customer by their value."""
    order = Window.partitionBy("customer").orderBy(F.col("euros").desc(), F.col("order_id"))
    return orders.withColumn("rank", F.row_number().over(order))


def summarize(spark, orders):
    """Sum up by country, in SQL."""
    orders.createOrReplaceTempView("orders_of_the_day")
    return spark.sql(
        """
        SELECT country, count(*) AS orders, round(sum(euros), 2) AS revenue,
               count(DISTINCT customer) AS customers
          FROM orders_of_the_day
         GROUP BY country
         ORDER BY country
        """
    )


def write(frame, target, name, day):
    """Write one result of a day, over an earlier one."""
    path = os.path.join(target, name, f"day={day.isoformat()}")
    frame.coalesce(1).write.mode("overwrite").parquet(path)
    log.info("wrote %s", path)


def write_report(target, day, report):
    """Write the numbers of a day for the mail."""
    path = os.path.join(target, f"report-{day.isoformat()}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(report._asdict(), file)
    return path


def is_recent(day, today):
    """Return whether a day is of the last week."""
    return today - day <= WEEK


def run(spark, args):
    """Do all the work of a day."""
    rates = {**DEFAULT_RATES, **dict(args.rate)}
    log.info("rates %s", rates)
    orders, bad = read_orders(spark, args.orders, args.day)
    customers = read_customers(spark, args.customers)
    clean = F.udf(clean_note, StringType())
    priced = convert(orders, rates).withColumn("note", clean("note"))
    joined = rank(add_levels(priced.join(customers, "customer", "left"))).fillna({"country": "?"})
    joined.persist(StorageLevel.MEMORY_ONLY)
    rejected = bad.count()
    if rejected and args.strict == "true":
        log.error("%d bad orders", rejected)
        return 3
    write(joined, args.target, "orders", args.day)
    countries = summarize(spark, joined)
    write(countries, args.target, "countries", args.day)
    revenue = joined.agg(F.round(F.sum("euros"), 2)).first()[0]
    people = joined.select("customer").distinct().count()
    report = Report(joined.count(), rejected, people, revenue)
    path = write_report(args.target, args.day, report)
    print(f"done: {report} in {path}; levels {', '.join(LEVELS)}")
    joined.unpersist()
    return 0


def main():
    """Entry point."""
    args = parse_args()
    spark = build_session()
    spark.sparkContext.setLogLevel("WARN")
    try:
        return run(spark, args)
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
