"""The web console: a Kafka client of a gateway, and a reader of operations ports.

Layers: `app` and `server` > `views` > `data`. Only the first two import NiceGUI.
"""
