"""Objects by path, in a local folder or an object store; used by the broker and by Spark.

Importing this package is cheap: `obstore` (extra `quafka[s3]`) is imported when a bucket is opened.
"""
