"""Which PySpark it is."""

import pyspark

SPARK_VERSION = tuple(int(number) for number in pyspark.__version__.split(".")[:2])
FIRST_WITH_LIMITS = (4, 2)
"""From then on Spark tells a stream's source where the query is and how much it wants."""
FIRST_WITH_NO_COLUMNS = (4, 1)
"""Before, rows without columns are lost between Python and Spark."""
