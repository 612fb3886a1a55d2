"""The version of the installed PySpark."""

import pyspark

SPARK_VERSION = tuple(int(number) for number in pyspark.__version__.split(".")[:2])
FIRST_WITH_LIMITS = (4, 2)
"""From this version on Spark passes a stream's source the query's position and a read limit."""
FIRST_WITH_NO_COLUMNS = (4, 1)
"""Before this version rows without columns are lost between Python and Spark."""
