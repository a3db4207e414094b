"""A Spark query that goes on while trades are sent: the volume and the average price of each symbol so far."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import tempfile
import time
from typing import TYPE_CHECKING

from pyspark.sql import functions

import ipcbus
from ipcbus.archive import Archive, Recorder
from ipcbus.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SYMBOLS = ("AAPL", "MSFT")
TRADES = 2000


def trade(domain: str) -> None:
    """Sends trades of each symbol, for two seconds."""
    chance = random.Random(7)
    with ipcbus.Context(domain=domain) as context:
        sources = [context.source(f"trades.{symbol}") for symbol in SYMBOLS]
        for source in sources:
            source.wait_for_receivers(1, timeout=60)
        for number in range(TRADES):
            fields = {"price": 100 + chance.gauss(0, 1), "quantity": chance.randint(1, 100)}
            sources[number % len(sources)].send(json.dumps(fields).encode())
            time.sleep(0.001)


def show(volumes: DataFrame, batch: int) -> None:
    """Prints the result after each micro-batch."""
    print(f"after micro-batch {batch}:")
    for row in volumes.orderBy("topic").collect():
        print(f"{row.topic}: {row.trades} trades, volume {row.volume}, average price {row.average:.2f}", flush=True)


def main() -> None:
    """Records what is sent, and lets Spark read the archive while it grows."""
    domain = f"spark-stream-{os.getpid()}"
    spark = session("spark_stream", master="local[2]", confs={"spark.sql.shuffle.partitions": "2"})
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        archive = Archive.create(f"{folder}/archive")
        rows = (
            spark.readStream.format("ipcbus")
            .schema("topic string, value binary")
            .option("startingOffsets", "earliest")
            .load(str(archive.path))
        )
        fields = functions.from_json(rows.value.cast("string"), "price double, quantity long")
        trades = rows.select("topic", fields.alias("trade")).select("topic", "trade.*")
        volumes = trades.groupBy("topic").agg(
            functions.count("*").alias("trades"),
            functions.sum("quantity").alias("volume"),
            functions.expr("sum(price * quantity) / sum(quantity)").alias("average"),
        )
        query = volumes.writeStream.outputMode("complete").foreachBatch(show).start()
        with ipcbus.Context(domain=domain) as context, Recorder(context, archive, [r"trades\..*"], pattern=True):
            sender = multiprocessing.get_context("spawn").Process(target=trade, args=(domain,))
            sender.start()
            sender.join()
        query.processAllAvailable()
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
