"""Objects by path, in a local folder or an object store: what the broker and Spark share.

Importing this package is cheap: `obstore` (extra `quafka[s3]`) is imported when a bucket is opened.
"""
