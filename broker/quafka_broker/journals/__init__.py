"""Events as records in internal topics of the log."""
