"""How large an answer may be, and how it is encoded in steps."""
