package jobs {
  import org.apache.spark.sql.SparkSession

  /** A class with a main that writes one row through Hudi's data source. */
  object WrittenByMain {
    def main(arguments: Array[String]): Unit = {
      val Array(table, key, value) = arguments
      Row.write(table, key, value, Map())
    }
  }

  object Row {
    def write(table: String, key: String, value: String, more: Map[String, String]): Unit = {
      val spark = SparkSession.builder.getOrCreate()
      spark.sql(s"select '$key' as k, 'a' as p, $value as v").write.format("hudi")
        .option("hoodie.table.name", "t")
        .option("hoodie.datasource.write.recordkey.field", "k")
        .option("hoodie.datasource.write.partitionpath.field", "p")
        .option("hoodie.datasource.write.precombine.field", "v")
        .options(more).mode("append").save(table)
      spark.stop()
    }
  }
}

package org.apache.hudi.utilities.streamer {

  /** In the place of Hudi Streamer: it takes some of its arguments, and its commits are not signed. */
  object HoodieStreamer {
    def main(arguments: Array[String]): Unit = {
      val given = arguments.sliding(2).collect { case Array(key, value) => key -> value }.toMap
      val Array(key, value) = given("--source-class").split(":")
      val unsigned = Map("hoodie.datasource.write.commitmeta.key.prefix" -> "streamer.")
      jobs.Row.write(given("--target-base-path"), key, value, unsigned)
    }
  }
}
