"""What clients and orgs may use of a gateway process, and how long they wait afterwards."""
