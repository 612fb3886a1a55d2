"""What clients and orgs may take of a gateway process, and how long they wait after."""
